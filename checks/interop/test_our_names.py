"""Names that no request can carry, because servers cut the name in a request at the first `?`, and
names that are not UTF-8, which are ordinary names.

A request for `data?old` would act on `data`. No other file may change, and the failure is reported."""

import json
import os

import pytest

import peers
import tools
from codes import Exit, ShellCode
from tools import run, scalla

# Names with bytes that are not UTF-8, with characters that represent such bytes in our program, and
# with the replacement character.
BYTES = [os.fsdecode(name) for name in (b"data\xff", b"\x80\xfe", b"half\xc3", "\U0010ffff".encode(), "\ufffd".encode())]


@pytest.fixture
def bad(area):
    """A directory with `data`, `x.tmp`, and a name that cannot be carried and begins with `data`."""
    area.put("data", b"keep")
    area.put("x.tmp", b"x")
    area.bad = "data?old.tmp"
    peers.place(area.local / area.bad, b"other")
    return area


@pytest.fixture
def raw(area, tmp_path):
    """A directory `there` at the server and a local one, each with a directory and a file of each name in
    `BYTES`."""
    area.mkdir("there")
    area.raw = tmp_path / "here"
    area.raw.mkdir()
    for directory in (area.local / "there", area.raw):
        for name in BYTES:
            (directory / f"{name}.d").mkdir()
            peers.give(directory / f"{name}.d")
            for path in (directory / name, directory / f"{name}.d" / name):
                peers.place(path, os.fsencode(f"{path.parent.name}/{name}"))
    return area


def contents(directory):
    return {name: (directory / name).read_bytes() for name in os.listdir(directory) if (directory / name).is_file()}


def test_a_pattern_acts_only_on_matching_names(bad):
    for words in (["chmod", "600"], ["truncate", "-s", "1"]):
        scalla(*words, bad.url("*.tmp")).fails(1, "cannot be named to a server")
    assert (bad.local / "data").stat().st_mode & 0o777 == 0o644
    assert contents(bad.local) == {"data": b"keep", "x.tmp": b"x", bad.bad: b"other"}
    bad.mkdir("into")
    scalla("mv", bad.url("*.tmp"), bad.url("into")).fails(1, "cannot be named to a server")
    assert contents(bad.local) == {"data": b"keep", bad.bad: b"other"}
    scalla("rm", bad.url("*.tmp")).fails(1, "cannot be named to a server")
    scalla("rm", bad.url("into/*.tmp")).ok()
    assert contents(bad.local) == {"data": b"keep", bad.bad: b"other"}


def test_a_tree_with_such_a_name_keeps_it(bad):
    scalla("chmod", "-R", "go-rwx", bad.url("")).fails(1, "cannot be named to a server")
    scalla("rm", "-r", bad.url("")).fails(1, "cannot be named to a server")
    assert contents(bad.local) == {bad.bad: b"other"}


def test_a_directory_with_such_a_name_is_not_entered(bad):
    (bad.local / bad.bad).unlink()
    (bad.local / "data").unlink()
    bad.put("data/inside", b"keep")
    (bad.local / bad.bad).mkdir()
    peers.give(bad.local / bad.bad)
    for words in (["du"], ["find"], ["ls", "-R"], ["tree"]):
        assert scalla(*words, bad.url("")).fails(1, "cannot be named to a server").out.count("inside") <= 1
    scalla("chmod", "-R", "700", bad.url("*.tmp")).fails(1, "cannot be named to a server")
    scalla("rm", "-r", bad.url("*.tmp")).fails(1, "cannot be named to a server")
    assert (bad.local / "data" / "inside").read_bytes() == b"keep"


def test_a_download_omits_it(bad, tmp_path):
    scalla("cp", "-r", bad.url(""), tmp_path / "cp").fails(1, "cannot be named to a server")
    scalla("sync", bad.url(""), tmp_path / "sync").fails(1, "cannot be named to a server")
    for way in ("cp", "sync"):
        assert contents(tmp_path / way) == {"data": b"keep", "x.tmp": b"x"}
    (tmp_path / "xrdcp").mkdir()
    run([peers.link("xrdcp"), "--nopbar", "-r", bad.url(""), tmp_path / "xrdcp"]).fails(ShellCode.CLIENT_ERROR, "cannot be named to a server")
    assert contents(tmp_path / "xrdcp" / bad.path[1:]) == {"data": b"keep", "x.tmp": b"x"}


def test_an_upload_omits_it(bad, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    for name, content in (("data", b"mine"), (bad.bad, b"not"), ("more", b"more")):
        (here / name).write_bytes(content)
    (bad.local / bad.bad).unlink()
    scalla("cp", "-r", "-f", "--parallel", "1", here, bad.url("cp")).fails(1, "cannot be named to a server")
    scalla("sync", "--parallel", "1", here, bad.url("sync")).fails(1, "cannot be named to a server")
    for way in ("cp", "sync"):
        assert contents(bad.local / way) == {"data": b"mine", "more": b"more"}
    bad.mkdir("xrdcp")
    run([peers.link("xrdcp"), "--nopbar", "-r", here, bad.url("xrdcp")]).fails(ShellCode.CLIENT_ERROR, "cannot be named to a server")
    assert contents(bad.local / "xrdcp" / "here") == {"data": b"mine", "more": b"more"}
    scalla("cp", here / bad.bad, bad.url("")).fails(1)
    assert contents(bad.local) == {"data": b"keep", "x.tmp": b"x"}


def test_sync_deletes_nothing_that_it_cannot_name(bad, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    (here / "data").write_bytes(b"keep")
    os.utime(here / "data", (tools.AGED, tools.AGED))
    scalla("sync", "--delete", here, bad.url("")).fails(1, "cannot be named to a server")
    assert contents(bad.local) == {"data": b"keep", bad.bad: b"other"}
    # No file at the target counts as extraneous because its counterpart cannot be named.
    target = tmp_path / "target"
    target.mkdir()
    (target / bad.bad).write_bytes(b"kept")
    scalla("sync", "--delete", bad.url(""), target).fails(1, "cannot be named to a server")
    assert contents(target)[bad.bad] == b"kept"


def test_such_a_name_is_shown(bad):
    assert sorted(scalla("ls", bad.url("")).ok().out.splitlines()) == ["data", bad.bad, "x.tmp"]


def tree(directory):
    return {str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None for path in directory.rglob("*")}


@pytest.mark.parametrize("words", [["cp", "-r"], ["sync"], ["xrdcp", "-r"]], ids=["cp", "sync", "xrdcp"])
def test_names_of_any_bytes_are_copied(raw, tmp_path, words):
    def copy(source, target, made):
        program = [peers.link("xrdcp"), "--nopbar", "-r"] if words[0] == "xrdcp" else [peers.program(), *words]
        run([*program, source, target]).ok()
        assert tree(made) == expected

    into = words[0] != "sync"
    expected = tree(raw.raw)
    for name in ("up", "across"):
        raw.mkdir(name)
    (tmp_path / "down").mkdir()
    (tmp_path / "beside").mkdir()
    copy(raw.raw, raw.url("up"), raw.local / "up" / "here" if into else raw.local / "up")
    expected = tree(raw.local / "there")
    copy(raw.url("there"), tmp_path / "down", tmp_path / "down" / "there" if into else tmp_path / "down")
    copy(raw.url("there"), raw.url("across"), raw.local / "across" / "there" if into else raw.local / "across")
    expected = tree(raw.raw)
    copy(raw.raw, tmp_path / "beside", tmp_path / "beside" / "here" if into else tmp_path / "beside")


def test_names_of_any_bytes_are_compared_and_removed(raw, tmp_path):
    # Each name is that of one file.
    (raw.raw / BYTES[0]).unlink()
    scalla("sync", "--delete", "--size-only", raw.raw, raw.url("there")).ok()
    assert not (raw.local / "there" / BYTES[0]).exists() and tree(raw.local / "there").keys() == tree(raw.raw).keys()
    scalla("sync", "--checksum", "adler32", "--delete", raw.raw, raw.url("there")).ok()
    assert tree(raw.local / "there") == tree(raw.raw)
    scalla("chmod", "-R", "go-rwx", raw.url("there")).ok()
    assert all(path.stat().st_mode & 0o77 == 0 for path in (raw.local / "there").rglob("*"))
    raw.put("stays", b"s")
    scalla("mv", raw.url("there/*.d"), raw.url("")).ok()
    scalla("rm", "-r", raw.url("there"), raw.url("*.d")).ok()
    assert os.listdir(raw.local) == ["stays"]


def test_names_of_any_bytes_are_listed(raw):
    for path in (raw.local / "there").iterdir():
        if path.is_dir():
            (path / os.fsdecode(path.stem)).unlink(missing_ok=True)
    listed = scalla("ls", raw.url("there")).ok().raw.splitlines()
    assert sorted(listed) == sorted(os.fsencode(path.name) for path in (raw.local / "there").iterdir())
    told = [json.loads(line)["name"] for line in scalla("ls", "--json", raw.url("there")).ok().out.splitlines()]
    assert "data\\xff" in told and "\ufffd" in told and "\\xf4\\x8f\\xbf\\xbf" in told and len(set(told)) == len(listed)
    # A private character cannot be typed, so it names no other file.
    scalla("ls", raw.url("there/\U0010ffff")).fails(Exit.USAGE, "private")
