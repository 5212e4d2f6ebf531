"""`xrdcp --cksum` with each algorithm and form, and checksums that one server stores for the other."""

import hashlib
import os
import zlib

import pytest

from codes import ErrorCode, ShellCode
from tools import data, refused_checksum, xrdcp, xrdfs

ALGORITHMS = ["adler32", "crc32", "crc32c", "md5", "zcrc32"]


def _table(polynomial, reflected):
    table = []
    for byte in range(256):
        value = byte if reflected else byte << 24
        for _ in range(8):
            if reflected:
                value = value >> 1 ^ (polynomial if value & 1 else 0)
            else:
                value = (value << 1 ^ (polynomial if value & 0x80000000 else 0)) & 0xFFFFFFFF
        table.append(value)
    return table


_CASTAGNOLI = _table(0x82F63B78, True)
_CKSUM = _table(0x04C11DB7, False)


def crc32c(content):
    value = 0xFFFFFFFF
    for byte in content:
        value = value >> 8 ^ _CASTAGNOLI[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def cksum(content):
    """POSIX `cksum`: not reflected, the length appended."""
    value, length = 0, len(content)
    tail = bytearray()
    while length:
        tail.append(length & 0xFF)
        length >>= 8
    for part in (content, tail):
        for byte in part:
            value = (value << 8 & 0xFFFFFFFF) ^ _CKSUM[value >> 24 ^ byte]
    return value ^ 0xFFFFFFFF


def expected(algorithm, content):
    """Returns the value as servers print it."""
    return {
        "adler32": lambda: f"{zlib.adler32(content):08x}",
        "crc32": lambda: f"{cksum(content):08x}",
        "crc32c": lambda: f"{crc32c(content):08x}",
        "md5": lambda: hashlib.md5(content).hexdigest(),
        "zcrc32": lambda: zlib.crc32(content).to_bytes(4, "little").hex(),
    }[algorithm]()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("size", [0, 9, 200_001])
def test_query(area, algorithm, size):
    content = data(size)
    path = area.put("file", content)
    for _ in range(2):  # computed, then stored
        answer = xrdfs(area.server, "query", "checksum", f"{path}?cks.type={algorithm}").ok()
        assert answer.out.split() == [algorithm, expected(algorithm, content)]


def test_query_without_a_type_uses_the_first_configured(area):
    path = area.put("file", b"123456789")
    assert xrdfs(area.server, "query", "checksum", path).ok().out.split() == ["adler32", "091e01de"]


def test_query_of_an_unknown_type(area):
    path = area.put("file", b"123456789")
    xrdfs(area.server, "query", "checksum", f"{path}?cks.type=foo").fails(ShellCode.SERVER_ERROR, ErrorCode.SERVER_ERROR.shown, "foo checksum not supported")


def test_query_of_a_missing_file_and_of_a_directory(area):
    refused_checksum(area.server, *(area / f"nope{number}" for number in range(4))).fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown, "no such file or directory")
    directories = [f"folder{number}" for number in range(4)]
    for directory in directories:
        area.mkdir(directory)
    refused_checksum(area.server, *(area / directory for directory in directories)).fails(ShellCode.SERVER_ERROR, ErrorCode.IS_DIRECTORY.shown)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_verify_end_to_end(area, tmp_path, algorithm):
    source = tmp_path / "source"
    source.write_bytes(data(300_000))
    value = expected(algorithm, source.read_bytes())
    result = xrdcp("--cksum", algorithm, source, area.url("file")).ok()
    assert area.get("file") == source.read_bytes()
    result = xrdcp("--cksum", algorithm, area.url("file"), tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    result = xrdcp("--cksum", f"{algorithm}:print", area.url("file"), tmp_path / "printed").ok()
    assert f"{algorithm}: {value}" in result.all
    result = xrdcp("--cksum", f"{algorithm}:source", area.url("file"), tmp_path / "sourced").ok()
    assert f"{algorithm}: {value}" in result.all
    xrdcp("--cksum", f"{algorithm}:{value}", area.url("file"), tmp_path / "given").ok()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_wrong_value_fails_and_keeps_or_removes_the_target(area, tmp_path, algorithm):
    source = tmp_path / "source"
    source.write_bytes(data(300_000))
    value = expected(algorithm, source.read_bytes())
    wrong = value[:-1] + ("0" if value[-1] != "0" else "1")
    xrdcp("--cksum", f"{algorithm}:{wrong}", source, area.url("kept")).fails(ShellCode.PROTOCOL, "CheckSum error")
    assert area.get("kept") == source.read_bytes()
    xrdcp("--rm-bad-cksum", "--cksum", f"{algorithm}:{wrong}", source, area.url("removed")).fails(ShellCode.PROTOCOL, "CheckSum error")
    assert not (area.local / "removed").exists()


def test_auto(area, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(data(300_000))
    xrdcp("--cksum", "auto", source, area.url("file")).ok()
    xrdcp("--cksum", "auto:print", area.url("file"), tmp_path / "back").ok()


def test_several_at_once(area, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(data(1000))
    result = xrdcp("--cksum", "md5:print", "--cksum", "adler32:source", source, area.url("file")).ok()
    for algorithm in ("md5", "adler32"):
        assert f"{algorithm}: {expected(algorithm, source.read_bytes())}" in result.all


def test_changed_file_gets_a_new_value(area):
    path = area.put("file", b"123456789")
    xrdfs(area.server, "query", "checksum", path).ok()
    area.put("file", b"987654321")
    os.utime(area.local / "file", (1, 1))
    answer = xrdfs(area.server, "query", "checksum", path).ok()
    assert answer.out.split() == ["adler32", expected("adler32", b"987654321")]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_stored_form(area, algorithm):
    """96 bytes in an extended attribute, equal in both servers except for our fingerprint of size
    and time."""
    path = area.put("file", b"123456789")
    os.utime(area.local / "file", (1_700_000_000, 1_700_000_000))
    xrdfs(area.server, "query", "checksum", f"{path}?cks.type={algorithm}").ok()
    stored = os.getxattr(area.local / "file", f"user.XrdCks.{algorithm}")
    value = bytes.fromhex(expected(algorithm, b"123456789"))
    assert len(stored) == 96
    assert stored[:16].rstrip(b"\0").decode() == algorithm
    assert int.from_bytes(stored[16:24], "big") == 1_700_000_000
    assert 0 < int.from_bytes(stored[24:28], "big")
    assert (stored[28:31] == b"\0\0\0") == (area.server.kind == "theirs")
    assert stored[31] == len(value)
    assert stored[32:].rstrip(b"\0") == value.rstrip(b"\0")
    assert "XrdCks" not in xrdfs(area.server, "xattr", path, "list").ok().out


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("direction", ["theirs-to-ours", "ours-to-theirs"])
def test_each_reads_the_other_s_stored_value(ours, theirs, area_on, algorithm, direction):
    """A value stored by one server is used by the other. It is wrong on purpose, so it cannot be a
    computed one."""
    first, second = (theirs, ours) if direction == "theirs-to-ours" else (ours, theirs)
    source, target = area_on(first), area_on(second)
    path = source.put("file", b"123456789")
    os.utime(source.local / "file", (1_700_000_000, 1_700_000_000))
    xrdfs(first, "query", "checksum", f"{path}?cks.type={algorithm}").ok()
    stored = os.getxattr(source.local / "file", f"user.XrdCks.{algorithm}")
    path = target.put("file", b"something else")
    os.setxattr(target.local / "file", f"user.XrdCks.{algorithm}", stored)
    os.utime(target.local / "file", (1_700_000_000, 1_700_000_000))
    answer = xrdfs(second, "query", "checksum", f"{path}?cks.type={algorithm}").ok()
    assert answer.out.split() == [algorithm, expected(algorithm, b"123456789")]


def test_listing_shows_only_stored_values(area):
    path = area.put("known", b"123456789")
    area.put("unknown", b"123456789")
    xrdfs(area.server, "query", "checksum", path).ok()
    lines = xrdfs(area.server, "ls", "-C", area.path).ok().out.splitlines()
    assert any("adler32:091e01de" in line and "/known" in line for line in lines)
    assert any("adler32:none" in line and "/unknown" in line for line in lines)


def test_cancel(area):
    path = area.put("file", b"123456789")
    assert xrdfs(area.server, "query", "checksumcancel", path).ok().out.strip() == ""
