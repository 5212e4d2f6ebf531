"""The newest Python client against a server with security; run by its own interpreter, because its plug-ins
read the environment once for each process.

`newest_steps.py use URL DIRECTORY` uses each kind of request, and prints a digest of the file that it has read,
its size and the names in the directory. `newest_steps.py copy SOURCE TARGET` makes a third-party copy."""

import hashlib
import sys

from XRootD import client
from XRootD.client.flags import DirListFlags, OpenFlags

from tools import pattern

CONTENT = pattern(300_000)


def good(answer):
    status, response = answer
    if not status.ok:
        sys.exit(f"{status.errno} {status.message}")
    return response


def copy(source, target):
    process = client.CopyProcess()
    process.add_job(source, target, force=True, thirdparty="only", tpctimeout=60)
    good((process.prepare(), None))
    status, results = process.run()
    good((status, None))
    assert all(result["status"].ok for result in results), results


def use(url, path):
    filesystem = client.FileSystem(url)
    good(filesystem.mkdir(path))
    with client.File() as file:
        good(file.open(f"{url}/{path}/new", OpenFlags.NEW))
        good(file.write(CONTENT))
        good(file.sync())
        good(file.close())
    with client.File() as file:
        good(file.open(f"{url}/{path}/new", OpenFlags.READ))
        whole = good(file.read(0, len(CONTENT)))
        parts = good(file.vector_read([(10, 1000), (200_000, 5000)]))
        assert [chunk.buffer for chunk in parts.chunks] == [CONTENT[10:1010], CONTENT[200_000:205_000]]
        assert good(file.stat()).size == len(CONTENT)
        good(file.close())
    assert whole == CONTENT
    size = good(filesystem.stat(f"{path}/new")).size
    names = [entry.name for entry in good(filesystem.dirlist(path, DirListFlags.STAT))]
    print(hashlib.sha256(whole).hexdigest(), size, *names)


{"use": use, "copy": copy}[sys.argv[1]](*sys.argv[2:])
