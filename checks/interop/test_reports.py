"""Summary reports: `query stats` and `xrd.report`, beside those of the real server; `mpxstats`, ours and the real one."""

import json
import re
import socket
import subprocess
import xml.etree.ElementTree as ElementTree
from contextlib import contextmanager

import pytest

import peers
import raw
from tools import data, scalla, wait_until, xrdcp, xrdfs

REAL = "/usr/bin/mpxstats"


def statistics(server, letters="a"):
    return xrdfs(server, "query", "stats", letters).out.strip()


def elements(report):
    """Names of elements, in order: sections by their id. Certificates are ours."""
    return [element.get("id") or element.tag for element in ElementTree.fromstring(report).iter()
            if element.tag not in ("tls", "gsi", "left") and element.get("id") != "certs"]


def value(report, path):
    """The text of an element: `section/name/name`."""
    section, *names = path.split("/")
    found = next(one for one in ElementTree.fromstring(report) if one.get("id") == section)
    for name in names:
        found = found.find(name)
    return found.text


@contextmanager
def collector():
    """A UDP port that receives reports."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
        port.bind(("127.0.0.1", 0))
        port.settimeout(30)
        yield port


def report_to(port, options="every 1s"):
    return peers.SETTINGS + f"xrd.report 127.0.0.1:{port.getsockname()[1]} {options}\n"


def test_reports_have_the_elements_of_the_real_server():
    with peers.Ours() as ours, peers.Theirs() as theirs:
        wait_until(lambda: "<lp>" in statistics(ours))
        for letters in ("a", "b", "d", "i", "l", "p", "s", "u", "bd", "z"):
            mine, real = (statistics(server, letters) for server in (ours, theirs))
            assert bool(mine) == bool(real), letters
            if real:
                assert elements(mine) == elements(real), letters


@pytest.mark.parametrize("kind", [peers.Ours, peers.Theirs])
def test_reports_are_sent_to_collectors(kind):
    with collector() as port, kind(settings=report_to(port)) as server:
        report = port.recv(65536).decode()
        assert elements(report)[:2] == ["statistics", "buff"] or elements(report)[:2] == ["statistics", "info"]
        xrdfs(server, "stat", "/")
        wait_until(lambda: int(value(port.recv(65536).decode(), "link/tot")) > 0)


def test_counters_follow_the_work(tmp_path):
    with peers.Ours() as server:
        peers.place(server.tree / "f", data(3000))
        xrdcp(server.url("/f"), tmp_path / "f").ok()
        xrdfs(server, "stat", "/missing")
        report = statistics(server)
        assert int(value(report, "xrootd/ops/open")) == 1 and int(value(report, "xrootd/err")) >= 1
        assert int(value(report, "link/out")) > 3000 and int(value(report, "link/maxn")) >= 1
        assert int(value(report, "sched/jobs")) > 0 and int(value(report, "sched/threads")) > 0
        wait_until(lambda: "<lp>" in statistics(server))
        path = next(one for one in ElementTree.fromstring(statistics(server)) if one.get("id") == "oss").find("paths/stats")
        assert path.find("lp").text == '"/"' and int(path.find("tot").text) > int(path.find("free").text) > 0


@pytest.mark.parametrize("kind", [peers.Ours, peers.Theirs])
def test_grants_of_third_party_copies_are_counted(kind):
    tpc = peers.SETTINGS + "ofs.tpc ttl 2 2" + (f" pgm {peers.real('xrdcp')} --server" if kind is peers.Theirs else "") + "\n"

    def counts(server):
        return [int(value(statistics(server), f"ofs/tpc/{name}")) for name in ("grnt", "deny", "exp")]

    with kind(settings=tpc) as source, kind(settings=tpc) as target:
        peers.place(source.tree / "f", data(3000))
        xrdcp("-N", "--tpc", "only", *(f"root://127.0.0.1:{server.port}//f" for server in (source, target))).ok()
        assert (counts(source), counts(target)) == ([1, 0, 0], [0, 0, 0])
        with raw.Connection(source) as client:
            client.open("/f?tpc.key=k&tpc.dst=127.0.0.1&tpc.stage=copy", raw.O_READ)
            wait_until(lambda: counts(source) == [1, 0, 1])


def test_a_reload_changes_where_reports_go():
    with collector() as first, collector() as second, peers.Ours(settings=report_to(first, "every 1s off json")) as server:
        report = json.loads(first.recv(65536))["statistics"]
        assert report["pgm"] == "xrootd" and report["pid"] > 0
        config = server.work / "scalla.cfg"
        text = config.read_text()
        config.write_text(text.replace(f":{first.getsockname()[1]} every 1s off json", f":{second.getsockname()[1]} every 1s link"))
        scalla("admin", "--admin-path", server.work / "admin", "reload").ok()
        assert elements(second.recv(65536).decode())[:2] == ["statistics", "link"]


def test_a_collector_that_does_not_exist_disturbs_nothing():
    settings = peers.SETTINGS + "xrd.report no-such-host.invalid:9931,/no/such/socket every 1s\n"
    with peers.Ours(settings=settings) as server:
        peers.place(server.tree / "f", b"x")
        wait_until(lambda: len(re.findall("no report can be sent to", server.output())) == 2)
        assert xrdfs(server, "cat", "/f").ok().out == "x"
        # A failure is logged once, not with each report.
        assert len(re.findall("no report can be sent to", server.output())) == 2


@contextmanager
def multiplexer(program, *options):
    """A running mpxstats. Yields it with its port."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as free:
        free.bind(("::", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(["stdbuf", "-oL", program, *options, "-p", str(port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: f":{port:04X} " in open("/proc/net/udp6").read() + open("/proc/net/udp").read())
        yield process, port
    finally:
        process.kill()
        process.wait()


def printed(program, options, report):
    with multiplexer(program, *options) as (process, port), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(report, ("127.0.0.1", port))
        lines = [process.stdout.readline()]
        # The flat form ends with an empty line.
        while "flat" in options and lines[-1].strip():
            lines.append(process.stdout.readline())
        return b"".join(lines)


@pytest.mark.parametrize("options", [[], ["-f", "xml", "-s"], ["-f", "cgi"], ["-f", "cgi", "-s"], ["-f", "flat"], ["-f", "flat", "-s"]], ids=" ".join)
def test_mpxstats_prints_as_the_real_program(options):
    ours = peers.link("mpxstats")
    with peers.Theirs() as server:
        report = statistics(server).encode()
    assert printed(ours, options, report) == printed(REAL, options, report)


def test_mpxstats_leaves_out_what_is_no_report():
    ours = peers.link("mpxstats")
    with multiplexer(ours, "-f", "cgi") as (process, port), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for datagram in (b"garbage", b"<statistics><a>", b"", b"\xff" * 1000, b'<statistics tod="7"><stats id="a"><b>1</b></stats></statistics>'):
            sender.sendto(datagram, ("127.0.0.1", port))
        assert process.stdout.readline() == b"tod=7&a.b=1\n"
        assert b"left out: it is not a summary report" in process.stderr.readline()


def test_mpxstats_names_what_is_wrong_in_a_command_line():
    for words in (["-f", "bad", "-p", "1"], [], ["-p", "x"], ["-q"]):
        for program in (peers.link("mpxstats"), REAL):
            done = subprocess.run([program, *words], capture_output=True, text=True, timeout=30)
            assert done.returncode == 1 and "Usage: mpxstats [-f {cgi|flat|xml}] -p <port> [-s]" in done.stderr
