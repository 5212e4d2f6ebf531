"""A proxy in front of object stores with S3: a server that verifies signatures, and ones that misbehave."""

import contextlib
import datetime
import socket
import struct

import pytest

import peers
import raw
from codes import ErrorCode
from object_stores import BUCKET, ObjectStore, StoreProxy
from origins import CONTENT, SIZE, Proxy, check_silent, check_stopped
from test_cache import CACHE
from test_proxy import PYTHON
from tools import run, wait_until, xrdcp, xrdfs
from web import AnsweringServer


@pytest.fixture(scope="module")
def store():
    with ObjectStore() as found:
        found.place("f", CONTENT)
        found.place("empty", b"")
        found.place("d/small", b"small\n")
        found.place("d/e/x y+%&ü", b"odd\n")
        found.place("d/e/z", b"z")
        yield found


@pytest.fixture(scope="module")
def proxy(store):
    with StoreProxy(store) as server:
        yield server


def test_objects_are_read_in_every_way(proxy, tmp_path):
    assert xrdfs(proxy, "cat", "/f").ok().raw == CONTENT
    for more in ([], ["-S", "4"]):
        xrdcp("-f", *more, proxy.url("/f"), tmp_path / "f").ok()
        assert (tmp_path / "f").read_bytes() == CONTENT, more
    for name, content in [("empty", b""), ("d/small", b"small\n"), ("d/e/x y+%&ü", b"odd\n")]:
        xrdcp("-f", proxy.url(f"/{name}"), tmp_path / "g").ok()
        assert (tmp_path / "g").read_bytes() == content, name
    found = run(["/usr/bin/python3", "-c", PYTHON, proxy.url("/f"), SIZE]).ok().raw
    assert found == CONTENT[:10] + CONTENT[100:1100] + CONTENT[-7:] + CONTENT[5:25]


def test_status_listings_and_errors(proxy):
    assert f"Size:   {SIZE}" in xrdfs(proxy, "stat", "/f").ok().out
    assert "IsDir" in xrdfs(proxy, "stat", "/d").ok().out and "IsDir" in xrdfs(proxy, "stat", "/").ok().out
    assert sorted(xrdfs(proxy, "ls", "/").ok().out.split()) == ["/d", "/empty", "/f"]
    assert xrdfs(proxy, "ls", "-R", "/d").ok().out.splitlines() == ["/d/e", "/d/small", "/d/e/x y+%&ü", "/d/e/z"]
    assert f" {SIZE} " in xrdfs(proxy, "ls", "-l", "/").ok().out
    connection = raw.Connection(proxy)
    assert connection.error(raw.STAT, bytes(16), b"/none") == ErrorCode.NOT_FOUND
    assert connection.error(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), b"/none") == ErrorCode.NOT_FOUND
    assert connection.error(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), b"/d") != 0
    xrdfs(proxy, "ls", "/none").fails(54)
    assert connection.error(raw.DIRLIST, bytes(16), b"/f") == ErrorCode.FS_ERROR
    xrdfs(proxy, "query", "checksum", "/f").fails(54)
    assert xrdfs(proxy, "query", "config", "proxy").ok().out.strip() == f"s3://{BUCKET}"


def test_a_large_directory_is_listed_whole(store, proxy):
    names = [f"{number:04}" for number in range(1203)]
    for name in names:
        store.place(f"many/{name}", b"")
    assert xrdfs(proxy, "ls", "/many").ok().out.split() == [f"/many/{name}" for name in names]


def test_a_cache_serves_what_the_store_no_longer_sends(store, tmp_path):
    store.place("kept", CONTENT)
    # A young version is not cached.
    wait_until(lambda: _age(store, "kept") > 10)
    with StoreProxy(store, settings=CACHE) as cache:
        xrdcp("-f", cache.url("/kept"), tmp_path / "f").ok()
        state = cache.tree / BUCKET / "kept.cinfo"
        wait_until(lambda: state.exists() and "state complete" in run([peers.real("xrdpfc_print"), state]).out)
        connection = raw.Connection(cache)
        handle = connection.open("/kept")
        store.s3.delete_object(Bucket=BUCKET, Key="kept")
        assert connection.read(handle, SIZE - 100, 100) == CONTENT[-100:]
        assert connection.error(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), b"/kept") == ErrorCode.NOT_FOUND


def _age(store, key):
    head = store.s3.head_object(Bucket=BUCKET, Key=key)
    return (datetime.datetime.now(datetime.timezone.utc) - head["LastModified"]).total_seconds()


def test_a_changed_object_is_never_mixed(store, proxy, tmp_path):
    old, new = CONTENT[:200_000], bytes(reversed(CONTENT[:200_000]))
    store.place("changing", old)
    connection = raw.Connection(proxy)
    handle = connection.open("/changing")
    assert connection.read(handle, 0, 1000) == old[:1000]
    store.place("changing", new)
    assert connection.error(raw.READ, struct.pack(">4sqi", handle, 150_000, 1000)) == ErrorCode.FS_ERROR
    xrdcp("-f", proxy.url("/changing"), tmp_path / "f").ok()
    assert (tmp_path / "f").read_bytes() == new


def test_wrong_keys_are_an_error_without_secrets(store):
    with Proxy(f"s3://{BUCKET}", store.settings(store.keys("wrong-secret", "other")).replace("-False\n", "-False other\n")) as proxy:
        xrdfs(proxy, "cat", "/f").fails(54, "SignatureDoesNotMatch")
        assert "wrong-secret" not in proxy.output() and store.key_id not in proxy.output()
    with Proxy("s3://none", store.settings()) as proxy:
        xrdfs(proxy, "ls", "/").fails(54, "NoSuchBucket")
    anonymous = "\n".join(line for line in store.settings().splitlines() if "s3credentials" not in line)
    with Proxy(f"s3://{BUCKET}", f"{anonymous}\n") as proxy:
        xrdfs(proxy, "cat", "/f").fails(54, "403")


def test_a_client_chooses_no_other_request(store, proxy):
    assert xrdfs(proxy, "cat", "/d/small?acl&authz=Bearer%20abc&versionId=7").ok().raw == b"small\n"


def test_a_command_line_serves_a_prefix(store, tmp_path):
    server = peers.Ours()
    server.command = lambda: [peers.program(), "serve", "--origin", f"s3://{BUCKET}/d", "--s3-endpoint", store.endpoint, "--s3-region", "eu-west-1",
                              "--s3-credentials", store.keys(), "--port", "0", "--admin-path", server.work / "admin"]
    with server:
        assert xrdfs(server, "cat", "/small").ok().raw == b"small\n"
        assert sorted(xrdfs(server, "ls", "/").ok().out.split()) == ["/e", "/small"]
        with open(f"/proc/{server.process.pid}/cmdline", "rb") as line:
            assert store.secret.encode() not in line.read()


def test_keys_that_others_can_read_stop_the_start(store):
    keys = store.keys(section="open")
    keys.chmod(0o644)
    server = Proxy(f"s3://{BUCKET}", store.settings(keys))
    try:
        # It opens the port before it reads the keys.
        with contextlib.suppress(RuntimeError):
            server.start()
        wait_until(lambda: not server.alive())
        assert "its permissions 0644 allow others to read the keys of the object store" in server.output()
    finally:
        server.remove()


class Misbehaving(AnsweringServer):
    """A store whose replies are given by a function of the handler."""

    def __init__(self, reply):
        super().__init__()
        self.reply = reply

    def answer(self, handler, _has_body):
        self.reply(handler)


def send(handler, status, body=b"", **headers):
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    if "Content_Length" not in headers:
        handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


def bad_range(handler):
    send(handler, 206, b"x" * 10, Content_Range="bytes 50-59/100", ETag='"1"')


def cut(handler):
    if handler.headers["Range"] == "bytes=0-0":
        return send(handler, 206, b"x", Content_Range="bytes 0-0/100", ETag='"1"', Last_Modified="Sun, 06 Nov 1994 08:49:37 GMT")
    handler.close_connection = True
    send(handler, 206, b"x" * 5, Content_Range="bytes 0-99/100", Content_Length="100", ETag='"1"')


def redirect(handler):
    send(handler, 301, x_amz_bucket_region="eu-west-1")


def denied(handler):
    send(handler, 403, b"<Error><Code>AccessDenied</Code></Error>")


def page(handler):
    """An endless listing of large names, and a redirect for objects."""
    if "list-type" not in handler.path:
        return send(handler, 404)
    count = getattr(page, "count", 0)
    page.count = count + 1
    entries = "".join(f"<Contents><Key>d/{count:08}-{number:04}-{'x' * 900}</Key><Size>1</Size></Contents>" for number in range(1000))
    end = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{count}</NextContinuationToken>"
    send(handler, 200, f"<ListBucketResult>{entries}{end}</ListBucketResult>".encode())


def bomb(handler):
    if "list-type" not in handler.path:
        return send(handler, 404)
    entities = "".join(f'<!ENTITY e{number} "{f"&e{number - 1};" * 10}">' for number in range(1, 10))
    send(handler, 200, f'<!DOCTYPE x [<!ENTITY e0 "x">{entities}]><ListBucketResult><Name>&e9;</Name></ListBucketResult>'.encode())


@pytest.mark.parametrize("answer, words, message", [
    (bad_range, ["cat", "/f"], "the range in it"),
    (redirect, ["cat", "/f"], "its region is eu-west-1"),
    (denied, ["cat", "/f"], "AccessDenied"),
    (page, ["ls", "/d"], "bytes of listings"),
    (bomb, ["ls", "/d"], "document type"),
], ids=lambda value: getattr(value, "__name__", None))
def test_a_store_that_misbehaves_is_an_error(answer, words, message):
    with Misbehaving(answer) as store, Proxy(f"s3://{BUCKET}", f"scalla.s3endpoint http://127.0.0.1:{store.port}") as proxy:
        xrdfs(proxy, *words).fails(54, message)
        assert raw.Connection(proxy).error(raw.STAT, bytes(16), b"/none") != 0


def test_a_cut_transfer_is_an_error(tmp_path):
    with Misbehaving(cut) as store, Proxy(f"s3://{BUCKET}", f"scalla.s3endpoint http://127.0.0.1:{store.port}") as proxy:
        xrdcp(proxy.url("/f"), tmp_path / "f").fails(54)


class FilledStore(ObjectStore):
    def __enter__(self):
        super().__enter__()
        self.place("f", CONTENT)
        return self


def test_a_stopped_store_fails_readers_and_returns():
    store = FilledStore()
    check_stopped(store, lambda: f"s3://{BUCKET}\n{store.settings()}")


def test_a_store_that_never_answers_is_an_error():
    with socket.create_server(("127.0.0.1", 0), backlog=200) as listener:
        check_silent(f"s3://{BUCKET}\nscalla.s3endpoint http://127.0.0.1:{listener.getsockname()[1]}")
