"""Replays the recorded exchanges of a real 6.1 server: each answer must equal the recorded one.

Exceptions are values that vary between runs (ids, times, free space, ports, versions) and the cuts
between partial answers."""

import os
import re
import shutil
import struct

import pytest

import peers
import raw
import recorded

# Configuration A of the recordings.
SETTINGS = """\
all.sitename TESTSITE
xrootd.chksum max 3 adler32 crc32c md5
ofs.persist manual hold 20
ofs.chkpnt enable maxsz 1m
"""

SCENARIOS = [
    "api_fattr_handle", "api_fattr_path", "api_fs", "api_pgread", "api_pgwrite", "api_pgwrite_bad", "api_posc", "api_read_eof", "api_readv",
    "api_visa", "api_write", "api_writev", "cp_cksum", "cp_download_5m", "cp_download_5m_read", "cp_download_pgread", "cp_download_read", "cp_metalink",
    "cp_missing", "cp_recursive", "cp_stdout", "cp_upload_mkpath", "cp_upload_new", "cp_upload_pgwrite", "cp_upload_posc", "cp_upload_write", "cp_zip_deflated", "cp_zip_stored",
    "fs_cat", "fs_locate", "fs_ls", "fs_ls_R", "fs_ls_cksum", "fs_ls_l", "fs_ls_missing", "fs_ls_zip", "fs_namespace", "fs_prepare", "fs_query_checksum",
    "fs_query_config", "fs_query_misc", "fs_stat", "fs_stat_dir", "fs_stat_forbidden", "fs_stat_missing", "fs_xattr", "raw_dirlist", "raw_errors",
    "raw_handshake", "raw_large_readv", "raw_open_read", "raw_query", "raw_write",
]

# Answers that differ on purpose: (scenario, request number or None) -> reason.
DIFFERENT = {
    ("raw_query", 0x0F): "third-party copy is not offered yet",
    ("raw_query", 0x19): "third-party copy is not offered yet",
    ("raw_query", 0x14): "the real server forgets the value of vnid",
    ("raw_query", 0x1A): "keys on further lines are answered too",
    ("fs_query_config", 0x100): "keys on further lines are answered too",
}

STAT = re.compile(rb"\d+ (\d+) (\d+) \d+ \d+ \d+ (\d{4} \S+ \S+)")
SPACE = re.compile(rb"(oss\.(?:cgroup|space|free|maxf|used|mt|ct|at|u|g)=)[^&\0]*")


@pytest.fixture(scope="module")
def recorded_ours():
    """Our server in the recorded configuration, started as sites start theirs."""
    with peers.Linked(settings=SETTINGS, export="/data") as server:
        yield server


@pytest.fixture
def fresh(recorded_ours):
    """The same server with the recorded files only."""
    shutil.rmtree(recorded_ours.tree / "data", ignore_errors=True)
    recorded.plant(recorded_ours.tree)
    return recorded_ours


def normal(exchange, status, body):
    """Returns an answer without values that vary."""
    if status == raw.ERROR:
        text = body[4:].rstrip(b"\0").decode(errors="replace")
        # Our server also names its exports, for users.
        return struct.unpack(">i", body[:4])[0], text.removesuffix(" This server exports /data.")
    if status != raw.OK:
        return body
    code = exchange.code
    if code == raw.LOGIN:
        return len(body[:16]), body[16:]
    if code == raw.OPEN:
        return body[4:12], STAT.sub(rb"\1 \2 \3", body[12:])
    if code == raw.STAT:
        if exchange.bytes[4] & 1:
            return re.sub(rb"\d+", b"N", body)
        return STAT.sub(rb"\1 \2 \3", body)
    if code == raw.DIRLIST:
        return listing(body)
    if code == raw.READV:
        return without_handles(body)
    if code == raw.LOCATE:
        host = rb"[^\0 ]+" if exchange.bytes[4] & 1 else rb""  # 0x0100 requests names, and names differ
        return re.sub(rb"(?<=\w\w)" + host + rb":\d+(?=[\0 ])" if host else rb":\d+(?=[\0 ])", b":PORT", body)
    if code == raw.PREPARE:
        return bool(body)
    if code == raw.FATTR and exchange.bytes[8] == 2:
        return sorted(body)
    if code == raw.QUERY:
        return query(struct.unpack(">H", exchange.bytes[4:6])[0], exchange.payload().rstrip(b"\0"), body)
    return body


def without_handles(body):
    """Returns the elements of a vector read."""
    elements = []
    while body:
        length, offset = struct.unpack(">iq", body[4:16])
        elements.append((offset, body[16:16 + length]))
        body = body[16 + length:]
    return elements


def listing(body):
    """Returns the entries of a listing, in any order."""
    lines = body.rstrip(b"\0\n").split(b"\n")
    if lines[0] == b".":
        pairs = zip(lines[2::2], lines[3::2])
        return lines[:2], sorted((name, STAT.sub(rb"\1 \2 \3", stat)) for name, stat in pairs)
    return sorted(lines)


def query(kind, argument, body):
    if kind == 1:
        return sorted(set(re.findall(rb'<stats id="\w+"', body)))
    if kind in (4, 5):
        # The real server sends a stray byte after the NUL of an xattr answer.
        return sorted(SPACE.sub(rb"\1X", body.split(b"\0")[0]).split(b"&"))
    if kind == 7 and argument in (b"start", b"version", b"window"):
        return body.count(b"\n")
    return body.rstrip(b"\0") if kind == 3 else body


def remember(server, name):
    """Creates the state of files that the recorded server had from earlier scenarios."""
    if name == "api_fattr_handle":
        os.setxattr(server.tree / "data/f10k", "user.U.key2", b"value two")
    known = {"fs_ls_cksum": ["up6"], "raw_dirlist": ["dir1/ten"]}.get(name, [])
    with raw.Connection(server) as connection:
        for file in known:
            connection.ask(raw.QUERY, struct.pack(">H", 3), f"/data/{file}".encode())


@pytest.mark.parametrize("name", SCENARIOS)
def test_recorded_exchange(fresh, name):
    scenario = recorded.Scenario(name)
    for path, content in scenario.files_read().items():
        if path.startswith("/data/") and not (fresh.tree / path[1:]).exists():
            peers.place(fresh.tree / path[1:], content)
    if name == "raw_dirlist":
        recorded.plant_many(fresh.tree)
    if name.startswith("fs_"):
        recorded.plant_uploads(fresh.tree)
        if name in ("fs_ls", "fs_ls_l", "fs_ls_R", "fs_ls_cksum"):
            (fresh.tree / "data/arch.zip").unlink()
    remember(fresh, name)
    sessions, differences = {}, []
    for dialogue in scenario.dialogues:
        for exchange, status, body in recorded.Replay(fresh, dialogue, sessions).run():
            if (name, exchange.stream) in DIFFERENT or not exchange.complete:
                continue
            asked = f"request {exchange.code} stream {exchange.stream:04x} {exchange.bytes[4:90]!r}"
            if status != exchange.status:
                differences.append(f"{asked}\n  recorded status {exchange.status} {exchange.body[:200]!r}\n  now {status} {body[:200]!r}")
            elif normal(exchange, status, body) != normal(exchange, exchange.status, exchange.body):
                expected, now = normal(exchange, exchange.status, exchange.body), normal(exchange, status, body)
                differences.append(f"{asked}\n  recorded {str(expected)[:600]}\n  now      {str(now)[:600]}")
    assert not differences, "\n".join(differences)
