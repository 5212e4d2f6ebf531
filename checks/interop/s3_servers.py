"""Our server with S3, its clients, and requests that are signed by hand."""

import datetime
import hashlib
import hmac
import http.client
import urllib.parse

import boto3
import botocore.auth
import botocore.awsrequest
import botocore.config
import botocore.credentials

import peers
from web import OurWebServer

REGION = "us-east-1"
SECONDS = 60 * peers.SLOWNESS
# Key ids and secrets of the users, and their rights.
USERS = {"alice": ("ALICE-KEY", "alice-secret-0123456789abcdef"), "bob": ("BOB.KEY", "bob+secret/0123456789abcdef=")}
RULES = "u alice /b a /pub a / lr\nu bob /b/bob a /pub rl\n"
EMPTY = hashlib.sha256(b"").hexdigest()


def keys_file(path, users=USERS, mode=0o600):
    sections = (f"[{user}]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\ngroups = staff\n" for user, (key, secret) in users.items())
    path.write_text("".join(sections))
    path.chmod(mode)
    peers.give(path)
    return path


class S3Server(OurWebServer):
    """Our server with the buckets `b` and `pub`, and rules for its users."""

    def __init__(self, settings="", rules=RULES, **how):
        super().__init__(**how)
        keys = keys_file(self.work / "keys")
        table = self.work / "rules"
        table.write_text(rules)
        self.settings += f"ofs.authorize\nacc.authdb {table}\nscalla.s3 credentials {keys}\n{settings}"
        for name in ("b", "pub"):
            (self.tree / name).mkdir()
            peers.give(self.tree / name)

    @property
    def endpoint(self):
        return f"http://localhost:{self.port}"

    def client(self, user="alice", secret=None, secure=None, **settings):
        """Returns a client of boto3. `secure` is the file with the authority of the certificate, for HTTPS."""
        key, own = USERS[user]
        endpoint = self.endpoint.replace("http:", "https:") if secure else self.endpoint
        return self.client_of(endpoint, key, secret or own, secure, **settings)

    @staticmethod
    def client_of(endpoint, key, secret, secure=None, **settings):
        config = botocore.config.Config(s3={"addressing_style": "path", **settings.pop("s3", {})}, retries={"max_attempts": 1},
                                        signature_version="s3v4", read_timeout=SECONDS, **settings)
        return boto3.client("s3", endpoint_url=endpoint, region_name=REGION, config=config, aws_access_key_id=key,
                            aws_secret_access_key=secret, verify=secure and str(secure))

    def variables_of(self, user="alice"):
        """The environment of programs for S3."""
        key, secret = USERS[user]
        return {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION,
                "AWS_ENDPOINT_URL_S3": self.endpoint, "AWS_ENDPOINT_URL": self.endpoint, "AWS_CONFIG_FILE": "/dev/null",
                "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}

    def sign(self, method, path, headers=None, user="alice", secret=None, payload=EMPTY):
        """Returns the headers of a signed request."""
        key, own = USERS[user]
        headers = {"Host": f"localhost:{self.port}", "x-amz-content-sha256": payload, **(headers or {})}
        request = botocore.awsrequest.AWSRequest(method, f"{self.endpoint}{path}", headers=headers)
        request.context["payload_signing_enabled"] = True
        signer = Signer(botocore.credentials.Credentials(key, secret or own), "s3", REGION)
        signer.payload_hash = payload
        signer.add_auth(request)
        return dict(request.headers.items())

    def ask(self, method, path, headers=None, body=b"", user="alice", secret=None, payload=None):
        """Returns status, headers and body of the reply to a signed request."""
        payload = payload or hashlib.sha256(body).hexdigest()
        return self.send(method, path, self.sign(method, path, headers, user, secret, payload), body)

    def send(self, method, path, headers, body=b""):
        connection = http.client.HTTPConnection("localhost", self.port, timeout=SECONDS)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            if method in ("PUT", "POST") and not {"Content-Length", "Transfer-Encoding"} & set(headers):
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body or None)
            reply = connection.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read()
        finally:
            connection.close()


class Signer(botocore.auth.S3SigV4Auth):
    """Signs a request with the hash that the test gives, and leaves its path as it is."""

    payload_hash = EMPTY

    def payload(self, request):
        return self.payload_hash

    def _normalize_url_path(self, path):
        return urllib.parse.quote(urllib.parse.unquote_to_bytes(path), safe="/-._~")


def signed_chunks(headers, chunks, user="alice", trailers=()):
    """Returns a body in signed chunks for a request with these headers."""
    _, secret = USERS[user]
    time = headers["X-Amz-Date"]
    scope = f"{time[:8]}/{REGION}/s3/aws4_request"
    key = f"AWS4{secret}".encode()
    for part in (time[:8], REGION, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    previous = headers["Authorization"].rpartition("Signature=")[2]
    body = b""
    for chunk in [*chunks, b""]:
        text = f"AWS4-HMAC-SHA256-PAYLOAD\n{time}\n{scope}\n{previous}\n{EMPTY}\n{hashlib.sha256(chunk).hexdigest()}"
        previous = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        body += f"{len(chunk):x};chunk-signature={previous}\r\n".encode() + chunk + (b"\r\n" if chunk else b"")
    if trailers:
        lines = "".join(f"{name}:{value}\n" for name, value in trailers)
        text = f"AWS4-HMAC-SHA256-TRAILER\n{time}\n{scope}\n{previous}\n{hashlib.sha256(lines.encode()).hexdigest()}"
        body += "".join(f"{name}:{value}\r\n" for name, value in trailers).encode()
        body += f"x-amz-trailer-signature:{hmac.new(key, text.encode(), hashlib.sha256).hexdigest()}\r\n".encode()
    return body + b"\r\n"


def at(days=0, minutes=0):
    """A time in the form of requests."""
    now = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days, minutes=minutes)
    return now.strftime("%Y%m%dT%H%M%SZ")
