"""A client whose server dies during its upload, in a cluster where another server has an older file
of that name."""

import os
import subprocess

import clusters
import peers
import pytest
from tools import PATIENCE_SECONDS, data, wait_until

MIB = 1024 * 1024
SIZE = 16 * MIB
PLAN = clusters.Plan("""
    man manager
    s1 server man
    s2 server man
""")


@pytest.mark.parametrize("makers", ["real", "ours"])
def test_an_upload_is_not_mixed_with_an_older_replica(makers, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(data(SIZE, 1))
    with clusters.Cluster(PLAN, makers) as cluster:
        area = clusters.Area(cluster.complete())
        for server in ("s1", "s2"):
            area.put("other", b"", server)
        # The upload goes to the first server, which alone has the file then.
        area.put("file", data(SIZE, 2), "s1")
        command = [peers.program(), "cp", "--force", "--rate", "4m", source, area.url("file")]
        with subprocess.Popen([str(word) for word in command], env=peers.environment(), stderr=subprocess.PIPE) as client:
            writes = wait_until(lambda: written(area, source) or client.poll() is not None)
            assert client.poll() is None, client.communicate()
            (other,) = {"s1", "s2"} - {writes}
            older = data(SIZE, 3)
            area.put("file", older, other)
            cluster[writes].kill()
            _, error = client.communicate(timeout=PATIENCE_SECONDS)
        assert client.returncode == 1, error
        assert area.local(other, "file").read_bytes() == older


def written(area, source):
    """Returns the server at which a MiB of the upload has arrived."""
    with open(source, "rb") as file:
        begin = file.read(MIB)
    for server in ("s1", "s2"):
        path = area.local(server, "file")
        if path.exists() and os.stat(path).st_size >= MIB:
            with open(path, "rb") as file:
                if file.read(MIB) == begin:
                    return server
    return None
