"""A token issuer: a key made by openssl, its key set, tokens, and the key cache of the real library."""

import base64
import http.server
import json
import re
import sqlite3
import ssl
import subprocess
import threading
import time

import peers

AUDIENCE = "https://storage.example.org"


def encode(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """An issuer with an RSA key below `directory`, whose id is `kid`."""

    def __init__(self, directory, url="https://issuer.example.org/one", kid="k1"):
        self.url, self.kid = url, kid
        self.key = directory / f"issuer-{kid}.key"
        subprocess.run(["openssl", "genrsa", "-out", self.key, "2048"], check=True, capture_output=True)
        text = subprocess.run(["openssl", "rsa", "-in", self.key, "-noout", "-modulus"], check=True, capture_output=True, text=True)
        modulus = bytes.fromhex(re.search(r"Modulus=(\w+)", text.stdout).group(1))
        self.keys = {"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": kid, "n": encode(modulus), "e": "AQAB"}]}

    def token(self, header=None, seconds=600, **claims):
        """Returns a token. A claim that is None is left out; `_` in names stands for a dot."""
        now = int(time.time())
        claims = dict({"iss": self.url, "sub": "alice", "aud": AUDIENCE, "nbf": now - 5, "iat": now - 5, "exp": now + seconds,
                       "wlcg.ver": "1.0"}, **{name.replace("_", "."): value for name, value in claims.items()})
        claims = {name: value for name, value in claims.items() if value is not None}
        header = dict({"alg": "RS256", "typ": "JWT", "kid": self.kid}, **(header or {}))
        text = f"{encode(json.dumps(header).encode())}.{encode(json.dumps(claims).encode())}"
        signed = subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.key], input=text.encode(), check=True, capture_output=True)
        return f"{text}.{encode(signed.stdout)}"

    def fill_cache(self, directory):
        """Puts the keys into the cache of the real library, so that it asks no server for them."""
        cache = directory / "scitokens"
        cache.mkdir(parents=True, exist_ok=True)
        later = int(time.time()) + 86_400
        with sqlite3.connect(cache / "scitokens_cpp.sqllite") as database:
            database.execute("CREATE TABLE IF NOT EXISTS keycache (issuer text UNIQUE PRIMARY KEY NOT NULL, keys text NOT NULL)")
            entry = json.dumps({"expires": later, "next_update": later, "jwks": self.keys})
            database.execute("INSERT OR REPLACE INTO keycache VALUES (?, ?)", (self.url, entry))
        return cache


class KeyServer:
    """An HTTPS server with the metadata and keys of an issuer. `certificate` is to be trusted; requests
    are in `paths`. `keys` can be exchanged; without them it answers with an error. While `answers` is
    cleared, requests wait."""

    def __init__(self, directory):
        self.certificate, key = directory / "tls.pem", directory / "tls.key"
        # Not the certificate of an authority, because such ones are refused as those of servers.
        settings = directory / "tls.cnf"
        settings.write_text("[req]\ndistinguished_name=name\nx509_extensions=extensions\n[name]\n"
                            "[extensions]\nbasicConstraints=critical,CA:FALSE\nsubjectAltName=DNS:localhost\n")
        subprocess.run(["openssl", "req", "-x509", "-config", settings, "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "2", "-subj", "/CN=localhost", "-keyout", key, "-out", self.certificate], check=True, capture_output=True)
        # The server of the tests runs as another user.
        self.certificate.chmod(0o644)
        self.paths, self.keys, self.document = [], None, "openid-configuration"
        self.answers = threading.Event()
        self.answers.set()
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                owner.paths.append(self.path)
                owner.answers.wait()
                body = owner.answer(self.path)
                self.send_response(200 if body else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("localhost", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.url = f"https://localhost:{self.http.server_port}/one"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def answer(self, path):
        """Returns the document at a path; empty if there is none."""
        if self.keys is None:
            return b""
        if path == f"/one/.well-known/{self.document}":
            return json.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/keys"}).encode()
        return json.dumps(self.keys).encode() if path == "/one/keys" else b""

    def fetches(self):
        """Returns how often the keys were fetched."""
        return self.paths.count("/one/keys")

    def stop(self):
        self.answers.set()
        self.http.shutdown()
        self.http.server_close()


def place_rules_and_files(server, issuer, rules, directories):
    """Places the rules, a file in each directory, and the issuer's keys where the real server keeps
    fetched ones."""
    peers.place(server.work / "authdb", rules.encode())
    for name in directories:
        place = server.tree / name
        place.mkdir(parents=True)
        for directory in (place, place.parent):
            peers.give(directory)
        peers.place(place / "f", b"content")
    peers.place(server.tree / "protected" / "f", b"content")
    if isinstance(server, peers.Theirs):
        cache = issuer.fill_cache(server.work / "cache")
        for path in (cache.parent, cache, *cache.iterdir()):
            peers.give(path)
        server.settings += f"setenv XDG_CACHE_HOME = {server.work}/cache\n"
