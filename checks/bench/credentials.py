"""Makes the credentials of loads that need more than keys: `credentials.py krb5|ztn DIRECTORY`.

It uses the realm and the issuer of the interoperability tests. The ticket for the service is part of
the client's cache, so that no KDC runs during a measurement."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "interop"))

import peers  # noqa: E402
from issuers import AUDIENCE, Issuer  # noqa: E402
from kerberos import SERVICE, Realm  # noqa: E402
from tools import run  # noqa: E402

TOKEN_SECONDS = 6 * 3600


def make_krb5(directory):
    """Makes `krb5.conf`, `server.keytab` and the cache of tickets `cache`."""
    with Realm(directory) as realm:
        environment = realm.login(directory / "cache")
        run(["kvno", SERVICE], **environment).ok()


def make_ztn(directory):
    """Makes `token`, the key set `keys`, the cache of keys of the real library `scitokens`, and an issuer
    file for each side."""
    issuer = Issuer(directory)
    token = directory / "token"
    token.touch(mode=0o600)
    token.write_text(issuer.token(seconds=TOKEN_SECONDS, scope="storage.read:/"))
    peers.place(directory / "keys", json.dumps(issuer.keys).encode())
    text = f"[Global]\naudience = {AUDIENCE}\n[Issuer one]\nissuer = {issuer.url}\nbase_path = /\n"
    peers.place(directory / "issuers-theirs", text.encode())
    peers.place(directory / "issuers-ours", f"{text}jwks_file = {directory}/keys\n".encode())
    cache = issuer.fill_cache(directory)
    for path in (cache, *cache.iterdir()):
        peers.give(path)


if __name__ == "__main__":
    kind, directory = sys.argv[1:]
    {"krb5": make_krb5, "ztn": make_ztn}[kind](Path(directory))
