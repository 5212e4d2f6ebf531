"""Name rules (`scalla.namerule`): clients see the names of the rules, the disk has others.

The real server on a tree with these names is the judge of what clients see. It loads a library of the site
for such a translation, and there is none in its packages."""

import contextlib
import hashlib
import re

import pytest

import peers
from test_settings import perform, tree
from tools import pattern, xrdcp, xrdfs

RULES = "scalla.namerule /folder /kept/elsewhere\n"

COMMANDS = [
    "ls -l /folder", "ls -R /folder", "stat /folder", "stat /folder/inner", "stat /folder/none", "get /folder/inner",
    "cp /folder/new", "cp --posc /folder/made/deep/new", "cp -f /folder/inner", "query checksum /folder/new", "get /folder/made/deep/new",
    "ls /folder/made", "mkdir /folder/d", "mkdir -p /folder/e/f/g", "rmdir /folder/d", "rmdir /folder/e", "mv /folder/new /moved", "mv /moved /folder/d2",
    "mv /folder/made /made", "mv /made /folder/back", "ls -R /folder", "truncate /folder/inner 3", "stat /folder/inner", "chmod /folder/inner rw-------",
    "xattr /folder/inner set a=b", "xattr /folder/inner list", "prepare -s /folder/inner", "locate /folder/inner", "query xattr /folder/none",
    "rm /folder/inner", "rm /folder/inner", "cat /folder/d2", "statvfs /folder", "query space /folder", "ls -l /folder/none"]


def moved(server):
    """Creates the tree of the settings, with the folder where the rule stores it."""
    tree(server)
    (server.tree / "kept").mkdir()
    peers.give(server.tree / "kept")
    (server.tree / "folder").rename(server.tree / "kept/elsewhere")


def test_clients_see_the_names_of_the_rules(tmp_path):
    with contextlib.ExitStack() as stack:
        ours, theirs = peers.Linked(settings=peers.SETTINGS + RULES), peers.Theirs()
        moved(ours)
        tree(theirs)
        for server in (ours, theirs):
            stack.enter_context(server)
        for command in COMMANDS:
            results = [perform(server, command, tmp_path) for server in (ours, theirs)]
            if command.startswith("ls"):  # In the order of the disk.
                results = [sorted(result.splitlines()) for result in results]
            assert results[0] == results[1], command
        assert sorted(path.name for path in (ours.tree / "kept/elsewhere").iterdir()) == sorted(path.name for path in (theirs.tree / "folder").iterdir())
        assert not (ours.tree / "folder").exists()


@pytest.fixture
def server():
    """A server with all kinds of rules, which exports everything."""
    rules = RULES + "scalla.namerule /grid/rucio /rucio rucio\n" + "scalla.namerule /runs /r regex (run[0-9]*([0-9])/.*) {2}/{1} inverse [0-9]/(.*) {1}\n"
    server = peers.Linked(settings=peers.SETTINGS + rules)
    moved(server)
    for name in ("grid", "rucio", "r"):
        (server.tree / name).mkdir()
        peers.give(server.tree / name)
    with server:
        yield server


def test_a_name_on_disk_is_none_for_clients(server):
    # `/r` and `/rucio` on disk are names of rules, whose own names are `/runs` and `/grid/rucio`.
    assert sorted(xrdfs(server, "ls", "/").ok().out.split()) == ["/file", "/folder", "/grid", "/kept", "/link", "/runs"]
    assert xrdfs(server, "ls", "/grid").ok().out.split() == ["/grid/rucio"]
    assert xrdfs(server, "ls", "/kept").ok().out == ""
    for words in (["stat", "/kept/elsewhere/inner"], ["cat", "/kept/elsewhere/inner"], ["rm", "/kept/elsewhere/inner"], ["ls", "/kept/elsewhere"]):
        result = xrdfs(server, *words)
        assert result.status != 0 and "no such file" in result.err.lower(), (words, result)
    assert xrdfs(server, "cat", "/folder/inner").ok().out == "inner"
    for words in (["mv", "/folder", "/other"], ["rmdir", "/folder"], ["mv", "/kept", "/other"]):
        assert xrdfs(server, *words).status != 0, words
    assert (server.tree / "kept/elsewhere/inner").read_text() == "inner"


def test_files_lie_where_rucio_puts_them(server, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(pattern(100_000))
    for scope, directories in (("mc15_13TeV", "mc15_13TeV"), ("user.jdoe", "user/jdoe")):
        digest = hashlib.md5(f"{scope}:file.root".encode()).hexdigest()
        xrdcp("--cksum", "adler32", source, server.url(f"/grid/rucio/{scope}:file.root")).ok()
        place = server.tree / "rucio" / directories / digest[:2] / digest[2:4] / "file.root"
        assert place.read_bytes() == source.read_bytes()
        xrdcp(server.url(f"/grid/rucio/{scope}:file.root"), tmp_path / scope).ok()
        assert (tmp_path / scope).read_bytes() == source.read_bytes()
    sums = [xrdfs(server, "query", "checksum", f"/grid/rucio/{scope}:file.root").ok().out for scope in ("mc15_13TeV", "user.jdoe")]
    assert sums[0] == sums[1]
    xrdfs(server, "mv", "/grid/rucio/user.jdoe:file.root", "/grid/rucio/user.jdoe:renamed").ok()
    xrdfs(server, "rm", "/grid/rucio/user.jdoe:renamed").ok()
    assert [path.name for path in (server.tree / "rucio/user").rglob("*") if path.is_file()] == []
    refused = xrdfs(server, "ls", "/grid/rucio")
    assert refused.status != 0 and "not supported" in refused.err
    refused = xrdcp(source, server.url("/grid/rucio/no-scope"))
    assert refused.status != 0 and "invalid argument" in refused.err.lower()


def test_files_lie_where_a_pattern_puts_them(server, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"run")
    xrdcp(source, server.url("/runs/run0123/f")).ok()
    assert (server.tree / "r/3/run0123/f").read_bytes() == b"run"
    assert xrdfs(server, "cat", "/runs/run0123/f").ok().out == "run"
    assert "no such file" in xrdfs(server, "stat", "/r/3/run0123/f").err.lower()


def test_a_name_library_does_not_start_and_the_error_names_the_rules():
    said = peers.refused_start(peers.Linked(settings="oss.namelib /usr/lib64/XrdName2NameDCP4RUCIO.so\n"))
    assert re.search(r"oss\.namelib: unsupported library .*; write rules instead: scalla\.namerule FROM TO", said), said
