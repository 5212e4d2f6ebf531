"""A Python client that proceeds step by step, so that events can occur in between; run by its own
interpreter.

Each line of its input is a step, answered by one line: `ok` with the result, or `error` with number
and text."""

import hashlib
import sys

from XRootD import client
from XRootD.client.flags import OpenFlags

from tools import pattern

FLAGS = {"read": OpenFlags.READ, "new": OpenFlags.NEW | OpenFlags.MAKEPATH, "update": OpenFlags.UPDATE,
         "posc": OpenFlags.NEW | OpenFlags.MAKEPATH | OpenFlags.POSC}
file = client.File()


def step(word, *arguments):
    """Returns the status and the text of a step."""
    if word == "open":
        return file.open(arguments[1], FLAGS[arguments[0]], timeout=100)[0], ""
    if word == "server":
        return None, file.get_property("DataServer")
    if word == "read":
        status, content = file.read(int(arguments[0]), int(arguments[1]), timeout=100)
        return status, hashlib.sha256(content or b"").hexdigest()
    if word == "readv":
        status, found = file.vector_read([tuple(map(int, range_.split(","))) for range_ in arguments], timeout=100)
        return status, hashlib.sha256(b"".join(chunk.buffer for chunk in found.chunks) if status.ok else b"").hexdigest()
    if word == "write":
        offset, size = map(int, arguments)
        return file.write(pattern(offset + size)[offset:], offset, timeout=100)[0], ""
    if word == "sync":
        return file.sync(timeout=100)[0], ""
    if word == "close":
        return file.close(timeout=100)[0], ""
    raise ValueError(word)


for line in sys.stdin:
    status, text = step(*line.split())
    if status is None or status.ok:
        print("ok", text, flush=True)
    else:
        print("error", status.errno, status.message.strip().replace("\n", " "), flush=True)
