"""Programs of others over HTTP: the WebDAV judge litmus, davix and gfal2 of the grid, rclone."""

import hashlib
import re
import zlib

import pytest

import peers
from tools import data, run
from web import OurWebServer

CONTENT = data(3_000_000)

# What litmus expects of WebDAV and this server does otherwise, as servers of the grid do: parents are created, collections are
# removed when they are empty, no file replaces one, and COPY is a third-party copy. There are no properties of clients and no locks.
NOT_AS_LITMUS_EXPECTS = {
    "basic": {"put_no_parent", "mkcol_again", "mkcol_no_parent"},
    "copymove": {"copy_simple", "copy_overwrite", "copy_coll", "copy_shallow", "move", "move_coll"},
    "props": {"propfind_invalid", "propfind_invalid2", "propset", "propmanyns", "propget"},
    "http": set(),
}


@pytest.fixture(scope="module")
def ours():
    with OurWebServer() as server:
        (server.tree / "w").mkdir()
        peers.give(server.tree / "w")
        yield server


@pytest.fixture
def place(ours, request):
    """Returns the URL of a new directory, and its place on disk."""
    name = re.sub(r"\W", "-", request.node.name)
    directory = ours.tree / "w" / name
    directory.mkdir()
    peers.give(directory)
    return f"{ours.origin}/w/{name}", directory


@pytest.fixture
def source(tmp_path):
    (tmp_path / "source").write_bytes(CONTENT)
    return tmp_path / "source"


@pytest.mark.parametrize("suite", NOT_AS_LITMUS_EXPECTS)
def test_litmus(place, suite, tmp_path):
    url, _ = place
    # It writes logs into the current directory.
    said = run(["litmus", "-k", f"{url}/"], cwd=tmp_path, TESTS=suite).all
    ran = re.findall(r"^\s*\d+\. (\w+)\.*\s", said, re.M)
    failed = set(re.findall(r"(\w+)\.+ FAIL", said))
    assert len(set(ran)) >= 4 and "init" in ran, said
    assert failed == NOT_AS_LITMUS_EXPECTS[suite], said


def test_davix(place, source, tmp_path):
    url, directory = place
    run(["davix-mkdir", f"{url}/d"]).ok()
    run(["davix-put", source, f"{url}/d/a%20b%23"]).ok()
    assert (directory / "d/a b#").read_bytes() == CONTENT
    listed = run(["davix-ls", "-l", f"{url}/d"]).ok().out
    assert re.search(r"3000000 .* a%20b%23$", listed, re.M), listed
    run(["davix-get", f"{url}/d/a%20b%23", tmp_path / "back"]).ok()
    assert (tmp_path / "back").read_bytes() == CONTENT
    # Its status says nothing about success.
    run(["davix-mv", f"{url}/d/a%20b%23", f"{url}/moved"])
    assert (directory / "moved").read_bytes() == CONTENT and not list((directory / "d").iterdir())
    run(["davix-rm", f"{url}/moved"]).ok()
    assert "404" in run(["davix-get", f"{url}/moved", tmp_path / "none"]).fails(255).all
    assert not (directory / "moved").exists()


def gfal(name, *words):
    # Its scripts look for a program that not every system has.
    return run([f"gfal-{name}", *words], GFAL_PYTHONBIN="/usr/bin/python3")


def test_gfal2(place, source, tmp_path):
    url, directory = place
    gfal("mkdir", "-p", f"{url}/a/b").ok()
    gfal("copy", "-K", "ADLER32", f"file://{source}", f"{url}/a/f").ok()
    assert (directory / "a/f").read_bytes() == CONTENT
    assert gfal("sum", f"{url}/a/f", "ADLER32").ok().out.split()[-1] == f"{zlib.adler32(CONTENT):08x}"
    assert gfal("sum", f"{url}/a/f", "MD5").ok().out.split()[-1] == hashlib.md5(CONTENT).hexdigest()
    assert {line.split()[-1] for line in gfal("ls", "-l", f"{url}/a").ok().out.splitlines()} == {"b", "f"}
    assert "Size: 3000000\tregular file" in gfal("stat", f"{url}/a/f").ok().out
    gfal("copy", f"{url}/a/f", f"file://{tmp_path}/back").ok()
    assert (tmp_path / "back").read_bytes() == CONTENT
    # Of a file that exists.
    assert gfal("copy", f"file://{source}", f"{url}/a/f").status != 0
    gfal("copy", "-f", f"{url}/a/f", f"{url}/new/g").ok()
    gfal("rename", f"{url}/a/f", f"{url}/a/h").ok()
    assert (directory / "new/g").read_bytes() == CONTENT and (directory / "a/h").read_bytes() == CONTENT
    gfal("rm", "-r", f"{url}/a").ok()
    assert not (directory / "a").exists() and (directory / "new/g").exists()
    gfal("ls", f"{url}/a").fails(2)


def test_rclone(ours, place, tmp_path):
    url, directory = place
    config = tmp_path / "rclone.conf"
    config.write_text(f"[ours]\ntype = webdav\nurl = {url}\nvendor = other\n")

    def rclone(*words):
        return run(["rclone", "--config", config, "--retries", "1", "--low-level-retries", "1", *words])

    tree = tmp_path / "tree"
    files = {"x/y/f": CONTENT, "x/na me +%#ü&;": b"name", "empty": b""}
    for name, content in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(content)
    rclone("copy", tree, "ours:t").ok()
    assert {str(path.relative_to(directory / "t")): path.read_bytes() for path in (directory / "t").rglob("*") if path.is_file()} == files
    rclone("check", "--download", tree, "ours:t").ok()
    (tree / "empty").unlink()
    (tree / "x/y/f").write_bytes(CONTENT[1:])
    rclone("sync", "--ignore-times", tree, "ours:t").ok()
    assert not (directory / "t/empty").exists() and (directory / "t/x/y/f").read_bytes() == CONTENT[1:]
    rclone("moveto", "ours:t/x/y/f", "ours:t/x/g").ok()
    assert (directory / "t/x/g").read_bytes() == CONTENT[1:] and not (directory / "t/x/y/f").exists()
    rclone("copy", "ours:t", tmp_path / "back").ok()
    assert (tmp_path / "back/x/g").read_bytes() == CONTENT[1:]
    rclone("delete", "ours:t").ok()
    assert not [path for path in (directory / "t").rglob("*") if path.is_file()]
    rclone("rmdirs", "ours:t").ok()
    assert not (directory / "t").exists()
