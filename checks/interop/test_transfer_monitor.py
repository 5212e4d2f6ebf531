"""`frm.all.monitor`: records of both programs about the same work, decoded by a decoder of its own."""

import re
import struct
import subprocess
import time

import pytest

import peers
import tapes
from datagrams import DatagramCollector
from test_frm_daemons import daemon, site  # noqa: F401
from test_migration import COPY as OUT
from test_purge import residency
from test_record_import import as_user, real_daemon
from test_residency import COPY
from tools import wait_until, xrdcp

HEADER = struct.Struct(">cBHII")


class Record:
    """A record as its description has it: a header and lines of text."""

    def __init__(self, packet):
        code, self.sequence, length, self.started, identity = HEADER.unpack_from(packet)
        assert length == len(packet) and identity == 0, packet
        self.code = code.decode()
        self.lines = packet[HEADER.size :].decode().split("\n")
        self.fields = dict(re.findall(r"&(\w+)=([^&]*)", self.lines[-1]))

    def __repr__(self):
        return f"{self.code} {self.sequence} {self.lines}"


class Collector(DatagramCollector):
    def __init__(self):
        super().__init__()
        self.records = []

    def of(self, code):
        """Returns the records of a kind that have come up to now."""
        self.records.extend(map(Record, self.received()))
        return [record for record in self.records if record.code == code]


@pytest.fixture
def collector():
    with Collector() as one:
        yield one


@pytest.fixture
def collectors():
    with Collector() as one, Collector() as other:
        yield one, other


@pytest.fixture
def tape():
    with tapes.tape(copy=COPY, out=OUT) as one:
        yield one


def form(record, name):
    """Returns what does not depend on the program and the time, with `ID` for the id of the sender."""
    client = re.sub(r"(?<=:)\d{6,15}(?=@)", "ID", record.lines[0])
    return client, record.lines[1] == name, list(record.fields), record.fields["op"], record.fields["sz"], record.fields["rc"]


def test_records_of_copies_are_those_of_the_real_daemon(tape, site, daemon, collectors):  # noqa: F811
    ours, theirs = collectors
    tape.put("one", b"1" * 1234)
    requests = ["+me.1:2@h ID1 - 0 w /one /missing", "+n@h ID2 - 0 w /two"]
    tape.put("two", b"")
    servers = [site(more=f"all.sitename SITE\nfrm.all.monitor ident 2s dest stage {one.address()}\n") for one in collectors]
    for server, name, program in zip(servers, ("ours", "theirs"), (peers.link, peers.real)):
        feed = subprocess.run([program("frm_xfragent"), "-c", server.work / "xrootd.cfg"], capture_output=True, timeout=60,
                              input="".join(f"{line}\n" for line in requests).encode(), check=False, cwd=server.work,
                              env=peers.environment(), **as_user())
        assert feed.returncode == 8, (name, feed)
    daemon("frm_xfrd", servers[0]).start()
    with real_daemon(servers[1]):
        for collector in collectors:
            wait_until(lambda: len(collector.of("x")) == 3 and len(collector.of("=")) >= 2)  # noqa: B023
    for name in ("/one", "/missing", "/two"):
        forms = [[form(record, name) for record in one.of("x") if record.lines[1] == name] for one in collectors]
        assert forms[0] == forms[1] and len(forms[0]) == 1
    hosts = {one.of("=")[0].lines[0].partition("@")[2] for one in collectors}
    assert len(hosts) == 1, hosts
    found = {record.lines[1]: record for record in ours.of("x")}
    assert found["/one"].lines[0].startswith("me.1:") and found["/two"].lines[0] == "n@h"
    assert (found["/one"].fields["sz"], found["/missing"].fields["rc"]) == ("1234", "2")
    # The sender identifies itself again and again, by the same id.
    for one in collectors:
        assert [record.sequence for record in one.of("=")] == [0] * len(one.of("="))
        assert sorted(record.sequence for record in one.of("x")) == [1, 2, 3]
        first, fields = one.of("=")[0].lines[0], one.of("=")[0].fields
        assert re.fullmatch(r"\w+\.\d+:\d+@.+", first), first
        assert list(fields.items())[:3] == [("site", "SITE"), ("port", "0"), ("inst", "anon")] and fields["pgm"] == "frm_xfrd"
        sender = re.search(r":(\d+)@", first).group(1)
        assert {record.lines[0] for record in one.of("x")} >= {f"me.1:{sender}@h"}


def test_a_server_reports_copies_and_purges_to_those_who_want_them(tape, begin, collectors, tmp_path):
    all_events, purges = collectors
    settings = tape.copies_in(more=(
        f"frm.xfr.copycmd out {tape.directory}/out $SRC $DST\nfrm.xfr.migr.idlehold 0\nfrm.xfr.migr.waittime 1s\n"
        "frm.purge.policy * 1 2 hold 0\n"
        f"frm.all.monitor dest migr purge stage {all_events.address()} dest purge {purges.address()}\n"))
    server = begin(peers.Linked(settings=settings, export="/ stage mig purge"))
    tape.put("old", b"o" * 500)
    xrdcp(server.url("/old"), tmp_path / "old").ok()
    (tmp_path / "new").write_bytes(b"n" * 700)
    xrdcp(tmp_path / "new", server.url("/new")).ok()
    wait_until(lambda: len(all_events.of("x")) == 2)
    # A copy that was recorded can be purged.
    for name in ("/old", "/new"):
        wait_until(lambda: residency(server, "release", name).status == 0)  # noqa: B023
    wait_until(lambda: len(purges.of("p")) == 2 and len(all_events.of("p")) == 2)
    copies = {record.lines[1]: record.fields for record in all_events.of("x")}
    assert {name: (fields["op"], fields["sz"], fields["rc"]) for name, fields in copies.items()} == {
        "/old": ("6", "500", "0"), "/new": ("2", "700", "0")}
    for record in all_events.of("p"):
        assert record.lines[0].startswith("frm_purged:") and record.lines[0].endswith("@localhost")
        assert list(record.fields) == ["tod", "sz", "at", "ct", "mt", "fn"] and record.fields["fn"] == "l"
        assert int(record.fields["sz"]) == {"/old": 500, "/new": 700}[record.lines[1]]
        assert abs(int(record.fields["tod"]) - time.time()) < 600
    assert purges.of("x") == [] and len(purges.of("=")) == 1
    assert [record.sequence for record in all_events.records if record.code != "="] == [1, 2, 3, 4]
    assert [record.sequence for record in purges.of("p")] == [1, 2]
