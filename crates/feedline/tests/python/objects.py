"""Objects of another program: reads and writes a bucket of S3 with boto3, as DLIO's users do.

    objects.py ENDPOINT BUCKET put KEY TEXT          one object; KEY and TEXT as they are
    objects.py ENDPOINT BUCKET upload PREFIX FOLDER  every file of a folder; prints how many
    objects.py ENDPOINT BUCKET fill PREFIX COUNT     many small objects
    objects.py ENDPOINT BUCKET same PREFIX FOLDER    fails unless the objects are the files, byte for byte
    objects.py ENDPOINT BUCKET arrays PREFIX         loads every npz object with numpy; prints shape and type of each
    objects.py ENDPOINT BUCKET list PREFIX           keys and sizes, one per line, in the order of the listing
    objects.py ENDPOINT BUCKET delete PREFIX         deletes every object
    objects.py ENDPOINT BUCKET begin KEY             begins a multipart upload with one part and leaves it
    objects.py ENDPOINT BUCKET uploads PREFIX        the keys of unfinished uploads

Credentials are those of the environment. Hidden files and folders belong to feedline and are not compared.
"""

import concurrent.futures
import io
import pathlib
import sys

import boto3
import botocore.config


def main():
    endpoint, bucket, action, *rest = sys.argv[1:]
    config = botocore.config.Config(s3={"addressing_style": "path"}, retries={"max_attempts": 2})
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", config=config)
    ACTIONS[action](client, bucket, *rest)


def listed(client, bucket, prefix):
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return [(one["Key"], one["Size"]) for page in pages for one in page.get("Contents", [])]


def content(client, bucket, key):
    return client.get_object(Bucket=bucket, Key=key)["Body"].read()


def is_hidden(name):
    return any(part.startswith(".") for part in name.split("/"))


def files_of(folder):
    root = pathlib.Path(folder)
    names = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return {name: root / name for name in names if not is_hidden(name)}


def put(client, bucket, key, text):
    client.put_object(Bucket=bucket, Key=key, Body=text.encode())


def upload(client, bucket, prefix, folder):
    files = files_of(folder)
    for name, path in files.items():
        client.put_object(Bucket=bucket, Key=f"{prefix}/{name}", Body=path.read_bytes())
    print(len(files))


def fill(client, bucket, prefix, count):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        put_one = lambda number: client.put_object(Bucket=bucket, Key=f"{prefix}/{number % 10}/{number:06}.txt", Body=b"x")
        list(pool.map(put_one, range(int(count))))


def same(client, bucket, prefix, folder):
    files = files_of(folder)
    keys = {key.removeprefix(f"{prefix}/") for key, _ in listed(client, bucket, f"{prefix}/")}
    keys = {key for key in keys if not is_hidden(key)}
    if keys != files.keys():
        sys.exit(f"only objects: {sorted(keys - files.keys())}; only files: {sorted(files.keys() - keys)}")
    different = [name for name, path in files.items() if content(client, bucket, f"{prefix}/{name}") != path.read_bytes()]
    if different:
        sys.exit(f"different: {different}")
    print(len(files))


def arrays(client, bucket, prefix):
    import numpy

    for key, _ in listed(client, bucket, f"{prefix}/"):
        if key.endswith(".npz"):
            loaded = numpy.load(io.BytesIO(content(client, bucket, key)))
            print(key.removeprefix(f"{prefix}/"), *(f"{name}{array.shape}{array.dtype}" for name, array in loaded.items()))


def show(client, bucket, prefix):
    for key, size in listed(client, bucket, prefix):
        print(key, size)


def delete(client, bucket, prefix):
    for key, _ in listed(client, bucket, prefix):
        client.delete_object(Bucket=bucket, Key=key)


def begin(client, bucket, key):
    upload_id = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    client.upload_part(Bucket=bucket, Key=key, UploadId=upload_id, PartNumber=1, Body=bytes(5 << 20))


def uploads(client, bucket, prefix):
    for one in client.list_multipart_uploads(Bucket=bucket, Prefix=prefix).get("Uploads", []):
        print(one["Key"])


ACTIONS = {
    "put": put, "upload": upload, "fill": fill, "same": same, "arrays": arrays, "list": show, "delete": delete, "begin": begin,
    "uploads": uploads,
}

if __name__ == "__main__":
    main()
