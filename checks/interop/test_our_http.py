"""`scalla` and `xrdcp` as clients of HTTP servers: ours, the real one, and servers of Python with and without ranges."""

import contextlib
import functools
import http.server
import json
import os
import signal
import stat
import subprocess
import zlib
from pathlib import Path

import pytest

import certificates
import clusters
import peers
import tools
from tools import data, run, scalla, wait_until
from web import AnsweringServer, OurWebServer, PythonServer, TheirWebServer, WebServer

MIB = 1024 * 1024
CONTENT = {"empty": b"", "small": b"hello world\n", "big": data(9 * MIB + 5)}


class PlainServer(PythonServer):
    """The file server of Python, which ignores ranges."""

    def __init__(self, directory):
        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=directory))
        self.origin = f"http://localhost:{self.server.server_address[1]}"


class StatusServer(AnsweringServer):
    """A server that answers with the status in the path, and redirects to the URL in the query."""

    def __init__(self):
        super().__init__()
        self.requests = []
        self.server.RequestHandlerClass.do_PUT = lambda handler: self.answer(handler, True)
        # It answers before it reads the body.
        self.server.RequestHandlerClass.handle_expect_100 = lambda handler: True
        self.origin = f"http://localhost:{self.port}"

    def answer(self, handler, has_body):
        self.requests.append((handler.command, handler.path, dict(handler.headers)))
        path, _, location = handler.path.partition("?to=")
        status = int(path.strip("/").split("-")[0])
        if handler.command == "HEAD" and path.endswith("-put"):
            status = 404
        text = b"the disk is tired\n" if has_body else b""
        handler.send_response(status)
        if location:
            handler.send_header("Location", location)
        handler.send_header("Content-Length", str(len(text)))
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(text)


def fill(server):
    peers.give(server.tree)
    (server.tree / "d").mkdir()
    peers.give(server.tree / "d")
    for name, content in CONTENT.items():
        peers.place(server.tree / name, content)
    peers.place(server.tree / "d/a b%", b"name")
    return server


@pytest.fixture(scope="module")
def our_web():
    with OurWebServer() as server:
        yield fill(server)


@pytest.fixture(scope="module")
def their_web():
    with TheirWebServer() as server:
        yield fill(server)


@pytest.fixture(scope="module")
def web():
    with WebServer() as server:
        for name, content in CONTENT.items():
            server.place(f"/{name}", content)
        yield server


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    directory = tmp_path_factory.mktemp("plain")
    for name, content in CONTENT.items():
        (directory / name).write_bytes(content)
    with PlainServer(directory) as server:
        yield server


@pytest.fixture
def status():
    with StatusServer() as server:
        yield server


@pytest.fixture(params=["our_web", "their_web"])
def dav(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["our_web", "their_web", "web", "plain"])
def origin(request):
    return request.getfixturevalue(request.param).origin


@pytest.mark.parametrize("name", list(CONTENT))
def test_files_are_copied_from_http_servers(origin, our_web, tmp_path, name):
    scalla("cp", f"{origin}/{name}", tmp_path / "copy").ok().silent()
    assert (tmp_path / "copy").read_bytes() == CONTENT[name] and os.listdir(tmp_path) == ["copy"]
    scalla("cp", f"{origin}/{name}", tmp_path / "copy").fails(1, "exists", "--force")
    run([peers.link("xrdcp"), "-f", "-A", f"{origin}/{name}", tmp_path / "copy"]).ok()
    assert (tmp_path / "copy").read_bytes() == CONTENT[name] and os.listdir(tmp_path) == ["copy"]
    assert scalla("cp", f"{origin}/{name}", "-").ok().raw == CONTENT[name]
    scalla("cp", f"{origin}/{name}", our_web.url(f"/new-{tmp_path.name}/{name}")).ok()
    assert (our_web.tree / f"new-{tmp_path.name}" / name).read_bytes() == CONTENT[name]


def test_urls_are_as_users_write_them(dav, tmp_path):
    for spelling in ("d/a%20b%25", "/d/a b%25", "d/a b%"):
        scalla("cp", "-f", f"{dav.origin.replace('http', 'dav')}/{spelling}", tmp_path / "copy").ok()
        assert (tmp_path / "copy").read_bytes() == b"name", spelling
    scalla("cp", f"{dav.origin}/sm*", f"{tmp_path}/").ok()
    assert (tmp_path / "small").read_bytes() == CONTENT["small"]


def test_directories_are_copied(dav, tmp_path):
    scalla("cp", "-r", f"{dav.origin}/d", tmp_path / "d").ok()
    assert (tmp_path / "d/a b%").read_bytes() == b"name"


def test_trees_are_shown(dav):
    base = f"{dav.origin}/d"
    assert f"{base}/a b%25" in scalla("find", base, "--type", "f").ok().out.splitlines()
    assert "a b%" in scalla("tree", base).ok().out
    assert base in scalla("du", base).ok().out


def test_checksums_of_sources_are_compared(origin, tmp_path):
    sums = ["--checksum", "adler32", "--checksum", "md5"]
    scalla("cp", *sums, f"{origin}/big", tmp_path / "copy").ok()
    assert (tmp_path / "copy").read_bytes() == CONTENT["big"]
    wrong = ["--checksum", "adler32:12345678"]
    scalla("cp", "-f", *wrong, f"{origin}/small", tmp_path / "other").fails(1, "12345678", "adler32")
    assert os.listdir(tmp_path) == ["copy"]
    printed = scalla("cp", "--checksum", "adler32:source", f"{origin}/small", tmp_path / "third").ok()
    assert f"{zlib.adler32(CONTENT['small']):08x}" in printed.all


def test_a_wrong_digest_of_the_server_is_an_error(tmp_path):
    class Liar(WebServer):
        def answer(self, handler, has_body):
            if handler.headers.get("Want-Digest"):
                handler.send_response(200)
                handler.send_header("Digest", "adler32=11111111")
                handler.send_header("Content-Length", "5")
                handler.end_headers()
            else:
                super().answer(handler, has_body)

    with Liar() as server:
        server.place("/f", b"12345")
        scalla("cp", "--checksum", "adler32", f"{server.origin}/f", tmp_path / "copy").fails(1, "11111111")
        assert os.listdir(tmp_path) == []


def test_partial_copies_are_completed(web, tmp_path):
    (tmp_path / "copy").write_bytes(CONTENT["big"][:5 * MIB])
    web.requests.clear()
    scalla("cp", "--continue", f"{web.origin}/big", tmp_path / "copy").ok()
    assert (tmp_path / "copy").read_bytes() == CONTENT["big"]
    (tmp_path / "copy").write_bytes(b"another file")
    scalla("cp", "--continue", f"{web.origin}/big", tmp_path / "copy").fails(1, "not those of the source")
    assert (tmp_path / "copy").read_bytes() == b"another file"


@pytest.mark.parametrize("code,texts", [(401, ["401 Unauthorized", "token"]), (403, ["403 Forbidden", "permissions"]), (404, ["404 Not Found"]),
                                        (500, ["500 Internal Server Error", "log"]), (507, ["507", "free space"])])
def test_refusals_name_the_remedy(status, tmp_path, code, texts):
    scalla("cp", f"{status.origin}/{code}", tmp_path / "copy").fails(1, *texts)
    assert "two slashes" not in scalla("stat", f"{status.origin}/{code}").fails(1, str(code)).all
    assert os.listdir(tmp_path) == []
    (tmp_path / "source").write_bytes(b"content")
    result = scalla("cp", tmp_path / "source", f"{status.origin}/{code}-put").fails(1, *texts)
    if code != 401:
        assert "the disk is tired" in result.all


def test_redirects_are_followed_without_the_token(status, web, tmp_path):
    web.requests.clear()
    url = f"{status.origin}/307?authz=secret-token&to={web.origin}/small"
    scalla("cp", url, tmp_path / "copy").ok()
    assert (tmp_path / "copy").read_bytes() == CONTENT["small"]
    assert status.requests[-1][2].get("Authorization") == "Bearer secret-token"
    assert all("Authorization" not in headers for _, _, headers in web.requests)
    scalla("cp", f"{status.origin}/307?to=/307?to=/307", tmp_path / "loop").fails(1)


def test_tokens_are_sent_over_tls_only(web, tmp_path):
    with certificates.new_authority() as authority, WebServer((authority.certificate, authority.key)) as secure:
        secure.place("/f", b"12345")
        how = dict(BEARER_TOKEN="secret-of-the-user", X509_CERT_FILE=str(authority.file))
        scalla("cp", f"{secure.origin}/f", tmp_path / "copy", **how).ok()
        assert {headers.get("Authorization") for _, _, headers in secure.requests} == {"Bearer secret-of-the-user"}
        web.requests.clear()
        scalla("cp", f"{web.origin}/small", tmp_path / "other", **how).ok()
        assert all("Authorization" not in headers for _, _, headers in web.requests)
        scalla("cp", f"{secure.origin}/f", tmp_path / "untrusted", X509_CERT_DIR=str(tmp_path)).fails(1, "TLS")


def test_names_are_listed_and_changed(dav):
    origin, tree = dav.origin, dav.tree
    base = f"{origin}/names"
    scalla("mkdir", base).ok()
    scalla("mkdir", base).fails(1, "exists")
    scalla("mkdir", f"{base}/x/y").fails(1)
    assert not (tree / "names/x").exists()
    scalla("mkdir", "-p", f"{base}/x/y").ok()
    scalla("mkdir", "-p", f"{base}/x/y").ok()
    scalla("mkdir", "-m", "700", f"{base}/z").fails(2, "--mode")
    for name in ("a", "b c"):
        peers.place(tree / "names" / name, b"12345")
    assert scalla("ls", base).ok().out.splitlines() == ["a", "b c", "x"]
    listed = [json.loads(line) for line in scalla("ls", "--json", base).ok().out.splitlines()]
    assert [(entry["name"], entry["size"]) for entry in listed if entry["name"] != "x"] == [("a", 5), ("b c", 5)], listed
    assert scalla("ls", f"{base}/a").ok().out.splitlines() == [f"{origin}/names/a"]
    assert "names/x/y" in scalla("ls", "-R", base).ok().out
    shown = scalla("stat", f"{base}/a", f"{base}/x").ok().out
    assert "5 bytes" in shown and "directory" in shown
    scalla("stat", f"{base}/none").fails(1, "404")
    scalla("rm", f"{base}/x").fails(1, "directory")
    scalla("rmdir", f"{base}/x").fails(1, "not empty")
    assert (tree / "names/x/y").is_dir()
    scalla("rm", f"{base}/a", f"{base}/b%20c").ok()
    scalla("rm", f"{base}/a").fails(1, "404")
    scalla("rmdir", f"{base}/x/y").ok()
    assert not (tree / "names/x/y").exists()
    peers.place(tree / "names/x/f", b"")
    scalla("rm", "-r", base).fails(1, "link")
    assert (tree / "names/x/f").exists()
    scalla("rm", f"{base}/x/f").ok()
    scalla("rm", "-r", f"{base}/x").ok()
    assert not (tree / "names/x").exists()


def test_checksums_are_those_of_the_server(dav, web):
    expected = f"{zlib.adler32(CONTENT['big']):08x}"
    assert scalla("checksum", f"{dav.origin}/big").ok().out.split()[0] == f"adler32:{expected}"
    scalla("checksum", f"{web.origin}/big").fails(1, "not supported", "--read")
    assert scalla("checksum", "--read", "--type", "adler32", f"{web.origin}/big").ok().out.split()[0] == f"adler32:{expected}"


def test_servers_without_webdav(web):
    assert scalla("ls", f"{web.origin}/small").ok().out.split() == [f"{web.origin}/small"]
    scalla("ls", f"{web.origin}/none").fails(1)
    scalla("mkdir", f"{web.origin}/new").fails(1)
    scalla("rm", f"{web.origin}/small").fails(1, "501")


@pytest.mark.parametrize("name", list(CONTENT))
def test_files_are_copied_to_http_servers(dav, our_web, tmp_path, name):
    (tmp_path / "source").write_bytes(CONTENT[name])
    base = f"{dav.origin}/up-{tmp_path.name}"
    tree = dav.tree / f"up-{tmp_path.name}"
    sums = ["--checksum", "adler32", "--checksum", "md5"]
    scalla("cp", *sums, tmp_path / "source", f"{base}/new/dir/file").ok()
    assert (tree / "new/dir/file").read_bytes() == CONTENT[name]
    scalla("cp", our_web.url(f"/{name}"), f"{base}/from-root").ok()
    scalla("cp", f"{our_web.origin}/{name}", f"{base}/from-http").ok()
    run([peers.link("xrdcp"), tmp_path / "source", f"{base}/from-xrdcp"]).ok()
    scalla("cp", tmp_path / "source", f"{base}/").ok()
    for copy in ("from-root", "from-http", "from-xrdcp", "source"):
        assert (tree / copy).read_bytes() == CONTENT[name], copy


def test_files_at_http_servers_are_overwritten_on_request_only(dav, tmp_path):
    peers.place(dav.tree / "kept", b"before")
    (tmp_path / "source").write_bytes(b"after")
    scalla("cp", tmp_path / "source", f"{dav.origin}/kept").fails(1, "exists", "--force")
    run([peers.link("xrdcp"), tmp_path / "source", f"{dav.origin}/kept"]).fails(50, "exists")
    assert (dav.tree / "kept").read_bytes() == b"before"
    scalla("cp", "--force", tmp_path / "source", f"{dav.origin}/kept").ok()
    assert (dav.tree / "kept").read_bytes() == b"after"


def test_a_file_that_appears_during_an_upload_is_kept(tmp_path):
    """The server shows no file, and refuses the condition of the upload."""
    (tmp_path / "source").write_bytes(b"after")
    with StatusServer() as server:
        scalla("cp", tmp_path / "source", f"{server.origin}/412-put").fails(1, "exists")
        put = [headers for method, _, headers in server.requests if method == "PUT"]
        assert [headers["If-None-Match"] for headers in put] == ["*"] and put[0]["Expect"] == "100-continue"
        assert put[0]["Content-Length"] == "5"


def test_a_file_is_not_copied_onto_itself(our_web, tmp_path):
    peers.place(our_web.tree / "itself", b"12345")
    web, xroot = f"{our_web.origin}/itself", our_web.url("/itself")
    for source, target in ((web, xroot), (web, f"{our_web.origin}//itself"), (xroot, web), (our_web.tree / "itself", web)):
        refused = scalla("cp", "--force", source, target).fails(1)
        assert "may be the source" in refused.all or "the same file" in refused.all, refused
        assert (our_web.tree / "itself").read_bytes() == b"12345"


def is_written(server):
    """Reports whether a part of an upload has arrived at the server."""
    for descriptor in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found = descriptor.stat()
            if stat.S_ISREG(found.st_mode) and str(descriptor.readlink()).startswith(str(server.tree)) and 100_000 < found.st_size < len(CONTENT["big"]):
                return True
    return False


@pytest.mark.parametrize("more,name", [([], "new"), (["--force"], "replaced")], ids=["new", "replaced"])
def test_an_interrupted_upload_leaves_nothing(dav, tmp_path, more, name):
    if more and isinstance(dav, TheirWebServer):
        pytest.skip("it truncates the file that is replaced")
    (tmp_path / "source").write_bytes(CONTENT["big"])
    peers.place(dav.tree / "replaced", b"before")
    before = set(os.listdir(dav.tree))
    command = [peers.program(), "cp", *more, "--rate", "500k", tmp_path / "source", f"{dav.origin}/{name}"]
    copying = subprocess.Popen([str(word) for word in command], env=peers.environment(), stderr=subprocess.PIPE)
    wait_until(lambda: is_written(dav))
    copying.send_signal(signal.SIGINT)
    _, error = copying.communicate(timeout=tools.PATIENCE_SECONDS)
    assert copying.returncode == 130 and b"interrupted" in error
    wait_until(lambda: set(os.listdir(dav.tree)) == before)
    assert (dav.tree / "replaced").read_bytes() == b"before"


def test_a_manager_redirects_copies(tmp_path):
    with clusters.Cluster(clusters.PAIR, "ours", settings="xrd.protocol http *\n") as cluster:
        area = clusters.Area(cluster)
        area.put("f", CONTENT["big"], "s1")
        origin = f"http://localhost:{cluster.man.port}"
        scalla("cp", f"{origin}{area / 'f'}", tmp_path / "copy").ok()
        assert (tmp_path / "copy").read_bytes() == CONTENT["big"]
        scalla("cp", tmp_path / "copy", f"{origin}{area / 'new/dir/file'}").ok()
        assert area.get("new/dir/file") == CONTENT["big"]
        scalla("cp", tmp_path / "copy", f"{origin}{area / 'new/dir/file'}").fails(1, "exists")
        scalla("cp", "--force", f"{origin}{area / 'f'}", f"{origin}{area / 'again'}").ok()
        assert area.get("again") == CONTENT["big"]


def test_a_failing_source_leaves_nothing(our_web, tmp_path):
    class Short(WebServer):
        """A server that closes the connection in the middle of the file."""

        def answer(self, handler, has_body):
            if handler.headers.get("Range", "bytes=0-0") == "bytes=0-0":
                super().answer(handler, has_body)
            else:
                handler.close_connection = True

    before = set(os.listdir(our_web.tree))
    with Short() as server:
        server.place("/f", CONTENT["big"])
        scalla("cp", f"{server.origin}/f", f"{our_web.origin}/broken").fails(1, "/f")
        scalla("cp", f"{server.origin}/f", tmp_path / "copy").fails(1, "/f")
    wait_until(lambda: set(os.listdir(our_web.tree)) == before)
    assert os.listdir(tmp_path) == []


def test_what_http_does_not_have_is_refused(our_web, web, tmp_path):
    (tmp_path / "source").write_bytes(b"content")
    target = f"{our_web.origin}/refused"
    before = set(os.listdir(our_web.tree))
    for option in ("--preserve", "--continue", "--posc", "--xattrs", "--zip-append"):
        scalla("cp", option, tmp_path / "source", target).fails(1, "over HTTP")
    for more in (["--sources", "2"], ["--xattrs"]):
        scalla("cp", *more, f"{web.origin}/small", our_web.url("/refused")).fails(1, "over HTTP")
    scalla("cp", "--tpc", "only", f"{web.origin}/small", our_web.url("/refused")).fails(1, "no server copies from HTTP")
    scalla("cp", "-", target, input=b"content").fails(1, "size")
    scalla("cat", f"{our_web.origin}/small").fails(1, "over HTTP")
    scalla("mv", f"{our_web.origin}/small", f"{our_web.origin}/other").fails(1)
    assert set(os.listdir(our_web.tree)) == before
    scalla("cp", "--tpc", "first", f"{web.origin}/small", tmp_path / "copy").ok()
    assert (tmp_path / "copy").read_bytes() == CONTENT["small"]
