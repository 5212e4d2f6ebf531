"""Streams of JSON records (`xrootd.mongstream`): packets of our server and of the real one about the same work, decoded by
a decoder of its own (`gstream_packets`)."""

import datetime
import re
import subprocess

import pytest

import certificates
import peers
import raw
import tools
from gstream_packets import ALL_NAMES, NAMES, GCollector
from test_cache import CACHE
from test_cache import place as place_old
from test_http_copies import HANDLER, OurCopies, TheirCopies, order
from test_http_copies import place as place_copies
from test_third_party import copy, put, settings, url
from tools import data, wait_until, xrdcp
from web import OurWebServer

KINDS = {"ours": peers.Ours, "theirs": peers.Theirs}
SITE = "all.sitename SITE\n"
FORMS = [("json", header) for header in NAMES] + [("cgi", header) for header in NAMES] + [("nohdr", ""), ("binary", "")]


def directive(collector, stream, header="", options="flush 1s"):
    """Returns the lines that send a stream to a collector in the form that it takes."""
    if collector.form == "binary":
        return f"xrootd.monitor all ident 2s dest {stream} {collector.address()}\nxrootd.mongstream {stream} use {options}\n"
    return f"xrootd.mongstream {stream} use {options} send {collector.form} {header} {collector.address()}\n"


def keys(record):
    """Returns the keys of a record with those of its parts, in order."""
    return [(key, keys(value) if isinstance(value, dict) else None) for key, value in record.items()]


def moment(text):
    """Decodes a time. Its fraction is a number of microseconds, with or without zeros in front of it."""
    seconds, micros = re.fullmatch(r"(.*)\.(\d{1,6})Z", text).groups()
    return datetime.datetime.fromisoformat(f"{seconds}+00:00") + datetime.timedelta(microseconds=int(micros))


def checked_copy(record, server, source_port, name):
    """Checks what each record of a copy by the xroot protocol has, and returns the rest."""
    xeq = record["Xeq"]
    begun, ended = map(moment, (xeq["Beg"], xeq["End"]))
    now = datetime.datetime.now(datetime.UTC)
    assert now - datetime.timedelta(minutes=10) < begun <= ended <= now
    # The older server writes some addresses of IPv4 without `ffff`.
    assert re.fullmatch(r"\w+\.\d+:\d+@\[::(ffff:)?127\.0\.0\.1]", record["Client"]), record
    assert re.fullmatch(rf"xroot://(\[::ffff:127\.0\.0\.1]|127\.0\.0\.1):{source_port}//{name}", record["Src"]), record
    assert re.fullmatch(rf"xroot://[^/]+:{server.port}//{name}-copy", record["Dst"]), record
    return record["TPC"], xeq["RC"], xeq["Strm"], xeq["Type"], xeq["IPv"], keys(record)


@pytest.mark.parametrize(("form", "header"), FORMS)
def test_a_third_party_copy_has_the_record_of_the_real_server(form, header):
    found = []
    for kind in KINDS:
        with GCollector(form) as collector, peers.Ours(settings=settings("ours")) as source, \
                KINDS[kind](settings=settings(kind) + SITE + directive(collector, "tpc", header)) as server:
            path = put(source, "f", data(5000))
            copy(url(source.port, path), url(server.port, "/f-copy"), "--tpc", "only", "-S", "3").ok()
            wait_until(collector.records)
            (packet,) = collector.packets()
            (record,) = packet.records
            found.append(checked_copy(record, server, source.port, "f"))
            if kind == "ours":
                assert record["Size"] == 5000
            if form == "nohdr":
                assert collector.identities() == []
                continue
            assert packet.kind == "P" and packet.sequence == 1 and packet.begin == packet.end >= packet.started
            if form == "binary":
                continue
            names = {"site": "SITE", "port": server.port, "inst": "anon", "pgm": "xrootd"}
            (identity,) = collector.identities()
            assert (identity.server, identity.started, identity.sequence) == (packet.server, packet.started, 1)
            assert list(identity.names) == ALL_NAMES and identity.names.items() >= names.items()
            assert list(packet.names) == ALL_NAMES[:NAMES[header]]
            assert packet.names.items() <= identity.names.items()
    assert found[0] == found[1]


def test_copies_over_http_have_the_records_of_the_real_server():
    """Pulls, pushes and failures."""
    with certificates.new_authority() as authority, OurWebServer() as remote:
        peers.give(remote.tree)
        peers.place(remote.tree / "small", b"hello world\n")
        found = []
        for kind in KINDS:
            with GCollector("nohdr") as collector:
                line = directive(collector, "tpc")
                server = OurCopies(line) if kind == "ours" else TheirCopies(authority)
                if kind == "theirs":
                    server.settings += line
                with server:
                    place_copies(server)
                    for number, (path, header) in enumerate([
                        ("/pulled", f"Source: {remote.origin}/small"),
                        ("/small", f"Destination: {remote.origin}/pushed-{kind}"),
                        ("/none", f"Source: {remote.origin}/missing"),
                    ]):
                        order(server, path, header)
                        wait_until(lambda: len(collector.records()) > number)  # noqa: B023
                    port = server.port if kind == "ours" else server.web_port
                    records = collector.records()
                    for record in records:
                        local = record["Src"] if record["Xeq"]["Type"] == "push" else record["Dst"]
                        far = record["Dst"] if record["Xeq"]["Type"] == "push" else record["Src"]
                        assert re.fullmatch(rf"http://[^/]+:{port}//\w+", local), record
                        assert far.startswith(f"{remote.origin}/")
                        # An encrypted connection of the real server has another prefix.
                        assert re.fullmatch(r"[\w.]+:\d+@\[::(ffff:)?127\.0\.0\.1]", record["Client"]), record
                    found.append([(record["TPC"], record["Xeq"]["RC"], record["Xeq"]["Strm"], record["Xeq"]["Type"],
                                   record["Xeq"]["IPv"], record["Size"], keys(record)) for record in records])
    assert found[0] == found[1]
    assert [(row[1], row[3], row[5]) for row in found[0]] == [(0, "pull", 12), (0, "push", 12), (404, "pull", 0)]


def test_a_period_of_a_cached_file_has_the_record_of_the_real_server(tmp_path):
    found = []
    with peers.Ours() as origin:
        place_old(origin, "f", data(200_000))
        for kind in KINDS:
            with GCollector("json") as collector:
                text = f"ofs.osslib libXrdPss.so\npss.origin {origin.host}\n{CACHE}{SITE}"
                with KINDS[kind](settings=text + directive(collector, "pfc")) as cache:
                    for _ in range(2):
                        before = len(collector.records())
                        xrdcp("-f", cache.url("/f"), tmp_path / "f").ok()
                        wait_until(lambda: len(collector.records()) > before, 60)  # noqa: B023
                    packets = collector.packets()
                    assert {packet.kind for packet in packets} == {"C"}
                    first, second = collector.records()[:2]
                    for record in (first, second):
                        assert record["attach_t"] <= record["detach_t"]
                        assert record["event"] == "file_close" and record["lfn"] == "/f"
                        assert (record["size"], record["blk_size"], record["n_blks"], record["n_blks_done"]) == (200_000, 65_536, 4, 4)
                        assert record["n_cks_errs"] == 0 and record["b_bypass"] == 0
                    assert [record["access_cnt"] for record in (first, second)] == [1, 2]
                    # The real server counts bytes that it fetches ahead as hits, too.
                    assert first["b_hit"] + first["b_miss"] >= 200_000
                    assert (second["b_hit"], second["b_miss"]) == (200_000, 0)
                    # It names no origin in a period in which it has asked none.
                    assert first["remotes"] == [f"localhost:{origin.port}"]
                    if kind == "ours":
                        assert (first["b_todisk"], second["b_todisk"]) == (200_000, 0)
                        assert first["b_prefetch"] <= first["b_miss"]
                    found.append(set(first))
    # Version 5.5.3 has less than the description.
    assert found[0] >= found[1], found


def test_requests_of_http_are_counted_by_status():
    """The real server of 5.5.3 does not have this stream."""
    with GCollector("json") as collector, OurWebServer(directive(collector, "http")) as server:
        peers.place(server.tree / "f", data(1000))
        for path, status in (("/f", 200), ("/f", 200), ("/none", 404)):
            done = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"{server.origin}{path}"],
                                  capture_output=True, text=True, timeout=60)
            assert done.stdout == str(status)
        total = lambda: sum(value["count"] for value in (collector.records() or [{}])[-1].values())  # noqa: B023
        wait_until(lambda: total() == 3)
        last = collector.records()[-1]
        assert set(last) == {"HTTP_GET_200", "HTTP_GET_404"}
        time = last["HTTP_GET_200"].pop("duration_seconds")
        assert time >= 0 and last["HTTP_GET_200"] == {"count": 2, "errors_network": 0, "errors_xrootd": 0, "success": 2}
        assert last["HTTP_GET_404"]["errors_xrootd"] == 1 and last["HTTP_GET_404"]["success"] == 0
        assert all(packet.kind == "H" for packet in collector.packets())


def test_packets_have_at_most_the_configured_size_and_numbers_without_gaps():
    options = "flush 1h maxlen 1024"
    with GCollector("json") as collector, peers.Ours(settings=settings("ours")) as source, \
            peers.Ours(settings=settings("ours") + directive(collector, "tpc", "fullhdr", options)) as server:
        for number in range(6):
            path = put(source, f"f{number}", data(100))
            copy(url(source.port, path), url(server.port, f"/copy{number}"), "--tpc", "only").ok()
        # What does not fill a packet is sent at the end.
        before = len(collector.records())
        assert 0 < before < 6
        server.stop()
        wait_until(lambda: len(collector.records()) == 6)
        packets = collector.packets()
        assert [packet.sequence for packet in packets] == list(range(1, len(packets) + 1))
        assert max(collector.sizes) <= 1024
        assert [record["Dst"].rpartition("copy")[2] for record in collector.records()] == list("012345")


def test_a_collector_that_is_away_disturbs_nobody(tmp_path):
    """Neither one whose name has no address nor one where nobody listens."""
    for away in ("nobody.invalid:9930", "127.0.0.1:9"):
        with GCollector("json") as collector:
            lines = f"xrootd.mongstream tpc use flush 1s send json {away}\n" + directive(collector, "http", "noident")
            with OurCopies(lines) as server:
                place_copies(server)
                for number in range(3):
                    status, reply = order(server, f"/copy{number}", f"Source: {server.origin}/small")
                    assert status == 202 and reply[-1] == "success: Created"
                wait_until(collector.records)
                assert server.alive()
                assert collector.identities() == []


def test_hostile_names_stay_in_their_records():
    """Paths and names of clients neither end records nor add fields."""
    with GCollector("nohdr") as collector, OurCopies(directive(collector, "tpc")) as server:
        place_copies(server)
        order(server, "/a%22,%22RC%22:7", f"Source: {server.origin}/small%22,%22RC%22:7")
        wait_until(collector.records)
        (record,) = collector.records()
        assert record["Xeq"]["RC"] == 404 and record["Dst"].endswith('//a","RC":7')


def test_a_stream_that_does_not_exist_stops_the_start():
    with pytest.raises(RuntimeError, match="invalid mongstream stream 'disks'"):
        peers.Ours(settings="xrootd.mongstream disks use flush 1s\n").start()
