"""Reports about flows (`xrootd.pmark`, SciTags fireflies): those of our server and of the real one about the same work."""

import json
import re
import tempfile
from pathlib import Path

import pytest

import peers
import raw
from datagrams import DatagramCollector
from tools import data, scalla, wait_until, xrdcp

KINDS = {"ours": peers.Ours, "theirs": peers.Theirs}
HEAD = re.compile(r"<134>1 - (\S+) xrootd - firefly-json - ")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00")
REGISTRY = {"modified": "2026-01-01", "experiments": [
    {"expName": "atlas", "expId": 2, "activities": [{"activityName": "prod", "activityId": 5}]},
    {"expName": "cms", "expId": 3, "activities": [{"activityName": "user", "activityId": 7}]},
]}
RULES = "map2exp default cms map2exp path /at atlas map2act atlas default prod map2act cms user nobody user "


class Fireflies(DatagramCollector):
    """A collector of reports, which is strict about their form."""

    def __init__(self):
        super().__init__()
        self._reports = []

    def reports(self, state=None):
        for data in self.received():
            text = data.decode()
            head = HEAD.match(text)
            assert head, text
            self._reports.append(json.loads(text[head.end():]))
        return [report for report in self._reports if state in (None, report["flow-lifecycle"]["state"])]


def keys(report):
    return [(key, list(value) if isinstance(value, dict) else value) for key, value in report.items()]


def checked(reports, server, address="127.0.0.1"):
    """Checks what the two reports about a flow have, and returns the rest."""
    start, end = reports
    assert [report["flow-lifecycle"]["state"] for report in reports] == ["start", "end"]
    for report in reports:
        assert all(TIME.fullmatch(value) for key, value in report["flow-lifecycle"].items() if key != "state")
        assert report["netlink"]["rtt"] >= 0
        flow = report["flow-id"]
        assert flow == start["flow-id"] and flow["src-ip"] == flow["dst-ip"] == address
        assert flow["src-port"] == server.port
    life = end["flow-lifecycle"]
    assert start["flow-lifecycle"]["start-time"] == life["start-time"] <= life["end-time"] == life["current-time"]
    return [keys(report) for report in reports], start["context"], start["flow-id"]["afi"], start["flow-id"]["protocol"]


def readable(directory):
    """Lets servers, which have another user, read a directory of a test."""
    for parent in (directory, *directory.parents):
        if parent == Path(tempfile.gettempdir()):
            break
        parent.chmod(0o755)


def run(kind, line, work):
    with Fireflies() as collector, \
            KINDS[kind](settings=peers.SETTINGS + line.format(port=collector.port)) as server:
        (server.tree / "at").mkdir()
        peers.give(server.tree / "at")
        for name in ("f", "at/g"):
            peers.place(server.tree / name, data(500_000))
        return work(server, collector)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_flows_of_tagged_files_have_the_reports_of_the_real_server(tmp_path, address):
    """Reads and writes."""
    host = f"[{address}]" if ":" in address else address
    (tmp_path / "up").write_bytes(data(400_000))

    def work(server, collector):
        found = []
        url = f"root://{host}:{server.port}/"
        for source, target, least in ((f"{url}/f?scitag.flow=133", tmp_path / "f", (0, 500_000)),
                                      (tmp_path / "up", f"{url}/new?scitag.flow=64", (400_000, 0))):
            before = len(collector.reports())
            xrdcp("-f", source, target).ok()
            wait_until(lambda: len(collector.reports()) == before + 2)  # noqa: B023
            reports = collector.reports()[before:]
            end = reports[1]["usage"]
            assert (end["received"] >= least[0] and end["sent"] >= least[1]) and sum(end.values()) < 510_000
            assert sum(reports[0]["usage"].values()) < 5000
            found.append(checked(reports, server, address))
        return found

    line = "xrootd.pmark domain any ffdest 127.0.0.1:{port} use firefly scitag\n"
    found = [run(kind, line, work) for kind in KINDS]
    assert found[0] == found[1]
    assert [row[1]["experiment-id"] for row in found[0]] == [2, 1]


def test_rules_select_experiments_and_activities_as_those_of_the_real_server(tmp_path):
    (tmp_path / "registry").write_text(json.dumps(REGISTRY))
    readable(tmp_path)

    def work(server, collector):
        found = []
        for name in ("/f", "/at/g", "/f?scitag.flow=200", "/at/g?scitag.flow=64"):
            before = len(collector.reports())
            xrdcp("-f", server.url(name), tmp_path / "f").ok()
            wait_until(lambda: len(collector.reports()) == before + 2)  # noqa: B023
            found.append(collector.reports()[-1]["context"])
        return found

    for more in ("use scitag ", "use noscitag "):
        line = f"xrootd.pmark domain any ffdest 127.0.0.1:{{port}} {more}{RULES}defsfile {tmp_path}/registry\n"
        found = [run(kind, line, work) for kind in KINDS]
        assert found[0] == found[1], more


def test_other_flows_are_not_reported():
    """Those of this site, those without an experiment, and those whose open fails."""

    def work(server, collector):
        with raw.Connection(server) as client:
            with pytest.raises(raw.Failed):
                client.open("/missing?scitag.flow=133")
            client.read(client.open("/f"), 0, 10)
            client.read(client.open("/f?scitag.flow=133"), 0, 10)
        with raw.Connection(server) as client:
            client.read(client.open("/at/g?scitag.flow=200"), 0, 10)
        return collector

    for line, experiments in (("xrootd.pmark ffdest 127.0.0.1:{port}\n", []),
                              ("xrootd.pmark domain local ffdest 127.0.0.1:{port}\n", [3])):
        with Fireflies() as collector, peers.Ours(settings=line.format(port=collector.port)) as server:
            (server.tree / "at").mkdir()
            for name in ("f", "at/g"):
                peers.place(server.tree / name, data(100))
            peers.give(server.tree / "at")
            work(server, collector)
            wait_until(lambda: len(collector.reports("end")) == len(experiments))  # noqa: B023
            assert server.stop() == 0
            found = [report["context"]["experiment-id"] for report in collector.reports("end")]
            assert found == experiments, "the first open of a session decides"


FAULTS = (("map2exp default lhcb defsfile {fail} {registry}", "experiment 'lhcb' is not in the file"),
          ("map2exp default atlas defsfile {fail} /missing", "/missing"),
          ("map2exp default atlas defsfile {fail} /dev/zero", "not a regular file"))


@pytest.mark.parametrize(("line", "why"), FAULTS)
def test_rules_without_numbers_stop_the_start_only_on_request(tmp_path, line, why):
    (tmp_path / "registry").write_text(json.dumps(REGISTRY))
    readable(tmp_path)
    settings = "xrootd.pmark domain any ffdest 127.0.0.1:{port} " + line + "\n"
    with pytest.raises(RuntimeError, match=why):
        peers.Ours(settings=settings.format(port=9, fail="fail", registry=tmp_path / "registry")).start()
    with Fireflies() as collector:
        settings = settings.format(port=collector.port, fail="nofail", registry=tmp_path / "registry")
        with peers.Ours(settings=settings) as server:
            for name in ("f", "g"):
                peers.place(server.tree / name, data(100))
            for name in ("/f", "/g?scitag.flow=133"):
                with raw.Connection(server) as client:
                    client.read(client.open(name), 0, 10)
            wait_until(lambda: collector.reports("end"))
            assert server.stop() == 0
            assert [report["context"]["experiment-id"] for report in collector.reports("end")] == [2]


def test_our_client_passes_the_tag_on(tmp_path):
    """To both servers, as the real client does."""

    def work(server, collector):
        scalla("cp", f"root://127.0.0.1:{server.port}//f?scitag.flow=133", tmp_path / server.kind).ok()
        wait_until(lambda: collector.reports("end"))
        return collector.reports("end")[0]["context"]["experiment-id"]

    line = "xrootd.pmark domain any ffdest 127.0.0.1:{port}\n"
    assert [run(kind, line, work) for kind in KINDS] == [2, 2]
