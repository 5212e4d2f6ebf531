"""A round at a redirector with a Python client of any generation; run by its own interpreter:
`python_cluster.py root://host:port /directory`.

The directory contains `there` with 10,000 bytes of the recorded pattern."""

import sys
import time

from XRootD import client
from XRootD.client.flags import DirListFlags, OpenFlags, PrepareFlags, QueryCode

from codes import ErrorCode
from tools import pattern

host, directory = sys.argv[1:]
filesystem = client.FileSystem(host)


def good(answer):
    status, response = answer
    assert status.ok, status.message
    return response


def names():
    listing = good(filesystem.dirlist(directory, DirListFlags.LOCATE | DirListFlags.MERGE | DirListFlags.STAT))
    return sorted(entry.name for entry in listing)


assert filesystem.ping()[0].ok
assert good(filesystem.stat(directory + "/there")).size == 10_000
assert len(list(good(filesystem.locate(directory + "/there", OpenFlags.NONE)))) == 1
assert len(list(good(filesystem.deeplocate(directory + "/there", OpenFlags.REFRESH)))) == 1
with client.File() as file:
    good(file.open(host + "/" + directory + "/there", OpenFlags.READ))
    assert good(file.read()) == pattern(10_000)
    chunks = good(file.vector_read([(0, 100), (5000, 100)])).chunks
    assert [chunk.buffer for chunk in chunks] == [pattern(10_000)[:100], pattern(10_000)[5000:5100]]
with client.File() as file:
    good(file.open(host + "/" + directory + "/made-by-python", OpenFlags.NEW | OpenFlags.MAKEPATH))
    good(file.write(pattern(100_000)))
    good(file.sync())
    good(file.close())
with client.File() as file:
    good(file.open(host + "/" + directory + "/made-by-python", OpenFlags.UPDATE))
    good(file.write(b"changed", offset=50_000))
    good(file.close())
with client.File() as file:
    good(file.open(host + "/" + directory + "/made-by-python", OpenFlags.READ))
    content = good(file.read())
assert content == pattern(100_000)[:50_000] + b"changed" + pattern(100_000)[50_007:]
assert client.File().open(host + "/" + directory + "/made-by-python", OpenFlags.NEW)[0].errno == ErrorCode.IT_EXISTS
assert names() == ["made-by-python", "there"]
assert good(filesystem.query(QueryCode.CHECKSUM, directory + "/there")).startswith(b"adler32 ")
if not client.__version__.lstrip("v").startswith("5."):  # version 5 aborts on an answer without an id
    good(filesystem.prepare([directory + "/there"], PrepareFlags.STAGE))
assert good(filesystem.statvfs("/")).nodes_rw == 3
good(filesystem.mv(directory + "/made-by-python", directory + "/renamed"))
assert good(filesystem.stat(directory + "/renamed")).size == 100_000
assert filesystem.stat(directory + "/made-by-python")[0].errno == ErrorCode.NOT_FOUND
good(filesystem.rm(directory + "/renamed"))
# A real manager may hear of the removal a moment later.
end = time.monotonic() + 30
while (status := filesystem.stat(directory + "/renamed")[0]).errno != ErrorCode.NOT_FOUND:
    assert time.monotonic() < end, status
print("done")
