"""S3 of our server when replies are lost, clients vanish, the server is killed, and others write the same files."""

import concurrent.futures
import os
import shutil
import socket
import stat

import pytest

import peers
from certificates import new_authority
from s3_servers import SECONDS, S3Server, keys_file
from test_multiuser import USERS as ACCOUNTS
from test_multiuser import MultiUser, _may_mount
from test_s3_server import BIG, SMALL, begin_upload, code, failure, leave
from tools import run, scalla, wait_until
from web import HTTP

MIB = 1 << 20


@pytest.fixture(scope="module")
def ours():
    with S3Server() as found:
        yield found


@pytest.fixture(scope="module")
def s3(ours):
    return ours.client()


def hold(ours, path, headers=None):
    """Sends a part of an object, and returns its connection: the client seems to go on, and does not."""
    signed = ours.sign("PUT", path, {"Content-Length": str(len(BIG)), **(headers or {})}, payload="UNSIGNED-PAYLOAD")
    head = f"PUT {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in signed.items()) + "\r\n"
    hidden = len(hidden_files(ours))
    connection = socket.create_connection(("localhost", ours.port), timeout=SECONDS)
    connection.sendall(head.encode() + BIG[:MIB])
    wait_until(lambda: len(hidden_files(ours)) > hidden)
    return connection


def hidden_files(ours):
    return list(ours.tree.glob("**/.scalla-replacing-*"))


def finish(connection):
    """Sends the rest of an object, and returns the status of the reply."""
    connection.sendall(BIG[MIB:])
    return int(connection.recv(4096).split()[1])


def parts_of(s3, about):
    return {"Parts": [{"PartNumber": part["PartNumber"], "ETag": part["ETag"]} for part in s3.list_parts(**about)["Parts"]]}


def test_a_repeated_completion_has_the_reply_of_the_first(ours, s3):
    upload, directory = begin_upload(ours, "again/o", 1000)
    about = {"Bucket": "b", "Key": "again/o", "UploadId": upload}
    how = {**about, "MultipartUpload": parts_of(s3, about)}
    kept = ours.work / "kept"
    shutil.copytree(directory, kept)
    first = s3.complete_multipart_upload(**how)
    place = ours.tree / "b/again/o"
    before = place.stat()
    assert s3.complete_multipart_upload(**how)["ETag"] == first["ETag"] == s3.head_object(Bucket="b", Key="again/o")["ETag"]
    # Also with the condition that it met, and after a restart.
    assert s3.complete_multipart_upload(**how, IfNoneMatch="*")["ETag"] == first["ETag"]
    ours.restart()
    assert s3.complete_multipart_upload(**how)["ETag"] == first["ETag"]
    # The server has stopped before it removed the parts.
    shutil.copytree(kept, directory)
    run(["chown", "-R", ":".join(map(str, peers.unprivileged())), directory]).ok()
    assert s3.complete_multipart_upload(**how)["ETag"] == first["ETag"]
    assert place.stat().st_ino == before.st_ino and place.stat().st_mtime_ns == before.st_mtime_ns, "the parts are joined once"
    assert not directory.exists()
    # Another object in its place stays.
    newer = s3.put_object(Bucket="b", Key="again/o", Body=SMALL)["ETag"]
    assert s3.complete_multipart_upload(**how)["ETag"] == first["ETag"] != newer
    assert place.read_bytes() == SMALL
    # The next upload has its own record.
    upload, _ = begin_upload(ours, "again/o", 5)
    about = {"Bucket": "b", "Key": "again/o", "UploadId": upload}
    how = {**about, "MultipartUpload": parts_of(s3, about)}
    second = s3.complete_multipart_upload(**how)["ETag"]
    assert s3.complete_multipart_upload(**how)["ETag"] == second != first["ETag"]
    other = {**how, "UploadId": "0" * 32}
    assert failure(s3.complete_multipart_upload, **other) == (404, "NoSuchUpload")


def test_a_server_that_is_killed_during_a_completion_has_one_object():
    with S3Server() as ours:
        s3 = ours.client()
        upload, directory = begin_upload(ours, "o", 64 * MIB)
        about = {"Bucket": "b", "Key": "o", "UploadId": upload}
        for number in range(2, 5):
            s3.upload_part(**about, PartNumber=number, Body=bytes(64 * MIB))
        how = {**about, "MultipartUpload": parts_of(s3, about)}
        with concurrent.futures.ThreadPoolExecutor() as pool:
            completed = pool.submit(s3.complete_multipart_upload, **how)
            wait_until(lambda: hidden_files(ours) or completed.done())
            ours.process.kill()
            ours.process.wait()
            completed.exception()
        ours.start()
        assert (ours.tree / "b/o").exists() or failure(s3.head_object, Bucket="b", Key="o")[0] == 404
        tag = s3.complete_multipart_upload(**how)["ETag"]
        assert s3.complete_multipart_upload(**how)["ETag"] == tag == s3.head_object(Bucket="b", Key="o")["ETag"]
        assert (ours.tree / "b/o").stat().st_size == 4 * 64 * MIB and not directory.exists()
        wait_until(lambda: os.listdir(ours.tree / "b") == ["o"])


def test_a_client_that_has_vanished_does_not_delay_its_retry(ours, s3):
    s3.put_object(Bucket="b", Key="retry/old", Body=b"old")
    upload, directory = begin_upload(ours, "retry/parts")
    part = f"/b/retry/parts?partNumber=1&uploadId={upload}"
    for path, headers in (("/b/retry/new", {}), ("/b/retry/old", {}), ("/b/retry/exclusive", {"If-None-Match": "*"}), (part, {})):
        vanished = hold(ours, path, headers)
        try:
            if path != part:
                key = path.removeprefix("/b/")
                # What is not whole is not there.
                found = ours.ask("GET", path)
                assert found[2] == b"old" if key == "retry/old" else code(found) == (404, "NoSuchKey")
            assert code(ours.ask("PUT", path, headers, SMALL)) == (200, None), path
            # The one that began first ends last.
            assert finish(vanished) == (412 if headers else 200), path
        finally:
            vanished.close()
        if path != part:
            assert (ours.tree / path[1:]).read_bytes() == (SMALL if headers else BIG)
    assert (directory / "parts/00001").read_bytes() == BIG
    vanished = hold(ours, part)
    s3.abort_multipart_upload(Bucket="b", Key="retry/parts", UploadId=upload)
    assert not (directory / "parts/00001").exists()
    vanished.close()
    wait_until(lambda: not hidden_files(ours))


def test_one_of_many_exclusive_writes_creates_the_object(ours, s3):
    def put(number):
        return code(ours.ask("PUT", "/b/lock", {"If-None-Match": "*"}, bytes([number]) * 100_000))

    def complete(about, parts):
        document = "".join(f"<Part><PartNumber>{part['PartNumber']}</PartNumber><ETag>{part['ETag']}</ETag></Part>" for part in parts)
        body = f"<CompleteMultipartUpload>{document}</CompleteMultipartUpload>".encode()
        return code(ours.ask("POST", f"/b/lock?uploadId={about['UploadId']}", {"If-None-Match": "*"}, body))

    uploads = [{"Bucket": "b", "Key": "lock", "UploadId": begin_upload(ours, "lock", 100_000)[0]} for _ in range(8)]
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        found = [pool.submit(complete, about, parts_of(s3, about)["Parts"]) for about in uploads] + [pool.submit(put, number) for number in range(16)]
        found = [one.result() for one in found]
    assert sorted(found) == sorted([(200, None)] + [(412, "PreconditionFailed")] * 23, key=str), found
    assert len(set((ours.tree / "b/lock").read_bytes())) == 1 and (ours.tree / "b/lock").stat().st_size == 100_000
    for about in uploads:
        ours.ask("DELETE", f"/b/lock?uploadId={about['UploadId']}")


def test_a_killed_server_leaves_nothing_of_an_exclusive_write():
    with S3Server() as ours:
        s3 = ours.client()
        held = hold(ours, "/b/new", {"If-None-Match": "*"})
        ours.process.kill()
        ours.process.wait()
        held.close()
        ours.start()
        assert failure(s3.head_object, Bucket="b", Key="new")[0] == 404
        s3.put_object(Bucket="b", Key="new", Body=SMALL, IfNoneMatch="*")
        wait_until(lambda: os.listdir(ours.tree / "b") == ["new"])


def test_a_completion_ends_when_its_client_leaves():
    with S3Server() as ours:
        s3 = ours.client()
        upload, directory = begin_upload(ours, "o")
        os.truncate(directory / "o/00001", 1 << 40)
        about = {"Bucket": "b", "Key": "o", "UploadId": upload}
        [part] = parts_of(s3, about)["Parts"]
        body = f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{part['ETag']}</ETag></Part></CompleteMultipartUpload>".encode()
        leave(ours, "POST", f"/b/o?uploadId={upload}", body=body, seen=lambda: bool(hidden_files(ours)))
        wait_until(lambda: not hidden_files(ours))
        assert (directory / "o/00001").exists() and not (ours.tree / "b/o").exists()
        # It is in use no longer.
        s3.abort_multipart_upload(**about)
        assert os.listdir(ours.tree / "b") == []


def test_a_change_in_place_within_a_tick_has_another_tag(ours, s3):
    place = ours.tree / "b/inplace"
    peers.place(place, bytes(1000))
    tags = []
    with open(place, "r+b", buffering=0) as file:
        for number in range(100):
            tag = s3.head_object(Bucket="b", Key="inplace")["ETag"]
            assert tag.startswith('"') and tag not in tags
            tags.append(tag)
            os.pwrite(file.fileno(), bytes([number + 1]), 0)
            # A reader does not get the new content under the old tag.
            assert failure(s3.get_object, Bucket="b", Key="inplace", IfMatch=tag) == (412, "PreconditionFailed")


def test_only_files_and_directories_are_objects(ours, s3):
    directory = ours.tree / "b/kinds"
    directory.mkdir()
    os.mkfifo(directory / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "socket"))
        os.mknod(directory / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        (directory / "file").write_bytes(SMALL)
        run(["chown", "-R", ":".join(map(str, peers.unprivileged())), directory]).ok()
        for how in ({}, {"Delimiter": "/"}):
            assert [entry["Key"] for entry in s3.list_objects_v2(Bucket="b", Prefix="kinds/", **how)["Contents"]] == ["kinds/file"]
        for name in ("pipe", "socket", "device"):
            assert failure(s3.head_object, Bucket="b", Key=f"kinds/{name}")[0] == 404, name
            assert failure(s3.get_object, Bucket="b", Key=f"kinds/{name}")[0] == 404, name
            assert failure(s3.copy_object, Bucket="b", Key="kinds/copy", CopySource=f"b/kinds/{name}")[0] == 404, name
            assert code(ours.ask("PUT", f"/b/kinds/{name}", body=SMALL))[0] in (400, 409, 500, 503), name
            s3.delete_object(Bucket="b", Key=f"kinds/{name}")
            assert (directory / name).exists(), name


def test_uploads_in_parts_are_not_reached_by_other_protocols():
    with S3Server(rules="u * / a\n") as ours:
        s3 = ours.client()
        upload, directory = begin_upload(ours, "d/o", 1000)
        inner = f"/b/d/.scalla-multipart-{upload}"
        for method, path, headers in (("GET", f"{inner}/o/00001", {}), ("PUT", f"{inner}/o/00002", {"Content-Length": "1"}), ("DELETE", inner, {}),
                                      ("PROPFIND", inner, {"Depth": "1"}), ("MOVE", f"{inner}/o/00001", {"Destination": "/b/x"}), ("MKCOL", f"{inner}/y", {})):
            status, _, body = ours.send(method, path, {"Host": "h", **headers}, b"x" if method == "PUT" else b"")
            assert status == 403, (method, status, body)
        status, _, body = ours.send("PROPFIND", "/b/d/", {"Host": "h", "Depth": "1"})
        assert status == 207 and b"scalla-multipart" not in body
        url = f"root://localhost:{ours.port}/"
        assert "multipart" not in scalla("ls", f"{url}/b/d").ok().out
        for words in (("ls", f"{url}{inner}"), ("rm", f"{url}{inner}/o/00001"), ("cp", f"{url}{inner}/o/00001", str(ours.work / "x")),
                      ("stat", f"{url}{inner}"), ("checksum", f"{url}{inner}/o/00001")):
            assert scalla(*words).status != 0, words
        for key in (f"d/.scalla-multipart-{upload}", f"d/.scalla-multipart-{upload}/o/00001"):
            assert failure(s3.get_object, Bucket="b", Key=key) == (400, "InvalidArgument")
        assert failure(s3.copy_object, Bucket="b", Key="x", CopySource=f"b/d/.scalla-multipart-{upload}/o/00001") == (400, "InvalidArgument")
        assert (directory / "o/00001").exists()
        about = {"Bucket": "b", "Key": "d/o", "UploadId": upload}
        s3.complete_multipart_upload(**about, MultipartUpload=parts_of(s3, about))
        assert (ours.tree / "b/d/o").read_bytes() == bytes(1000)


def test_s3_over_https(tmp_path):
    with new_authority() as authority, S3Server(settings=authority.settings()) as ours:
        peers.place(ours.tree / "b/small", SMALL)
        s3 = ours.client(secure=authority.file)
        assert s3.get_object(Bucket="b", Key="small")["Body"].read() == SMALL
        s3.put_object(Bucket="b", Key="big", Body=BIG)
        assert (ours.tree / "b/big").read_bytes() == BIG
        about = {"Bucket": "b", "Key": "parts", "UploadId": s3.create_multipart_upload(Bucket="b", Key="parts")["UploadId"]}
        s3.upload_part(**about, PartNumber=1, Body=BIG)
        s3.complete_multipart_upload(**about, MultipartUpload=parts_of(s3, about))
        assert s3.get_object(Bucket="b", Key="parts", Range="bytes=5-9")["Body"].read() == BIG[5:10]
        url = s3.generate_presigned_url("get_object", {"Bucket": "b", "Key": "big"}, ExpiresIn=60)
        assert url.startswith("https://")
        fetched = tmp_path / "big"
        run(["curl", "-sS", "--fail", "--cacert", authority.file, "-o", fetched, url], seconds=SECONDS).ok()
        assert fetched.read_bytes() == BIG
        # Without the authority the certificate is refused.
        assert run(["curl", "-sS", "-o", fetched, url], seconds=SECONDS).status != 0


@pytest.mark.skipif(not _may_mount(), reason="needs root and mount namespaces")
def test_users_of_s3_are_accounts_of_a_multi_user_server():
    ours = MultiUser(settings=HTTP)
    users = {user: (f"{user.upper()}-KEY", f"{user}-secret-0123456789abcdef") for user in ("alice", "bob", "ghost")}
    ours.settings += f"scalla.s3 credentials {keys_file(ours.work / 's3keys', users)}\n"
    with ours:
        def client(user):
            key, secret = users[user]
            return S3Server.client_of(f"http://localhost:{ours.port}", key, secret)

        alice, bob = client("alice"), client("bob")
        alice.put_object(Bucket="home", Key="alice/f", Body=SMALL)
        about = {"Bucket": "home", "Key": "alice/parts", "UploadId": alice.create_multipart_upload(Bucket="home", Key="alice/parts")["UploadId"]}
        alice.upload_part(**about, PartNumber=1, Body=BIG)
        first = alice.complete_multipart_upload(**about, MultipartUpload=parts_of(alice, about))
        for name in ("f", "parts"):
            found = (ours.tree / "home/alice" / name).stat()
            assert (found.st_uid, found.st_gid) == ACCOUNTS["alice"], name
        assert first["ETag"] == alice.head_object(Bucket="home", Key="alice/parts")["ETag"]
        # The file system decides.
        assert failure(bob.get_object, Bucket="home", Key="alice/f") == (403, "AccessDenied")
        assert failure(bob.put_object, Bucket="home", Key="alice/x", Body=b"x") == (403, "AccessDenied")
        assert failure(bob.list_objects_v2, Bucket="home", Prefix="alice/") == (403, "AccessDenied")
        # A user without an account has no rights.
        assert failure(client("ghost").get_object, Bucket="home", Key="alice/f")[0] == 403
        assert failure(client("ghost").put_object, Bucket="open", Key="x", Body=b"x")[0] == 403
        assert sorted(os.listdir(ours.tree / "home/alice")) == ["f", "parts"]
