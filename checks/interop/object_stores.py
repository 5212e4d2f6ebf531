"""Object stores with S3: the server of moto, which verifies signatures, and one that fails when it is told to."""

import collections
import html
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import urllib.request
from pathlib import Path

import boto3
import botocore.config

import peers
from origins import Proxy
from tools import wait_until
from web import AnsweringServer

BUCKET = "bucket"
REGION = "eu-west-1"
# Minimum size of all parts of an object but the last.
PART_BYTES_MIN = 5 << 20


class ObjectStore:
    """A store with one bucket, and the keys of a user who may do everything there."""

    def __init__(self):
        self.port = peers.free_port()
        self.endpoint = f"http://localhost:{self.port}"
        self.work = Path(tempfile.mkdtemp(prefix="scalla-store-"))
        self.output = self.work / "output"

    def __enter__(self):
        # No process outlives the test, also if that is killed.
        with self.output.open("wb") as output:
            self.process = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
                                            stdout=output, stderr=output, start_new_session=True, preexec_fn=peers._die_with_parent)
        try:
            wait_until(self._answers)
            self._prepare()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        subprocess.run(["rm", "-rf", self.work], check=True)

    def _answers(self):
        assert self.process.poll() is None, self.output.read_text()
        try:
            return urllib.request.urlopen(f"{self.endpoint}/moto-api/", timeout=2).status == 200
        except OSError:
            return False

    def _client(self, service, key_id="any", secret="any"):
        settings = botocore.config.Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1})
        return boto3.client(service, endpoint_url=self.endpoint, region_name=REGION, config=settings,
                            aws_access_key_id=key_id, aws_secret_access_key=secret)

    def _prepare(self):
        iam = self._client("iam")
        iam.create_user(UserName="user")
        allowed = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
        iam.put_user_policy(UserName="user", PolicyName="all", PolicyDocument=json.dumps(allowed))
        found = iam.create_access_key(UserName="user")["AccessKey"]
        self.key_id, self.secret = found["AccessKeyId"], found["SecretAccessKey"]
        self.s3 = self._client("s3", self.key_id, self.secret)
        self.s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        # From now on, each request needs a signature.
        request = urllib.request.Request(f"{self.endpoint}/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"})
        urllib.request.urlopen(request, timeout=10).close()

    def place(self, key, content):
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=content)

    def keys(self, secret=None, section="default"):
        """A file with the keys, for the user of the servers."""
        path = self.work / f"keys-{section}-{secret is None}"
        path.write_text(f"[{section}]\naws_access_key_id = {self.key_id}\naws_secret_access_key = {secret or self.secret}\n")
        path.chmod(0o600)
        peers.give(path)
        self.work.chmod(0o755)
        return path

    def settings(self, keys=None):
        """The directives of a proxy in front of it."""
        return f"scalla.s3endpoint {self.endpoint}\nscalla.s3region {REGION}\nscalla.s3credentials {keys or self.keys()}\n"


class StoreProxy(Proxy):
    """Our proxy in front of a bucket."""

    def __init__(self, store, prefix="", settings="", **how):
        super().__init__(f"s3://{BUCKET}{prefix}", store.settings() + settings, **how)


class FaultyStore(AnsweringServer):
    """A store in memory, without signatures, that fails when it is told to.

    `faults` has functions of a step and the handler: each step of a request (`head`, `list`, `get`, `put`, `begin`, `part`, `complete`, `abort`,
    `delete`) asks them, and the first that returns true has answered."""

    takes_changes = True

    def __init__(self):
        super().__init__()
        self.objects = {}
        self.uploads = {}
        self.numbers = itertools.count()
        self.faults = []
        self.steps = collections.Counter()
        self.lock = threading.Lock()

    @property
    def settings(self):
        return f"scalla.s3endpoint http://127.0.0.1:{self.port}\n"

    def fail(self, step, status, times=None):
        """Has a step fail with a status, always or some times."""
        left = [times]

        def fault(asked, handler):
            if asked != step or left[0] == 0:
                return False
            left[0] = left[0] and left[0] - 1
            self.send(handler, status, b"<Error><Code>Fault</Code></Error>")
            return True

        self.faults.append(fault)

    def send(self, handler, status, body=b"", tag=None):
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        if tag:
            handler.send_header("ETag", tag)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    def answer(self, handler, _has_body):
        path, _, query = handler.path.partition("?")
        query = urllib.parse.parse_qs(query, keep_blank_values=True)
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        upload = query.get("uploadId", [None])[0]
        key = urllib.parse.unquote(path).removeprefix(f"/{BUCKET}").removeprefix("/")
        if handler.command == "HEAD" and path == "/":
            step = "probe"
        elif "list-type" in query:
            step = "list"
        else:
            names = {("PUT", True): "part", ("PUT", False): "put", ("POST", True): "complete", ("POST", False): "begin", ("DELETE", True): "abort"}
            step = names.get((handler.command, upload is not None), handler.command.lower())
        with self.lock:
            self.steps[step] += 1
            faults = list(self.faults)
        if not any(fault(step, handler) for fault in faults):
            with self.lock:
                answer = getattr(self, f"_{step}")(key, query, body, handler)
            self.send(handler, *answer)

    def _probe(self, *_):
        return (403,)

    def _head(self, key, *_):
        return (404,) if key not in self.objects else (200, self.objects[key], '"1"')

    def _list(self, _key, query, *_):
        found = [key for key in self.objects if key.startswith(query["prefix"][0])]
        entries = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in found[:1])
        return 200, f"<ListBucketResult>{entries}</ListBucketResult>".encode()

    def _is_refused(self, key, handler):
        return handler.headers.get("If-None-Match") == "*" and key in self.objects

    def _put(self, key, _query, body, handler):
        if self._is_refused(key, handler):
            return (412,)
        self.objects[key] = body
        return 200, b"", '"1"'

    def _begin(self, key, *_):
        upload = f"u&{next(self.numbers)}+/="
        self.uploads[upload] = (key, {})
        return 200, f"<R><UploadId>{upload.replace('&', '&amp;')}</UploadId></R>".encode()

    def _part(self, key, query, body, _handler):
        key_of_upload, parts = self.uploads.get(query["uploadId"][0], (None, {}))
        if key != key_of_upload:
            return (404,)
        number, tag = int(query["partNumber"][0]), f'"<{next(self.numbers)}>"'
        if number not in range(1, 10_001):
            return (400,)
        parts[number] = (tag, body)
        return 200, b"", tag

    def _complete(self, key, query, body, handler):
        upload = query["uploadId"][0]
        if upload not in self.uploads:
            return (404,)
        if self._is_refused(key, handler):
            return (412,)
        key_of_upload, parts = self.uploads[upload]
        named = re.findall(r"<Part><PartNumber>(\d+)</PartNumber><ETag>([^<]*)</ETag></Part>", body.decode())
        named = [(int(number), html.unescape(tag)) for number, tag in named]
        found = [parts.get(number, (None, b"")) for number, _ in named]
        sizes = [len(content) for _, content in found]
        error = None
        if key != key_of_upload or not named or len(named) != body.count(b"<Part>"):
            error = "MalformedXML"
        elif any(number >= after for (number, _), (after, _) in itertools.pairwise(named)):
            error = "InvalidPartOrder"
        elif [tag for tag, _ in found] != [tag for _, tag in named]:
            error = "InvalidPart"
        elif any(size < PART_BYTES_MIN or size != sizes[0] for size in sizes[:-1]) or sizes[-1] > sizes[0]:
            # Some stores also want equal sizes.
            error = "EntityTooSmall"
        if error:
            return 400, f"<Error><Code>{error}</Code></Error>".encode()
        del self.uploads[upload]
        self.objects[key] = b"".join(content for _, content in found)
        return 200, b"<CompleteMultipartUploadResult/>"

    def _abort(self, _key, query, *_):
        return (204,) if self.uploads.pop(query["uploadId"][0], None) else (404,)

    def _delete(self, key, *_):
        self.objects.pop(key, None)
        return (204,)

    def _get(self, key, *_):
        return self._head(key)


class FaultyProxy(Proxy):
    """Our proxy in front of such a store."""

    def __init__(self, store, settings="", **how):
        super().__init__(f"s3://{BUCKET}", store.settings + settings, **how)
