"""Third-party copies from and to the files behind a proxy: ours in front of the real server and of ours, with
the real server and ours at the other end."""

import itertools
import os
import signal
import struct
import subprocess

import pytest

import peers
import raw
import tools
from codes import ErrorCode
from origins import CONTENT, Proxy, Recorder
from test_third_party import KINDS, SIZE, Slow, copy, names, put, settings, url
from tools import data, wait_until

COPIES = "ofs.tpc ttl 90 120 logok\n"
# A client that arranges a copy: user and process of `raw.Connection`.
CLIENT = "tester.1234@127.0.0.1"
CREATE = raw.O_NEW | raw.O_UPDT
# A flag of a status.
PENDING = 64


def authorized(origin, settings="", rules="u * /open rl\n"):
    """A proxy with rules."""
    proxy = Proxy(origin)
    peers.place(proxy.work / "rules", rules.encode())
    proxy.settings += f"ofs.authorize\nacc.authdb {proxy.work / 'rules'}\n{settings}"
    return proxy


@pytest.fixture(scope="module")
def servers():
    """Servers of each kind: origins of proxies, and others."""
    made = {}
    try:
        for kind, role in itertools.product(KINDS, ("origin", "other")):
            made[kind, role] = KINDS[kind](settings=settings(kind)).start()
        yield made
    finally:
        for server in made.values():
            server.remove()


@pytest.fixture(scope="module", params=["ours", "theirs"])
def behind(servers, request):
    """A proxy and its origin."""
    origin = servers[request.param, "origin"]
    with Proxy(f"127.0.0.1:{origin.port}", COPIES) as proxy:
        yield proxy, origin


@pytest.mark.parametrize("other", ["ours", "theirs"])
@pytest.mark.parametrize("options", [
    ["--tpc", "only"],
    ["--tpc", "first", "-f"],
    ["--tpc", "only", "-S", "4", "--cksum", "adler32"],
], ids=lambda options: "".join(options).replace("--", "-"))
def test_copies_in_both_directions(behind, servers, other, options):
    (proxy, origin), other = behind, servers[other, "other"]
    content = data(SIZE)
    put(origin, "file", content)
    copy(url(proxy.port, "/file"), url(other.port, "/from-proxy"), *options).ok()
    assert (other.tree / "from-proxy").read_bytes() == content
    copy(url(other.port, "/from-proxy"), url(proxy.port, "/copies/to-proxy"), *options).ok()
    path = origin.tree / "copies" / "to-proxy"
    assert path.read_bytes() == content
    path.unlink()
    (other.tree / "from-proxy").unlink()


def test_our_client_copies_between_proxies(behind, servers):
    proxy, origin = behind
    put(origin, "between", data(SIZE))
    put(origin, "nothing", b"")
    second = servers["ours", "other"]
    with Proxy(f"127.0.0.1:{second.port}", COPIES) as target:
        for name, size in (("between", SIZE), ("nothing", 0)):
            tools.scalla("cp", "--tpc", "only", url(proxy.port, f"/{name}"), url(target.port, f"/{name}")).ok()
            assert (second.tree / name).read_bytes() == data(size)
            (second.tree / name).unlink()


def test_a_stopped_copy_leaves_no_file(behind, servers):
    (proxy, origin), source = behind, servers["ours", "other"]
    put(source, "large", data(SIZE * 8))
    with Slow(source) as way:
        client = subprocess.Popen(["timeout", "60", "xrdcp", "-N", "--tpc", "only", url(way.port, "/large"), url(proxy.port, "/stopped")],
                                  env=peers.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        path = origin.tree / "stopped"
        wait_until(lambda: path.exists() and path.stat().st_size > 0)
        os.killpg(client.pid, signal.SIGKILL)
        client.wait(30)
        wait_until(lambda: "stopped" not in names(origin))
    # The name is free for the next copy.
    copy(url(source.port, "/large"), url(proxy.port, "/stopped"), "--tpc", "only").ok()
    assert path.read_bytes() == data(SIZE * 8)
    path.unlink()


def test_a_failed_copy_is_an_error_and_leaves_no_file(behind):
    proxy, origin = behind
    with raw.Connection(proxy) as client:
        cgi = f"tpc.key=k&tpc.src=127.0.0.1:{peers.free_port()}&tpc.lfn=/none&tpc.stage=copy"
        handle = client.open(f"/failed?{cgi}", CREATE)
        assert "failed" in names(origin)
        assert client.error(raw.WRITE, struct.pack(">4sqB", handle, 0, 0), b"x") == ErrorCode.INVALID_REQUEST
        client.sync(handle)
        with pytest.raises(raw.Failed, match="Unable to copy root://127.0.0.1"):
            client.sync(handle)
        client.close(handle)
        assert "failed" not in names(origin)


def test_the_origin_decides_about_the_client_that_granted_a_file():
    with Recorder() as fake, Proxy(fake.host, COPIES) as proxy, raw.Connection(proxy) as client, raw.Connection(proxy, user="other") as other:
        granted = client.open("/f?authz=ticket&tpc.key=k&tpc.dst=127.0.0.1&tpc.stage=copy")
        assert fake.paths[-1].startswith("/f?authz=ticket&")
        handle = other.open(f"/f?tpc.key=k&tpc.org={CLIENT}&authz=other")
        path = fake.paths[-1]
        assert "authz=ticket" in path and "other" not in path and "tpc." not in path, path
        assert f"pss.tid={CLIENT.split('.')[0]}." in path
        assert other.read(handle, 0, 100) == CONTENT[:100]
        # The grant is used up, and others begin with an open of their own.
        requests = len(fake.paths)
        client.close(granted)
        client.close(client.open("/f?tpc.key=k2&tpc.dst=127.0.0.1"))
        assert len(fake.paths) == requests + 1


@pytest.mark.parametrize("settings", ["", "ofs.tpc ttl 1 1\n"], ids=["without", "with"])
def test_the_key_of_a_copy_is_no_way_around_the_authorization(settings):
    with peers.Ours() as origin, authorized(f"127.0.0.1:{origin.port}", settings) as proxy:
        for directory in ("open", "closed"):
            (origin.tree / directory).mkdir()
            peers.place(origin.tree / directory / "f", CONTENT)
        connection = raw.Connection(proxy)
        assert connection.read(connection.open("/open/f"), 0, 100) == CONTENT[:100]
        refusals = (ErrorCode.NOT_AUTHORIZED, ErrorCode.UNSUPPORTED)
        for cgi in ["", f"tpc.key=k&tpc.org={CLIENT}", "tpc.key=k&tpc.dst=127.0.0.1"]:
            target = f"/closed/f?{cgi}".encode()
            assert connection.error(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), target) in refusals, cgi
        create = f"/closed/new?tpc.key=k&tpc.src=127.0.0.1:{origin.port}&tpc.lfn=/open/f".encode()
        assert connection.error(raw.OPEN, struct.pack(">HH", 0o644, CREATE), create) in refusals


HOLD = "ofs.persist manual hold 2\n"


@pytest.mark.parametrize("killed", ["origin", "proxy"])
@pytest.mark.parametrize("kind", ["ours", "theirs"])
def test_a_copy_that_its_origin_or_proxy_does_not_survive_leaves_no_file(servers, kind, killed):
    source = servers["ours", "other"]
    put(source, "large", data(SIZE * 8))
    with KINDS[kind](settings=settings(kind) + HOLD) as origin, Proxy(f"127.0.0.1:{origin.port}", COPIES) as proxy, Slow(source) as way:
        client = subprocess.Popen(["timeout", "60", "xrdcp", "-N", "--tpc", "only", url(way.port, "/large"), url(proxy.port, "/lost")],
                                  env=peers.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            path = origin.tree / "lost"
            wait_until(lambda: path.exists() and path.stat().st_size > 0)
            (origin if killed == "origin" else proxy).kill()
            assert path.stat().st_size < SIZE * 8
        finally:
            os.killpg(client.pid, signal.SIGKILL)
            client.wait(30)
        if killed == "origin":
            origin.start()
        else:
            # Until it is removed, nobody takes it for a whole file.
            reader = raw.Connection(origin)
            reader.start(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), b"/lost")
            answer = reader.answer()
            code = struct.unpack(">I", answer.body[:4])[0] if answer.status == raw.ERROR else None
            is_removed = code == ErrorCode.NOT_FOUND and not path.exists()
            assert answer.status == raw.WAIT or code in (ErrorCode.FILE_LOCKED, ErrorCode.IN_PROGRESS) or is_removed, code
        wait_until(lambda: "lost" not in names(origin))


@pytest.mark.parametrize("kind", ["ours", "theirs"])
def test_a_file_of_a_client_stays_as_it_is(kind):
    with KINDS[kind](settings=HOLD) as origin, Proxy(f"127.0.0.1:{origin.port}") as proxy:
        leaver = raw.Connection(proxy, user="leaver")
        handle = leaver.open("/left?ofs.posc=1", CREATE | raw.O_POSC)
        leaver.write(handle, 0, b"hello")
        assert not int(leaver.stat("/left")[2]) & PENDING
        leaver.vanish()
        with raw.Connection(proxy) as other:
            assert other.stat("/left")[1] == "5"
        assert names(origin) == ["left"]
