"""Accounting of spaces (`oss.usage`): the figures of `query space` and the usage log, compared with those of the
real server after the same operations, and both servers in turn on one log."""

import contextlib
import re
import shutil
import struct
import tempfile
from pathlib import Path

import pytest

import peers
from tools import pattern, wait_until, xrdcp, xrdfs

OPERATIONS = [
    "cp /one", "cp /hot/two", "cp /three?oss.cgroup=hot", "cp /four?oss.cgroup=public:{home}/a", "cp /five?oss.cgroup=public:/nowhere",
    "cp /six?oss.asize=9k", "cp /six?oss.asize=zz", "cp /seven?oss.cgroup=", "cp /eight?oss.cgroup=:{home}/a", "truncate /one 3000", "cp /one",
    "mv /one /hot/one", "truncate /three 100000", "rm /hot/two", "rm /hot/one", "cp --posc /nine", "cp /nine", "cp /ten?oss.cgroup=nope"]


@pytest.fixture
def home():
    home = Path(tempfile.mkdtemp(prefix="scalla-usage-", dir="/var/tmp"))
    peers.give(home)
    yield home
    shutil.rmtree(home, ignore_errors=True)


class Place:
    """Two spaces, their usage log and their quotas."""

    def __init__(self, home):
        self.home = home
        home.mkdir(exist_ok=True)
        for name in ("a", "b", "usage"):
            (home / name).mkdir()
            peers.give(home / name)
        peers.give(home)
        self.quotas = home / "quotas"
        self.quotas.write_text("public 20k\nhot 1.5m\nnone 5\n")
        peers.give(self.quotas)
        self.settings = (f"{peers.SETTINGS}oss.space public {home}/a\noss.space hot {home}/b\noss.space hot assign /hot\n"
                         f"oss.usage log {home}/usage quotafile {home}/quotas\noss.spacescan 30\n")

    def numbers(self):
        """Returns the numbers of each space in the log, without the time of creation."""
        log = (self.home / "usage/.Usage").read_bytes()
        assert len(log) == 16384
        entries = [log[at:at + 128] for at in range(0, len(log), 128)]
        return {entry[:64].rstrip(b"\0").decode(): struct.unpack("8q", entry[64:])[:7] for entry in entries if entry[0]}


def figures(server):
    """Returns name, used bytes and quota of the spaces, and of paths."""
    found = []
    for path in ("/", "/?oss.cgroup=hot", "/?oss.cgroup=public", "/?oss.cgroup=nope", "/hot", "/six"):
        text = xrdfs(server, "query", "space", path).ok().out
        found.append((path, *re.findall(r"oss\.(cgroup|used|quota)=([^&\s]*)", text)))
    return found


def prepared(kind, place):
    server = kind(settings=place.settings)
    (server.tree / "hot").mkdir(mode=0o755)
    peers.give(server.tree / "hot")
    return server


def perform(server, command, source):
    words = command.split()
    result = xrdcp("-f", *words[1:-1], source, server.url(words[-1])) if words[0] == "cp" else xrdfs(server, *words)
    return result.status


def test_figures_are_those_of_the_real_server(home, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(pattern(5000))
    places = [Place(home / name) for name in ("ours", "theirs")]
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(prepared(kind, place)) for kind, place in zip((peers.Linked, peers.Theirs), places)]
        for command in OPERATIONS:
            ours, theirs = [perform(server, command.format(home=place.home), source) for server, place in zip(servers, places)]
            assert ours == theirs, command
            if command == OPERATIONS[5]:
                ours, theirs = [figures(server) for server in servers]
                assert ours == theirs
            # Ours writes the log after the reply.
            theirs = places[1].numbers()
            with contextlib.suppress(AssertionError):
                wait_until(lambda: places[0].numbers() == theirs, seconds=10)
            assert places[0].numbers() == theirs, command
        ours, theirs = [figures(server) for server in servers]
        assert ours == theirs


def test_servers_take_turns_on_one_log(home, tmp_path):
    """Each continues with the figures of the other."""
    source = tmp_path / "source"
    source.write_bytes(pattern(1000))
    place = Place(home / "one")
    (home / "tree/hot").mkdir(parents=True)
    for directory in (home / "tree", home / "tree/hot"):
        peers.give(directory)
    expected = 0
    for number, kind in enumerate([peers.Theirs, peers.Linked, peers.Theirs, peers.Linked]):
        with kind(settings=place.settings, tree=home / "tree") as server:
            xrdcp(source, server.url(f"/f{number}")).ok()
            expected += 1000
            if number > 1:
                xrdfs(server, "rm", f"/f{number - 2}").ok()
                expected -= 1000
            assert f"oss.used={expected}&oss.quota=20480" in xrdfs(server, "query", "space", "/").ok().out
            wait_until(lambda: place.numbers()["public"][0] == expected)
            server.stop()
    assert place.numbers()["public"] == (1000 * 2, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("usage, says", [
    ("log /nowhere/usage", "oss.usage /nowhere/usage/.Usage: No such file or directory"),
    ("sync 3", "invalid usage option 'sync'"),
])
def test_a_log_that_cannot_be_kept_does_not_start(usage, says):
    for kind in (peers.Linked, peers.Theirs):
        server = kind(settings=f"oss.usage {usage}\n")
        try:
            # Ours opens the port before the storage.
            with contextlib.suppress(RuntimeError):
                server.start()
            wait_until(lambda: not server.alive())
            assert kind is peers.Theirs or says in server.output()
        finally:
            server.remove()
