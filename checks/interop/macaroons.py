"""Macaroons in the format of libmacaroons, version 1, made without our programs."""

import base64
import hashlib
import hmac
import time

SITE = "Test-Site"
SECRET = bytes(range(7, 71))


def _packet(key, value):
    body = key + b" " + value + b"\n"
    return b"%04x" % (len(body) + 4) + body


def before(seconds):
    """Returns the caveat of an expiry so many seconds from now."""
    return time.strftime("before:%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def mint(*caveats, secret=SECRET, location=SITE, identifier="3a1f5f0c-7a2e-4e0e-9a55-0c9be6a4d001", signature=None):
    """Returns a macaroon with these caveats. `signature` replaces the right one."""
    digest = lambda key, text: hmac.new(key, text, hashlib.sha256).digest()
    chain = digest(digest(b"macaroons-key-generator".ljust(32, b"\0"), secret), identifier.encode())
    packets = _packet(b"location", location.encode()) + _packet(b"identifier", identifier.encode())
    for caveat in caveats:
        chain = digest(chain, caveat.encode())
        packets += _packet(b"cid", caveat.encode())
    packets += _packet(b"signature", chain if signature is None else signature)
    return base64.urlsafe_b64encode(packets).rstrip(b"=").decode()


def macaroon(activities, path, *more, seconds=600, name="alice", **how):
    """Returns a macaroon as the server issues them, followed by more caveats."""
    named = [f"name:{name}"] if name else []
    return mint(*named, f"activity:{activities}", f"path:{path}", before(seconds), *more, **how)


def secret_text(secret=SECRET):
    """Returns the content of a file with the secret, in lines as `openssl rand -base64` writes them."""
    return base64.encodebytes(secret)


def _packets(text):
    """Returns the keys and values of a macaroon."""
    left = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    found = []
    while left:
        size = int(left[:4], 16)
        key, _, value = left[4:size - 1].partition(b" ")
        found.append((key, value))
        left = left[size:]
    return found


def caveats_of(text):
    """Returns the site, the identifier and the caveats of a macaroon."""
    packets = _packets(text)
    found = dict(packets)
    return found[b"location"].decode(), found[b"identifier"].decode(), [value.decode() for key, value in packets if key == b"cid"]


def with_caveat(text, caveat):
    """Returns a macaroon with one more caveat, as its holder can add it."""
    *packets, (_, signature) = _packets(text)
    packets.append((b"cid", caveat.encode()))
    packets.append((b"signature", hmac.new(signature, caveat.encode(), hashlib.sha256).digest()))
    return base64.urlsafe_b64encode(b"".join(_packet(key, value) for key, value in packets)).rstrip(b"=").decode()
