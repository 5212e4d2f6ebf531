"""S3 of our server: by boto3, rclone and our own client, and by requests that are signed by hand."""

import base64
import concurrent.futures
import hashlib
import io
import os
import re
import socket
import time
import urllib.request
import zlib

import botocore.exceptions
import pytest

import peers
from s3_servers import SECONDS, USERS, S3Server, keys_file, signed_chunks
from tools import data, run, scalla, wait_until

MIB = 1 << 20
BIG = data(3 * MIB + 17)
SMALL = b"hello world\n"


@pytest.fixture(scope="module")
def ours():
    with S3Server() as found:
        peers.place(found.tree / "b/small", SMALL)
        peers.place(found.tree / "b/big", BIG)
        peers.place(found.tree / "pub/p", SMALL)
        yield found


@pytest.fixture(scope="module")
def s3(ours):
    return ours.client()


def failure(action, *arguments, **named):
    """Returns status and code of the error of an action of boto3."""
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        action(*arguments, **named)
    response = caught.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]


def code(reply):
    """Returns status and code of a reply to a request by hand."""
    found = re.search(rb"<Code>(\w+)</Code>", reply[2])
    return reply[0], found and found.group(1).decode()


def names(s3, bucket="b", **how):
    found = s3.list_objects_v2(Bucket=bucket, **how)
    return [entry["Key"] for entry in found.get("Contents", [])], [entry["Prefix"] for entry in found.get("CommonPrefixes", [])]


def test_buckets_are_directories_that_the_user_may_see(ours, s3):
    assert {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]} == {"b", "pub"}
    # The rules show bob neither the root nor the bucket b.
    assert [bucket["Name"] for bucket in ours.client("bob").list_buckets()["Buckets"]] in ([], ["pub"])
    s3.head_bucket(Bucket="b")
    assert failure(s3.head_bucket, Bucket="none") == (404, "404")
    assert s3.get_bucket_location(Bucket="b")["LocationConstraint"] is None
    assert "Status" not in s3.get_bucket_versioning(Bucket="b")
    assert failure(s3.create_bucket, Bucket="b") == (409, "BucketAlreadyOwnedByYou")
    assert failure(s3.create_bucket, Bucket="new") == (501, "NotImplemented")
    assert failure(s3.delete_bucket, Bucket="b") == (501, "NotImplemented")
    assert failure(s3.get_bucket_acl, Bucket="b") == (501, "NotImplemented")
    assert not (ours.tree / "new").exists()


def test_objects_are_read_whole_and_by_ranges(ours, s3):
    for key, content in (("small", SMALL), ("big", BIG)):
        found = s3.get_object(Bucket="b", Key=key)
        assert found["Body"].read() == content and found["ContentLength"] == len(content)
        head = s3.head_object(Bucket="b", Key=key)
        assert (head["ContentLength"], head["ETag"], head["LastModified"]) == (len(content), found["ETag"], found["LastModified"])
        assert head["ETag"].startswith('"') and "-" in head["ETag"]
    size = len(BIG)
    for value, first, last in (("0-9", 0, 9), ("5-", 5, size - 1), ("-3", size - 3, size - 1), ("100000-900000", 100_000, 900_000)):
        found = s3.get_object(Bucket="b", Key="big", Range=f"bytes={value}")
        assert found["Body"].read() == BIG[first:last + 1] and found["ContentRange"] == f"bytes {first}-{last}/{size}", value
    assert failure(s3.get_object, Bucket="b", Key="big", Range=f"bytes={size}-") == (416, "InvalidRange")
    tag = s3.head_object(Bucket="b", Key="small")["ETag"]
    assert s3.get_object(Bucket="b", Key="small", IfMatch=tag)["Body"].read() == SMALL
    assert failure(s3.get_object, Bucket="b", Key="small", IfMatch='"other"') == (412, "PreconditionFailed")
    assert failure(s3.get_object, Bucket="b", Key="small", IfNoneMatch=tag)[0] == 304
    assert failure(s3.get_object, Bucket="b", Key="none") == (404, "NoSuchKey")
    assert failure(s3.get_object, Bucket="b", Key="small/x") == (404, "NoSuchKey")
    assert failure(s3.get_object, Bucket="none", Key="small") == (404, "NoSuchBucket")
    assert failure(s3.head_object, Bucket="b", Key="none")[0] == 404
    found = s3.get_object(Bucket="b", Key="small", ResponseContentType="text/plain", ResponseContentDisposition="attachment")
    assert (found["ContentType"], found["ContentDisposition"]) == ("text/plain", "attachment")


def test_each_replacement_has_another_tag(s3):
    tags = [s3.put_object(Bucket="b", Key="tags", Body=bytes([number]) * 1000)["ETag"] for number in range(50)]
    assert len(set(tags)) == 50
    assert s3.head_object(Bucket="b", Key="tags")["ETag"] == s3.list_objects_v2(Bucket="b", Prefix="tags")["Contents"][0]["ETag"] == tags[-1]
    # Ranges of different contents do not meet under one tag.
    for tag in tags[:-1]:
        assert failure(s3.get_object, Bucket="b", Key="tags", Range="bytes=0-9", IfMatch=tag) == (412, "PreconditionFailed")
        assert failure(s3.copy_object, Bucket="b", Key="x", CopySource="b/tags", CopySourceIfMatch=tag) == (412, "PreconditionFailed")
    assert s3.get_object(Bucket="b", Key="tags", IfMatch=tags[-1])["Body"].read() == bytes([49]) * 1000


def test_a_completion_joins_the_parts_that_it_names(s3):
    about = {"Bucket": "b", "Key": "named", "UploadId": s3.create_multipart_upload(Bucket="b", Key="named")["UploadId"]}
    tags = [s3.upload_part(**about, PartNumber=1, Body=bytes([number]) * 1000)["ETag"] for number in range(20)]
    for tag in tags[:-1]:
        parts = {"Parts": [{"PartNumber": 1, "ETag": tag}]}
        assert failure(s3.complete_multipart_upload, **about, MultipartUpload=parts) == (400, "InvalidPart")
    s3.complete_multipart_upload(**about, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": tags[-1]}]})
    assert s3.get_object(Bucket="b", Key="named")["Body"].read() == bytes([19]) * 1000


def test_only_signed_requests_of_known_keys_are_served(ours):
    path = "/b/small"
    assert code(ours.ask("GET", path)) == (200, None)
    assert code(ours.ask("GET", path, secret="other-secret-0123456789")) == (403, "SignatureDoesNotMatch")
    assert failure(ours.client(secret="x" * 40).get_object, Bucket="b", Key="small") == (403, "SignatureDoesNotMatch")
    headers = ours.sign("GET", path)
    assert code(ours.send("GET", "/b/big", headers)) == (403, "SignatureDoesNotMatch")
    assert code(ours.send("HEAD", path, headers))[0] == 403
    unknown = {**headers, "Authorization": headers["Authorization"].replace("ALICE-KEY", "MALLORY")}
    assert code(ours.send("GET", path, unknown)) == (403, "InvalidAccessKeyId")
    unsigned = {name: value for name, value in headers.items() if name != "Authorization"}
    assert code(ours.send("GET", path, unsigned)) == (403, "AccessDenied")
    assert code(ours.send("GET", path, {**headers, "x-amz-acl": "private"})) == (403, "AccessDenied")
    assert code(ours.send("GET", path, {**headers, "Authorization": "AWS ALICE-KEY:x"})) == (400, "InvalidRequest")
    assert code(ours.send("GET", path, {**headers, "Authorization": "AWS4-HMAC-SHA256 x"})) == (400, "AuthorizationHeaderMalformed")
    for time in ("20130524T000000Z", "20991231T000000Z"):
        day = re.sub(r"/\d{8}/", f"/{time[:8]}/", headers["Authorization"])
        found = code(ours.send("GET", path, {**headers, "X-Amz-Date": time, "Authorization": day}))
        assert found == (403, "RequestTimeTooSkewed"), time
    for time in ("yesterday", "", "20130524"):
        assert code(ours.send("GET", path, {**headers, "X-Amz-Date": time}))[0] in (400, 403), time
    # Requests of WebDAV are not signed, and rules decide about them.
    status, _, body = ours.send("GET", path, {"Host": "h"})
    assert status == 403 and b"<Code>" not in body


def test_rules_decide_about_each_operation(ours):
    bob, alice = ours.client("bob"), ours.client()
    assert bob.get_object(Bucket="pub", Key="p")["Body"].read() == SMALL
    denied = (403, "AccessDenied")
    assert failure(bob.put_object, Bucket="pub", Key="new", Body=b"x") == denied
    assert failure(bob.delete_object, Bucket="pub", Key="p") == denied
    assert failure(bob.get_object, Bucket="b", Key="small") == denied
    assert failure(bob.list_objects_v2, Bucket="b") == denied
    assert failure(bob.copy_object, Bucket="b", Key="bob/stolen", CopySource="b/small") == denied
    assert failure(bob.copy_object, Bucket="pub", Key="copied", CopySource="pub/p") == denied
    assert failure(bob.create_multipart_upload, Bucket="pub", Key="parts") == denied
    found = bob.delete_objects(Bucket="pub", Delete={"Objects": [{"Key": "p"}]})
    assert [error["Code"] for error in found["Errors"]] == ["AccessDenied"]
    assert (ours.tree / "pub/p").read_bytes() == SMALL and sorted(os.listdir(ours.tree / "pub")) == ["p"]
    bob.copy_object(Bucket="b", Key="bob/own", CopySource="pub/p")
    assert bob.get_object(Bucket="b", Key="bob/own")["Body"].read() == SMALL
    assert failure(alice.get_object, Bucket="c", Key="x")[0] in (403, 404)


@pytest.mark.parametrize("size", [0, 1, 65536, len(BIG)])
@pytest.mark.parametrize("settings", [{}, {"s3": {"payload_signing_enabled": False}}, {"request_checksum_calculation": "when_required"}],
                         ids=["default", "unsigned", "required"])
def test_objects_of_all_sizes_are_written(ours, size, settings):
    s3 = ours.client(**dict(settings))
    key = f"up/{size} ü+&%"
    put = s3.put_object(Bucket="b", Key=key, Body=BIG[:size])
    assert (ours.tree / "b" / key).read_bytes() == BIG[:size]
    head = s3.head_object(Bucket="b", Key=key)
    assert head["ETag"] == put["ETag"] and s3.get_object(Bucket="b", Key=key)["Body"].read() == BIG[:size]
    assert s3.put_object(Bucket="b", Key=key, Body=SMALL)["ETag"] != put["ETag"]
    assert failure(s3.put_object, Bucket="b", Key=key, Body=b"other", IfNoneMatch="*") == (412, "PreconditionFailed")
    assert (ours.tree / "b" / key).read_bytes() == SMALL


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "SHA1", "SHA256", "CRC64NVME"])
def test_checksums_are_verified_before_an_object_appears(ours, algorithm):
    values = {"CRC32": zlib.crc32(SMALL).to_bytes(4, "big"), "SHA1": hashlib.sha1(SMALL).digest(), "SHA256": hashlib.sha256(SMALL).digest()}
    name = f"x-amz-checksum-{algorithm.lower()}"
    key = f"/b/sums/{algorithm}"
    if algorithm in values:
        value = base64.b64encode(values[algorithm]).decode()
        assert code(ours.ask("PUT", key, {name: value}, SMALL)) == (200, None)
    wrong = base64.b64encode(bytes({"CRC64NVME": 8, "SHA1": 20, "SHA256": 32}.get(algorithm, 4))).decode()
    assert code(ours.ask("PUT", f"{key}-wrong", {name: wrong}, SMALL)) == (400, "BadDigest")
    md5 = {"Content-MD5": base64.b64encode(hashlib.md5(b"x").digest()).decode()}
    assert code(ours.ask("PUT", f"{key}-wrong", md5, SMALL)) == (400, "BadDigest")
    assert code(ours.ask("PUT", f"{key}-wrong", payload="0" * 64, body=SMALL)) == (400, "XAmzContentSHA256Mismatch")
    assert not (ours.tree / f"b/sums/{algorithm}-wrong").exists()


def chunked(ours, path, chunks, trailers=(), tamper=lambda body: body, **headers):
    """Stores an object in signed chunks, and returns status and code."""
    decoded = str(sum(map(len, chunks)))
    payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" + ("-TRAILER" if trailers else "")
    named = {"x-amz-trailer": ",".join(name for name, _ in trailers)} if trailers else {}
    signed = ours.sign("PUT", path, {"Content-Encoding": "aws-chunked", "x-amz-decoded-content-length": decoded, **named, **headers}, payload=payload)
    return code(ours.send("PUT", path, signed, tamper(signed_chunks(signed, chunks, trailers=trailers))))


def test_signed_chunks_are_verified_before_an_object_appears(ours):
    chunks = [BIG[:65536], BIG[65536:70000]]
    place = ours.tree / "b/chunks"
    assert chunked(ours, "/b/chunks", chunks) == (200, None) and place.read_bytes() == BIG[:70000]
    assert chunked(ours, "/b/chunks", []) == (200, None) and place.read_bytes() == b""
    crc = base64.b64encode(zlib.crc32(BIG[:70000]).to_bytes(4, "big")).decode()
    assert chunked(ours, "/b/chunks", chunks, [("x-amz-checksum-crc32", crc)]) == (200, None) and place.read_bytes() == BIG[:70000]
    refused = {
        "another byte": (lambda body: body[:200] + bytes([body[200] ^ 1]) + body[201:], (403, "SignatureDoesNotMatch")),
        "no last chunk": (lambda body: body[:body.rindex(b"0;chunk-signature")], (400, "IncompleteBody")),
        "no signature": (lambda body: re.sub(rb";chunk-signature=\w+", b"", body), (403, "SignatureDoesNotMatch")),
        "no frames": (lambda body: BIG[:1000], (400, "IncompleteBody")),
        "more": (lambda body: body + b"more", (400, "IncompleteBody")),
    }
    for name, (tamper, expected) in refused.items():
        assert chunked(ours, "/b/chunks", chunks[::-1], tamper=tamper) == expected, name
        assert place.read_bytes() == BIG[:70000], name
    assert chunked(ours, "/b/chunks", chunks, [("x-amz-checksum-crc32", "AAAAAA==")]) == (400, "BadDigest")
    assert chunked(ours, "/b/chunks", chunks, **{"x-amz-decoded-content-length": "69999"})[0] == 400
    assert chunked(ours, "/b/chunks", chunks, **{"x-amz-decoded-content-length": "70001"}) == (400, "IncompleteBody")
    assert place.read_bytes() == BIG[:70000]


def test_chunks_without_signatures_have_a_checksum_behind_them(ours):
    frames = f"{MIB:x}\r\n".encode() + BIG[:MIB] + f"\r\n{5:x}\r\n".encode() + BIG[MIB:MIB + 5] + b"\r\n0\r\n"
    about = {"Content-Encoding": "aws-chunked", "x-amz-decoded-content-length": str(MIB + 5), "x-amz-trailer": "x-amz-checksum-crc32"}
    value = base64.b64encode(zlib.crc32(BIG[:MIB + 5]).to_bytes(4, "big"))
    for trailers, expected in ((b"x-amz-checksum-crc32:" + value + b"\r\n", (200, None)), (b"x-amz-checksum-crc32:AAAAAA==\r\n", (400, "BadDigest")),
                               (b"", (400, "InvalidRequest"))):
        found = ours.ask("PUT", "/b/trailed", about, frames + trailers + b"\r\n", payload="STREAMING-UNSIGNED-PAYLOAD-TRAILER")
        assert code(found) == expected
        assert (ours.tree / "b/trailed").read_bytes() == BIG[:MIB + 5]


def test_an_interrupted_upload_leaves_nothing_and_keeps_the_old_object(ours):
    peers.place(ours.tree / "b/kept", b"old")
    for key in ("new/object", "kept"):
        headers = ours.sign("PUT", f"/b/{key}", {"Content-Length": str(len(BIG))}, payload="UNSIGNED-PAYLOAD")
        head = f"PUT /b/{key} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
        with socket.create_connection(("localhost", ours.port), timeout=SECONDS) as connection:
            connection.sendall(head.encode() + BIG[:MIB])
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
    wait_until(lambda: not list((ours.tree / "b").glob("**/.scalla-*")))
    assert (ours.tree / "b/kept").read_bytes() == b"old" and not (ours.tree / "b/new/object").exists()


def place_keys(ours, directory, keys):
    for key in keys:
        path = ours.tree / "b" / directory / key
        path.parent.mkdir(parents=True, exist_ok=True)
        if key.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(b"x")
    run(["chown", "-R", ":".join(map(str, peers.unprivileged())), ours.tree / "b" / directory]).ok()


def pages(s3, size, **how):
    """Returns all keys and prefixes in the order of the pages."""
    found, more = [], {}
    while True:
        page = s3.list_objects_v2(Bucket="b", MaxKeys=size, **how, **more)
        keys = [entry["Key"] for entry in page.get("Contents", [])] + [entry["Prefix"] for entry in page.get("CommonPrefixes", [])]
        assert len(keys) == page["KeyCount"] <= size
        found.append(sorted(keys))
        if not page["IsTruncated"]:
            return [key for keys in found for key in keys]
        assert keys
        more = {"ContinuationToken": page["NextContinuationToken"]}


KEYS = ["a", "a-", "a.d/x", "a/b/c", "a/b/d", "a/b0", "a/b-/x", "a0", "b/1", "b/10", "b/2", "c d&<ü", "empty/", "z/y/x/w/v", "z/y.", "zz"]


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_keys_are_listed_in_their_order_on_pages_of_all_sizes(ours, s3, size):
    place_keys(ours, "list", [f"l/{key}" for key in KEYS if (key + "/") not in {f"{other.split('/')[0]}/" for other in KEYS if "/" in other}])
    keys = sorted(key for key in (f"list/l/{key}" for key in KEYS if not (key == "a"))), s3
    expected = keys[0]
    for prefix in ("list/", "list/l/", "list/l/a", "list/l/a/", "list/l/a/b", "list/l/empty/", "list/l/none", "list/l/zz"):
        under = [key for key in expected if key.startswith(prefix)]
        assert pages(s3, size, Prefix=prefix) == under, prefix
        rolled = {prefix + key[len(prefix):].split("/")[0] + "/" if "/" in key[len(prefix):] else key for key in under}
        assert pages(s3, size, Prefix=prefix, Delimiter="/") == sorted(rolled), prefix
        for start in ("list/l/a/b", "list/l/b/1", "list/l/c", "list/m", ""):
            assert pages(s3, size, Prefix=prefix, StartAfter=start) == [key for key in under if key > start], (prefix, start)
    for how in ({}, {"Delimiter": "/"}):
        paginator = s3.get_paginator("list_objects").paginate(Bucket="b", Prefix="list/l/", PaginationConfig={"PageSize": size}, **how)
        found = [key for page in paginator for key in [*(entry["Key"] for entry in page.get("Contents", [])), *(entry["Prefix"] for entry in page.get("CommonPrefixes", []))]]
        assert sorted(found) == pages(s3, 1000, Prefix="list/l/", **how), how


# Long names, so that a listing that kept them all would be seen.
TAIL = "x" * 240


def test_a_large_directory_is_listed_in_bounded_memory(ours, s3):
    directory = ours.tree / "b/large"
    directory.mkdir()
    for number in range(100_000):
        os.close(os.open(directory / f"{number:06}{TAIL}", os.O_CREAT | os.O_WRONLY))
    run(["chown", "-R", ":".join(map(str, peers.unprivileged())), directory]).ok()
    # What a process has taken once it may keep, so the first listing does not count.
    s3.list_objects_v2(Bucket="b", Prefix="large/")
    before = ours.begin_peak()
    expected = [f"large/{number:06}{TAIL}" for number in range(1000)]
    first = s3.list_objects_v2(Bucket="b", Prefix="large/")
    assert [entry["Key"] for entry in first["Contents"]] == expected and first["IsTruncated"]
    second = s3.list_objects_v2(Bucket="b", Prefix="large/", ContinuationToken=first["NextContinuationToken"])
    assert second["Contents"][0]["Key"] == f"large/001000{TAIL}" and len(second["Contents"]) == 1000
    last = s3.list_objects_v2(Bucket="b", Prefix="large/", StartAfter=f"large/099989{TAIL}")
    assert [entry["Key"] for entry in last["Contents"]] == [f"large/{number:06}{TAIL}" for number in range(99_990, 100_000)] and not last["IsTruncated"]
    # The names alone have 24 MB.
    assert ours.peak() - before < 8 * MIB
    run(["rm", "-rf", directory]).ok()


def test_directories_without_keys_end_a_page_and_not_the_listing(ours, s3):
    directory = ours.tree / "b/hollow"
    # More than one request reads. No key can have the name of their files.
    for number in range(5010):
        os.makedirs(directory / f"{number:05}")
        os.close(os.open(os.fsencode(directory) + b"/%05d/\xff" % number, os.O_CREAT | os.O_WRONLY))
    (directory / "z").write_bytes(b"x")
    run(["chown", "-R", ":".join(map(str, peers.unprivileged())), directory]).ok()
    first = s3.list_objects_v2(Bucket="b", Prefix="hollow/")
    assert first["IsTruncated"] and first["KeyCount"] == 0
    second = s3.list_objects_v2(Bucket="b", Prefix="hollow/", ContinuationToken=first["NextContinuationToken"])
    assert [entry["Key"] for entry in second["Contents"]] == ["hollow/z"] and not second["IsTruncated"]
    first = s3.list_objects(Bucket="b", Prefix="hollow/")
    assert first["IsTruncated"] and "Contents" not in first
    second = s3.list_objects(Bucket="b", Prefix="hollow/", Marker=first["NextMarker"])
    assert [entry["Key"] for entry in second["Contents"]] == ["hollow/z"] and not second["IsTruncated"]
    run(["rm", "-rf", directory]).ok()


def test_objects_are_removed_with_directories_that_become_empty(ours, s3):
    place_keys(ours, "rm", ["d/e/f", "d/g", "h/i", "j/"])
    s3.delete_object(Bucket="b", Key="rm/none")
    s3.delete_object(Bucket="b", Key="rm/d/e")
    s3.delete_object(Bucket="b", Key="rm/d/")
    assert (ours.tree / "b/rm/d/e/f").exists()
    s3.delete_object(Bucket="b", Key="rm/d/e/f")
    assert not (ours.tree / "b/rm/d/e").exists() and (ours.tree / "b/rm/d/g").exists()
    keys = ["rm/d/g", "rm/h/i", "rm/j/", "rm/none", "rm/../small"]
    found = s3.delete_objects(Bucket="b", Delete={"Objects": [{"Key": key} for key in keys]})
    assert [entry["Key"] for entry in found["Deleted"]] == keys[:4]
    assert [(error["Key"], error["Code"]) for error in found["Errors"]] == [("rm/../small", "InvalidArgument")]
    assert not (ours.tree / "b/rm").exists() and (ours.tree / "b/small").exists()
    quiet = s3.delete_objects(Bucket="b", Delete={"Objects": [{"Key": "rm/x"}], "Quiet": True})
    assert "Deleted" not in quiet and "Errors" not in quiet


def test_directories_are_objects_with_a_slash(ours, s3):
    s3.put_object(Bucket="b", Key="dir/sub/", Body=b"")
    assert (ours.tree / "b/dir/sub").is_dir()
    assert s3.head_object(Bucket="b", Key="dir/sub/")["ContentLength"] == 0
    assert failure(s3.head_object, Bucket="b", Key="dir/sub")[0] == 404
    assert failure(s3.head_object, Bucket="b", Key="small/")[0] == 404
    assert failure(s3.put_object, Bucket="b", Key="dir/x/", Body=b"content")[0] == 400
    assert failure(s3.put_object, Bucket="b", Key="dir", Body=b"content")[0] == 409
    assert failure(s3.put_object, Bucket="b", Key="small/x", Body=b"content")[0] == 409
    assert names(s3, Prefix="dir/") == (["dir/sub/"], [])
    s3.put_object(Bucket="b", Key="dir/sub/x", Body=b"")
    assert names(s3, Prefix="dir/") == (["dir/sub/x"], [])
    s3.delete_object(Bucket="b", Key="dir/sub/x")


def test_objects_are_copied(ours, s3):
    copied = s3.copy_object(Bucket="b", Key="copies/ü &", CopySource={"Bucket": "b", "Key": "big"})
    assert (ours.tree / "b/copies/ü &").read_bytes() == BIG
    assert copied["CopyObjectResult"]["ETag"] == s3.head_object(Bucket="b", Key="copies/ü &")["ETag"]
    s3.copy_object(Bucket="pub", Key="copy", CopySource={"Bucket": "b", "Key": "copies/ü &"})
    assert (ours.tree / "pub/copy").read_bytes() == BIG
    (ours.tree / "pub/copy").unlink()
    assert failure(s3.copy_object, Bucket="b", Key="x", CopySource="b/none") == (404, "NoSuchKey")
    assert failure(s3.copy_object, Bucket="b", Key="small", CopySource="b/small") == (400, "InvalidRequest")
    tag = s3.head_object(Bucket="b", Key="small")["ETag"]
    assert failure(s3.copy_object, Bucket="b", Key="x", CopySource="b/small", CopySourceIfNoneMatch=tag) == (412, "PreconditionFailed")
    s3.copy_object(Bucket="b", Key="x", CopySource="b/small", CopySourceIfMatch=tag)
    assert failure(s3.copy_object, Bucket="b", Key="x", CopySource="b/../../etc/passwd") == (400, "InvalidArgument")
    assert (ours.tree / "b/x").read_bytes() == SMALL


def test_presigned_urls_count_until_they_expire(ours, s3):
    def fetch(url, method="GET", body=None, **headers):
        try:
            request = urllib.request.Request(url, method=method, data=body, headers=headers)
            with urllib.request.urlopen(request, timeout=SECONDS) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, re.search(rb"<Code>(\w+)</Code>", error.read()).group(1).decode()

    url = s3.generate_presigned_url("get_object", {"Bucket": "b", "Key": "small"}, ExpiresIn=60)
    assert fetch(url) == (200, SMALL)
    assert fetch(url.replace("small", "big")) == (403, "SignatureDoesNotMatch")
    assert fetch(url.replace("X-Amz-Expires=60", "X-Amz-Expires=600")) == (403, "SignatureDoesNotMatch")
    assert fetch(url, "PUT", b"x") == (403, "SignatureDoesNotMatch")
    assert fetch(url + "&uploads") == (403, "SignatureDoesNotMatch")
    put = s3.generate_presigned_url("put_object", {"Bucket": "b", "Key": "presigned"}, ExpiresIn=60)
    assert fetch(put, "PUT", BIG)[0] == 200 and (ours.tree / "b/presigned").read_bytes() == BIG
    short = s3.generate_presigned_url("get_object", {"Bucket": "b", "Key": "small"}, ExpiresIn=1)
    wait_until(lambda: fetch(short) == (403, "AccessDenied"))
    assert fetch(s3.generate_presigned_url("get_object", {"Bucket": "b", "Key": "small"}, ExpiresIn=604_801)) == (400, "AuthorizationQueryParametersError")
    assert ours.log.read_text().count("X-Amz-Signature") == 0


def test_uploads_in_parts_are_whole_or_nothing(ours, s3):
    place = ours.tree / "b/multi/object"
    upload = s3.create_multipart_upload(Bucket="b", Key="multi/object")["UploadId"]
    about = {"Bucket": "b", "Key": "multi/object", "UploadId": upload}
    tags = {number: s3.upload_part(**about, PartNumber=number, Body=BIG[begin:end])["ETag"]
            for number, begin, end in ((7, MIB, len(BIG)), (2, 0, 5), (1, 0, MIB))}
    assert not place.exists() and names(s3, Prefix="multi/") == ([], [])
    assert [entry["Key"] for entry in s3.list_multipart_uploads(Bucket="b", Prefix="multi/")["Uploads"]] == ["multi/object"]
    parts = s3.list_parts(**about)["Parts"]
    assert [(part["PartNumber"], part["Size"], part["ETag"]) for part in parts] == [(1, MIB, tags[1]), (2, 5, tags[2]), (7, len(BIG) - MIB, tags[7])]
    page = s3.list_parts(**about, MaxParts=1, PartNumberMarker=1)
    assert [part["PartNumber"] for part in page["Parts"]] == [2] and page["IsTruncated"] and page["NextPartNumberMarker"] == 2
    assert failure(s3.get_object, Bucket="b", Key=f"multi/.scalla-multipart-{upload}/object/00001") == (400, "InvalidArgument")

    def complete(*chosen):
        return {"MultipartUpload": {"Parts": [{"PartNumber": number, "ETag": tag} for number, tag in chosen]}}

    for chosen, expected in (([(7, tags[7]), (1, tags[1])], "InvalidPartOrder"), ([(1, tags[7])], "InvalidPart"), ([(3, tags[1])], "InvalidPart"), ([], "MalformedXML")):
        assert failure(s3.complete_multipart_upload, **about, **complete(*chosen)) == (400, expected), chosen
    other = {**about, "Key": "multi/other"}
    assert failure(s3.upload_part, **other, PartNumber=1, Body=b"x") == (404, "NoSuchUpload")
    assert failure(s3.upload_part, **about, PartNumber=10_001, Body=b"x") == (400, "InvalidArgument")
    assert not place.exists()
    # The parts survive the server.
    ours.restart()
    s3.complete_multipart_upload(**about, **complete((1, tags[1]), (7, tags[7])))
    assert place.read_bytes() == BIG and os.listdir(ours.tree / "b/multi") == ["object"]
    upload = s3.create_multipart_upload(Bucket="b", Key="multi2/object")["UploadId"]
    about = {"Bucket": "b", "Key": "multi2/object", "UploadId": upload}
    s3.upload_part_copy(**about, PartNumber=1, CopySource="b/big", CopySourceRange="bytes=5-9")
    assert failure(s3.upload_part_copy, **about, PartNumber=1, CopySource="b/big", CopySourceRange=f"bytes=5-{len(BIG)}") == (400, "InvalidArgument")
    s3.abort_multipart_upload(**about)
    assert failure(s3.abort_multipart_upload, **about) == (404, "NoSuchUpload")
    assert not (ours.tree / "b/multi2").exists()
    for wrong in ("..", "x", "0" * 31, "0" * 32, "../" + "0" * 29):
        assert failure(s3.list_parts, Bucket="b", Key="small", UploadId=wrong) == (404, "NoSuchUpload"), wrong


def test_what_could_change_the_meaning_of_a_request_is_refused(ours):
    peers.place(ours.tree / "b/meant", SMALL)
    for method, query, headers in (
        ("PUT", "?partNumber=3", {}), ("PUT", "?annotation&x=1", {}), ("PUT", "", {"x-amz-write-offset-bytes": "3"}),
        ("PUT", "", {"Content-Range": "bytes 3-9/10"}), ("DELETE", "?acl", {}),
        ("DELETE", "", {"x-amz-if-match-size": "1"}), ("DELETE", "", {"x-amz-if-match-last-modified-time": "Sun, 06 Nov 1994 08:49:37 GMT"}),
    ):
        assert code(ours.ask(method, f"/b/meant{query}", headers, b"part" if method == "PUT" else b"")) == (501, "NotImplemented"), (query, headers)
        assert (ours.tree / "b/meant").read_bytes() == SMALL


def test_a_completion_has_the_size_and_the_checksums_that_it_names(ours, s3):
    upload, directory = begin_upload(ours, "sum/o", 1000)
    s3.upload_part(Bucket="b", Key="sum/o", UploadId=upload, PartNumber=2, Body=SMALL)
    tags = {part["PartNumber"]: part["ETag"] for part in s3.list_parts(Bucket="b", Key="sum/o", UploadId=upload)["Parts"]}
    whole = bytes(1000) + SMALL

    def crc(content):
        return base64.b64encode(zlib.crc32(content).to_bytes(4, "big")).decode()

    def complete(part=SMALL, **headers):
        sums = {1: crc(bytes(1000)), 2: crc(part)}
        parts = "".join(f"<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag><ChecksumCRC32>{sums[number]}</ChecksumCRC32></Part>"
                        for number, tag in tags.items())
        document = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        named = {f"x-amz-{name.replace('_', '-')}": value for name, value in headers.items()}
        status, found = code(ours.ask("POST", f"/b/sum/o?uploadId={upload}", named, document))
        return status, found

    assert complete(b"other") == (400, "BadDigest")
    assert complete(mp_object_size="999") == (400, "InvalidRequest")
    assert complete(checksum_crc32=crc(b"other"), checksum_type="FULL_OBJECT") == (400, "BadDigest")
    assert complete(checksum_crc64nvme="AAAAAAAAAAA=") == (400, "BadDigest")
    assert complete(checksum_crc32="AAAAAA==-2", checksum_type="COMPOSITE") == (501, "NotImplemented")
    assert directory.exists() and not (ours.tree / "b/sum/o").exists()
    assert complete(checksum_crc32=crc(whole), checksum_type="FULL_OBJECT", mp_object_size=str(len(whole))) == (200, None)
    assert (ours.tree / "b/sum/o").read_bytes() == whole


def leave(ours, method, path, headers=None, body=b"", seen=lambda: True):
    """Sends a request, and leaves before its reply, when its effect is seen."""
    signed = ours.sign(method, path, {"Content-Length": str(len(body)), **(headers or {})}, payload=hashlib.sha256(body).hexdigest())
    head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in signed.items()) + "\r\n"
    with socket.create_connection(("localhost", ours.port), timeout=SECONDS) as connection:
        connection.sendall(head.encode() + body)
        wait_until(seen)
        connection.shutdown(socket.SHUT_WR)


def test_a_copy_ends_when_its_client_leaves():
    with S3Server() as ours:
        source = ours.tree / "b/sparse"
        source.touch()
        os.truncate(source, 1 << 40)
        peers.give(source)

        def opened():
            links = []
            for name in os.listdir(f"/proc/{ours.process.pid}/fd"):
                try:
                    links.append(os.readlink(f"/proc/{ours.process.pid}/fd/{name}"))
                except OSError:
                    pass
            return sum(link.endswith("/b/sparse") for link in links)

        for number in range(100):
            leave(ours, "PUT", f"/b/copy{number}", {"x-amz-copy-source": "/b/sparse"})
            # Those that wait have not opened their destination; the limit of a user is 64.
            assert len(list((ours.tree / "b").iterdir())) <= 65
        assert code(ours.ask("GET", "/pub?location=")) == (200, None)
        wait_until(lambda: opened() == 0)
        wait_until(lambda: os.listdir(ours.tree / "b") == ["sparse"])


def age(directory):
    """Makes an upload and its parts older than a day."""
    old = time.time() - 24 * 3600 - 60
    for path in (*directory.iterdir(), directory):
        os.utime(path, (old, old))


def begin_upload(ours, key, size=1):
    """Returns the id and the directory of an upload with a part."""
    s3 = ours.client()
    upload = s3.create_multipart_upload(Bucket="b", Key=key)["UploadId"]
    s3.upload_part(Bucket="b", Key=key, UploadId=upload, PartNumber=1, Body=bytes(size))
    return upload, (ours.tree / "b" / key).parent / f".scalla-multipart-{upload}"


def test_old_uploads_are_removed_by_a_listing(ours, s3):
    _, old = begin_upload(ours, "old/a")
    _, active = begin_upload(ours, "old/b")
    _, new = begin_upload(ours, "old/c")
    age(old)
    # The begin of this one is old, and its last part is not.
    age(active)
    os.utime(active / "b")
    s3.list_objects_v2(Bucket="b", Prefix="old/")
    wait_until(lambda: not old.exists())
    assert (active / "b/00001").exists() and (new / "c/00001").exists()
    assert [entry["Key"] for entry in s3.list_multipart_uploads(Bucket="b", Prefix="old/")["Uploads"]] == ["old/b", "old/c"]


def test_only_uploads_are_removed_by_a_listing(ours, s3):
    others = [f"names/.scalla-multipart-{name}/inner/{file}" for name in ("backup", "0" * 32) for file in ("00001", "precious")]
    place_keys(ours, "", others)
    # A file that is no part is in an upload.
    _, foreign = begin_upload(ours, "names/a")
    (foreign / "a/precious").write_bytes(b"x")
    age(foreign)
    for other in others:
        age((ours.tree / "b" / other).parents[1])
    for key in ("names/b", "names/c"):
        # The removal of the second one begins behind that of all others.
        _, old = begin_upload(ours, key)
        age(old)

        def is_removed(directory=old):
            s3.list_objects_v2(Bucket="b", Prefix="names/")
            return not directory.exists()

        wait_until(is_removed)
    assert all((ours.tree / "b" / other).exists() for other in others)
    assert (foreign / "a/precious").exists() and (foreign / "a/00001").exists()


def test_a_completion_keeps_its_parts(ours, s3):
    size = 64 * MIB
    upload, directory = begin_upload(ours, "long/o", size)
    about = {"Bucket": "b", "Key": "long/o", "UploadId": upload}
    for number in range(2, 7):
        s3.upload_part_copy(**about, PartNumber=number, CopySource="b/big")
    parts = [{"PartNumber": part["PartNumber"], "ETag": part["ETag"]} for part in s3.list_parts(**about)["Parts"]]
    age(directory)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        completed = pool.submit(s3.complete_multipart_upload, **about, MultipartUpload={"Parts": parts})
        while not completed.done():
            ours.client().list_objects_v2(Bucket="b", Prefix="long/")
        completed.result()
    assert (ours.tree / "b/long/o").stat().st_size == size + 5 * len(BIG) and os.listdir(ours.tree / "b/long") == ["o"]


def test_an_upload_needs_the_right_to_remove_its_parts():
    with S3Server(rules="u alice /b a\nu bob /b rwil\n") as ours:
        assert failure(ours.client("bob").create_multipart_upload, Bucket="b", Key="d/o") == (403, "AccessDenied")
        assert os.listdir(ours.tree / "b") == []
        upload, directory = begin_upload(ours, "o")
        assert failure(ours.client("bob").abort_multipart_upload, Bucket="b", Key="o", UploadId=upload) == (403, "AccessDenied")
        age(directory)
        for _ in range(5):
            ours.client("bob").list_objects_v2(Bucket="b")
        assert (directory / "o/00001").exists()


def test_files_are_uploaded_in_parts_by_boto3(ours, s3, tmp_path):
    content = data(20 * MIB + 5)
    s3.upload_fileobj(io.BytesIO(content), "b", "transfer/large")
    assert (ours.tree / "b/transfer/large").read_bytes() == content
    got = io.BytesIO()
    s3.download_fileobj("b", "transfer/large", got)
    assert got.getvalue() == content
    assert os.listdir(ours.tree / "b/transfer") == ["large"]


MALFORMED = [
    ("GET", "/b/a/../../etc/passwd", b"", (400, "InvalidArgument")),
    ("GET", "/b/%2e%2e/%2e%2e/etc/passwd", b"", (400, "InvalidArgument")),
    ("PUT", "/b/a%2F..%2F..%2Fx", b"x", (400, "InvalidArgument")),
    ("PUT", "/b/a//b", b"x", (400, "InvalidArgument")),
    ("PUT", "/b//a", b"x", (400, "InvalidArgument")),
    ("PUT", "/b/a%00b", b"x", (400, "InvalidArgument")),
    ("PUT", "/b/a%0Ab", b"x", (400, "InvalidRequest")),
    ("PUT", "/b/a%FF", b"x", (400, "InvalidURI")),
    ("PUT", "/b/" + "x" * 256, b"x", (400, "KeyTooLongError")),
    ("PUT", "/b/" + "x/" * 600 + "x", b"x", (400, "KeyTooLongError")),
    ("PUT", "/b/.scalla-multipart-x/y", b"x", (400, "InvalidArgument")),
    ("GET", "/.", b"", (400, "InvalidBucketName")),
    ("GET", "/..", b"", (400, "InvalidBucketName")),
    ("GET", "/none/k", b"", (403, "AccessDenied")),
    ("GET", "/b?max-keys=-1", b"", (400, "InvalidArgument")),
    ("GET", "/b?max-keys=x", b"", (400, "InvalidArgument")),
    ("GET", "/b?list-type=3", b"", (400, "InvalidArgument")),
    ("GET", "/b?delimiter=x", b"", (501, "NotImplemented")),
    ("GET", "/b?list-type=2&continuation-token=%21", b"", (400, "InvalidArgument")),
    ("GET", "/b?encoding-type=x", b"", (400, "InvalidArgument")),
    ("GET", "/b?prefix=%FF", b"", (400, "InvalidArgument")),
    ("GET", "/b?versions", b"", (501, "NotImplemented")),
    ("GET", "/b/small?versionId=7", b"", (404, "NoSuchVersion")),
    ("GET", "/b/small?acl", b"", (501, "NotImplemented")),
    ("PATCH", "/b/small", b"", (405, "MethodNotAllowed")),
    ("POST", "/b/small", b"", (405, "MethodNotAllowed")),
    ("POST", "/b?delete", b"", (400, "MalformedXML")),
    ("POST", "/b?delete", b"<Delete>", (400, "MalformedXML")),
    ("POST", "/b?delete", b"<!DOCTYPE a [<!ENTITY x 'y'>]><Delete><Object><Key>&x;</Key></Object></Delete>", (400, "MalformedXML")),
    ("POST", "/b?delete", b"<Delete>" + b"<Object><Key>none</Key></Object>" * 1001 + b"</Delete>", (400, "MalformedXML")),
    ("POST", "/b?delete", b"<a>" * 100_000, (400, "MalformedXML")),
    ("POST", "/b?delete", b"<Delete>" + b" " * 3 * MIB + b"</Delete>", (400, "MaxMessageLengthExceeded")),
    ("POST", "/b/k?uploadId=" + "0" * 32, b"<x/>", (400, "MalformedXML")),
]


@pytest.mark.parametrize("method,path,body,expected", MALFORMED, ids=lambda value: str(value)[:40])
def test_malformed_requests_have_clear_errors(ours, method, path, body, expected):
    found = ours.ask(method, path, body=body)
    allowed = [expected, (404, "NoSuchBucket")] if expected == (403, "AccessDenied") else [expected]
    assert code(found) in allowed, found
    assert code(ours.ask("GET", "/b/small")) == (200, None)


def test_odd_prefixes_have_no_keys(ours, s3):
    for prefix in ("/", "..", "../", "small/../", "a//", ".scalla-multipart-", "small/", "x" * 1024):
        assert names(s3, Prefix=prefix) == ([], []), prefix
        assert names(s3, Prefix=prefix, Delimiter="/") == ([], []), prefix


def test_buckets_may_be_within_each_other():
    with S3Server(settings="scalla.s3 bucket outer /b bucket inner /b/in/ner\n") as ours:
        place_keys(ours, "in/ner", ["k"])
        s3 = ours.client()
        assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["inner", "outer"]
        assert names(s3, "outer") == (["in/ner/k"], []) and names(s3, "inner") == (["k"], [])
        s3.delete_object(Bucket="outer", Key="in/ner/k")
        # The directory of a bucket stays.
        assert (ours.tree / "b/in/ner").is_dir() and names(s3, "inner") == ([], [])
        assert failure(s3.list_objects_v2, Bucket="b") == (404, "NoSuchBucket")


def test_promises_that_are_not_kept_are_refused(ours, s3):
    assert failure(s3.put_object, Bucket="b", Key="secret", Body=b"x", ServerSideEncryption="AES256") == (501, "NotImplemented")
    assert failure(s3.put_object, Bucket="b", Key="secret", Body=b"x", ContentEncoding="gzip") == (501, "NotImplemented")
    assert not (ours.tree / "b/secret").exists()


def test_the_host_names_the_bucket():
    with S3Server(settings="scalla.s3 domain s3.example.org\n") as ours:
        peers.place(ours.tree / "b/k", SMALL)
        for host in ("b.s3.example.org", f"b.S3.example.org:{ours.port}"):
            assert ours.ask("GET", "/k", {"Host": host})[2] == SMALL
        assert code(ours.ask("GET", "/k", {"Host": "pub.s3.example.org"})) == (404, "NoSuchKey")
        assert ours.ask("GET", "/b/k", {"Host": "s3.example.org"})[2] == SMALL

def test_hosts_below_a_domain_keep_their_other_services():
    with S3Server(settings="scalla.s3 domain example.org\nscalla.s3 bucket known /b\n", rules="u * / rl\n") as ours:
        peers.place(ours.tree / "pub/p", SMALL)
        # Without a signature.
        assert code(ours.send("GET", "/k", {"Host": "known.example.org"})) == (403, "AccessDenied")
        assert ours.send("GET", "/pub/p", {"Host": "web1.example.org"})[::2] == ours.send("GET", "/pub/p", {"Host": "h"})[::2] == (200, SMALL)


def test_keys_are_read_again_and_only_from_a_private_file(tmp_path):
    with S3Server() as ours:
        peers.place(ours.tree / "b/k", SMALL)
        s3 = ours.client()
        assert s3.get_object(Bucket="b", Key="k")["Body"].read() == SMALL
        keys_file(ours.work / "keys", {"alice": ("OTHER", "other-secret-0123456789")})
        ours.process.send_signal(1)
        wait_until(lambda: code(ours.ask("GET", "/b/k")) == (403, "InvalidAccessKeyId"))
        for _, secret in USERS.values():
            assert secret not in ours.log.read_text()
    refused = S3Server()
    (refused.work / "keys").chmod(0o644)
    (refused.work / "cfg").write_text(f"all.export /\n{refused.configuration()}")
    assert f"scalla.s3: {refused.work}/keys is not used" in scalla("config", "check", refused.work / "cfg").all
    output = peers.refused_start(refused)
    assert "scalla.s3" in output and "chmod 600" in output
    assert not any(secret in output for _, secret in USERS.values())


def test_rclone(ours, tmp_path):
    key, secret = USERS["alice"]
    own = {"RCLONE_CONFIG_OURS_TYPE": "s3", "RCLONE_CONFIG_OURS_PROVIDER": "Other", "RCLONE_CONFIG_OURS_ACCESS_KEY_ID": key,
           "RCLONE_CONFIG_OURS_SECRET_ACCESS_KEY": secret, "RCLONE_CONFIG_OURS_ENDPOINT": ours.endpoint,
           "RCLONE_CONFIG_OURS_REGION": "us-east-1", "RCLONE_CONFIG": str(tmp_path / "none"), "AWS_CA_BUNDLE": None}
    tree = tmp_path / "tree"
    (tree / "d/e").mkdir(parents=True)
    (tree / "d/e/f ü").write_bytes(b"f")
    (tree / "big").write_bytes(BIG)

    def rclone(*words):
        return run(["/usr/bin/rclone", "--retries", "1", "--size-only", *words], seconds=SECONDS, **own)

    rclone("sync", str(tree), "ours:b/rclone", "--s3-upload-cutoff", "1M", "--s3-chunk-size", "5M").ok()
    assert (ours.tree / "b/rclone/d/e/f ü").read_bytes() == b"f" and (ours.tree / "b/rclone/big").read_bytes() == BIG
    rclone("check", "--download", str(tree), "ours:b/rclone").ok()
    (tree / "big").unlink()
    rclone("sync", str(tree), "ours:b/rclone").ok()
    assert sorted(rclone("lsf", "-R", "ours:b/rclone").ok().out.split("\n")[:-1]) == ["d/", "d/e/", "d/e/f ü"]
    rclone("purge", "ours:b/rclone").ok()
    assert not (ours.tree / "b/rclone").exists()


def test_our_own_client(ours, tmp_path):
    own = ours.variables_of()
    content = data(17 * MIB + 3)
    (tmp_path / "f").write_bytes(content)
    scalla("cp", tmp_path / "f", "s3://b/own/f", **own).ok()
    assert (ours.tree / "b/own/f").read_bytes() == content
    scalla("cp", tmp_path / "f", "s3://b/own/f", **own).fails(1, "exists")
    scalla("cp", "s3://b/own/f", tmp_path / "got", **own).ok()
    assert (tmp_path / "got").read_bytes() == content
    assert scalla("ls", "s3://b/own", **own).ok().out.split() == ["f"]
    scalla("rm", "s3://b/own/f", **own).ok()
    assert not (ours.tree / "b/own").exists()
