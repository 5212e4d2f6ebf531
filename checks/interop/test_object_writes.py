"""Files written through a proxy to object stores with S3: whole or not at all."""

import struct
import threading
import time
import urllib.request

import pytest

import peers
import raw
from codes import ErrorCode
from object_stores import BUCKET, FaultyProxy, FaultyStore, ObjectStore, StoreProxy
from test_cache import CACHE
from test_checksum import crc32c
from test_third_party import copy
from tools import data, scalla, wait_until, xrdcp, xrdfs

MIB = 1 << 20
# The size of parts of files whose size is not known, and of others.
PART = 16 * MIB
KNOWN_PART = 8 * MIB
LARGE = data(2 * KNOWN_PART + 3_000_017)
WRITE_NEW = raw.O_UPDT | raw.O_NEW
REPLACE = raw.O_UPDT | raw.O_DELETE


@pytest.fixture(scope="module")
def store():
    with ObjectStore() as found:
        yield found


@pytest.fixture(scope="module")
def proxy(store):
    with StoreProxy(store, settings="xrd.protocol http *\n") as server:
        yield server


def content(store, key):
    return store.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()


def uploads(store):
    return store.s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])


@pytest.mark.parametrize("size", [0, 1, KNOWN_PART, KNOWN_PART + 1, 2 * KNOWN_PART, len(LARGE)])
def test_xrdcp_writes_objects_of_all_sizes(store, proxy, tmp_path, size):
    (tmp_path / "f").write_bytes(LARGE[:size])
    for number, more in enumerate([[], ["-S", "4"], ["-f"]]):
        key = f"up/{size} ü&{number % 2}"
        xrdcp(*more, tmp_path / "f", proxy.url(f"/{key}")).ok()
        assert content(store, key) == LARGE[:size], more
        xrdcp("-f", proxy.url(f"/{key}"), tmp_path / "back").ok()
        assert (tmp_path / "back").read_bytes() == LARGE[:size]
    assert uploads(store) == []
    xrdcp(tmp_path / "f", proxy.url(f"/up/{size} ü&0")).fails(50, "file exists")


def test_our_client_and_http_write_objects(store, proxy, tmp_path):
    (tmp_path / "f").write_bytes(LARGE)
    scalla("cp", tmp_path / "f", proxy.url("/ours/f")).ok()
    assert content(store, "ours/f") == LARGE
    request = urllib.request.Request(f"http://localhost:{proxy.port}/ours/http", data=LARGE, method="PUT")
    assert urllib.request.urlopen(request, timeout=60).status == 201
    assert content(store, "ours/http") == LARGE
    # In chunks, without a size.
    request = urllib.request.Request(f"http://localhost:{proxy.port}/ours/http", data=iter([LARGE[:5_000_000], LARGE[5_000_000:]]), method="PUT")
    assert urllib.request.urlopen(request, timeout=60).status == 201
    assert content(store, "ours/http") == LARGE


def test_names_are_changed(store, proxy):
    store.place("names/f", b"content")
    store.place("names/x y+&ü", b"odd")
    xrdfs(proxy, "mkdir", "/names/d").ok()
    assert "IsDir" in xrdfs(proxy, "stat", "/names/d").ok().out
    assert "/names/d" in xrdfs(proxy, "ls", "/names").ok().out.split()
    assert xrdfs(proxy, "ls", "/names/d").ok().out == ""
    # As on a disk.
    xrdfs(proxy, "mkdir", "/names/d").ok()
    xrdfs(proxy, "mkdir", "-p", "/names/d").ok()
    xrdfs(proxy, "mkdir", "/names/f").fails(54, "exists already")
    xrdfs(proxy, "rmdir", "/names/none").ok()
    xrdfs(proxy, "mkdir", "/names/e").ok()
    xrdfs(proxy, "rm", "/names/e").ok()
    xrdfs(proxy, "stat", "/names/e").fails(54)
    xrdfs(proxy, "mv", "/names/x y+&ü", "/names/d/z+ ü").ok()
    assert content(store, "names/d/z+ ü") == b"odd"
    xrdfs(proxy, "stat", "/names/x y+&ü").fails(54)
    xrdfs(proxy, "rmdir", "/names/d").fails(54, "not empty")
    for words, text in [(["mv", "/names/d", "/names/e"], "cannot rename"), (["rm", "/names/d"], "not empty"), (["rm", "/names/none"], ""),
                        (["mv", "/names/f", "/names/d"], "is a directory"), (["mv", "/names/none", "/names/e"], ""), (["rmdir", "/names/f"], "is not a directory"),
                        (["truncate", "/names/f", "1"], "cannot set the size")]:
        xrdfs(proxy, *words).fails(54, text)
    xrdfs(proxy, "mv", "/names/d/z+ ü", "/names/f").ok()
    assert content(store, "names/f") == b"odd"
    xrdfs(proxy, "rmdir", "/names/d").ok()
    xrdfs(proxy, "rm", "/names/f").ok()
    assert "Contents" not in store.s3.list_objects_v2(Bucket=BUCKET, Prefix="names/")


def test_a_read_only_export_is_not_written(store):
    store.place("kept", b"kept")
    with StoreProxy(store, export="/ r/o") as proxy:
        connection = raw.Connection(proxy)
        for options in (WRITE_NEW, REPLACE):
            assert connection.error(raw.OPEN, struct.pack(">HH", 0o644, options), b"/kept") == ErrorCode.FS_READ_ONLY
        for code in (raw.RM, raw.MKDIR):
            assert connection.error(code, bytes(16), b"/kept") == ErrorCode.FS_READ_ONLY
    assert content(store, "kept") == b"kept"


def test_a_store_cannot_do_everything(store, proxy):
    store.place("old", b"old content")
    connection = raw.Connection(proxy)
    with pytest.raises(raw.Failed, match="cannot change a part of a file"):
        connection.open("/old", raw.O_UPDT)
    with pytest.raises(raw.Failed, match="is a directory"):
        store.place("dir/f", b"")
        connection.open("/dir", REPLACE)
    handle = connection.open("/old", REPLACE)
    connection.write(handle, 100, b"end")
    assert connection.stat(handle=handle)[1] == "103"
    connection.sync(handle)
    assert connection.error(raw.READ, struct.pack(">4sqi", handle, 100, 3)) == ErrorCode.UNSUPPORTED
    assert connection.error(raw.CLOSE, handle) == ErrorCode.UNSUPPORTED
    assert content(store, "old") == b"old content", "there was a gap"
    # Any order is possible within what was not sent.
    handle = connection.open("/old", REPLACE)
    connection.write(handle, 5, b"xxxxx")
    connection.write(handle, 0, b"01234")
    connection.write(handle, 5, b"56789")
    connection.ask(raw.TRUNCATE, struct.pack(">4sq", handle, 10))
    assert content(store, "old") == b"old content", "it is not closed"
    connection.close(handle)
    assert content(store, "old") == b"0123456789"
    handle = connection.open("/old", REPLACE)
    connection.write(handle, 0, LARGE[:PART])
    assert connection.error(raw.WRITE, struct.pack(">4sq", handle, 0), b"x") == ErrorCode.UNSUPPORTED
    assert connection.error(raw.SYNC, handle) == ErrorCode.FS_ERROR
    assert connection.error(raw.CLOSE, handle) == ErrorCode.FS_ERROR, "a write has failed"
    assert content(store, "old") == b"0123456789"
    wait_until(lambda: uploads(store) == [])
    # Begun anew, after a part was sent.
    handle = connection.open("/old", REPLACE)
    connection.write(handle, 0, LARGE[:PART])
    connection.ask(raw.TRUNCATE, struct.pack(">4sq", handle, 0))
    connection.write(handle, 0, b"anew")
    connection.close(handle)
    assert content(store, "old") == b"anew"
    wait_until(lambda: uploads(store) == [])


def test_a_client_that_leaves_leaves_nothing(store, proxy):
    store.place("left", b"old")
    connection = raw.Connection(proxy)
    handle, new = connection.open("/left", REPLACE), connection.open("/left-new", WRITE_NEW)
    connection.write(handle, 0, LARGE[:PART + 7])
    connection.write(new, 0, b"part")
    assert len(uploads(store)) == 1
    connection.vanish()
    wait_until(lambda: uploads(store) == [])
    assert content(store, "left") == b"old"
    assert xrdfs(proxy, "stat", "/left-new").status != 0


def test_a_killed_proxy_leaves_nothing_visible(store):
    store.place("killed", b"old")
    with StoreProxy(store) as proxy:
        connection = raw.Connection(proxy)
        handle = connection.open("/killed", REPLACE)
        connection.write(handle, 0, LARGE[:PART + 7])
        proxy.kill()
    assert content(store, "killed") == b"old"
    (left,) = uploads(store)
    store.s3.abort_multipart_upload(Bucket=BUCKET, Key="killed", UploadId=left["UploadId"])


def test_a_replaced_object_is_not_read_from_the_cache(store, tmp_path):
    store.place("cached", LARGE[:1000])
    wait_until(lambda: time.time() - store.s3.head_object(Bucket=BUCKET, Key="cached")["LastModified"].timestamp() > 11)
    with StoreProxy(store, settings=CACHE) as cache:
        for expected in (LARGE[:1000], LARGE[1000:2000], LARGE[2000:3000]):
            (tmp_path / "new").write_bytes(expected)
            if expected != LARGE[:1000]:
                xrdcp("-f", tmp_path / "new", cache.url("/cached")).ok()
            assert xrdfs(cache, "cat", "/cached").ok().raw == expected
        xrdfs(cache, "rm", "/cached").ok()
        xrdfs(cache, "cat", "/cached").fails(54)


@pytest.fixture(scope="module")
def faulty_proxy():
    with FaultyStore() as store, FaultyProxy(store) as proxy:
        proxy.store = store
        yield proxy


@pytest.fixture
def faulty(faulty_proxy):
    """A store without objects and faults."""
    store = faulty_proxy.store
    store.objects.clear(), store.uploads.clear(), store.faults.clear(), store.steps.clear()
    return store


def write(proxy, path, content, options=REPLACE):
    """Returns the error codes of the write and the close."""
    with raw.Connection(proxy) as connection:
        try:
            handle = connection.open(path, options)
        except raw.Failed as failed:
            return [failed.code]
        codes = []
        for call in (lambda: connection.write(handle, 0, content), lambda: connection.close(handle)):
            try:
                call()
            except raw.Failed as failed:
                codes.append(failed.code)
        return codes


def test_the_bucket_is_never_removed(faulty, faulty_proxy):
    """An empty one is an empty directory."""
    for command in ("rmdir", "rm"):
        xrdfs(faulty_proxy, command, "/").fails(54, "bucket itself")
    assert faulty.steps["delete"] == 0


def test_a_store_that_has_made_what_it_reports_as_failed_gets_it_once(faulty, faulty_proxy):
    def fault(step, handler):
        if step == "put":
            faulty.objects["f"] = b"new"
            faulty.send(handler, 500, b"<Error><Code>InternalError</Code></Error>")
        return step == "put"

    faulty.faults.append(fault)
    assert write(faulty_proxy, "/f", b"new", WRITE_NEW) == [ErrorCode.SERVER_ERROR]
    assert faulty.steps["put"] == 1


@pytest.mark.parametrize("status", [403, 500, 507])
@pytest.mark.parametrize("step", ["head", "put", "begin", "part", "complete"])
def test_a_step_that_fails_leaves_the_old_object(faulty, faulty_proxy, step, status):
    faulty.objects["f"] = b"old"
    faulty.fail(step, status)
    content = b"new" if step == "put" else LARGE[:PART + 1]
    assert write(faulty_proxy, "/f", content) != []
    assert faulty.objects["f"] == b"old"
    wait_until(lambda: not faulty.uploads)


def test_a_store_that_is_overloaded_for_a_while_gets_the_object(faulty, faulty_proxy):
    for step in ("begin", "part", "complete"):
        faulty.fail(step, 503, times=1)
    assert write(faulty_proxy, "/f", LARGE[:PART + 1]) == []
    assert faulty.objects["f"] == LARGE[:PART + 1] and not faulty.uploads


def test_a_success_with_an_error_in_it_is_a_failure(faulty, faulty_proxy):
    def fault(step, handler):
        if step == "complete":
            faulty.send(handler, 200, b"<Error><Code>InternalError</Code></Error>")
        return step == "complete"

    faulty.objects["f"] = b"old"
    faulty.faults.append(fault)
    assert write(faulty_proxy, "/f", LARGE[:PART + 1]) == [ErrorCode.SERVER_ERROR]
    assert faulty.objects["f"] == b"old"
    wait_until(lambda: not faulty.uploads)


def test_parts_stay_in_no_store_whose_removals_fail_at_first(faulty, faulty_proxy):
    faulty.fail("complete", 403)
    faulty.fail("abort", 403, times=1)
    assert write(faulty_proxy, "/f", LARGE[:PART + 1]) == [ErrorCode.NOT_AUTHORIZED]
    wait_until(lambda: not faulty.uploads)
    assert faulty.objects == {}


@pytest.mark.parametrize("step", ["part", "complete", "put"])
def test_a_store_that_stalls_is_an_error(faulty, step):
    """Nothing is visible, also when the store goes on later."""
    go_on = threading.Event()

    def fault(asked, _handler):
        if go_on.is_set():
            return False
        if asked in (step, "probe"):
            go_on.wait(60)
        return False

    content = b"new" if step == "put" else LARGE[:PART + 1]
    with FaultyProxy(faulty) as proxy:
        faulty.faults.append(fault)
        try:
            codes = write(proxy, "/f", content)
        finally:
            go_on.set()
    assert ErrorCode.NO_SERVER in codes


def test_two_writers_of_one_name(faulty, faulty_proxy):
    first, second = raw.Connection(faulty_proxy), raw.Connection(faulty_proxy)
    handles = [connection.open("/f", REPLACE) for connection in (first, second)]
    one, other = LARGE[:PART + 5], LARGE[-PART - 9:]
    for connection, handle, content in ((first, handles[0], one), (second, handles[1], other)):
        connection.write(handle, 0, content)
    second.close(handles[1])
    assert faulty.objects == {"f": other}
    first.close(handles[0])
    assert faulty.objects == {"f": one} and not faulty.uploads
    # Neither replaces the other.
    for content in (b"small", one):
        faulty.objects.clear()
        handles = [connection.open("/f", WRITE_NEW) for connection in (first, second)]
        second.write(handles[1], 0, other)
        first.write(handles[0], 0, content)
        second.close(handles[1])
        assert first.error(raw.CLOSE, handles[0]) == ErrorCode.IT_EXISTS
        assert faulty.objects == {"f": other}
        wait_until(lambda: not faulty.uploads)


def test_a_thousand_small_files():
    """The store is its own, because that of other tests may still end a request that one of them has left."""
    with FaultyStore() as store, FaultyProxy(store) as proxy:
        write_a_thousand(proxy, store)


def write_a_thousand(proxy, store):
    failed = []

    def some(first):
        with raw.Connection(proxy) as connection:
            for number in range(first, 1000, 8):
                try:
                    handle = connection.open(f"/many/{number}?oss.asize=8", WRITE_NEW)
                    connection.write(handle, 0, b"%08d" % number)
                    connection.close(handle)
                except raw.Failed as failure:
                    failed.append(str(failure))

    threads = [threading.Thread(target=some, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert failed == []
    assert store.objects == {f"many/{number}": b"%08d" % number for number in range(1000)}
    assert store.steps["put"] == 1000


def test_files_that_are_open_have_bounded_memory(faulty, faulty_proxy):
    """Each keeps memory for a part. Those of one host have half of all."""
    connection = raw.Connection(faulty_proxy)
    opened = 0
    with pytest.raises(raw.Failed, match="this host"):
        for number in range(100):
            connection.open(f"/f{number}", WRITE_NEW)
            opened += 1
    assert opened == 256 * MIB // PART
    connection.vanish()
    wait_until(lambda: write(faulty_proxy, "/f", b"content") == [])


def test_sizes_that_lie_take_no_memory_of_others(faulty, faulty_proxy):
    """One byte at the end of a part needs the memory of all of it, also if the file has announced one byte."""
    refused, opened = [], []
    connections = [raw.Connection(faulty_proxy, timeout=90) for _ in range(40)]
    for number, connection in enumerate(connections):
        opened.append(connection.open(f"/lie{number}?oss.asize=1", WRITE_NEW))
    for connection, handle in zip(connections, opened):
        try:
            connection.write(handle, KNOWN_PART - 2, b"x")
        except raw.Failed as failure:
            refused.append(failure.code)
    assert len(refused) >= 40 - 256 * MIB // KNOWN_PART and set(refused) == {ErrorCode.OVERLOADED}
    for connection in connections:
        connection.vanish()
    wait_until(lambda: write(faulty_proxy, "/f", b"content") == [])


@pytest.mark.parametrize("size", [5, KNOWN_PART + 5])
def test_a_file_that_is_shorter_than_announced_does_not_appear(faulty, faulty_proxy, size):
    """As when the source of a copy fails: its client closes the file."""
    faulty.objects["f"] = b"old"
    with raw.Connection(faulty_proxy) as connection:
        handle = connection.open(f"/f?oss.asize={size + 5}", REPLACE)
        connection.write(handle, 0, LARGE[:size])
        with pytest.raises(raw.Failed, match=f"{size} of the {size + 5} bytes"):
            connection.close(handle)
    assert faulty.objects == {"f": b"old"}
    wait_until(lambda: not faulty.uploads)


@pytest.mark.parametrize("status", [403, 500, None])
def test_a_store_that_never_removes_delays_no_close(faulty, faulty_proxy, status):
    """The close is answered before a removal is."""
    held = threading.Event()

    def fault(step, _handler):
        if step == "abort":
            held.wait(60)
        return False

    if status:
        faulty.fail("abort", status)
    else:
        faulty.faults.append(fault)
    faulty.fail("complete", 403)
    try:
        assert write(faulty_proxy, "/f", LARGE[:PART + 1]) == [ErrorCode.NOT_AUTHORIZED]
        assert len(faulty.uploads) == 1
    finally:
        faulty.faults.clear()
        held.set()
    wait_until(lambda: not faulty.uploads)


def test_a_client_that_leaves_during_a_part_leaves_nothing(faulty, faulty_proxy):
    """Its memory is free while the store has not answered."""
    held, begun = threading.Event(), threading.Semaphore(0)

    def fault(step, _handler):
        if step == "part":
            begun.release()
            held.wait(60)
        return False

    faulty.faults.append(fault)
    connection = raw.Connection(faulty_proxy)
    try:
        handles = [connection.open(f"/left{number}?oss.asize=1g", WRITE_NEW) for number in range(32)]
        for handle in handles[:4]:
            connection.start(raw.WRITE, struct.pack(">4sq", handle, 0), LARGE[:KNOWN_PART])
        assert all(begun.acquire(timeout=60) for _ in range(4))
        connection.vanish()
        # All of the share of this host.
        def opens():
            with raw.Connection(faulty_proxy) as other:
                try:
                    for number in range(32):
                        other.open(f"/next{number}?oss.asize=1g", WRITE_NEW)
                except raw.Failed:
                    return False
                return True
        wait_until(opens)
    finally:
        held.set()
    assert faulty.objects == {}
    faulty.faults.clear()


def framed(content):
    """Returns the data of a pgwrite."""
    pages = [content[at:at + 4096] for at in range(0, len(content), 4096)]
    return b"".join(struct.pack(">I", crc32c(page)) + page for page in pages)


def test_a_bad_page_of_a_part_that_was_sent_ends_the_file(faulty, faulty_proxy):
    """Within a part that was not sent it is corrected."""
    for length, is_sent in ((2 * 4096, False), (KNOWN_PART, True)):
        faulty.objects["f"] = b"old"
        content = LARGE[:4096] + bytes(length - 4096)
        with raw.Connection(faulty_proxy) as connection:
            handle = connection.open(f"/f?oss.asize={length}", REPLACE)
            connection.write(handle, 4096, content[4096:])
            connection.ask(raw.PGWRITE, struct.pack(">4sq", handle, 0), struct.pack(">I", 1) + content[:4096])
            correction = struct.pack(">4sqBB", handle, 0, 0, 1), framed(content[:4096])
            if is_sent:
                with pytest.raises(raw.Failed, match="to correct a page"):
                    connection.ask(raw.PGWRITE, *correction)
                connection.error(raw.CLOSE, handle)
                assert faulty.objects["f"] == b"old"
            else:
                connection.ask(raw.PGWRITE, *correction)
                connection.close(handle)
                assert faulty.objects["f"] == content
    wait_until(lambda: not faulty.uploads)


def test_a_slow_close_is_announced(faulty, faulty_proxy):
    """The store makes the object when the client has been told to wait."""
    told = threading.Event()

    def fault(step, _handler):
        if step == "complete":
            told.wait(60)
        return False

    faulty.faults.append(fault)
    with raw.Connection(faulty_proxy, login=False) as connection:
        connection.hello()
        connection.login(capability=0x85)
        handle = connection.open("/f", REPLACE)
        connection.write(handle, 0, LARGE[:PART + 1])
        stream = connection.start(raw.CLOSE, handle)
        try:
            assert connection.answer().status == raw.WAITRESP
        finally:
            told.set()
        connection.result(stream)
    assert faulty.objects == {"f": LARGE[:PART + 1]}


def test_directories_need_the_right_to_make_them(faulty):
    """They appear with their first object, also where the client may write objects only."""
    proxy = FaultyProxy(faulty)
    peers.place(proxy.work / "rules", b"u * /d/new/ a /d/old/ a /d rl\n")
    proxy.settings += f"ofs.authorize\nacc.authdb {proxy.work / 'rules'}\n"
    faulty.objects["d/old/f"] = b"old"
    faulty.objects["d/old/file"] = b""
    with proxy:
        for options in (WRITE_NEW, WRITE_NEW | raw.O_MKPATH):
            assert write(proxy, "/d/new/x", b"new", options) == [ErrorCode.NOT_FOUND]
            assert write(proxy, "/d/old/below/x", b"new", options) == []
            del faulty.objects["d/old/below/x"]
        xrdfs(proxy, "mv", "/d/old/f", "/d/new/f").fails(54)
        assert sorted(faulty.objects) == ["d/old/f", "d/old/file"]
        assert write(proxy, "/d/old/x", b"new", WRITE_NEW | raw.O_MKPATH) == []
    assert faulty.objects["d/old/x"] == b"new"


def test_third_party_copies_to_a_store(store, tmp_path):
    with peers.Ours(settings="ofs.tpc ttl 90 120 logok\n") as source, StoreProxy(store, settings="ofs.tpc ttl 90 120 logok\n") as proxy:
        peers.place(source.tree / "f", LARGE)
        copy(f"root://127.0.0.1:{source.port}//f", f"root://127.0.0.1:{proxy.port}//copied", "--tpc", "only").ok()
        assert content(store, "copied") == LARGE


def test_a_copy_that_is_to_be_read_back_leaves_the_old_object(store, tmp_path):
    with peers.Ours(settings="ofs.tpc ttl 90 120 logok\n") as source, StoreProxy(store, settings="ofs.tpc ttl 90 120 logok cksum adler32\n") as proxy:
        peers.place(source.tree / "f", LARGE)
        store.place("copied", b"old")
        assert copy(f"root://127.0.0.1:{source.port}//f", f"root://127.0.0.1:{proxy.port}//copied", "--tpc", "only", "-f").status != 0
        assert content(store, "copied") == b"old"
        wait_until(lambda: uploads(store) == [])
