"""Names that no request can carry, because servers cut the name in a request at the first `?`.

A request for `data?old` would act on `data`. No other file may change, and the failure is reported."""

import os

import pytest

import peers
import tools
from tools import run, scalla

BAD = [b"data?old.tmp", b"data\xff.tmp"]


@pytest.fixture(params=BAD, ids=["question-mark", "not-utf-8"])
def bad(request, area):
    """A directory with `data`, `x.tmp`, and a name that cannot be carried and begins with `data`."""
    area.put("data", b"keep")
    area.put("x.tmp", b"x")
    peers.place(area.local / os.fsdecode(request.param), b"other")
    area.bad = os.fsdecode(request.param)
    return area


def contents(folder):
    return {name: (folder / name).read_bytes() for name in os.listdir(folder) if (folder / name).is_file()}


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
    run([peers.link("xrdcp"), "--nopbar", "-r", bad.url(""), tmp_path / "xrdcp"]).fails(50, "cannot be named to a server")
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
    run([peers.link("xrdcp"), "--nopbar", "-r", here, bad.url("xrdcp")]).fails(50, "cannot be named to a server")
    assert contents(bad.local / "xrdcp" / "here") == {"data": b"mine", "more": b"more"}
    # Words of a command line are text.
    scalla("cp", here / bad.bad, bad.url("")).fails(1 if "?" in bad.bad else 2)
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
    shown = bad.bad.encode(errors="surrogateescape").decode(errors="replace")
    assert sorted(scalla("ls", bad.url("")).ok().out.splitlines()) == sorted(["data", "x.tmp", shown])
