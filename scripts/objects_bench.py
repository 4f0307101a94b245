"""The topic `objects` of scripts/bench: reads from object stores and listings, each next to a reference.

Client alone: the examples of feedline-store against `wrk`, with `object_server`, which keeps objects in memory, on core 0 and
the client on core 1. On SeaweedFS: the libraries that DLIO uses, the number of requests in flight, and listings.
"""

import concurrent.futures
import contextlib
import datetime
import functools
import hashlib
import hmac
import http.client
import json
import os
import pathlib
import re
import resource
import socket
import statistics
import subprocess
import time
import urllib.parse

bench = None  # the module of scripts/bench: figures and builds
ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "target/release/examples"
CLIENTS_FOLDER = ROOT / ".venv-object-clients"
CLIENTS = ["boto3==1.44.3", "minio==7.2.20", "s3dlio==0.10.0"]
TORCH_CLIENT = "s3torchconnectorclient==1.5.0"  # without its dependencies: the client needs no torch
LIBRARIES = ["boto3", "minio", "s3torch", "s3dlio", "s3dlio-many"]
SERVER_CORE, CLIENT_CORE = "0", "1"
KIB, MIB = 1024, 1024 * 1024
SECONDS = 1.5
SIZES = {16 * KIB: "16 KiB", 128 * KIB: "128 KiB", 8 * MIB: "8 MiB"}
OBJECTS = {128 * KIB: 512, 8 * MIB: 32}  # what is stored on SeaweedFS of each size
LISTED = 100_000


def run(module, folder):
    global bench
    bench = module
    bench.install("wrk", "wrk")
    for example in ("object_server", "object_reader", "object_store_reader", "delay_proxy"):
        bench.build("-p", "feedline-store", "--example", example)
    bench.build()
    with memory_server() as memory:
        client_alone(memory)
        memory_in_flight(memory)
        with_latency(memory)
    install_clients()
    with seaweedfs() as server:
        server.store_objects()
        against_libraries(server)
        by_requests_in_flight(server)
        memory_with_tls(server)
        listings(server, folder)


# --- processes ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def started(command, **more):
    """A process that prints where it can be reached, and is ended."""
    command = ["setpriv", "--pdeathsig", "KILL", *map(str, command)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more) as process:
        try:
            yield process
        finally:
            process.stdin.close()
            if process.args[3].endswith("object-servers"):
                process.wait(60)  # it ends its servers by itself
            process.kill()


class Endpoint:
    """Where objects are, and the environment with which clients may read them."""

    def __init__(self, url, bucket, key="memory", secret="memory"):
        self.url, self.bucket, self.key, self.secret = url, bucket, key, secret
        own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self.environment = own | {
            "AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1",
        }


@contextlib.contextmanager
def memory_server():
    with started(["taskset", "-c", SERVER_CORE, EXAMPLES / "object_server"]) as process:
        yield Endpoint(f"http://127.0.0.1:{int(process.stdout.readline())}", "bucket")


@contextlib.contextmanager
def delayed(endpoint, milliseconds):
    with started([EXAMPLES / "delay_proxy", endpoint.url, milliseconds]) as process:
        yield Endpoint(process.stdout.readline().strip(), endpoint.bucket, endpoint.key, endpoint.secret)


def read(example, endpoint, size, in_flight, *more, objects=1000, template="{size}/k{}", core=None, seconds=SECONDS):
    """The line that a reading example prints."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    pinned = ["taskset", "-c", core] if core else []
    command = [
        *pinned, EXAMPLES / example, "--endpoint", endpoint.url, "--bucket", endpoint.bucket, "--key-template",
        template.replace("{size}", str(size)), "--objects", str(objects), "--bytes", str(size), "--in-flight",
        str(in_flight), "--seconds", str(seconds), *more,
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=endpoint.environment)
    return json.loads(done.stdout)


def wrk(endpoint, size, connections):
    """The same figures of wrk."""
    url = f"{endpoint.url}/{endpoint.bucket}/{size}/k1"
    command = ["taskset", "-c", CLIENT_CORE, "wrk", "-t1", f"-c{connections}", "-d2s", url]
    before = bench.children_cpu_seconds()
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    cpu = bench.children_cpu_seconds() - before
    if "Non-2xx" in text or "Socket errors" in text:
        raise RuntimeError(text)
    requests, seconds, count, unit = re.search(r"(\d+) requests in ([\d.]+)s, ([\d.]+)(\w)B read", text).groups()
    # Of large objects many are not complete at the end, and of small ones the heads would count.
    received = int(requests) * size if size < MIB else float(count) * 1024 ** " KMGT".index(unit)
    return dict(requests=int(requests), bytes=received, seconds=float(seconds), cpu_seconds=cpu)


def rate(result):
    return result["bytes"] / result["seconds"]


def cpu_per_gb(result):
    return result["cpu_seconds"] / (result["bytes"] / 1e9)


def middle(results, value):
    return statistics.median(value(result) for result in results)


# --- the client alone -----------------------------------------------------------------------------------------------


def client_alone(memory):
    """Requests per second against wrk, and object_store for comparison: why there is a read path of our own."""
    least = {16 * KIB: 0.7, 128 * KIB: 1.5, 8 * MIB: 1.2}
    for size, name in SIZES.items():
        for connections in (16, 64):
            ours, theirs, crate = [], [], []
            for _ in range(5):
                theirs.append(wrk(memory, size, connections))
                ours.append(read("object_reader", memory, size, connections, core=CLIENT_CORE))
                crate.append(read("object_store_reader", memory, size, connections, core=CLIENT_CORE))
            title = f"{name}, {connections} in flight"
            ratio = lambda results: statistics.median(rate(a) / rate(b) for a, b in zip(results, theirs))
            bench.figure(f"{title}: feedline / wrk", ratio(ours), "x", at_least=least[size])
            bench.note("  object_store / wrk", ratio(crate), "x")
            most = 0.25 if size == 128 * KIB else None
            show = bench.figure if most else lambda name, value, unit, at_most: bench.note(name, value, unit)
            show("  CPU of feedline", middle(ours, cpu_per_gb), "s/GB", at_most=most)
            bench.note("  CPU of wrk", middle(theirs, cpu_per_gb), "s/GB")
            bench.note("  CPU of object_store", middle(crate, cpu_per_gb), "s/GB")
            per_request = lambda result: result["allocations"] / result["requests"]
            # Of large objects there are too few requests for the rare growth of a list to vanish in the quotient.
            show = bench.figure if size < MIB else lambda name, value, unit, at_most: bench.note(name, value, unit)
            show("  allocations per request of feedline", middle(ours, per_request), "", at_most=0.01)
            bench.note("  allocations per request of object_store", middle(crate, per_request), "")


def memory_in_flight(memory):
    """Peak memory with 4,096 requests in flight against what the plan says."""
    size, many = 128 * KIB, 4096
    for title, flags in (("nothing kept", []), ("objects kept", ["--keep"])):
        result = read("object_reader", memory, size, many, *flags)
        peak, planned = result["rss_kib"] / 1024, result["planned_bytes"] / MIB
        name = f"4,096 in flight of 128 KiB, {title}: peak memory"
        bench.figure(name, peak, "MiB", at_most=planned * 1.1 if flags else min(planned * 1.1, 64))
        bench.note("  planned", planned, "MiB")
    # Longer, because its 4,096 connections take seconds.
    crate = read("object_store_reader", memory, size, many, seconds=6)
    bench.note("  object_store", crate["rss_kib"] / 1024, "MiB")


def with_latency(memory):
    """Twenty milliseconds more per request: requests in flight hide them."""
    size = 128 * KIB
    with delayed(memory, 20) as slow:
        ratios = []
        for _ in range(3):
            single = read("object_reader", slow, size, 1)
            many = read("object_reader", slow, size, 64)
            ratios.append(rate(many) / (64 * rate(single)))
        bench.note("20 ms per request, 128 KiB, 1 in flight", rate(single) / 1e6, "MB/s")
        bench.note("  64 in flight", rate(many) / 1e6, "MB/s")
        bench.figure("  64 in flight / 64 x the rate of 1", statistics.median(ratios), "x", at_least=0.9)
        bench.note("  256 in flight", rate(read("object_reader", slow, size, 256)) / 1e6, "MB/s")


# --- on SeaweedFS ---------------------------------------------------------------------------------------------------


def install_clients():
    stamp, wanted = CLIENTS_FOLDER / "feedline-packages", " ".join([*CLIENTS, TORCH_CLIENT])
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    subprocess.run(["python3", "-m", "venv", "--clear", CLIENTS_FOLDER], check=True)
    pip = [CLIENTS_FOLDER / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *CLIENTS], check=True)
    subprocess.run([*pip, "--no-deps", TORCH_CLIENT], check=True)
    stamp.write_text(wanted)


@functools.cache
def signing_key(secret, scope):
    key = b"AWS4" + secret.encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


class SeaweedFS(Endpoint):
    def __init__(self, variables):
        names = ("S3", "S3_BUCKET", "S3_KEY", "S3_SECRET")
        super().__init__(*(variables[f"FEEDLINE_TEST_{name}"] for name in names))
        self.process = int(variables["FEEDLINE_TEST_S3_PID"])
        self.secure = Endpoint(variables["FEEDLINE_TEST_S3_TLS"], self.bucket, self.key, self.secret)
        self.secure.environment["AWS_CA_BUNDLE"] = variables["FEEDLINE_TEST_CA"]
        self.host = urllib.parse.urlparse(self.url).netloc

    def signed(self, method, path, query=""):
        """The head of a request with AWS's signature, version 4. Path and query are in their canonical form."""
        now = datetime.datetime.now(datetime.timezone.utc)
        date, moment = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
        headers = {"host": self.host, "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": moment}
        names = ";".join(headers)
        lines = [f"{name}:{value}" for name, value in headers.items()]
        canonical = "\n".join([method, path, query, *lines, "", names, "UNSIGNED-PAYLOAD"])
        scope = f"{date}/us-east-1/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        signature = hmac.digest(signing_key(self.secret, scope), text.encode(), "sha256").hex()
        credential = f"AWS4-HMAC-SHA256 Credential={self.key}/{scope}"
        headers["authorization"] = f"{credential}, SignedHeaders={names}, Signature={signature}"
        return headers

    def request(self, connection, method, path, query="", body=None):
        target = f"{path}?{query}" if query else path
        connection.request(method, target, body, self.signed(method, path, query))
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{method} {target}: {answer.status} {content[:500]}")
        return content

    def store_objects(self):
        with contextlib.closing(http.client.HTTPConnection(self.host, timeout=60)) as connection:
            for size, count in OBJECTS.items():
                for index in range(count):
                    self.request(connection, "PUT", f"/{self.bucket}/read/{size}/k{index}", body=os.urandom(size))

    def put_empty(self, keys):
        """Puts empty objects, a number of requests at a time on each connection: one by one they take minutes."""
        with contextlib.closing(socket.create_connection(self.host.split(":"), timeout=60)) as connection:
            for at in range(0, len(keys), 50):
                batch = keys[at : at + 50]
                text = ""
                for key in batch:
                    path = f"/{self.bucket}/{key}"
                    lines = [f"{name}: {value}" for name, value in self.signed("PUT", path).items()]
                    text += "\r\n".join([f"PUT {path} HTTP/1.1", *lines, "Content-Length: 0", "", ""])
                connection.sendall(text.encode())
                answers = b""
                while answers.count(b"\r\n\r\n") < len(batch):
                    if not (piece := connection.recv(1 << 16)):
                        break
                    answers += piece
                if answers.count(b"HTTP/1.1 200 ") != len(batch):
                    raise RuntimeError(answers[:1000])

    def cpu(self):
        return bench.cpu_of(self.process)


@contextlib.contextmanager
def seaweedfs():
    with started([ROOT / "scripts/object-servers", "serve", "--only", "s3"]) as process:
        variables = {}
        for line in process.stdout:
            if match := re.fullmatch(r"export (\w+)='(.*)'\n", line):
                variables[match[1]] = match[2]
            elif not line.strip():
                break
        yield SeaweedFS(variables)


def read_stored(server, size, in_flight, **more):
    return read("object_reader", server, size, in_flight, template="read/{size}/k{}", objects=OBJECTS[size], **more)


def read_with(library, server, size, in_flight):
    command = [CLIENTS_FOLDER / "bin/python", ROOT / "scripts/object_clients.py", library, server.bucket, f"read/{size}/k{{}}"]
    command += map(str, (OBJECTS[size], size, in_flight, SECONDS))
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=server.environment)
    return json.loads(done.stdout)


def against_libraries(server):
    targets = {128 * KIB: (1.2, 1 / 3), 8 * MIB: (0.9, 0.6)}
    for size, (least, most) in targets.items():
        for in_flight in (16, 64):
            ours, theirs = [], {library: [] for library in LIBRARIES}
            for _ in range(3):
                ours.append(read_stored(server, size, in_flight))
                for library, results in theirs.items():
                    results.append(read_with(library, server, size, in_flight))
            title = f"SeaweedFS, {SIZES[size]}, {in_flight} in flight"
            own_rate, own_cpu = middle(ours, rate), middle(ours, cpu_per_gb)
            bench.note(f"{title}: feedline", own_rate / 1e6, f"MB/s, {own_cpu:.3g} CPU s/GB")
            for library, results in theirs.items():
                bench.note(f"  {library}", middle(results, rate) / 1e6, f"MB/s, {middle(results, cpu_per_gb):.3g} CPU s/GB")
            fastest = max(middle(results, rate) for results in theirs.values())
            frugal = min(middle(results, cpu_per_gb) for results in theirs.values())
            bench.figure("  feedline / the fastest library", own_rate / fastest, "x", at_least=least)
            bench.figure("  CPU of feedline / the lowest of a library", own_cpu / frugal, "x", at_most=most)


def by_requests_in_flight(server):
    """Throughput, and how many of the cores the server takes: it is the limit where it takes all that is left."""
    for size in OBJECTS:
        for in_flight in (1, 4, 16, 64, 256):
            begin, before = time.perf_counter(), server.cpu()
            result = read_stored(server, size, in_flight, seconds=3)
            cores = (server.cpu() - before) / (time.perf_counter() - begin)
            name = f"SeaweedFS, {SIZES[size]}, {in_flight} in flight"
            own = result["cpu_seconds"] / result["seconds"]
            bench.note(name, rate(result) / 1e6, f"MB/s; cores of the server {cores:.2f}, of feedline {own:.2f}")


def memory_with_tls(server):
    """Peak memory of encrypted connections against what the plan says."""
    result = read_stored(server.secure, 128 * KIB, 512)
    peak, planned = result["rss_kib"] / 1024, result["planned_bytes"] / MIB
    bench.figure("TLS, 512 in flight of 128 KiB, nothing kept: peak memory", peak, "MiB", at_most=planned * 1.1)


def list_bare(server, prefix):
    """Lists page by page, counts keys and does nothing else. Returns seconds."""
    begin, count, token = time.perf_counter(), 0, None
    with contextlib.closing(http.client.HTTPConnection(server.host, timeout=60)) as connection:
        while True:
            fields = {"list-type": "2", "prefix": prefix} | ({"continuation-token": token} if token else {})
            query = "&".join(f"{name}={urllib.parse.quote(value, safe='')}" for name, value in sorted(fields.items()))
            page = server.request(connection, "GET", f"/{server.bucket}", query)
            count += page.count(b"<Key>")
            if (found := re.search(rb"<NextContinuationToken>(.*?)</NextContinuationToken>", page)) is None:
                break
            token = found[1].decode()
    if count != LISTED:
        raise RuntimeError(f"{count} keys were listed, not {LISTED}")
    return time.perf_counter() - begin


def listings(server, folder):
    begin = time.perf_counter()
    keys = [f"listed/train/img_{index:06}_of_{LISTED}.npz" for index in range(LISTED)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(server.put_empty, (keys[part::8] for part in range(8))))
    bench.note(f"{LISTED:,} objects put", time.perf_counter() - begin, "s")

    def catalog(threads):
        # Outside of the bucket, and gone afterwards: each listing starts from nothing.
        output = folder / "listed.catalog"
        command = [bench.FEEDLINE, "catalog", f"s3://{server.bucket}/listed", "--threads", str(threads), "--quiet"]
        command += ["--output", output]
        seconds = bench.timed(command, cwd=folder, env=server.environment, stdout=subprocess.DEVNULL)
        output.unlink()
        return seconds

    one, two, bare = [], [], []
    for _ in range(5):
        bare.append(list_bare(server, "listed/train/"))
        one.append(catalog(1))
        two.append(catalog(2))
    ratio = lambda ours: statistics.median(b / o for o, b in zip(ours, bare))
    bench.note(f"{LISTED:,} objects, bare listing", LISTED / statistics.median(bare), "keys/s")
    bench.note("  feedline catalog, one range", LISTED / statistics.median(one), "keys/s")
    bench.note("  feedline catalog, two ranges", LISTED / statistics.median(two), "keys/s")
    bench.figure("  one range / bare", ratio(one), "x", at_least=0.9)
    bench.figure("  two ranges / bare", ratio(two), "x", at_least=1.5)
