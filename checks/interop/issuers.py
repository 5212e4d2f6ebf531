"""A token issuer: a key made by openssl, its key set, tokens, and the key cache of the real library."""

import base64
import json
import re
import sqlite3
import subprocess
import time

AUDIENCE = "https://storage.example.org"


def encode(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """An issuer with an RSA key below `directory`."""

    def __init__(self, directory, url="https://issuer.example.org/one"):
        self.url = url
        self.key = directory / "issuer.key"
        subprocess.run(["openssl", "genrsa", "-out", self.key, "2048"], check=True, capture_output=True)
        text = subprocess.run(["openssl", "rsa", "-in", self.key, "-noout", "-modulus"], check=True, capture_output=True, text=True)
        modulus = bytes.fromhex(re.search(r"Modulus=(\w+)", text.stdout).group(1))
        self.keys = {"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "k1", "n": encode(modulus), "e": "AQAB"}]}

    def token(self, header=None, seconds=600, **claims):
        """Returns a token. A claim that is None is left out; `_` in names stands for a dot."""
        now = int(time.time())
        claims = dict({"iss": self.url, "sub": "alice", "aud": AUDIENCE, "nbf": now - 5, "iat": now - 5, "exp": now + seconds,
                       "wlcg.ver": "1.0"}, **{name.replace("_", "."): value for name, value in claims.items()})
        claims = {name: value for name, value in claims.items() if value is not None}
        header = dict({"alg": "RS256", "typ": "JWT", "kid": "k1"}, **(header or {}))
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
