"""A round with the distribution's Python client 5.5.3; run by its own interpreter: `python5.py
root://host:port /directory`.

The directory contains `file` with 10,000 bytes of the recorded pattern."""

import sys

from XRootD import client
from XRootD.client.flags import DirListFlags, OpenFlags, QueryCode

from tools import pattern

host, directory = sys.argv[1:]
assert client.__version__.startswith(("5.", "v5.")), client.__version__


def good(answer):
    status, response = answer
    assert status.ok, status.message
    return response


filesystem = client.FileSystem(host)
assert filesystem.ping()[0].ok
assert good(filesystem.stat(directory + "/file")).size == 10_000
assert [entry.name for entry in good(filesystem.dirlist(directory, DirListFlags.STAT))] == ["file"]
assert good(filesystem.query(QueryCode.CONFIG, "readv_ior_max")).strip() == b"2097136"
with client.File() as file:
    good(file.open(host + "/" + directory + "/file", OpenFlags.READ))
    assert good(file.read()) == pattern(10_000)
    chunks = good(file.vector_read([(0, 100), (5000, 100)])).chunks
    assert [chunk.buffer for chunk in chunks] == [pattern(10_000)[:100], pattern(10_000)[5000:5100]]
with client.File() as file:
    good(file.open(host + "/" + directory + "/made/by-5", OpenFlags.NEW | OpenFlags.MAKEPATH))
    good(file.write(pattern(100_000)))
    good(file.sync())
    good(file.close())
print("done")
