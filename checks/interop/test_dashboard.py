"""The dashboard in a real browser: what it shows beside what clients did, on all screens, and how it behaves when the server
ends, restarts, or is a manager."""

import http.client
import json
import re
import socket

import pytest

import clusters
import peers
from browser import Browser
from test_metrics import SECONDS, ask
from tools import data, wait_until, xrdcp, xrdfs

SETTINGS = peers.SETTINGS + "xrd.protocol http *\nscalla.http dashboard\n"
# The limit of crates/http/src/limits.rs, of which one host has a quarter.
HOST_VIEWERS_MAX = 16
MIB = 1 << 20
# A part of the line about connections that had to be closed at the end.
HELD = "before their requests had ended"


@pytest.fixture(scope="module")
def ours():
    with peers.Ours(settings=SETTINGS) as server:
        peers.place(server.tree / "big", data(8 * MIB))
        yield server


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


def address(server):
    return f"http://localhost:{server.port}/dashboard"


def show(browser, server):
    """Opens the dashboard and returns when it has figures."""
    browser.open(address(server))
    wait_until(lambda: browser.run("document.getElementById('state')?.textContent") == "Live")


def figure(browser, name):
    """Returns the text of a figure."""
    found = f"[...document.querySelectorAll('dt')].find((name) => name.textContent === {json.dumps(name)})"
    return browser.run(f"{found}?.nextElementSibling.textContent")


def rows(browser, title):
    """Returns the texts of a table that can be seen."""
    found = f"[...document.querySelectorAll('section:not([hidden]) table[aria-label={json.dumps(title)}] tbody tr')]"
    return browser.run(f"{found}.map((row) => [...row.cells].map((cell) => cell.textContent.trim()))")


def in_samples(browser, expression):
    """Returns the value of an expression with what the module of samples exports."""
    return browser.run(f"import('/dashboard/samples.js').then(({{ Samples, percentile, rate, shown }}) => {expression})")


def test_figures_follow_the_work(ours, browser, tmp_path):
    show(browser, ours)
    assert rows(browser, "Errors") == [] and figure(browser, "Files open") == "0"
    with pytest.raises(ValueError):
        float(figure(browser, "Cache hits") or "absent")

    def work():
        xrdcp("-f", ours.url("/big"), tmp_path / "f").ok()
        xrdfs(ours, "stat", "/missing")

    def is_shown():
        work()
        return figure(browser, "Sent").endswith(" MB/s") and figure(browser, "Errors") not in ("–", "0/s")

    wait_until(is_shown)
    assert [row[0] for row in rows(browser, "Errors")] == ["kXR_NotFound"]
    operations = {row[1]: row for row in rows(browser, "Requests") if row[0] == "xroot"}
    assert operations["open"][2].endswith("/s") and operations["open"][4].endswith((" µs", " ms", " s"))
    [[path, size, free, used]] = rows(browser, "Storage")
    assert path == "/" and size.endswith("B") and free.endswith("B") and used.endswith("%")
    lines = browser.run("[...document.querySelectorAll('figure path')].map((path) => path.getAttribute('d'))")
    assert len(lines) == 8 and all(line.startswith("M") for line in lines[:4]), lines
    faults, requests = browser.faults()
    assert faults == [] and all(url.startswith((address(ours), "about:", "data:")) for url in requests), (faults, requests)


def test_everybody_can_read_it(ours, browser):
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        for width in (360, 768, 1280):
            browser.resize(width, 800)
            show(browser, ours)
            wait_until(lambda: rows(browser, "Storage") and figure(browser, "Sent") != "–")
            widest = browser.run("document.documentElement.scrollWidth")
            assert widest <= width, (scheme, width, widest)
            browser.picture(f"dashboard-{scheme}-{width}")
        colors = browser.run("[document.body, ...document.querySelectorAll('h1 span, dt, dd, th, td, .key, #state')]"
                             ".map((node) => getComputedStyle(node).color)")
        backs = browser.run("[document.body, document.querySelector('section')].map((node) => getComputedStyle(node).backgroundColor)")
        for color in set(colors):
            for back in backs:
                assert contrast(color, back) >= 4.5, (scheme, color, back)
    browser.prefer("light")
    browser.resize(1280, 900)


def luminance(color):
    parts = [int(part) / 255 for part in color[color.index("(") + 1:-1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """Returns the ratio of WCAG."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def test_readers_of_screens_find_all_parts(ours, browser):
    show(browser, ours)
    wait_until(lambda: rows(browser, "Storage"))
    nodes = browser.nodes()
    assert ("status", "") in nodes and any(role == "heading" and name.startswith("Scalla") for role, name in nodes)
    pictures = [name for role, name in nodes if role == "image"]
    assert len(pictures) == 4 and all("; at most " in name for name in pictures), pictures
    assert pictures[0].startswith("Throughput: sent ")
    assert {"Requests", "Storage"} <= {name for role, name in nodes if role == "table"}
    assert ("columnheader", "half within") in nodes and ("meter", "used") in nodes


def test_a_server_that_ends_and_returns_is_shown(browser):
    with peers.Ours(settings=SETTINGS) as server:
        peers.place(server.tree / "big", data(MIB))
        show(browser, server)
        # Open events do not hold the end.
        assert server.stop() == 0 and HELD not in server.output()
        wait_until(lambda: browser.run("document.getElementById('state').textContent").startswith("No connection"))
        server.start()
        wait_until(lambda: browser.run("document.getElementById('state').textContent") == "Live")
        wait_until(lambda: figure(browser, "Sent") != "–")
        assert "-" not in figure(browser, "Sent") + figure(browser, "Requests")
        server.kill()
        wait_until(lambda: browser.run("document.getElementById('state').className") == "lost")


def test_a_manager_shows_its_nodes(browser):
    plan = clusters.Plan("man manager\ns1 server man\ns2 server man")
    settings = "xrd.protocol http *\nscalla.http dashboard\nall.sitename Desy\n"
    with clusters.Cluster(plan, clusters.mixed(plan, rest="ours"), settings=settings) as cluster:
        show(browser, cluster["man"])
        wait_until(lambda: len(rows(browser, "Cluster")) == 2)
        found = {row[0].rsplit(":", 1)[1]: row for row in rows(browser, "Cluster")}
        for name in ("s1", "s2"):
            row = found[str(cluster[name].port)]
            assert row[1:3] == ["server", "serving"] and row[7] == "Desy" and row[8].startswith("scalla v"), row
        cluster["s1"].kill()
        wait_until(lambda: {row[2] for row in rows(browser, "Cluster")} != {"serving"})
        show(browser, cluster["s2"])
        wait_until(lambda: len(rows(browser, "Managers")) == 1)
        browser.picture("dashboard-cluster")


def test_names_are_no_markup(browser):
    path = "/<i>x&amp;"
    server = peers.Linked(settings=SETTINGS, export=path)
    # It is there at the first look of the server at its storage.
    (server.tree / path[1:]).mkdir()
    peers.give(server.tree / path[1:])
    with server:
        show(browser, server)
        wait_until(lambda: [row[0] for row in rows(browser, "Storage")] == [path])
        assert not browser.run("document.querySelector('td i')")


def test_percentiles_and_rates(ours, browser):
    show(browser, ours)
    first = 't_bucket{o="a",le="0.1"} 10\\nt_bucket{o="a",le="+Inf"} 10\\n'
    # Half of 10 more times are below 0.1, the others below 1; those of another operation are between 0.5 and 1.
    more = ('t_bucket{o="a",le="0.1"} 15\\nt_bucket{o="a",le="1.0"} 20\\nt_bucket{o="a",le="+Inf"} 20\\n'
            't_bucket{o="b",le="0.5"} 0\\nt_bucket{o="b",le="1.0"} 10\\nt_bucket{o="b",le="+Inf"} 10\\n')

    def parts(labels, *wanted):
        moments = f"new Samples(0, '{first}'), new Samples(2000, '{more}')"
        return [in_samples(browser, f"percentile({moments}, 't', {labels}, {part})") for part in wanted]

    assert parts("{o: 'a'}", 0.25, 0.5, 1) == pytest.approx([0.05, 0.1, 1.0])
    assert parts("{o: 'b'}", 0.5) == pytest.approx([0.75])
    assert parts("{}", 0.25, 1) == pytest.approx([0.1, 1.0]) and parts("{o: 'c'}", 0.5) == [None]
    slow = "undefined, new Samples(0, 't_bucket{le=\"60.0\"} 0\\nt_bucket{le=\"+Inf\"} 3\\n'), 't', {}, 0.5"
    assert in_samples(browser, f"shown.seconds(percentile({slow}))") == "over 60 s"
    # A counter that has begun again has no rate.
    for before, after, expected in ((10, 20, 5), (20, 10, None), (5, 5, 0)):
        assert in_samples(browser, f"rate(new Samples(0, 'c {before}'), new Samples(2000, 'c {after}'), 'c')") == expected
    text = 'x{a="q\\\\"\\\\\\\\,}\\\\n",b="2"} 1e3'
    assert in_samples(browser, f"new Samples(0, '{text}').named('x', {{b: '2'}})[0]") == {"labels": {"a": 'q"\\,}\n', "b": "2"}, "value": 1000}


@pytest.mark.parametrize("function,value,expected", [
    ("bytes", 0, "0 B"), ("bytes", 999, "999 B"), ("bytes", 1000, "1.00 kB"), ("bytes", 12_345_678, "12.3 MB"), ("bytes", 2**70, "1181 EB"),
    ("seconds", 0.000012, "12 µs"), ("seconds", 0.0123, "12.3 ms"), ("seconds", 4.25, "4.3 s"), ("rate", 0.25, "0.3/s"), ("rate", 12345, "12,345/s"),
    ("duration", 59, "59 s"), ("duration", 3660, "1 h 1 min"), ("duration", 86400 * 3, "3 d"), ("percent", 0.985, "99 %"), ("percent", "undefined", "–"),
])
def test_numbers_are_short(ours, browser, function, value, expected):
    browser.open(address(ours))
    wait_until(lambda: browser.run("location.pathname") == "/dashboard")
    assert in_samples(browser, f"shown.{function}({value})") == expected


def test_the_page_is_for_those_whom_the_configuration_names(ours):
    for path in ("/dashboard", "/dashboard/style.css", "/dashboard/view.js", "/dashboard/samples.js"):
        reply, body = ask(ours.port, path=path)
        assert reply.status == 200 and len(body) > 500 and reply.getheader("Cache-Control") == "no-store", path
        policy = reply.getheader("Content-Security-Policy")
        assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        head, nothing = ask(ours.port, "HEAD", path)
        assert (head.status, nothing, head.getheader("Content-Length")) == (200, b"", reply.getheader("Content-Length"))
        assert ask(ours.port, "PUT", path)[0].status == 405
    reply, _ = ask(ours.port, path="/dashboard/")
    assert (reply.status, reply.getheader("Location")) == (308, "/dashboard")
    assert ask(ours.port, "HEAD", "/dashboard/events")[0].status == 200
    assert ask(ours.port, path="/dashboard/other")[0].status == 404 == ask(ours.port, path="/dashboards")[0].status
    for line, here in (("scalla.http dashboard 192.0.2.0/24", 403), ("scalla.http dashboard all", 200), ("scalla.http metrics", 404)):
        with peers.Ours(settings=peers.SETTINGS + f"xrd.protocol http *\n{line}\n") as server:
            for path in ("/dashboard", "/dashboard/view.js", "/dashboard/events"):
                assert ask(server.port, "HEAD", path)[0].status == here, (line, path)


def test_a_first_use_needs_no_configuration(browser):
    with peers.Ours(settings=peers.SETTINGS, arguments=["--http"]) as server:
        page = re.search(r"In a browser:\n +(http://localhost:\d+/dashboard)\n", server.output())
        assert page and page[1] == address(server)
        show(browser, server)
        peers.place(server.tree / "f", b"content")
        assert ask(server.port, path="/f")[1] == b"content" and ask(server.port, path="/metrics")[0].status == 404


def open_events(port):
    """Returns a connection with the first bytes of its events."""
    connection = socket.create_connection(("localhost", port), timeout=SECONDS)
    connection.sendall(b"GET /dashboard/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return connection, http.client.HTTPResponse(connection)


def test_viewers_are_limited_and_leave():
    with peers.Ours(settings=SETTINGS) as server:
        viewers = [open_events(server.port) for _ in range(HOST_VIEWERS_MAX)]
        for _, reply in viewers:
            reply.begin()
            assert reply.status == 200 and reply.getheader("Content-Type") == "text/event-stream"
        refused, body = ask(server.port, path="/dashboard/events")
        assert refused.status == 503 and refused.getheader("Retry-After") == "5" and b"repeat it" in body
        for _, reply in viewers:
            while not reply.readline().startswith(b"data: scalla_build_info"):
                pass
        for connection, reply in viewers:
            reply.close()
            connection.close()
        wait_until(lambda: can_watch(server.port))


def test_other_sites_read_nothing():
    """Neither by a name that leads here, nor by permissions that are about files."""
    settings = SETTINGS + "http.staticheader Access-Control-Allow-Origin *\nhttp.cors libXrdHttpCors.so\ncors.origin https://one.example\n"
    with peers.Ours(settings=settings) as server:
        peers.place(server.tree / "f", b"content")
        assert ask(server.port, path="/f")[0].getheader("Access-Control-Allow-Origin") == "*"
        for path in ("/dashboard", "/dashboard/view.js", "/dashboard/events"):
            reply, _ = ask(server.port, "HEAD", path, Origin="https://one.example")
            assert reply.status == 200 and reply.getheader("Access-Control-Allow-Origin") is None
            assert reply.getheader("Cross-Origin-Resource-Policy") == "same-origin"
            assert ask(server.port, "HEAD", path, Host="evil.example")[0].status == 403
        assert ask(server.port, "HEAD", "/dashboard/events", Sec_Fetch_Site="cross-site")[0].status == 403


def can_watch(port):
    connection, reply = open_events(port)
    with connection:
        reply.begin()
        return reply.status == 200
