"""Text chosen by peers, in each field that they can set: none of it ends a log line or controls a
terminal."""

import re
import socket
import struct

import pytest

import clusters
import cms
import hollow
import peers
import raw
from codes import ErrorCode
from tools import run, wait_until

# A forged log line, a colour, the C1 form of it, line ends other than LF, and a change of text
# direction.
FORGED = "261123 01:02:03 4242 error: storage: forged"
HOSTILE = f"\n{FORGED}\r\x1b[31m\x07\x7f\u009b2J\u0085\u2028\u202e"
TRACES = "".join(f"{part}.trace all\n" for part in ("xrd", "xrootd", "ofs", "oss", "cms"))
LINE = re.compile(r"\d{6} \d\d:\d\d:\d\d(\.\d+)? \d+ (error: |warning: )?[a-z_]+: .*")
RAW = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def hostile(field):
    """Returns hostile text with the name of its field, so that a log shows which fields it
    contains."""
    return f"<{field}>{HOSTILE}"


def check(log):
    """Checks each byte of a log. Returns the fields whose escaped text it contains."""
    text = log.decode()
    assert not RAW.search(text), [line for line in text.split("\n") if RAW.search(line)]
    for line in filter(None, text.split("\n")):
        assert LINE.fullmatch(line), line
        assert not line.startswith(FORGED), line
    return set(re.findall(r"<(\w+)>(?:\\n)?261123", text))


class Liar(hollow.Manager):
    """A server whose answers to logged-in clients are errors, or redirects, with hostile text."""

    def __init__(self, redirects):
        super().__init__(hollow.IS_SERVER)
        self.redirects = redirects

    def _answer(self, code):
        if code in (raw.PROTOCOL, raw.LOGIN):
            return super()._answer(code)
        if self.redirects:
            return raw.REDIRECT, struct.pack(">i", 1094) + hostile("redirect_host").encode()
        return raw.ERROR, struct.pack(">i", ErrorCode.FS_ERROR) + hostile("source_error").encode() + b"\0"


def attempt(work, *arguments):
    """Sends a request. Success, failure and redirect are all accepted."""
    try:
        return work(*arguments)
    except (raw.Failed, raw.Redirected):
        return None


def requests(client):
    """Sends each request with a path or another text."""
    def path(field):
        return f"/{hostile(field)}?cgi={hostile(field + '_cgi')}".encode()

    def ask(code, body, payload):
        attempt(client.ask, code, body, payload)

    attempt(client.create, path("open"))
    attempt(client.open, path("read"))
    attempt(client.stat, f"/{hostile('stat')}")
    ask(raw.SET, b"", b"appid " + hostile("appid").encode())
    ask(raw.SET, b"", b"monitor info " + hostile("monitor").encode())
    for name, code, body in [
        ("rm", raw.RM, b""), ("rmdir", raw.RMDIR, b""), ("mkdir", raw.MKDIR, struct.pack(">B13xH", 1, 0o755)),
        ("chmod", raw.CHMOD, struct.pack(">14xH", 0o600)), ("truncate", raw.TRUNCATE, struct.pack(">4sq", b"", 1)),
        ("dirlist", raw.DIRLIST, b""), ("locate", raw.LOCATE, b""), ("prepare", raw.PREPARE, struct.pack(">BB", 8, 0)),
        ("statx", raw.STATX, b""), ("gpfile", raw.GPFILE, b""),
    ]:
        ask(code, body, path(name))
    old, new = path("mv"), path("mv_to")
    ask(raw.MV, struct.pack(">14xH", len(old)), old + b" " + new)
    ask(raw.FATTR, struct.pack(">4sBBB", b"", 1, 1, 0x10), path("fattr") + b"\0\0\0" + hostile("attribute").encode() + b"\0")
    for kind in (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 32, 64):
        ask(raw.QUERY, struct.pack(">H", kind), path(f"query{kind}"))
    # A prepare with a notification, and the cancellation of an unknown one.
    ask(raw.PREPARE, struct.pack(">BBH", 8 | 2, 0, 1), path("notify"))
    ask(raw.PREPARE, struct.pack(">BB", 1, 0), hostile("cancel").encode())


def third_party(client, liars):
    """Third-party copies with hostile values, as source and as destination."""
    def copy(**values):
        told = {"key": "k", "stage": "copy", **values}
        cgi = "&".join(f"tpc.{name}={value}" for name, value in told.items())
        return client.create(f"/copy?{cgi}")

    for field in ("src", "lfn", "key", "dlg", "scgi", "str", "stage", "cks", "spr", "tpr"):
        values = {"src": liars[0].host, "lfn": "/theirs", field: hostile(f"tpc_{field}")}
        handle = attempt(lambda values=values: copy(**values))
        if handle:
            attempt(client.sync, handle)
            attempt(client.sync, handle)
            attempt(client.close, handle)
    for field in ("dst", "key", "org", "ttl"):
        values = {"dst": "localhost", "key": "k", "stage": "copy", field: hostile(f"grant_{field}")}
        attempt(client.open, "/file?" + "&".join(f"tpc.{name}={value}" for name, value in values.items()))
    attempt(client.open, f"/file?tpc.key=k&tpc.org={hostile('collect_org')}")
    # Names with LF are refused.
    for liar in liars:
        handle = copy(src=liar.host, lfn="/" + hostile("theirs").replace("\n", ""))
        client.sync(handle)
        with pytest.raises(raw.Failed):
            client.sync(handle)
        client.close(handle)


def test_clients_and_sources_of_copies():
    settings = peers.SETTINGS + TRACES + "ofs.tpc ttl 5 10 logok\n"
    arguments = ["--verbose", "--verbose", "--log", "run/server.log"]
    with peers.Ours(settings=settings, arguments=arguments) as server, Liar(False) as one, Liar(True) as two:
        peers.place(server.tree / "file", b"content")
        with raw.Connection(server, login=False) as client:
            client.hello()
            info = "&".join(f"xrd.{name}={hostile('login_' + name)}" for name in ("cc", "tz", "appname", "info", "hostname"))
            attempt(client.login, "u\n\x1b[2J", 1234, 5, f"?{info}".encode())
            requests(client)
            third_party(client, [one, two])
            client.ping()
        status = run([peers.program(), "admin", "--admin-path", server.work / "admin", "status"])
        assert status.status == 0 and not RAW.search(status.out), status
        server.stop()
        assert not RAW.search(server.output())
        found = check((server.work / "run/server.log").read_bytes())
    # Fields of each kind are in the log, so the check is not vacuous.
    assert found >= {"theirs", "source_error", "redirect_host"}, found


def test_nodes_and_parents():
    """A node with a hostile login and messages, at a manager; a manager with hostile requests, at a
    server."""
    def behave(link, _):
        environment = f"myHN={hostile('parent_host')}"
        link.send(cms.frame(cms.LOGIN, cms.login(mode=cms.MODE_MANAGER, sid=hostile("parent_id"), environment=environment)))
        path = "/" + hostile("parent_path")
        link.send(cms.frame(cms.STATE, path.encode() + b"\0", cms.checksum(path), cms.RAW))
        for name, code, mode, target in [
            ("rm", cms.RM, [], []), ("rmdir", cms.RMDIR, [], []), ("mkdir", cms.MKDIR, ["755"], []),
            ("mv", cms.MV, [], [f"/{hostile('parent_target')}"]), ("chmod", cms.CHMOD, ["600"], []), ("trunc", cms.TRUNC, ["1"], []),
        ]:
            words = [hostile("parent_user"), *mode, f"/{hostile('parent_' + name)}", *target, hostile("parent_cgi")]
            link.send(cms.frame(code, b"".join(map(cms.text, words)), 7))
        link.send(cms.frame(cms.TRY, cms.text(hostile("parent_try"))))

    with cms.Parent(behave) as parent:
        settings = clusters.SETTINGS + TRACES + f"if named s2\nall.manager localhost:{parent.port}\nfi\n"
        with clusters.Cluster(clusters.PAIR, "ours", settings=settings) as cluster:
            with cluster.man.connect(login=False) as client:
                client.hello()
                attempt(client.login, "u\n\x1b[2J")
                requests(client)
            hostile_nodes(cluster.man)
            wait_until(lambda: parent.visits)
            assert cluster.man.alive()
            with cms.Child(cluster.man, sid=hostile("id"), environment=f"site={hostile('site')}"):
                manager = ["--admin-path", cluster.work / "admin", "--instance", "man"]
                for form in ([], ["--json"]):
                    status = run([peers.program(), "cluster", *manager, *form, "status", "--here"])
                    assert status.status == 0 and "<site>\\n261123" in status.out, status
                    assert not RAW.search(status.out + status.err) and f"\n{FORGED}" not in status.out, status
            found = {node.name: set().union(*(check(log.read_bytes()) for log in node.logs())) for node in cluster.nodes.values()}
    assert found["s2"] >= {"parent_id", "parent_rm", "parent_mv"}, found


def hostile_nodes(manager):
    """Logs in as nodes with one hostile field each, and with all; sends messages with hostile
    paths."""
    fields = dict(sid=hostile("id"), paths=f"w /{hostile('paths')}", interfaces=hostile("interfaces"),
                  environment="&".join(f"{name}={hostile(name)}" for name in ("myHN", "site", "sw")))
    names = [[name] for name in fields] + [list(fields)]
    for chosen in names:
        with cms.Link(manager) as link:
            record = {name: fields[name] for name in chosen}
            link.send(cms.frame(cms.LOGIN, cms.login(**{"sid": f"s-{'-'.join(chosen)}@nowhere nowhere", **record})))
            try:
                link.frame()
                link.send(cms.status(cms.RESUME, 1094))
                path = "/" + hostile("have")
                link.send(cms.have(path, cms.checksum(path)) + cms.gone(path))
                link.send(cms.frame(cms.TRY, cms.text(hostile("try"))))
                link.send(cms.frame(200, hostile("unknown").encode()))
                # The manager reads all of it before it finds the end, and then closes.
                link.socket.shutdown(socket.SHUT_WR)
            except (raw.Closed, OSError):
                pass
            assert link.closed()
