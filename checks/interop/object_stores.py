"""Object stores with S3: the server of moto, which verifies signatures."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import boto3
import botocore.config

import peers
from origins import Proxy
from tools import wait_until

BUCKET = "bucket"
REGION = "eu-west-1"


class ObjectStore:
    """A store with one bucket, and the keys of a user who may do everything there."""

    def __init__(self):
        self.port = peers.free_port()
        self.endpoint = f"http://localhost:{self.port}"
        self.work = Path(tempfile.mkdtemp(prefix="scalla-store-"))
        self.output = self.work / "output"

    def __enter__(self):
        # A session of its own, so that no process outlives the test.
        with self.output.open("wb") as output:
            self.process = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
                                            stdout=output, stderr=output, start_new_session=True)
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
