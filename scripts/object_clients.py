"""Reads objects with one of the libraries that DLIO uses, for a time, with a number of requests in flight.

    object_clients.py LIBRARY BUCKET KEY-TEMPLATE OBJECTS BYTES IN-FLIGHT SECONDS

Libraries: boto3, minio, s3torch (the client of s3torchconnector), s3dlio, s3dlio-many. Endpoint and credentials are
those of the environment. Prints requests, bytes, seconds and cpu_seconds as JSON. Each object is kept while it is read,
as these libraries return it.
"""

import itertools
import json
import os
import resource
import sys
import threading
import time

WARM_UP = 0.5
ENDPOINT = os.environ["AWS_ENDPOINT_URL"]
KEY = os.environ["AWS_ACCESS_KEY_ID"]
SECRET = os.environ["AWS_SECRET_ACCESS_KEY"]


def boto3_get(bucket, in_flight):
    import boto3
    import botocore.config

    config = botocore.config.Config(s3={"addressing_style": "path"}, max_pool_connections=in_flight)
    client = boto3.client("s3", endpoint_url=ENDPOINT, config=config)
    return lambda key: len(client.get_object(Bucket=bucket, Key=key)["Body"].read())


def minio_get(bucket, in_flight):
    import minio
    import urllib3

    pool = urllib3.PoolManager(maxsize=in_flight)
    client = minio.Minio(ENDPOINT.removeprefix("http://"), access_key=KEY, secret_key=SECRET, secure=False, http_client=pool)

    def get(key):
        answer = client.get_object(bucket, key)
        try:
            return len(answer.read())
        finally:
            answer.close()
            answer.release_conn()

    return get


def s3torch_get(bucket, in_flight):
    from s3torchconnectorclient._mountpoint_s3_client import MountpointS3Client

    client = MountpointS3Client(region="us-east-1", endpoint=ENDPOINT, force_path_style=True)
    return lambda key: len(b"".join(client.get_object(bucket, key)))


def s3dlio_get(bucket, in_flight):
    import s3dlio

    return lambda key: len(s3dlio.get(f"s3://{bucket}/{key}"))


class Work:
    def __init__(self, template, objects):
        self.template, self.objects = template, objects
        self.numbers = itertools.count()  # its `next` is atomic
        self.done = []  # bytes of each request; appending is atomic
        self.is_over = False

    def key(self):
        return self.template.replace("{}", str(next(self.numbers) % self.objects))

    def repeat(self, get):
        while not self.is_over:
            self.done.append(get(self.key()))

    def batch(self, bucket, in_flight, count):
        """Reads that many objects at once; the call returns with the last of them."""
        import s3dlio

        uris = [f"s3://{bucket}/{self.key()}" for _ in range(count)]
        self.done += [len(content) for _, content in s3dlio.get_many(uris, max_in_flight=in_flight)]


def moment(work):
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), usage.ru_utime + usage.ru_stime, len(work.done)


def measure(work, get, in_flight, seconds):
    """Counts before and after the time."""
    threads = [threading.Thread(target=work.repeat, args=(get,)) for _ in range(in_flight)]
    for thread in threads:
        thread.start()
    time.sleep(WARM_UP)
    before = moment(work)
    time.sleep(seconds)
    after = moment(work)
    work.is_over = True
    for thread in threads:
        thread.join()
    return before, after


def measure_batches(work, bucket, size, in_flight, seconds):
    """The same with whole batches, each of at least the requests in flight, and 256 MiB if that is more."""
    work.batch(bucket, in_flight, in_flight)
    before = moment(work)
    while time.perf_counter() < before[0] + seconds:
        work.batch(bucket, in_flight, max(in_flight, min(8 * in_flight, (256 << 20) // size)))
    return before, moment(work)


def main():
    library, bucket, template, objects, size, in_flight, seconds = sys.argv[1:]
    work, in_flight, seconds = Work(template, int(objects)), int(in_flight), float(seconds)
    if library == "s3dlio-many":
        (begin, cpu_before, before), (end, cpu_after, after) = measure_batches(work, bucket, int(size), in_flight, seconds)
    else:
        get = {"boto3": boto3_get, "minio": minio_get, "s3torch": s3torch_get, "s3dlio": s3dlio_get}[library]
        (begin, cpu_before, before), (end, cpu_after, after) = measure(work, get(bucket, in_flight), in_flight, seconds)
    if any(count != int(size) for count in work.done):
        sys.exit("objects of another size")
    requests = after - before
    figures = dict(requests=requests, bytes=requests * int(size), seconds=end - begin, cpu_seconds=cpu_after - cpu_before)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
