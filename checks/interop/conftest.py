"""Fixtures: one long-running server of each kind, a new directory on it for each test, and checks
that the real programs are installed.

`SCALLA_INTEROP_ONLY=theirs` (or `ours`) omits the other server."""

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

import clusters
import grid
import peers
import tools

# The real Python client stops and restarts its threads around each fork, and sometimes waits for
# one of them forever. These processes fork only to run programs, which does not need that. Must be
# set before the client is loaded.
os.environ["XRD_RUNFORKHANDLER"] = "0"

ONLY = os.environ.get("SCALLA_INTEROP_ONLY", "")
KINDS = [kind for kind in ("ours", "theirs") if ONLY in ("", kind)]
# Tests of data, which must also pass if the kernel refuses the system calls of our data path.
DATA_MODULES = ("test_requests", "test_copy", "test_streams", "test_checksum", "test_python")
_numbers = itertools.count(1)


def pytest_configure(config):
    config.addinivalue_line("markers", "soak: takes long; runs in `make soak` instead of `make test`")


def pytest_sessionstart(session):
    """Fails the whole run if a peer is missing. Tests started in the background ignore interrupts,
    and so would all programs that they start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    missing = [path for path in tools.PROGRAMS if not Path(path).is_file()]
    if missing:
        raise pytest.UsageError(f"missing {', '.join(missing)}: run `make peers`")


def pytest_collection_modifyitems(items):
    """Skips the tests of our server only if our server is omitted."""
    for item in items:
        if ONLY == "theirs" and {"ours", "refused", "serve", "recorded_ours"} & set(item.fixturenames):
            item.add_marker(pytest.mark.skip(reason="SCALLA_INTEROP_ONLY=theirs"))
        if ONLY == "ours" and "theirs" in item.fixturenames:
            item.add_marker(pytest.mark.skip(reason="SCALLA_INTEROP_ONLY=ours"))


def pytest_generate_tests(metafunc):
    """Parametrizes by kind of server: a test of ours must also hold for theirs."""
    if "server" in metafunc.fixturenames:
        kinds = list(KINDS)
        if "ours" in kinds and metafunc.module.__name__ in DATA_MODULES:
            kinds.append("refused")
        metafunc.parametrize("server", kinds, indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Appends to a failure whether the servers still run, and the ends of their logs."""
    report = yield
    if report.when == "call" and report.failed:
        report.sections.extend(peers.describe_all())
    return report


def _long_lived(kind):
    with kind() as server:
        yield server


@pytest.fixture(scope="session")
def ours():
    """Our server."""
    yield from _long_lived(peers.Ours)


@pytest.fixture(scope="session")
def refused():
    """Our server, with system calls refused by the kernel."""
    yield from _long_lived(peers.Refused)


@pytest.fixture(scope="session")
def theirs():
    """The real server."""
    yield from _long_lived(peers.Theirs)


@pytest.fixture
def server(request):
    """The server of a kind: see `pytest_generate_tests`."""
    server = request.getfixturevalue(request.param)
    assert server.alive(), f"an earlier test ended {server.kind}: {server.output()[-2000:]}"
    return server


@pytest.fixture
def begin():
    """Starts servers that this test may damage: `begin(server)`."""
    servers = []

    def start(server):
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        server.remove()


@pytest.fixture
def serve(begin):
    """Starts servers of our kind that this test may damage: `serve(settings=…)`."""
    return lambda **how: begin(peers.Ours(**how))


@pytest.fixture(params=KINDS)
def launch(request, begin):
    """Starts servers that this test may damage, of each kind in turn."""
    kind = {"ours": peers.Ours, "theirs": peers.Theirs}[request.param]
    return lambda **how: begin(kind(**how))


class Area:
    """A directory on a server that belongs to one test. `path` is its name for clients, `local` its
    location."""

    def __init__(self, server, name=None):
        self.server = server
        name = name or f"area-{next(_numbers)}"
        self.path = f"/{name}"
        self.local = server.tree / name
        self.local.mkdir()
        peers.give(self.local)

    def __truediv__(self, name):
        return f"{self.path}/{name}"

    def url(self, name):
        return self.server.url(self / name)

    def put(self, name, data=b""):
        """Creates a file directly on the disk. Returns its path for clients."""
        local = self.local / name
        for directory in reversed(local.relative_to(self.local).parents):
            if not (self.local / directory).is_dir():
                self.mkdir(directory)
        peers.place(local, data)
        return self / name

    def mkdir(self, name):
        local = self.local / name
        local.mkdir()
        local.chmod(0o755)
        peers.give(local)
        return self / name

    def get(self, name):
        return (self.local / name).read_bytes()

    def age(self):
        """Sets all times to the same value."""
        for directory, directories, files in os.walk(self.local):
            for path in [directory, *(os.path.join(directory, name) for name in directories + files)]:
                os.utime(path, (tools.AGED, tools.AGED))

    def remove(self):
        shutil.rmtree(self.local, ignore_errors=True)


@pytest.fixture
def area(server):
    """A new directory on the server of this test."""
    area = Area(server)
    yield area
    area.remove()


@pytest.fixture
def source(tmp_path):
    """A file to upload."""
    path = tmp_path / "source"
    path.write_bytes(tools.data(300_000))
    return path


@pytest.fixture
def local(tmp_path):
    """Returns a function that creates a local file with content: `local(name, size)`."""

    def make(name="source", size=100_000, seed=1):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tools.data(size, seed))
        return path

    return make


@pytest.fixture
def small_disk():
    """A file system of 8 MiB."""
    directory = Path(tempfile.mkdtemp(prefix="scalla-disk-", dir="/var/tmp"))
    directory.chmod(0o755)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", directory], capture_output=True, text=True)
    assert done.returncode == 0, f"a small file system cannot be mounted here, run as root: {done.stderr}"
    peers.give(directory)
    yield directory
    subprocess.run(["umount", "-l", directory], check=True)
    directory.rmdir()


@pytest.fixture
def area_on():
    """Returns a function that creates directories on given servers."""
    made = []

    def make(server):
        made.append(Area(server))
        return made[-1]

    yield make
    for area in made:
        area.remove()


class Twins:
    """Directories of the same name on our server and the real one, for the same commands on both.
    If ours is omitted, a second real server replaces it, which shows that the comparison itself is
    sound."""

    def __init__(self, ours, theirs):
        name = f"twin-{next(_numbers)}"
        self.areas = (Area(ours, name), Area(theirs, name))
        self.path = f"/{name}"

    def put(self, *arguments):
        for area in self.areas:
            area.put(*arguments)

    def mkdir(self, name):
        for area in self.areas:
            area.mkdir(name)


@pytest.fixture(scope="session")
def other():
    """The server that is compared with the real one: ours, or a second real one if ours is omitted."""
    yield from _long_lived(peers.Theirs if ONLY == "theirs" else peers.Ours)


@pytest.fixture
def twins(other, theirs):
    """The same directory on two servers."""
    twins = Twins(other, theirs)
    yield twins
    for area in twins.areas:
        area.remove()


# A cluster with a level of supervisors in one branch, for tests that draw it.
MAPPED = clusters.Plan("""
    man manager
    sup supervisor man
    s1 server sup
    s2 server man
    s3 server man
""")


@pytest.fixture(scope="module", params=["real", "ours"])
def mapped(request):
    """All servers have `/all`; the one below the supervisor has `/deep`."""
    with clusters.Cluster(MAPPED, request.param) as cluster:
        for node in cluster.servers:
            peers.place(node.tree / "all", b"all")
        peers.place(cluster.s1.tree / "deep", b"deep")
        yield cluster


@pytest.fixture(scope="module")
def site():
    """Certificates of an authority, a host and users."""
    with grid.new_site() as site:
        yield site


@pytest.fixture
def own_site():
    """A site that a test may change."""
    with grid.new_site() as site:
        yield site
