"""`xrdcp` 5.5.3 in each mode that uses one server."""

import os
import zipfile
import zlib

import pytest

from codes import ErrorCode, ShellCode
from tools import data, xrdcp, xrdfs

KIB = 1024
MIB = 1024 * KIB
# One chunk of the client is 8 MiB. Sizes are one above and below a page, a chunk and a window of
# four.
SIZES = [0, 1, 4095, 4096, 4097, 8 * MIB - 1, 8 * MIB + 1, 33 * MIB + 5]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pages", ["1", "0"], ids=["pages", "plain"])
def test_upload_and_download(area, local, tmp_path, size, pages):
    source = local(size=size)
    xrdcp(source, area.url("file"), XRD_CPUSEPGWRTRD=pages).ok()
    assert area.get("file") == source.read_bytes()
    assert os.stat(area.local / "file").st_mode & 0o777 == 0o644
    xrdcp(area.url("file"), tmp_path / "back", XRD_CPUSEPGWRTRD=pages).ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("pages", ["1", "0"], ids=["pages", "plain"])
def test_small_chunks(area, local, tmp_path, pages):
    """Many requests in flight, none of a whole number of pages."""
    source = local(size=3 * MIB + 17)
    small = dict(XRD_CPCHUNKSIZE="70001", XRD_CPPARALLELCHUNKS="16", XRD_CPUSEPGWRTRD=pages)
    xrdcp(source, area.url("file"), **small).ok()
    assert area.get("file") == source.read_bytes()
    xrdcp(area.url("file"), tmp_path / "back", **small).ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("streams", ["2", "4", "15"])
def test_parallel_streams(area, local, tmp_path, streams):
    source = local(size=20 * MIB + 3)
    xrdcp("-S", streams, source, area.url("file"), XRD_CPCHUNKSIZE="1000000").ok()
    assert area.get("file") == source.read_bytes()
    xrdcp("-S", streams, area.url("file"), tmp_path / "back", XRD_CPCHUNKSIZE="1000000").ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_parallel_streams_without_pages(area, local, tmp_path):
    source = local(size=20 * MIB + 3)
    plain = dict(XRD_CPCHUNKSIZE="1000000", XRD_CPUSEPGWRTRD="0")
    xrdcp("--streams", "4", source, area.url("file"), **plain).ok()
    assert area.get("file") == source.read_bytes()
    xrdcp("--streams", "4", area.url("file"), tmp_path / "back", **plain).ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_existing_target_is_kept_without_force(area, local):
    area.put("file", b"precious")
    xrdcp(local(), area.url("file")).fails(ShellCode.CLIENT_ERROR, "file exists")
    assert area.get("file") == b"precious"


def test_force_overwrites_also_with_less(area, local):
    area.put("file", b"x" * 500_000)
    source = local(size=1000)
    xrdcp("-f", source, area.url("file")).ok()
    assert area.get("file") == source.read_bytes()


def test_missing_source(area, tmp_path):
    xrdcp(area.url("nope"), tmp_path / "out").fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown, "no such file or directory")
    assert not (tmp_path / "out").exists()


def test_parents_are_created(area, local):
    source = local()
    xrdcp(source, area.url("new/dir/file")).ok()
    assert area.get("new/dir/file") == source.read_bytes()


def test_target_directory_gets_the_name_of_the_source(area, local):
    area.mkdir("folder")
    source = local("name")
    xrdcp(source, area.url("folder")).ok()
    assert area.get("folder/name") == source.read_bytes()


@pytest.mark.parametrize("name", ["with blank", "größe–π", "a&b=c", "per%20cent", "dash-–", "#hash"])
def test_names(area, local, tmp_path, name):
    source = local()
    xrdcp(source, area.url(name)).ok()
    assert area.get(name) == source.read_bytes()
    xrdcp(area.url(name), tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_long_name(area, local):
    name = "n" * 255
    source = local()
    xrdcp(source, area.url(name)).ok()
    assert area.get(name) == source.read_bytes()
    assert xrdcp(source, area.url(name + "n")).status != 0
    assert os.listdir(area.local) == [name]


def test_recursive_both_ways(area, local, tmp_path):
    names = ["top/a", "top/b", "top/sub/c", "top/sub/deep/d", "top/sub/empty-file"]
    for seed, name in enumerate(names):
        local(name, size=0 if "empty" in name else 10_000 * seed + 1, seed=seed)
    xrdcp("-r", tmp_path / "top", area.url("")).ok()
    for name in names:
        assert area.get(name) == (tmp_path / name).read_bytes(), name
    (tmp_path / "back").mkdir()
    xrdcp("-r", area.url("top"), tmp_path / "back").ok()
    for name in names:
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / name).read_bytes(), name


def test_many_jobs_at_once(area, local, tmp_path):
    for seed in range(20):
        local(f"many/{seed}", size=50_000 + seed, seed=seed)
    xrdcp("-r", "--parallel", "4", tmp_path / "many", area.url("")).ok()
    for seed in range(20):
        assert area.get(f"many/{seed}") == data(50_000 + seed, seed)


def test_list_of_sources(area, local, tmp_path):
    for seed in range(3):
        area.put(f"in{seed}", data(1000, seed))
    (tmp_path / "list").write_text("".join(area.url(f"in{seed}") + "\n" for seed in range(3)))
    (tmp_path / "out").mkdir()
    xrdcp("--infiles", tmp_path / "list", tmp_path / "out").ok()
    for seed in range(3):
        assert (tmp_path / "out" / f"in{seed}").read_bytes() == data(1000, seed)


def test_from_stdin(area):
    content = data(10 * MIB + 1)
    xrdcp("-", area.url("file"), input=content).ok()
    assert area.get("file") == content


def test_to_stdout(area):
    content = data(10 * MIB + 1)
    area.put("file", content)
    assert xrdcp("--silent", area.url("file"), "-").ok().raw == content


def test_server_to_the_same_server(area):
    content = data(10 * MIB + 1)
    area.put("file", content)
    xrdcp(area.url("file"), area.url("copy")).ok()
    assert area.get("copy") == content


def test_persist_on_successful_close(area, local):
    source = local(size=9 * MIB)
    xrdcp("--posc", source, area.url("file")).ok()
    assert area.get("file") == source.read_bytes()
    assert os.stat(area.local / "file").st_mode & 0o7777 == 0o644
    assert "Flags:  48 " in xrdfs(area.server, "stat", area / "file").ok().out


def test_coerce_ignores_the_lock(area, local):
    source = local()
    area.put("file", b"old")
    xrdcp("--coerce", "-f", source, area.url("file")).ok()
    assert area.get("file") == source.read_bytes()


def test_continue_a_download(area, tmp_path):
    content = data(20 * MIB + 7)
    area.put("file", content)
    (tmp_path / "part").write_bytes(content[: 7 * MIB + 3])
    xrdcp("--continue", area.url("file"), tmp_path / "part").ok()
    assert (tmp_path / "part").read_bytes() == content


def test_continue_an_upload(area, local):
    source = local(size=20 * MIB + 7)
    content = source.read_bytes()
    area.put("file", content[: 7 * MIB + 3])
    result = xrdcp("--continue", source, area.url("file"))
    if result.status == 0:
        assert area.get("file") == content
    else:
        result.fails(ShellCode.CLIENT_ERROR, "file exists")
        assert area.get("file") == content[: 7 * MIB + 3]


def test_rate_limit_and_dynamic_source(area, local, tmp_path):
    source = local(size=300_000)
    xrdcp("--xrate", "10m", "--dynamic-src", source, area.url("file")).ok()
    assert area.get("file") == source.read_bytes()


def test_extended_attributes_are_carried_along(area, tmp_path):
    path = area.put("file", b"content")
    xrdfs(area.server, "xattr", path, "set", "colour=red").ok()
    xrdcp("--xattr", area.url("file"), area.url("copy")).ok()
    assert 'colour="red"' in xrdfs(area.server, "xattr", area / "copy", "list").ok().out


def test_retry_policies(area, local):
    source = local()
    xrdcp("--retry", "2", "--retry-policy", "force", source, area.url("file")).ok()
    assert area.get("file") == source.read_bytes()


def test_legacy_options(area, local, tmp_path):
    source = local()
    xrdcp("-np", "-OSx.y=1", "-ODx.z=2", source, area.url("file")).ok()
    assert area.get("file") == source.read_bytes()
    result = xrdcp("-adler", area.url("file"), tmp_path / "back").ok()
    assert f"{zlib.adler32(source.read_bytes()):08x}" in result.all


def archive(path, content, method, others=0):
    with zipfile.ZipFile(path, "w", method) as file:
        for number in range(others):
            file.writestr(f"other{number}", data(30_000, number), zipfile.ZIP_STORED)
        file.writestr("member", content)
    return path.read_bytes()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED], ids=["stored", "deflated"])
@pytest.mark.parametrize("others", [0, 100], ids=["small", "large"])
def test_zip_member(area, tmp_path, method, others):
    content = data(50_000) + b"compressible " * 4000
    area.put("a.zip", archive(tmp_path / "a.zip", content, method, others))
    for name, words in [("out", ["--zip", "member", area.url("a.zip")]), ("out2", [area.url("a.zip") + "?xrdcl.unzip=member"])]:
        xrdcp(*words, tmp_path / name).ok()
        assert (tmp_path / name).read_bytes() == content


def test_zip_member_that_is_missing(area, tmp_path):
    area.put("a.zip", archive(tmp_path / "a.zip", b"x", zipfile.ZIP_STORED))
    assert xrdcp("--zip", "nope", area.url("a.zip"), tmp_path / "out").status != 0


def test_zip_append(area, local, tmp_path):
    """Changes the archive in place, under a checkpoint."""
    area.put("a.zip", archive(tmp_path / "a.zip", b"first", zipfile.ZIP_STORED))
    source = local("second", size=100_000)
    xrdcp("--zip-append", source, area.url("a.zip")).ok()
    with zipfile.ZipFile(area.local / "a.zip") as file:
        assert file.testzip() is None
        assert file.read("member") == b"first"
        assert file.read("second") == source.read_bytes()
