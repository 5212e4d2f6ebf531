"""`scalla`, `xrdcp` and `xrdfs` at object stores: the server of moto, which verifies signatures, and one that fails when it is told to."""

import json
import os
import signal
import subprocess
import zlib

import pytest

import peers
from object_stores import BUCKET, REGION, FaultyStore, ObjectStore
from tools import data, run, scalla, wait_until

MIB = 1 << 20
PART = 8 * MIB
LARGE = data(2 * PART + 3_000_017)
S3 = f"s3://{BUCKET}"


@pytest.fixture(scope="module")
def store():
    with ObjectStore() as found:
        found.place("f", LARGE)
        found.place("empty", b"")
        found.place("d/small", b"small\n")
        found.place("d/e/x y+%&ü", b"odd\n")
        found.place("d/e/50%20", b"no escape\n")
        yield found


def keys(store):
    """The variables by which users name a store and their keys."""
    return {"AWS_ACCESS_KEY_ID": store.key_id, "AWS_SECRET_ACCESS_KEY": store.secret, "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL_S3": store.endpoint, "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}


def profile(store, directory, secret=None):
    """The files of the AWS tools, and the variables that lead to them."""
    credentials, config = directory / "credentials", directory / "config"
    credentials.write_text(f"[site]\naws_access_key_id = {store.key_id}\naws_secret_access_key = {secret or store.secret}\n")
    credentials.chmod(0o600)
    config.write_text(f"[profile site]\nregion = {REGION}\nendpoint_url = {store.endpoint}\n")
    return {"AWS_PROFILE": "site", "AWS_SHARED_CREDENTIALS_FILE": credentials, "AWS_CONFIG_FILE": config}


def content(store, key):
    return store.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()


def uploads(store):
    return store.s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])


def names(store, prefix):
    return sorted(found["Key"] for found in store.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", []))


def test_objects_are_read(store, tmp_path):
    own = keys(store)
    for key, expected in [("f", LARGE), ("empty", b""), ("d/small", b"small\n"), ("d/e/x y+%&ü", b"odd\n"), ("d/e/50%20", b"no escape\n")]:
        scalla("cp", "--force", f"{S3}/{key}", tmp_path / "got", **own).ok()
        assert (tmp_path / "got").read_bytes() == expected, key
    run([peers.link("xrdcp"), "-f", f"{S3}/f", tmp_path / "got"], **own).ok()
    assert (tmp_path / "got").read_bytes() == LARGE
    scalla("cp", "--force", "--checksum", "md5:print", f"{S3}/f", tmp_path / "got", **own).ok()
    scalla("cp", f"{S3}/none", tmp_path / "none", **own).fails(1, "404")
    assert not (tmp_path / "none").exists()
    scalla("cp", f"{S3}/d", tmp_path / "none", **own).fails(1)


def test_names_status_and_checksums(store):
    own = keys(store)
    assert scalla("ls", f"{S3}/d", **own).ok().out.split() == ["e", "small"]
    assert sorted(scalla("ls", S3, **own).ok().out.split()) == ["d", "empty", "f"]
    found = [json.loads(line) for line in scalla("ls", "--json", "-R", f"{S3}/d", **own).ok().out.splitlines()]
    assert {"x y+%&ü", "50%20", "small"} <= {entry["name"] for entry in found}, found
    assert str(len(LARGE)) in scalla("stat", "--json", f"{S3}/f", **own).ok().out
    assert "directory" in scalla("stat", f"{S3}/d", **own).ok().out
    scalla("stat", f"{S3}/none", **own).fails(1, "404")
    assert f"{zlib.adler32(LARGE):08x}" in scalla("checksum", "--read", "--type", "adler32", f"{S3}/f", **own).ok().out


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 2 * PART, len(LARGE)])
def test_objects_of_all_sizes_are_written(store, tmp_path, size):
    (tmp_path / "f").write_bytes(LARGE[:size])
    own = keys(store)
    key = f"up/{size} ü&"
    scalla("cp", tmp_path / "f", f"{S3}/{key}", **own).ok()
    assert content(store, key) == LARGE[:size]
    scalla("cp", tmp_path / "f", f"{S3}/{key}", **own).fails(1, "exists")
    scalla("cp", "--force", "--checksum", "adler32", tmp_path / "f", f"{S3}/{key}", **own).ok()
    assert content(store, key) == LARGE[:size]
    assert uploads(store) == []


def test_standard_input_becomes_an_object(store):
    own = keys(store)
    scalla("cp", "-", f"{S3}/in/large", input=LARGE, **own).ok()
    assert content(store, "in/large") == LARGE
    assert scalla("cp", f"{S3}/in/large", "-", **own).ok().raw == LARGE


def test_objects_are_copied_at_the_store_by_this_client(store):
    own = keys(store)
    scalla("cp", f"{S3}/f", f"{S3}/copy/f", **own).ok()
    assert content(store, "copy/f") == LARGE
    scalla("cp", "--force", f"{S3}/copy/f", f"{S3}//copy/f", **own).fails(1, "same file")
    assert content(store, "copy/f") == LARGE


def test_trees_are_copied_and_removed(store, tmp_path):
    own = keys(store)
    tree = tmp_path / "tree"
    (tree / "a/b").mkdir(parents=True)
    (tree / "hollow").mkdir()
    for name in ["x", "a/y", "a/b/z*"]:
        (tree / name).write_text(name)
    scalla("cp", "-r", tree, f"{S3}/trees/tree", **own).ok()
    assert names(store, "trees/") == ["trees/tree/a/b/z*", "trees/tree/a/y", "trees/tree/hollow/", "trees/tree/x"]
    scalla("cp", "-r", f"{S3}/trees/tree", tmp_path / "back", **own).ok()
    assert run(["diff", "-r", tree, tmp_path / "back"]).ok().out == ""
    scalla("rm", f"{S3}/trees/tree", **own).fails(1)
    scalla("rm", f"{S3}/trees/tree/x", **own).ok()
    scalla("rm", f"{S3}/trees/tree/x", **own).fails(1)
    scalla("mkdir", f"{S3}/trees/made", **own).ok()
    assert "trees/made/" in names(store, "trees/")
    scalla("rmdir", f"{S3}/trees/made", **own).ok()
    scalla("rmdir", f"{S3}/trees/tree", **own).fails(1, "not empty")
    scalla("rm", "-r", f"{S3}/trees", **own).ok()
    assert names(store, "trees/") == []


def test_xrdfs_at_a_bucket(store, tmp_path):
    own = keys(store)
    xrdfs = [peers.link("xrdfs"), S3]
    assert run([*xrdfs, "ls", "/d"], **own).ok().out.split() == ["/d/e", "/d/small"]
    assert f"Size:   {len(LARGE)}" in run([*xrdfs, "stat", "/f"], **own).ok().out
    run([*xrdfs, "mkdir", "/of-xrdfs"], **own).ok()
    assert names(store, "of-xrdfs") == ["of-xrdfs/"]
    run([*xrdfs, "rmdir", "/of-xrdfs"], **own).ok()
    scalla("cp", "-", f"{S3}/of-xrdfs", input=b"x", **own).ok()
    run([*xrdfs, "rm", "/of-xrdfs"], **own).ok()
    assert names(store, "of-xrdfs") == []


def test_profiles_name_the_store_and_the_keys(store, tmp_path):
    own = profile(store, tmp_path)
    assert "small" in scalla("ls", f"{S3}/d", **own).ok().out
    (tmp_path / "credentials").chmod(0o644)
    scalla("ls", f"{S3}/d", **own).fails(1, "chmod")


def test_errors_have_a_remedy(store, tmp_path):
    none = {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    own = keys(store)
    scalla("ls", f"{S3}/d", **{**own, "AWS_SECRET_ACCESS_KEY": "wrong"}).fails(1, "check the keys")
    with FaultyStore() as faulty:
        faulty.fail("list", 403)
        scalla("ls", f"{S3}/d", **none, AWS_ENDPOINT_URL=f"http://127.0.0.1:{faulty.port}").fails(1, "AWS_ACCESS_KEY_ID")
    scalla("ls", f"{S3}/d", **{**none, "AWS_PROFILE": "absent"}).fails(1, "AWS_PROFILE")
    scalla("ls", f"{S3}/d", **{**own, "AWS_ENDPOINT_URL_S3": "localhost"}).fails(1, "AWS_ENDPOINT_URL")
    scalla("ls", "s3://localhost:9000/bucket/d", **own).fails(2, "AWS_ENDPOINT_URL_S3")
    scalla("ls", "s3://nobucket/", **own).fails(1, "NoSuchBucket")
    (tmp_path / "f").write_bytes(b"x")
    scalla("cp", "--posc", tmp_path / "f", f"{S3}/posc", **own).fails(1, "at an object store")
    scalla("mv", f"{S3}/f", f"{S3}/g", **own).fails(1, "not renamed")


def test_no_message_has_a_secret(store, tmp_path):
    own = {**keys(store), "XRD_LOGLEVEL": "Dump", "AWS_SESSION_TOKEN": "session-token-of-a-user"}
    done = scalla("cp", f"{S3}/none", tmp_path / "none", **own)
    assert store.secret not in done.out + done.err and "session-token" not in done.out + done.err


@pytest.mark.parametrize("step", ["begin", "part", "complete"])
def test_an_upload_that_fails_leaves_nothing(tmp_path, step):
    (tmp_path / "f").write_bytes(LARGE)
    with FaultyStore() as store:
        store.fail(step, 403)
        own = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{store.port}", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
        scalla("cp", tmp_path / "f", f"{S3}/f", **own).fails(1, "Fault")
        assert store.objects == {} and store.uploads == {}


def test_a_wrong_checksum_leaves_nothing(tmp_path):
    (tmp_path / "f").write_bytes(LARGE)
    with FaultyStore() as store:
        own = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{store.port}", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
        scalla("cp", "--checksum", "adler32:00000001", tmp_path / "f", f"{S3}/f", **own).fails(1)
        assert store.objects == {} and store.uploads == {}


def test_an_interrupted_upload_leaves_nothing(tmp_path):
    (tmp_path / "f").write_bytes(LARGE)
    with FaultyStore() as store:
        own = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{store.port}", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
        store.fail("part", 503)
        process = subprocess.Popen([peers.program(), "cp", tmp_path / "f", f"{S3}/f"], env={**os.environ, **own}, stderr=subprocess.PIPE)
        try:
            wait_until(lambda: store.steps["part"] > 0)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        finally:
            process.kill()
        assert store.objects == {} and store.uploads == {}
