"""A round at a redirector with a Python client of any generation; run by its own interpreter:
`python_cluster.py root://host:port /folder`.

The directory contains `there` with 10,000 bytes of the recorded pattern."""

import sys

from XRootD import client
from XRootD.client.flags import DirListFlags, OpenFlags, PrepareFlags, QueryCode

from codes import ErrorCode
from tools import pattern

host, folder = sys.argv[1:]
filesystem = client.FileSystem(host)


def good(answer):
    status, response = answer
    assert status.ok, status.message
    return response


def names():
    listing = good(filesystem.dirlist(folder, DirListFlags.LOCATE | DirListFlags.MERGE | DirListFlags.STAT))
    return sorted(entry.name for entry in listing)


assert filesystem.ping()[0].ok
assert good(filesystem.stat(folder + "/there")).size == 10_000
assert len(list(good(filesystem.locate(folder + "/there", OpenFlags.NONE)))) == 1
assert len(list(good(filesystem.deeplocate(folder + "/there", OpenFlags.REFRESH)))) == 1
with client.File() as file:
    good(file.open(host + "/" + folder + "/there", OpenFlags.READ))
    assert good(file.read()) == pattern(10_000)
    chunks = good(file.vector_read([(0, 100), (5000, 100)])).chunks
    assert [chunk.buffer for chunk in chunks] == [pattern(10_000)[:100], pattern(10_000)[5000:5100]]
with client.File() as file:
    good(file.open(host + "/" + folder + "/made-by-python", OpenFlags.NEW | OpenFlags.MAKEPATH))
    good(file.write(pattern(100_000)))
    good(file.sync())
    good(file.close())
with client.File() as file:
    good(file.open(host + "/" + folder + "/made-by-python", OpenFlags.UPDATE))
    good(file.write(b"changed", offset=50_000))
    good(file.close())
with client.File() as file:
    good(file.open(host + "/" + folder + "/made-by-python", OpenFlags.READ))
    content = good(file.read())
assert content == pattern(100_000)[:50_000] + b"changed" + pattern(100_000)[50_007:]
assert client.File().open(host + "/" + folder + "/made-by-python", OpenFlags.NEW)[0].errno == ErrorCode.IT_EXISTS
assert names() == ["made-by-python", "there"]
assert good(filesystem.query(QueryCode.CHECKSUM, folder + "/there")).startswith(b"adler32 ")
if not client.__version__.lstrip("v").startswith("5."):  # version 5 aborts on an answer without an id
    good(filesystem.prepare([folder + "/there"], PrepareFlags.STAGE))
assert good(filesystem.statvfs("/")).nodes_rw == 3
good(filesystem.mv(folder + "/made-by-python", folder + "/renamed"))
assert good(filesystem.stat(folder + "/renamed")).size == 100_000
assert filesystem.stat(folder + "/made-by-python")[0].errno == ErrorCode.NOT_FOUND
good(filesystem.rm(folder + "/renamed"))
assert filesystem.stat(folder + "/renamed")[0].errno == ErrorCode.NOT_FOUND
print("done")
