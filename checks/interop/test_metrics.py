"""`/metrics`: its formats, its figures beside what clients did and beside the summary report, its readers, and the dashboard
and alerts that are made from it."""

import concurrent.futures
import http.client
import json
import re
import socket
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import yaml

import certificates
import clusters
import exposition
import origins
import peers
import tapes
from tools import data, run, wait_until, xrdcp, xrdfs

HTTP = "xrd.protocol http *\n"
LOCAL = HTTP + "scalla.http metrics\n"
SECONDS = 30 * peers.SLOWNESS
OPEN_METRICS = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
FILES = Path(__file__).parents[2] / "docs/monitoring"
CACHE = "pss.cachelib libXrdPfc.so\npfc.blocksize 64k\npfc.diskusage 0.98 0.99\n"
# A copy that takes as long as a file exists, at most some minutes.
WAITING_COPY = """#!/bin/sh
for _ in $(seq 1000); do
    [ -e "$(dirname "$0")/hold" ] || break
    sleep 0.1
done
exec cp "$1" "$2"
"""
# Maximum size of the page of a server with one export.
BYTES_MAX = 64 * 1024


def ask(port, method="GET", path="/metrics", host="127.0.0.1", **headers):
    connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        reply = connection.getresponse()
        return reply, reply.read()
    finally:
        connection.close()


def scrape(port, accept="text/plain"):
    # A server that has just begun to listen answers 503 until all its parts run.
    wait_until(lambda: ask(port)[0].status != 503)
    reply, body = ask(port, Accept=accept)
    assert reply.status == 200 and reply.getheader("Cache-Control") == "no-store", reply.status
    assert int(reply.getheader("Content-Length")) == len(body) <= BYTES_MAX
    return exposition.parse(body.decode(), exposition.TYPES[reply.getheader("Content-Type")])


def report(server):
    found = {}

    def walk(element, path):
        if element.text and re.fullmatch(r"\d+", element.text):
            found[path] = int(element.text)
        for child in element:
            walk(child, f"{path}.{child.get('id') or child.tag}")

    for section in ElementTree.fromstring(xrdfs(server, "query", "stats", "a").ok().out):
        walk(section, section.get("id"))
    return found


@pytest.fixture(scope="module")
def ours():
    with peers.Ours(settings=peers.SETTINGS + LOCAL) as server:
        peers.place(server.tree / "f", data(3000))
        peers.place(server.tree / "big", data(1_000_000))
        wait_until(lambda: "xrootd_storage_volume_bytes" in scrape(server.port).names())
        yield server


def test_both_formats_have_the_same_metrics(ours):
    plain, opened = scrape(ours.port), scrape(ours.port, OPEN_METRICS)
    assert set(plain.samples) == set(opened.samples) and len(plain.samples) > 100
    assert ask(ours.port)[0].getheader("Content-Type").startswith("text/plain; version=0.0.4")
    assert ask(ours.port, Accept="*/*")[0].getheader("Content-Type").startswith("text/plain; version=0.0.4")
    reply, body = ask(ours.port, "HEAD")
    assert (reply.status, body) == (200, b"") and int(reply.getheader("Content-Length")) > 0
    assert plain["process_start_time_seconds"] > 1_700_000_000 and plain["process_open_fds"] > 5
    assert plain["process_resident_memory_bytes"] > 1 << 20 and plain["process_threads"] > 3
    assert [dict(labels).keys() for labels in plain.named("scalla_build_info")] == [{"version"}]


def test_promtool_accepts_the_page_and_the_alerts(ours):
    _, page = ask(ours.port, Accept="text/plain")
    checked = run(["promtool", "check", "metrics"], input=page)
    # It has advice on names that are those of other exporters, but no error.
    assert checked.status in (0, 3) and "error" not in checked.all, checked
    assert re.search(r"SUCCESS: \d+ rules found", run(["promtool", "check", "rules", FILES / "rules.yml"]).ok().all)


def test_counters_follow_the_work(ours, tmp_path):
    before = scrape(ours.port)
    for number in range(3):
        xrdcp(ours.url("/big"), tmp_path / str(number)).ok()
    xrdcp(tmp_path / "0", ours.url("/new")).ok()
    xrdfs(ours, "stat", "/missing")
    for path, status in (("/f", 200), ("/f", 200), ("/missing", 404), ("/big", 200)):
        assert ask(ours.port, path=path)[0].status == status
    assert ask(ours.port, "BREW", "/f")[0].status == 501
    # A connection is counted a moment after its client has closed it.
    wait_until(lambda: scrape(ours.port)['scalla_connections{protocol="xroot"}'] == 0)
    after = scrape(ours.port)

    def grown(name):
        return after[name] - before[name]

    assert grown('scalla_requests_total{operation="open"}') == 4
    assert grown('scalla_requests_total{operation="read"}') >= 3 and grown('scalla_requests_total{operation="write"}') >= 1
    assert grown('scalla_errors_total{code="kXR_NotFound"}') >= 1 and grown('scalla_logins_total{result="unauthenticated"}') == 5
    # Three copies and one by HTTP, and one in the other direction.
    assert 4_000_000 < grown('xrootd_server_bytes_total{direction="tx"}') < 4_900_000
    assert 1_000_000 < grown('xrootd_server_bytes_total{direction="rx"}') < 1_200_000
    assert grown('scalla_http_requests_total{method="GET",status="4xx"}') == 1
    assert grown('scalla_http_requests_total{method="other",status="5xx"}') == 1
    assert grown('scalla_http_requests_total{method="GET",status="2xx"}') >= 4
    assert after['scalla_open_files{mode="read"}'] == after['scalla_open_files{mode="write"}'] == 0


def times(metrics, operation, protocol="xroot"):
    return metrics[f'scalla_request_seconds_count{{operation="{operation}",protocol="{protocol}"}}']


def counted(metrics, protocol):
    """The number of requests by their times, and by their counters."""
    found = {labels: value for labels, value in metrics.named("scalla_request_seconds_count").items() if ("protocol", protocol) in labels}
    counter = "scalla_requests_total" if protocol == "xroot" else "scalla_http_requests_total"
    return sum(found.values()), sum(metrics.named(counter).values())


def test_times_of_requests_follow_the_work(ours, tmp_path):
    before = scrape(ours.port)
    xrdcp(ours.url("/big"), tmp_path / "copy").ok()
    xrdcp(tmp_path / "copy", ours.url("/timed")).ok()
    xrdfs(ours, "stat", "/f").ok()
    xrdfs(ours, "ls", "/").ok()
    xrdfs(ours, "rm", "/timed").ok()
    for method, path, status in (("GET", "/f", 200), ("HEAD", "/f", 200), ("PUT", "/put", 201), ("DELETE", "/put", 200), ("PROPFIND", "/", 207)):
        assert ask(ours.port, method, path)[0].status == status, method
    # A request of the xroot protocol is counted when it arrives, and has its time when its reply has left.
    after = wait_until(lambda: len(set(counted(found := scrape(ours.port), "xroot"))) == 1 and found)
    for operation, number in (("open", 2), ("close", 2), ("dirlist", 1), ("change", 1), ("login", 5)):
        assert times(after, operation) - times(before, operation) >= number, operation
    # The client reads pages with their checksums.
    for operation in ("pgread", "write", "stat", "other"):
        assert times(after, operation) > times(before, operation), operation
    for operation, number in (("stat", 1), ("write", 1), ("change", 1), ("dirlist", 1)):
        assert times(after, operation, "http") - times(before, operation, "http") == number, operation
    assert times(after, "read", "http") > times(before, "read", "http")
    # Threads of HTTP add to both without stopping each other, but nothing is at work.
    assert len(set(counted(after, "http"))) == 1
    spent = sum(after.named("scalla_request_seconds_sum").values())
    assert 0 < spent < time.time() - after["process_start_time_seconds"] + 3600


def test_the_time_of_a_slow_request_is_in_a_high_bucket(ours):
    """A PUT waits for its data, which comes late."""
    before = scrape(ours.port)
    with socket.create_connection(("127.0.0.1", ours.port), timeout=SECONDS) as connection:
        connection.sendall(b"PUT /late HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nConnection: close\r\n\r\nda")
        wait_until(lambda: scrape(ours.port)['scalla_open_files{mode="write"}'] == 1)
        begun = time.monotonic()
        wait_until(lambda: time.monotonic() - begun > 0.3)
        connection.sendall(b"ta")
        assert connection.recv(65536).startswith(b"HTTP/1.1 201 ")
    after = scrape(ours.port)

    def grown(bound):
        name = f'scalla_request_seconds_bucket{{operation="write",protocol="http",le="{bound}"}}'
        return after[name] - before[name]

    assert (grown("0.25"), grown("+Inf")) == (0, 1)


def test_figures_are_those_of_the_summary_report(ours):
    def figures(metrics):
        def get(name, label="", value=""):
            return metrics[f'{name}{{{label}="{value}"}}' if label else name]

        return {
            "xrootd.ops.open": get("scalla_requests_total", "operation", "open"),
            "xrootd.ops.rd": get("scalla_requests_total", "operation", "read"),
            "xrootd.ops.rv": get("scalla_requests_total", "operation", "readv"),
            "xrootd.ops.rs": get("scalla_request_segments_total", "operation", "readv"),
            "xrootd.ops.wr": get("scalla_requests_total", "operation", "write"),
            "xrootd.ops.wv": get("scalla_requests_total", "operation", "writev"),
            "xrootd.ops.ws": get("scalla_request_segments_total", "operation", "writev"),
            "xrootd.ops.sync": get("scalla_requests_total", "operation", "sync"),
            "xrootd.ops.pr": get("scalla_announced_ranges_total"),
            "xrootd.err": sum(metrics.named("scalla_errors_total").values()),
            "xrootd.rdr": get("scalla_redirects_total"),
            "xrootd.dly": get("scalla_waits_total"),
            "xrootd.lgn.af": get("scalla_logins_total", "result", "refused"),
            "xrootd.lgn.au": get("scalla_logins_total", "result", "authenticated"),
            "ofs.opr": get("scalla_open_files", "mode", "read"),
            "ofs.opw": get("scalla_open_files", "mode", "write"),
            "ofs.ups": get("scalla_undone_files_total"),
            "ofs.tpc.grnt": get("scalla_third_party_copies_total", "result", "granted"),
            "http_plugin.request.PUT": sum(number for labels, number in metrics.named("scalla_http_requests_total").items()
                                           if ("method", "PUT") in labels),
            "http_plugin.response.s4xx": sum(number for labels, number in metrics.named("scalla_http_requests_total").items()
                                             if ("status", "4xx") in labels),
        }

    before, reported, after = scrape(ours.port), report(ours), scrape(ours.port)
    expected = figures(after)
    assert {name: reported[name] for name in expected} == expected and figures(before) == expected
    volume = 'xrootd_storage_volume_bytes{ns="/",type="total",server_type="origin"}'
    assert reported["oss.paths.0.tot"] == after[volume] // 1024
    # These grow by the query itself.
    assert before["xrootd_server_connections_total"] < reported["link.tot"] < after["xrootd_server_connections_total"]
    assert before['xrootd_server_bytes_total{direction="tx"}'] < reported["link.out"] < after['xrootd_server_bytes_total{direction="tx"}']


def test_many_collectors_at_once(ours):
    with concurrent.futures.ThreadPoolExecutor(200) as many:
        found = list(many.map(lambda number: scrape(ours.port, OPEN_METRICS if number % 2 else "text/plain"), range(200)))
    series = {frozenset(metrics.samples) for metrics in found}
    assert len(series) == 1
    wait_until(lambda: scrape(ours.port)['scalla_connections{protocol="http"}'] < 10)


def test_clients_add_no_series_and_no_text(ours):
    before = scrape(ours.port)
    for path in ("/a%22b%0Ac", "/metrics/", "/metrics%0A", "//metrics", "/x?metrics"):
        assert ask(ours.port, path=path)[0].status in (400, 403, 404), path
    for value in ("x" * 30_000, "application/openmetrics-text;" * 500, "application/openmetrics-text;q=" + "9" * 500, "\xff\xfe", ",;=,;="):
        assert ask(ours.port, Accept=value)[0].status == 200
    for method, status in (("PUT", 405), ("DELETE", 405), ("PROPFIND", 405), ("X" * 15, 405)):
        assert ask(ours.port, method)[0].status == status
    for sent in (b"GET /metrics HTTP/1.1\r\nno header\r\n\r\n", b"GET /metrics\x00 HTTP/1.1\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", ours.port), timeout=SECONDS) as connection:
            connection.sendall(sent)
            assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")
    name = "scalla_http_malformed_requests_total"
    after = wait_until(lambda: (found := scrape(ours.port))[name] >= before[name] + 3 and found)
    assert set(after.samples) == set(before.samples)


def test_the_page_is_for_those_whom_the_configuration_names():
    with peers.Ours(settings=peers.SETTINGS + HTTP + "scalla.http status\n") as server:
        assert ask(server.port)[0].status == 404 and ask(server.port, path="/healthz")[0].status == 200
    with peers.Ours(settings=peers.SETTINGS + HTTP + "scalla.http metrics 192.0.2.0/24 2001:db8::/32\n") as server:
        reply, body = ask(server.port, X_Forwarded_For="192.0.2.1", Forwarded="for=192.0.2.1")
        assert reply.status == 403 and b"scalla_" not in body
        assert ask(server.port, path="/healthz")[0].status == 404
    # It needs no login where all else does.
    settings = "scalla.http status metrics 192.0.2.0/24 127.0.0.0/8\nxrootd.seclib libXrdSec.so\nsec.protocol unix\n"
    with peers.Ours(settings=peers.SETTINGS + HTTP + settings) as server:
        assert ask(server.port)[0].status == 200 and ask(server.port, path="/f")[0].status == 403
        # A name that another site has led here does not make its page a reader.
        for host, status in (("other.example.org", 403), (f"localhost:{server.port}", 200), ("127.0.0.1", 200)):
            assert ask(server.port, Host=host)[0].status == status, host


def test_certificates_have_the_end_of_their_validity():
    with certificates.new_authority() as authority, peers.Ours(settings=peers.SETTINGS + LOCAL + authority.settings()) as server:
        left = scrape(server.port)['scalla_certificate_expiry_timestamp_seconds{protocol="tls"}'] - time.time()
        assert 59 * 86_400 < left < 61 * 86_400


def test_transfers_from_mass_storage_are_counted_by_state():
    with tapes.tape(copy=WAITING_COPY) as tape, peers.Linked(settings=LOCAL + tape.copies_in(), export="/ stage") as server:
        tape.put("f", b"on tape")
        running = 'scalla_transfers{direction="in",state="running"}'
        assert scrape(server.port)[running] == 0
        with tape.flag("hold"):
            xrdfs(server, "prepare", "-s", "/f").ok()
            wait_until(lambda: scrape(server.port)[running] == 1)
        wait_until(lambda: scrape(server.port)[running] == 0)


def metrics_of_files():
    """The names of metrics in the dashboard and in the alerts, by file."""
    dashboard = json.loads((FILES / "dashboard.json").read_text())
    targets = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    groups = yaml.safe_load((FILES / "rules.yml").read_text())["groups"]
    alerts = [rule for group in groups for rule in group["rules"]]
    assert all(set(alert) <= {"alert", "expr", "for", "labels", "annotations"} and alert["annotations"]["summary"] for alert in alerts)
    assert len({alert["alert"] for alert in alerts}) == len(alerts)
    rules = [alert["expr"] for alert in alerts]
    assert len(targets) > 10 and len(rules) > 5
    return {name: set().union(*map(exposition.queried, found)) for name, found in (("dashboard", targets), ("rules", rules))}


def test_dashboard_and_alerts_use_metrics_that_exist(ours):
    existing = scrape(ours.port).names()
    plan = clusters.Plan("man manager\ns1 server man")
    with clusters.Cluster(plan, clusters.mixed(plan, rest="ours"), settings=LOCAL) as cluster:
        found = scrape(cluster["man"].port)
        existing |= found.names()
        assert found['scalla_cluster_nodes{state="serving"}'] == 1 and found['scalla_cluster_nodes{state="away"}'] == 0
        assert found['scalla_cluster_state{state="serving"}'] == 1 == found["scalla_cluster_answers"]
        assert scrape(cluster["s1"].port)["scalla_cluster_parents"] == 1
    with certificates.new_authority() as authority, tapes.tape(copy="#!/bin/sh\n") as tape:
        with peers.Linked(settings=LOCAL + authority.settings() + tape.copies_in(), export="/ stage") as server:
            existing |= scrape(server.port).names()
    with origins.Proxy(ours.host, settings=CACHE + LOCAL) as server:
        existing |= scrape(server.port).names()
    for file, names in metrics_of_files().items():
        assert names <= existing, (file, names - existing)
