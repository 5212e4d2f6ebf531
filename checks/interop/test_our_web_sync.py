"""`scalla sync` over HTTP and at object stores, in both directions: our server, the real one, and the server of moto."""

import json
import os

import pytest

import clusters
import peers
from object_stores import BUCKET, ObjectStore
from test_our_s3 import keys
from tools import data, run, scalla
from web import HTTP, AnsweringServer, OurWebServer, TheirWebServer

TREE = {"a": b"first\n", "d/b": b"second\n", "d/e/c x%": data(300_000), "empty": b""}


class Store:
    """An object store as the target and source of a synchronization."""

    def __init__(self, store):
        self.store, self.variables, self.has_links = store, keys(store), False

    def url(self, path):
        return f"s3://{BUCKET}{path}"

    def content(self, top):
        found = self.store.s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{top}/").get("Contents", [])
        names = [entry["Key"] for entry in found]
        return {name.removeprefix(f"{top}/"): self.store.s3.get_object(Bucket=BUCKET, Key=name)["Body"].read() for name in names}


class Web:
    """A server of WebDAV as the target and source of a synchronization."""

    def __init__(self, server):
        self.server, self.variables, self.has_links = server, {}, True

    def url(self, path):
        return f"{self.server.origin}{path}"

    def content(self, top):
        return content_of(self.server.tree / top)


def content_of(top):
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def store():
    with ObjectStore() as found:
        yield Store(found)


@pytest.fixture(scope="module")
def ours():
    with OurWebServer() as server:
        peers.give(server.tree)
        yield Web(server)


@pytest.fixture(scope="module")
def theirs():
    with TheirWebServer() as server:
        peers.give(server.tree)
        yield Web(server)


@pytest.fixture(params=["ours", "theirs", "store"])
def end(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def local(tmp_path):
    for name, content in TREE.items():
        path = tmp_path / "local" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        # Older than each copy.
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return tmp_path / "local"


def sync(end, *words):
    return scalla("sync", *words, **end.variables)


def test_trees_become_equal_in_both_directions(end, local, tmp_path):
    top = f"both-{tmp_path.name}"
    sync(end, local, end.url(f"/{top}")).ok()
    assert end.content(top) == TREE
    # Nothing is left to do.
    assert sync(end, "--dry-run", local, end.url(f"/{top}")).ok().out == ""
    sync(end, end.url(f"/{top}"), tmp_path / "back").ok()
    assert content_of(tmp_path / "back") == TREE
    assert sync(end, "--dry-run", end.url(f"/{top}"), tmp_path / "back").ok().out == ""


def test_only_files_that_differ_are_copied(end, local, tmp_path):
    top = f"differ-{tmp_path.name}"
    sync(end, local, end.url(f"/{top}")).ok()
    (local / "a").write_bytes(b"longer than before\n")
    (local / "d/b").write_bytes(b"SECOND\n")
    os.utime(local / "d/b", (1_700_000_000, 1_700_000_000))
    steps = [json.loads(line) for line in sync(end, "--json", "-n", local, end.url(f"/{top}")).ok().out.splitlines()]
    assert [(step["step"], step["reason"]) for step in steps if step["kind"] == "step"] == [("copy", "other size")], steps
    assert end.content(top) == TREE
    sync(end, "--checksum", "adler32", local, end.url(f"/{top}")).ok()
    assert end.content(top) == content_of(local) and end.content(top)["d/b"] == b"SECOND\n"
    # One that is newer.
    os.utime(local / "a", (4_000_000_000, 4_000_000_000))
    assert "newer" in sync(end, "-n", local, end.url(f"/{top}")).ok().all
    assert "newer" not in sync(end, "-n", "--size-only", local, end.url(f"/{top}")).ok().all


def test_what_the_source_does_not_have_is_removed_with_the_option_only(end, local, tmp_path):
    top = f"remove-{tmp_path.name}"
    sync(end, local, end.url(f"/{top}")).ok()
    (local / "a").unlink()
    (local / "d/b").unlink()
    sync(end, local, end.url(f"/{top}")).ok()
    assert end.content(top) == TREE
    assert "remove" in sync(end, "--delete", "-n", local, end.url(f"/{top}")).ok().out
    assert end.content(top) == TREE
    sync(end, "--delete", "--max-delete", "1", local, end.url(f"/{top}")).fails(1, "--max-delete")
    assert end.content(top) == TREE
    if end.has_links:
        # Only what is certainly not behind a link.
        sync(end, "--delete", local, end.url(f"/{top}")).fails(1, "--allow-links")
        assert set(end.content(top)) == set(TREE) - {"a"}
    sync(end, "--delete", "--allow-links", local, end.url(f"/{top}")).ok()
    assert end.content(top) == content_of(local)
    run(["rm", "-r", local / "d"]).ok()
    sync(end, "--delete", "--allow-links", local, end.url(f"/{top}")).ok()
    assert set(end.content(top)) == {"empty"}
    (local / "empty").unlink()
    sync(end, "--delete", local, end.url(f"/{top}")).fails(1, "--allow-empty")
    assert set(end.content(top)) == {"empty"}


def test_surplus_files_of_this_machine_are_removed(end, local, tmp_path):
    top = f"here-{tmp_path.name}"
    sync(end, local, end.url(f"/{top}")).ok()
    (local / "d/surplus").write_bytes(b"x")
    (local / "surplus").mkdir()
    sync(end, end.url(f"/{top}"), local).ok()
    assert (local / "d/surplus").exists()
    sync(end, "--delete", end.url(f"/{top}"), local).ok()
    assert content_of(local) == TREE and not (local / "surplus").exists()


def test_between_servers(ours, theirs, store, local, tmp_path):
    top = f"between-{tmp_path.name}"
    sync(store, local, store.url(f"/{top}")).ok()
    sync(store, store.url(f"/{top}"), ours.url(f"/{top}")).ok()
    sync(store, ours.url(f"/{top}"), theirs.url(f"/{top}")).ok()
    sync(store, theirs.url(f"/{top}"), store.url(f"/{top}-again")).ok()
    assert store.content(f"{top}-again") == TREE
    sync(store, theirs.server.url(f"/{top}"), store.url(f"/{top}-xroot")).ok()
    assert store.content(f"{top}-xroot") == TREE


def test_errors_are_named(ours, local, tmp_path):
    sync(ours, ours.url("/none"), tmp_path / "new").fails(1, "not there")
    sync(ours, "--preserve", local, ours.url(f"/kept-{tmp_path.name}")).fails(1, "--preserve")


def test_a_manager_does_not_show_all_files(local):
    with clusters.Cluster(clusters.PAIR, "ours", settings=HTTP) as cluster:
        area = clusters.Area(cluster)
        area.put("a", b"first\n", "s1")
        area.put("other", b"of another server", "s2")
        target = f"http://localhost:{cluster.man.port}{os.path.dirname(area / 'a')}"
        scalla("sync", "--delete", local, target).fails(1, "--allow-away")
        scalla("sync", "--delete", target, local).fails(1, "--allow-away")
        assert content_of(local) == TREE and area.get("other") == b"of another server"


class Parts(AnsweringServer):
    """A server of WebDAV with two directories, one of which is at another server."""

    takes_changes = True

    def __init__(self, other=None):
        super().__init__()
        self.other = other

    def answer(self, handler, has_body):
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        path = handler.path.rstrip("/")
        if self.other and path.endswith("/there"):
            handler.send_response(307)
            handler.send_header("Location", f"http://localhost:{self.other.port}{handler.path}")
            handler.send_header("Content-Length", "0")
            return handler.end_headers()
        names = [""] + ([] if path.count("/") > 1 or handler.headers.get("Depth") == "0" else ["/here", "/there"])
        entries = "".join(f"<D:response><D:href>{path}{name}/</D:href><D:propstat><D:prop><D:resourcetype><D:collection/></D:resourcetype></D:prop>"
                          "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>" for name in names)
        body = f'<D:multistatus xmlns:D="DAV:">{entries}</D:multistatus>'.encode()
        if handler.command == "HEAD":
            body = b""
        handler.send_response({"PROPFIND": 207, "HEAD": 200}.get(handler.command, 405))
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


def test_a_directory_at_another_server_removes_nothing(tmp_path):
    local = tmp_path / "local"
    for name in ("here", "there"):
        (local / name).mkdir(parents=True)
        (local / name / "file").write_bytes(b"x")
    with Parts() as other, Parts(other) as server:
        url = f"http://localhost:{server.port}/top"
        scalla("sync", "--delete", url, local).fails(1, "nothing is removed")
        assert (local / "here/file").exists() and (local / "there/file").exists()
        scalla("sync", "--delete", "--allow-away", url, local).ok()
        assert not (local / "here/file").exists() and not (local / "there/file").exists()
