"""The WLCG Tape REST API over HTTP: a directory is the tape, and a shell script of the site copies from it.

The real server has no such API, so these tests are about ours only."""

import http.client
import json
import os
import struct
import subprocess
import threading

import pytest

import peers
import tapes
from issuers import AUDIENCE, Issuer
from tools import data, wait_until, xrdfs

SECONDS = 60 * peers.SLOWNESS
REST = "xrd.protocol http *\nscalla.http taperest\n"
# Copies $1 to $2. It waits as long as there is a file `hold` beside it.
COPY = """\
#!/bin/sh
cd "${0%/*}"
echo "$1" >> runs
while [ -e hold ]; do sleep 0.05; done
[ -e "$1" ] || { echo "it is not there"; exit 2; }
cat "$1" > "$2"
"""


@pytest.fixture
def tape():
    with tapes.tape(copy=COPY) as tape:
        yield tape


@pytest.fixture
def stage(begin, tape):
    """Starts a server that stages files below /tape: `stage(settings)`."""
    more = f"oss.rsscmd {tape.directory}/status\n"

    def start(settings=""):
        return begin(peers.Linked(settings=REST + tape.copies_in(more=more) + settings, export="/tape stage\nall.export /disk"))
    return start


class Api:
    """Calls of the API at a server."""

    def __init__(self, server, token=None):
        self.port, self.token = server.port, token

    def send(self, method, path, body=None, **headers):
        """Returns the reply and its body."""
        connection = http.client.HTTPConnection("localhost", self.port, timeout=SECONDS)
        try:
            if self.token:
                headers["Authorization"] = f"Bearer {self.token}"
            connection.request(method, path, body if body is None or isinstance(body, bytes) else json.dumps(body), headers)
            reply = connection.getresponse()
            return reply, reply.read()
        finally:
            connection.close()

    def call(self, method, path, body=None, prefix="/api/v1/"):
        """Returns the status and the document of a reply."""
        reply, text = self.send(method, prefix + path, body)
        if reply.status >= 400:
            problem = json.loads(text)
            assert reply.getheader("Content-Type") == "application/problem+json" and problem["status"] == reply.status, problem
            assert problem["title"] and problem["type"], problem
            return reply.status, problem["detail"]
        assert not text or reply.getheader("Content-Type") == "application/json"
        return reply.status, json.loads(text) if text else None

    def stage(self, *paths, **more):
        status, answer = self.call("POST", "stage", {"files": [{"path": path, **more} for path in paths]})
        assert status == 201, answer
        return answer["requestId"]

    def states(self, id):
        status, answer = self.call("GET", f"stage/{id}")
        assert status == 200 and answer["id"] == id, answer
        return {file["path"]: file["state"] for file in answer["files"]}

    def wait(self, id, **states):
        wanted = {f"/tape/{name}": state for name, state in states.items()}
        wait_until(lambda: self.states(id) == wanted, SECONDS)

    def places(self, *paths):
        status, answer = self.call("POST", "archiveinfo/", {"paths": paths})
        assert status == 200, answer
        return [file.get("locality") or "error" for file in answer]


def test_files_are_staged_and_their_states_are_kept(tape, stage):
    content = data(100_000)
    tape.put("tape/f", content)
    tape.put("tape/d/g", content)
    server = stage("all.sitename SITE\n")
    api = Api(server)
    reply, text = api.send("GET", "/.well-known/wlcg-tape-rest-api")
    found = json.loads(text)
    assert reply.status == 200 and found["sitename"] == "SITE"
    base = f"http://localhost:{server.port}/api/v1"
    assert found["endpoints"] == [{"uri": base, "version": "v1", "metadata": {}}]
    with tape.flag("hold"):
        body = {"files": [{"path": "//tape//f", "targetedMetadata": {"SITE": {"activity": "x"}}}, {"path": "/tape/d/g", "diskLifetime": "PT2H"},
                          {"path": "/tape/none"}, {"path": "/disk/none"}, {"path": "/other/f"}]}
        reply, text = api.send("POST", "/api/v1/stage/", body)
        id = json.loads(text)["requestId"]
        assert reply.status == 201 and reply.getheader("Location") == f"{base}/stage/{id}"
        wait_until(lambda: "STARTED" in api.states(id).values(), SECONDS)
        status, state = api.call("GET", f"stage/{id}/")
        files = {file["path"]: file for file in state["files"]}
        assert status == 200 and "completedAt" not in state and state["startedAt"] >= state["createdAt"]
        # Each file has its own error.
        assert "does not stage" in files["/disk/none"]["error"] and "disallowed" in files["/other/f"]["error"]
        assert {files[path]["state"] for path in ("/disk/none", "/other/f")} == {"FAILED"}
        assert {files[path]["state"] for path in ("/tape/f", "/tape/d/g", "/tape/none")} <= {"SUBMITTED", "STARTED"}
        # It is a prepare request too.
        assert xrdfs(server, "query", "prepare", id).ok().out.startswith(id)
    wait_until(lambda: "completedAt" in api.call("GET", f"stage/{id}")[1], SECONDS)
    files = {file["path"]: file for file in api.call("GET", f"stage/{id}")[1]["files"]}
    assert [files[path]["state"] for path in ("/tape/f", "/tape/d/g", "/tape/none")] == ["COMPLETED", "COMPLETED", "FAILED"]
    assert "not there" in files["/tape/none"]["error"] or "no such file" in files["/tape/none"]["error"].lower()
    assert all(isinstance(file["finishedAt"], int) for file in files.values())
    assert (server.tree / "tape/d/g").read_bytes() == content
    # What is there is complete at once.
    assert api.states(api.stage("/tape/f")) == {"/tape/f": "COMPLETED"}


def pin(path):
    try:
        seconds, flags = struct.unpack(">qB15x", os.getxattr(path, "user.scalla.pin"))
        return seconds, flags
    except OSError:
        return None


def test_files_are_kept_until_they_are_released(tape, stage):
    tape.put("tape/f", b"f")
    server = stage()
    api = Api(server)
    id = api.stage("/tape/f", diskLifetime="P1D")
    api.wait(id, f="COMPLETED")
    finished = api.call("GET", f"stage/{id}")[1]["files"][0]["finishedAt"]
    wait_until(lambda: pin(server.tree / "tape/f"), SECONDS)
    seconds, flags = pin(server.tree / "tape/f")
    assert abs(seconds - finished - 86_400) < 30 and flags == 4
    assert api.call("POST", "release/unknown", {"paths": ["/tape/f"]}) == (200, None)
    assert pin(server.tree / "tape/f")
    assert api.call("POST", f"release/{id}", {"paths": ["/tape/f"]}) == (200, None)
    wait_until(lambda: pin(server.tree / "tape/f") is None, SECONDS)


def test_places_of_files(tape, stage):
    for name in ("both", "tape"):
        tape.put(f"tape/{name}", b"x")
    server = stage()
    api = Api(server)
    api.wait(api.stage("/tape/both"), both="COMPLETED")
    peers.place(server.tree / "tape/disk", b"new")
    paths = ["/tape/both", "/tape/tape", "/tape/disk", "/tape/none", "/disk/none", "/other", "relative", "/tape", "/tape//tape"]
    places = ["DISK_AND_TAPE", "TAPE", "DISK", "NONE", "NONE", "error", "error", "error", "TAPE"]
    assert api.places(*paths) == places
    # A long list comes in parts.
    assert api.places(*paths * 50) == places * 50


def test_staging_is_cancelled(tape, stage):
    names = [f"f{number}" for number in range(5)]
    for name in names:
        tape.put(f"tape/{name}", b"x")
    server = stage("frm.xfr.copymax 1\n")
    api = Api(server)
    with tape.flag("hold"):
        id = api.stage(*(f"/tape/{name}" for name in names))
        wait_until(lambda: sorted(api.states(id).values()) == ["STARTED"] + 4 * ["SUBMITTED"], SECONDS)
        running = next(path for path, state in api.states(id).items() if state == "STARTED")
        waiting = next(path for path, state in api.states(id).items() if state == "SUBMITTED")
        status, problem = api.call("POST", f"stage/{id}/cancel", {"paths": [running, "/tape/x"]})
        assert status == 400 and "/tape/x" in problem and api.states(id)[running] == "STARTED"
        assert api.call("POST", f"stage/{id}/cancel/", {"paths": [running, waiting]}) == (200, None)
        states = api.states(id)
        assert states[running] == states[waiting] == "CANCELLED" and list(states.values()).count("CANCELLED") == 2
        other = api.stage(waiting)
        assert api.call("DELETE", f"stage/{id}") == (200, None)
        assert api.call("GET", f"stage/{id}")[0] == 404 and api.call("DELETE", f"stage/{id}")[0] == 404
    api.wait(other, **{waiting[6:]: "COMPLETED"})
    assert sorted(path.name for path in (server.tree / "tape").iterdir()) == [waiting[6:]]


def test_requests_survive_a_killed_server(tape, stage):
    for name in ("a", "b", "c"):
        tape.put(f"tape/{name}", name.encode())
    server = stage()
    api = Api(server)
    with tape.flag("hold"):
        id = api.stage("/tape/a", "/tape/b", "/tape/c", "/tape/none")
        assert api.call("POST", f"stage/{id}/cancel", {"paths": ["/tape/b"]})[0] == 200
        created = api.call("GET", f"stage/{id}")[1]["createdAt"]
        server.restart()
        assert api.states(id)["/tape/b"] == "CANCELLED" and api.call("GET", f"stage/{id}")[1]["createdAt"] == created
    api.wait(id, a="COMPLETED", b="CANCELLED", c="COMPLETED", none="FAILED")
    assert (server.tree / "tape/c").read_bytes() == b"c" and not (server.tree / "tape/b").exists()
    server.restart()
    assert api.states(id)["/tape/a"] == "COMPLETED"


def test_malformed_requests_are_refused(tape, stage):
    server = stage()
    api = Api(server)
    for body in (b"", b"{", b"[]", b"{}", b'{"files": []}', b'{"files": [{"path": "f"}]}', b'{"files": [{"path": "/tape/../etc"}]}',
                 b'{"files": [{"path": "/tape/f", "diskLifetime": "long"}]}', b'{"files": [{"path": "/\xff"}]}', b"[" * 100_000):
        assert api.call("POST", "stage", body)[0] == 400, body
    for path in ("archiveinfo", "stage/x/cancel", "release/x"):
        assert api.call("POST", path, b"{")[0] == 400, path
    assert api.call("POST", "stage", {"files": [{"path": f"/tape/{number}"} for number in range(10_001)]})[0] == 413
    assert api.call("POST", "archiveinfo", b'{"paths": ["/tape/f"], "x": "' + b"x" * 2_100_000 + b'"}')[0] == 413
    for method, path, body in (("GET", "stage/x", None), ("DELETE", "stage/x", None), ("POST", "stage/x/cancel", {"paths": ["/tape/f"]}),
                               ("POST", "other", {}), ("GET", "", None)):
        assert api.call(method, path, body)[0] == 404, path
    for method, path in (("GET", "stage"), ("PUT", "stage/x"), ("GET", "release/x"), ("DELETE", "archiveinfo")):
        assert api.call(method, path)[0] == 405, path
    # Other paths are files.
    assert api.send("GET", "/api/v2/stage")[0].status in (403, 404)
    done = subprocess.run(["curl", "-sS", "--max-time", "30", "-X", "POST", "-d", '{"paths": ["/tape/none"]}',
                           f"http://localhost:{server.port}/api/v1/archiveinfo"], capture_output=True, timeout=60)
    assert json.loads(done.stdout) == [{"path": "/tape/none", "locality": "NONE"}]


def test_rights_of_tokens_and_owners(tape, stage, tmp_path):
    issuer = Issuer(tmp_path)
    tape.put("tape/f", b"f")
    tape.put("tape/open/g", b"g")
    server = peers.Linked(settings="", export="/tape stage")
    server.settings = REST + tape.copies_in(more=f"oss.rsscmd {tape.directory}/status\n") + (
        f"ofs.authorize\nofs.authlib ++ libXrdAccSciTokens.so config={server.work}/issuers\nacc.authdb {server.work}/authdb\n"
        "http.header2cgi Authorization authz\n")
    peers.place(server.work / "authdb", b"u * /tape/open lr\n")
    peers.place(server.work / "keys", json.dumps(issuer.keys).encode())
    peers.place(server.work / "issuers", f"[Global]\naudience = {AUDIENCE}\n[Issuer one]\nissuer = {issuer.url}\nbase_path = /tape\n"
                                         f"jwks_file = {server.work}/keys\n".encode())
    try:
        server.start()
        staging, reading, bob = (Api(server, issuer.token(scope=f"storage.{right}:/", sub=sub))
                                 for right, sub in (("stage", "alice"), ("read", "alice"), ("stage", "bob")))
        anybody = Api(server)
        with tape.flag("hold"):
            # Who may read by rules may stage; a token needs its scope.
            for api, denied in ((reading, True), (anybody, True), (staging, False)):
                id = api.stage("/tape/f", "/tape/open/g")
                states = api.states(id)
                assert (states["/tape/f"] == "FAILED") == denied and states["/tape/open/g"] != "FAILED", states
            assert [api.places("/tape/f", "/tape/open/g") for api in (staging, reading, anybody)] == \
                [["TAPE", "TAPE"], ["TAPE", "TAPE"], ["error", "TAPE"]]
            for api in (bob, anybody):
                assert api.call("GET", f"stage/{id}")[0] == 403
                assert api.call("POST", f"stage/{id}/cancel", {"paths": ["/tape/f"]})[0] == 403
                assert api.call("DELETE", f"stage/{id}")[0] == 403
                assert api.call("POST", f"release/{id}", {"paths": ["/tape/open/g"]})[0] == 403
            assert reading.call("POST", f"stage/{id}/cancel", {"paths": ["/tape/f"]})[0] == 403, "the scope is missing"
            assert anybody.call("POST", "release/unknown", {"paths": ["/tape/f"]})[0] == 403
            assert staging.call("POST", f"stage/{id}/cancel", {"paths": ["/tape/f"]})[0] == 200
        assert staging.token not in server.output()
    finally:
        server.remove()


def test_many_status_requests_delay_no_others(tape, stage):
    paths = [f"/tape/none{number}" for number in range(3000)]
    server = stage()
    api = Api(server)
    with tape.flag("hold"):
        id = api.stage(*paths)
        results = []

        def flood():
            for _ in range(5):
                status, answer = Api(server).call("GET", f"stage/{id}")
                results.append(status == 200 and len(answer["files"]) == len(paths))
        threads = [threading.Thread(target=flood) for _ in range(16)]
        for thread in threads:
            thread.start()
        other = api.stage("/tape/other")
        assert set(api.states(other)) == {"/tape/other"}
        for thread in threads:
            thread.join(SECONDS)
        assert results == [True] * 80
        assert api.call("DELETE", f"stage/{id}") == (200, None)
