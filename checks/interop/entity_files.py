"""Files of a server whose rules depend on the names and groups of clients."""

import peers
from tools import XRDFS, run, scalla

CONTENT = b"content"


def files(server):
    for name in ("staff", "visitors", "own"):
        (server.tree / name).mkdir()
        peers.give(server.tree / name)
        peers.place(server.tree / name / "f", CONTENT)


def may_read(server, name, real, **environment):
    """Both answers must be the same."""
    url = f"root://localhost:{server.port}/"
    if real:
        return run([XRDFS, url, "cat", f"/{name}/f"], **environment).raw == CONTENT
    return scalla("cat", f"{url}/{name}/f", **environment).raw == CONTENT
