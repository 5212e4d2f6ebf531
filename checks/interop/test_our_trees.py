"""Trees with links, cycles and parts that cannot be compared.

`rm -r`, `sync`, `cp -r` and the other commands that walk directories change nothing outside of the
requested tree."""

import json
import os
import re
import shutil

import pytest

import peers
import tools
from codes import ShellCode
from tools import scalla


@pytest.fixture
def linked(area):
    """`tmp` with a file, and a link in it to `precious` beside it."""
    area.put("precious/p", b"p")
    area.put("tmp/x", b"x")
    area.put("tmp/deep/y", b"y")
    os.symlink("../precious", area.local / "tmp" / "link")
    return area


def put(directory, **files):
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)
        os.utime(directory / name, (tools.AGED, tools.AGED))


def test_rm_does_not_follow_links(linked):
    scalla("rm", "-r", linked.url("tmp")).fails(1, "link to a directory")
    assert (linked.local / "precious" / "p").read_bytes() == b"p"
    assert os.listdir(linked.local / "tmp") == ["link"]
    scalla("rm", "-r", linked.url("tmp/link")).fails(1, "link to a directory")
    assert os.listdir(linked.local / "precious") == ["p"]


def test_rm_removes_everything_else(area):
    for name in ("t/a", "t/b/c", "t/b/d/e", "t/f/g"):
        area.put(name, b"x")
    area.mkdir("t/empty")
    area.mkdir("t/b/empty")
    area.put("stays", b"x")
    told = scalla("rm", "-r", "-v", area.url("t")).ok().out.splitlines()
    assert sorted(line.rsplit("/t", 1)[1] for line in told) == sorted(
        ["", "/a", "/b", "/b/c", "/b/d", "/b/d/e", "/b/empty", "/empty", "/f", "/f/g"])
    assert os.listdir(area.local) == ["stays"]
    scalla("rm", "-r", area.url("t")).fails(1, "no such file")
    scalla("rm", "-rf", area.url("t")).ok().silent()


def test_sync_removes_nothing_through_links_of_the_server(linked, tmp_path):
    here = tmp_path / "here"
    put(here, x=b"x")
    scalla("sync", "--delete", here, linked.url("tmp")).fails(1, "link to a directory")
    assert (linked.local / "precious" / "p").read_bytes() == b"p"
    assert sorted(os.listdir(linked.local / "tmp")) == ["link", "x"]
    # Where the source has a directory, the target has a link to one: the other entries of that one
    # do not belong to the target.
    put(here / "link", q=b"q")
    scalla("sync", "--delete", here, linked.url("tmp")).fails(1, "link to a directory")
    assert (linked.local / "precious" / "p").read_bytes() == b"p"


def test_sync_protects_what_it_cannot_read_in_the_source(area, tmp_path):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    put(here, a=b"a")
    put(elsewhere, z=b"z")
    os.symlink("/not-mounted/x", here / "x")
    os.symlink(elsewhere, here / "d")
    for name in ("a", "x", "d/inside", "surplus"):
        area.put(name, b"there")
    scalla("sync", "--delete", "--size-only", here, area.url("")).fails(1, f"{here}/x", f"{here}/d")
    assert sorted(os.listdir(area.local)) == ["a", "d", "x"]
    assert (area.local / "d" / "inside").read_bytes() == b"there"


def test_sync_removes_nothing_where_a_directory_of_the_source_cannot_be_listed(area, tmp_path):
    for name in ("good/a", "bad/b"):
        area.put(name, b"there")
    target = tmp_path / "target"
    scalla("sync", area.url(""), target).ok()
    put(target, surplus=b"s")
    (area.local / "bad").chmod(0)
    if os.access(area.local / "bad", os.R_OK) and area.server.kind != "theirs":
        (area.local / "bad").chmod(0o755)
        pytest.skip("the server reads everything")
    scalla("sync", "--delete", area.url(""), target).fails(1, "nothing is removed")
    (area.local / "bad").chmod(0o755)
    assert (target / "surplus").exists() and (target / "bad" / "b").exists()


def test_names_omitted_from_a_listing_do_not_count_as_missing(area, tmp_path):
    target = tmp_path / "target"
    put(target, x=b"x", loop=b"l", surplus=b"s")
    area.put("a", b"a")
    os.symlink("/not-mounted/x", area.local / "x")
    os.symlink("loop", area.local / "loop")
    scalla("cp", "-r", area.url(""), tmp_path / "cp").fails(1, "/x: ", "does not tell what it is")
    assert os.listdir(tmp_path / "cp") == ["a"]
    scalla("sync", "--delete", area.url(""), target).fails(1, "/loop: ", "does not tell what it is")
    assert sorted(os.listdir(target)) == ["a", "loop", "x"]


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_conflict_of_kinds_removes_nothing(area, tmp_path, way):
    here = tmp_path / "here"
    here.mkdir()
    if way == "up":
        put(here, x=b"file")
        area.put("x/precious", b"p")
        scalla("sync", "--delete", here, area.url("")).fails(1, "is a directory on one side")
        assert (area.local / "x" / "precious").read_bytes() == b"p"
    else:
        area.put("x", b"file")
        put(here / "x", precious=b"p")
        scalla("sync", "--delete", area.url(""), here).fails(1, "is a directory on one side")
        assert (here / "x" / "precious").read_bytes() == b"p"


def test_sync_plans_what_it_then_removes(area, tmp_path):
    here = tmp_path / "here"
    put(here, a=b"a")
    for name in ("a", "old/x", "old/deep/y", "z"):
        area.put(name, b"a")
    area.mkdir("old/empty")
    planned = scalla("sync", "-n", "--delete", "--size-only", here, area.url("")).ok().out.splitlines()
    assert sorted(os.listdir(area.local)) == ["a", "old", "z"]
    done = scalla("sync", "-v", "--delete", "--size-only", here, area.url("")).ok().out.splitlines()
    assert sorted(planned) == sorted(done) and len(done) == 6
    assert os.listdir(area.local) == ["a"]


def test_a_dry_run_shows_sizes_reasons_and_sums(area, tmp_path):
    here = tmp_path / "here"
    put(here, new=b"12", size=b"12345", newer=b"123", same=b"1")
    for name, content in (("size", b"1"), ("newer", b"321"), ("same", b"1"), ("old/x", b"1")):
        area.put(name, content)
        os.utime(area.local / name, (tools.AGED, tools.AGED))
    os.utime(here / "same", (tools.AGED, tools.AGED))
    os.utime(here / "newer", (tools.AGED + 100, tools.AGED + 100))
    result = scalla("sync", "-n", "--delete", here, area.url("")).ok()
    assert sorted(line.split(" (")[1] for line in result.out.splitlines() if line.startswith("copy")) == ["2 B, new)", "3 B, newer)", "5 B, other size)"]
    assert "would copy 3 files, 10 B; remove 1 file, 1 directory" in result.err
    told = [json.loads(line) for line in scalla("sync", "-n", "--delete", "--json", here, area.url("")).ok().out.splitlines()]
    assert told[-1] == {"kind": "sum", "copy": 3, "bytes": 10, "remove": 1, "remove_directories": 1}
    assert {(line["size"], line["reason"]) for line in told if line.get("step") == "copy"} == {(2, "new"), (3, "newer"), (5, "other size")}
    done = [json.loads(line) for line in scalla("sync", "--delete", "--json", here, area.url("")).ok().out.splitlines()]
    assert done[-1]["kind"] == "sum" and done[-1]["removed"] == 1 and done[-1]["removed_directories"] == 1 and done[-1]["copied"] == 3
    # Each file is named once.
    (here / "new").write_bytes(b"123")
    result = scalla("sync", "-v", here, area.url("")).ok()
    assert result.out == "" and result.err.count("/new") == 2 and result.err.count(" -> ") == 1


def test_sync_removes_not_more_than_allowed(area, tmp_path):
    """An empty source is usually a mistake, and so is a removal of more files than expected."""
    here = tmp_path / "here"
    here.mkdir()
    for name in ("a", "old/x", "old/deep/y"):
        area.put(name, b"a")
    for more in ([], ["-n"]):
        scalla("sync", "--delete", *more, here, area.url("")).fails(1, "is empty", "--allow-empty")
    (here / "a").write_bytes(b"a")
    scalla("sync", "--delete", "--size-only", "--max-delete", "3", here, area.url("")).fails(1, "nothing is removed", "--max-delete")
    assert sorted(os.listdir(area.local)) == ["a", "old"]
    scalla("sync", "--delete", "--size-only", "--max-delete", "4", here, area.url("")).ok()
    assert os.listdir(area.local) == ["a"]
    (here / "a").unlink()
    scalla("sync", "--delete", "--allow-empty", here, area.url("")).ok()
    assert os.listdir(area.local) == []


def test_cycles_end(area, tmp_path):
    area.put("t/a", b"12345")
    area.put("t/b/c", b"12345")
    os.symlink("..", area.local / "t" / "b" / "up")
    os.symlink(".", area.local / "t" / "self")
    os.symlink("../b", area.local / "t" / "b" / "again")
    for words in (["find"], ["du"], ["ls", "-R"], ["tree"], ["chmod", "-R", "755"]):
        told = scalla(*words, area.url("t")).fails(1, "leads back to")
        assert len(told.out) < 2000
    scalla("cp", "-r", area.url("t"), tmp_path / "cp").fails(1, "leads back to")
    scalla("sync", area.url("t"), tmp_path / "sync").fails(1, "leads back to")
    for way in ("cp", "sync"):
        found = sorted(str(path.relative_to(tmp_path / way)) for path in (tmp_path / way).rglob("*"))
        assert found == ["a", "b", "b/c"]


def test_nothing_is_copied_into_itself(area, tmp_path):
    area.put("t/a", b"a")
    put(tmp_path / "L", a=b"a")
    os.symlink(tmp_path / "L", tmp_path / "alias")
    for source, target in ((area.url("t"), area.url("t/sub/")), (tmp_path / "L", tmp_path / "L" / "sub"),
                           (tmp_path / "L", tmp_path / "alias" / "sub")):
        scalla("cp", "-r", source, target).fails(1, "is inside")
        scalla("sync", source, target).fails(1, "is inside")
    # A link of the server points above the source.
    area.put("t/below/b", b"b")
    os.symlink("t", area.local / "alias")
    scalla("sync", "--delete", area.url("t/below"), area.url("alias")).fails(1, "is inside")
    scalla("cp", "-r", area.url("t"), area.url("alias/below/new/")).fails(1, "is inside")
    assert sorted(os.listdir(area.local / "t")) == ["a", "below"] and os.listdir(area.local / "t" / "below") == ["b"]
    # The source does not count as extraneous at the target.
    scalla("sync", "--delete", tmp_path / "L", tmp_path).fails(1, "is inside")
    scalla("sync", "--delete", area.url("t"), area.url("")).fails(1, "is inside")
    assert (tmp_path / "L" / "a").exists() and (area.local / "t" / "a").exists()


@pytest.mark.parametrize("link", ["../to", "../to/sub", ".."])
@pytest.mark.parametrize("words", [["cp", "-r"], ["sync"]], ids=["cp", "sync"])
def test_a_copy_does_not_follow_a_link_into_its_own_target(area, words, link):
    """A link in the source leads to the target, to an entry of it, or to a directory above it."""
    area.put("from/f", b"f")
    area.put("to/t", b"t")
    area.put("to/sub/s", b"s")
    os.symlink(link, area.local / "from" / "sub")
    result = scalla(*words, area.url("from"), area.url("to"))
    found = sorted(str(path.relative_to(area.local / "to")) for path in (area.local / "to").rglob("*"))
    before, copied = ["sub", "sub/s", "t"], ["f"] if words == ["sync"] else ["from", "from/f"]
    if words != ["sync"] and link == "../to/sub":
        # It is copied beside itself, which is finite.
        result.ok()
        copied += ["from/sub", "from/sub/s"]
    else:
        result.fails(1, "is inside")
    assert found == sorted(before + copied)


@pytest.mark.parametrize("more", [[], ["--posc"], ["--coerce"], ["--in-place"], ["-r"]], ids=" ".join)
def test_a_file_is_not_overwritten_by_itself(area, tmp_path, more):
    """The target is a link to the source. Locks of a server do not prevent this if they are by name."""
    for directory in (area.local, tmp_path):
        for name in ("from", "to"):
            (directory / name).mkdir()
            peers.give(directory / name)
        peers.place(directory / "from" / "f", b"content")
        os.symlink("../from/f", directory / "to" / "f")
    source, target = ("from", "to/") if more == ["-r"] else ("from/f", "to/f")
    if more == ["-r"]:
        os.rename(area.local / "to", area.local / "from-to")
        (area.local / "to").mkdir()
        peers.give(area.local / "to")
        os.rename(area.local / "from-to", area.local / "to" / "from")
        os.unlink(area.local / "to" / "from" / "f")
        os.symlink("../../from/f", area.local / "to" / "from" / "f")
    scalla("cp", "-f", *more, area.url(source), area.url(target)).fails(1, "the same file")
    assert (area.local / "from" / "f").read_bytes() == b"content"
    scalla("cp", "-f", *more, tmp_path / "from" / "f", tmp_path / "to" / "f")
    assert (tmp_path / "from" / "f").read_bytes() == b"content"


def test_sync_sets_permission_bits_only_with_the_option(area, tmp_path):
    area.put("open", b"o")
    (area.local / "open").chmod(0o777)
    words = ["sh", "-c", 'umask 077; exec "$@"', "sh", peers.program(), "sync"]
    tools.run([*words, area.url(""), tmp_path / "plain"]).ok()
    assert (tmp_path / "plain" / "open").stat().st_mode & 0o777 == 0o600
    assert int((tmp_path / "plain" / "open").stat().st_mtime) == int((area.local / "open").stat().st_mtime)
    tools.run([*words, "--preserve", area.url(""), tmp_path / "kept"]).ok()
    assert (tmp_path / "kept" / "open").stat().st_mode & 0o777 == 0o777


def test_every_name_is_copied_between_directories_of_this_machine(tmp_path):
    here = tmp_path / "here"
    put(here, **{"data?old": b"old", "data": b"new", "new\nline": b"n"})
    put(here / "dir?x", f=b"f")
    for words in (["cp", "-r"], ["sync", "--delete"]):
        target = tmp_path / words[0]
        put(target if words[0] == "sync" else tmp_path / "other", **{"gone?": b"g"})
        scalla(*words, here, target).ok()
        found = {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}
        assert found == {"data?old": b"old", "data": b"new", "new\nline": b"n", "dir?x/f": b"f"}


@pytest.mark.parametrize("program", ["ours", "theirs"])
def test_xrdcp_follows_local_links(program, area, tmp_path):
    xrdcp = peers.link("xrdcp") if program == "ours" else "xrdcp"
    put(tmp_path / "t", a=b"a")
    put(tmp_path / "elsewhere", b=b"b")
    os.symlink("../elsewhere", tmp_path / "t" / "link")
    os.symlink("/not-mounted/x", tmp_path / "t" / "nowhere")
    (area.local / "up").mkdir()
    (area.local / "up").chmod(0o777)
    tools.run([xrdcp, "--nopbar", "-r", tmp_path / "t", area.url("up")]).ok()
    assert (area.local / "up" / "t" / "a").read_bytes() == b"a"
    assert (area.local / "up" / "t" / "link" / "b").read_bytes() == b"b"
    assert sorted(os.listdir(area.local / "up" / "t")) == ["a", "link"]


def test_xrdcp_does_not_follow_cycles(area, tmp_path):
    put(tmp_path / "t" / "b", a=b"a")
    os.symlink("..", tmp_path / "t" / "b" / "up")
    (area.local / "up").mkdir()
    (area.local / "up").chmod(0o777)
    tools.run([peers.link("xrdcp"), "--nopbar", "-r", tmp_path / "t", area.url("up")]).fails(ShellCode.CLIENT_ERROR, "leads back")
    assert (area.local / "up" / "t" / "b" / "a").read_bytes() == b"a"
    assert os.listdir(area.local / "up" / "t" / "b") == ["a"]


@pytest.mark.parametrize("program", ["ours", "theirs"])
@pytest.mark.parametrize("where", ["here", "server"])
def test_xrdcp_copies_a_small_tree_into_itself(program, where, area, tmp_path):
    """All files are found before the first copy."""
    xrdcp = peers.link("xrdcp") if program == "ours" else "xrdcp"
    local, named = (tmp_path / "l", tmp_path / "l") if where == "here" else (area.local, area.url(""))
    put(local / "t", a=b"a")
    put(local / "t" / "sub", b=b"b")
    peers.give(local / "t" / "sub")
    tools.run([xrdcp, "--nopbar", "-r", f"{named}/t", f"{named}/t/sub"]).ok()
    found = sorted(str(path.relative_to(local)) for path in local.rglob("*") if path.is_file())
    assert found == ["t/a", "t/sub/b", "t/sub/t/a", "t/sub/t/sub/b"]


MANY = 2000


@pytest.fixture(params=["here", "server"])
def many(request, area, tmp_path):
    """A directory with more files than `xrdcp` finds before the first copy, because of their long
    names, and a directory beside it: the directory above them, and the name of that."""
    above = "/".join(["x" * 200] * 12)
    local, named = (tmp_path / above, str(tmp_path / above)) if request.param == "here" else (area.local / above, area.url(above))
    put(local / "t", **{f"{number:04}": b"" for number in range(MANY)})
    (local / "to").mkdir()
    peers.give(local / "to")
    return local, named


@pytest.mark.parametrize("name", ["t/sub", "alias/sub/deep", "t"])
def test_xrdcp_does_not_copy_a_large_tree_into_itself(name, many):
    local, named = many
    (local / "t" / "sub" / "deep").mkdir(parents=True)
    os.symlink("t", local / "alias")
    for directory in ("t", "t/sub", "t/sub/deep"):
        peers.give(local / directory)
    for words in ([], ["--parallel", "4"]):
        tools.run([peers.link("xrdcp"), "--nopbar", "-r", *words, f"{named}/t", f"{named}/{name}"]).fails(ShellCode.CLIENT_ERROR, "is inside")
    assert os.listdir(local / "t" / "sub") == ["deep"] and os.listdir(local / "t" / "sub" / "deep") == []
    assert len(os.listdir(local / "t")) == MANY + 1


@pytest.mark.parametrize("link", ["../to", "../to/t", ".."])
def test_xrdcp_of_a_large_tree_does_not_follow_a_link_to_its_target(link, many):
    local, named = many
    (local / "to" / "t").mkdir()
    peers.give(local / "to" / "t")
    os.symlink(link, local / "t" / "link")
    command = [peers.link("xrdcp"), "--nopbar", "-r", f"{named}/t", f"{named}/to"]
    tools.run(command, XRD_CPSYNC="0").fails(ShellCode.CLIENT_ERROR, "is inside")
    assert sorted(os.listdir(local / "to" / "t")) == [f"{number:04}" for number in range(MANY)]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("more", [[], ["--no-sync"]], ids=["sync", "no-sync"])
def test_removed_local_names_are_synced_with_their_directory(area, tmp_path, more):
    area.put("t/kept/a", b"a")
    here = tmp_path / "here"
    put(here / "kept", a=b"a", old=b"old", old2=b"old")
    put(here / "gone" / "below", b=b"b")
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-y", "-s", "4096", "-o", trace, "-e", "trace=unlink,unlinkat,rmdir,fsync", peers.program(),
               "sync", "--delete", "--size-only", *more, area.url("t"), here]
    tools.run(command).ok()
    assert sorted(os.listdir(here)) == ["kept"] and os.listdir(here / "kept") == ["a"]
    steps = [line.split(maxsplit=1)[1] for line in trace.read_text().splitlines()]
    last = max(index for index, step in enumerate(steps) if step.startswith(("unlink", "rmdir")))
    # Each directory that remains, once, after the last removal in it.
    synced = sorted(re.search("<(.*?)>", step)[1] for step in steps[last:] if step.startswith("fsync("))
    assert synced == ([] if more else [str(here), str(here / "kept")])
