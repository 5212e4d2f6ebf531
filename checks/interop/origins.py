"""Proxies, and fake origins behind them."""

import os
import signal
import socket
import struct
import threading
from pathlib import Path

import pytest

import hollow
import peers
import raw
from codes import ErrorCode
from tools import pattern, wait_until, xrdfs

SIZE = 3_000_017
CONTENT = pattern(SIZE)
CLIENT_SETTINGS = [name for name in peers.environment() if name.startswith("XRD_")]


class Proxy(peers.Linked):
    """Our proxy. `origin` is the argument of `pss.origin`."""

    def __init__(self, origin, settings="", export="/", **how):
        lines = f"ofs.osslib libXrdPss.so\npss.origin {origin}\nxrootd.chksum adler32 crc32c md5\nofs.ckslib * libXrdPss.so\n{settings}\n"
        # The settings of a proxy, not those of clients in tests.
        super().__init__(settings=lines, export=export, variables=dict.fromkeys(CLIENT_SETTINGS), **how)


def check_silent(origin):
    """Checks that an origin which never answers is an error, also for later requests."""
    with Proxy(origin) as proxy:
        connection = raw.Connection(proxy)
        assert connection.error(raw.STAT, bytes(16), b"/f") == ErrorCode.NO_SERVER
        with pytest.raises(raw.Failed, match="the origin does not answer"):
            connection.stat("/f")


def states_of_threads(pid):
    """Returns the letters of the states of all threads."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [(thread / "stat").read_text().rsplit(")", 1)[1].split()[0] for thread in threads]


def check_stopped(origin, address):
    """Checks that a stopped origin with the file `/f` fails readers, and that they go on when it returns."""
    with origin, Proxy(address()) as proxy:
        connection = raw.Connection(proxy)
        handle = connection.open("/f")
        assert connection.read(handle, 0, 100) == CONTENT[:100]
        os.killpg(origin.process.pid, signal.SIGSTOP)
        # Its threads stop one after the other, and can reply meanwhile.
        wait_until(lambda: all(state == "T" for state in states_of_threads(origin.process.pid)))
        try:
            assert connection.error(raw.READ, struct.pack(">4sqi", handle, 100, 100)) == ErrorCode.NO_SERVER
            assert connection.error(raw.STAT, bytes(16), b"/f") == ErrorCode.NO_SERVER
        finally:
            os.killpg(origin.process.pid, signal.SIGCONT)
        wait_until(lambda: xrdfs(proxy, "stat", "/f").status == 0)
        assert connection.read(handle, 100, 100) == CONTENT[100:200]


class Recorder(hollow.Manager):
    """An origin with one file, `/f`, which records the paths of all requests."""

    def __init__(self, content=CONTENT):
        super().__init__(flags=hollow.IS_SERVER)
        self.content = content
        self.paths = []
        self.users = set()

    def _reply(self, code, body, argument):
        stat = b"7 %d 48 99 98 97 0644 me us\0" % len(self.content)
        if code == raw.LOGIN:
            self.users.add(body[4:12].rstrip(b"\0"))
        if code in (raw.STAT, raw.OPEN, raw.DIRLIST, raw.RM, raw.MKDIR, raw.MV, raw.TRUNCATE, raw.RMDIR):
            self.paths.append(argument.rstrip(b"\0").decode())
        if code == raw.OPEN:
            yield raw.OK, bytes(12) + stat
        elif code == raw.READ:
            yield raw.OK, self.read(*struct.unpack(">4xqi", body))
        elif code == raw.STAT:
            yield raw.OK, stat
        elif code in (raw.CLOSE, raw.PING):
            yield raw.OK, b""
        else:
            yield self._answer(code)

    def read(self, offset, count):
        return self.content[offset:offset + count]


class Freezing(Recorder):
    """An origin that answers nothing while it is frozen, also no new connection. It continues with
    the requests that have arrived. `counts` has the number of requests of each code."""

    def __init__(self, **how):
        super().__init__(**how)
        self.thawed = threading.Event()
        self.thawed.set()
        self.counts = {}
        self.lock = threading.Lock()

    def _reply(self, code, body, argument):
        with self.lock:
            self.counts[code] = self.counts.get(code, 0) + 1
        self.thawed.wait(60)
        yield from super()._reply(code, body, argument)


class Mortal(Recorder):
    """A server whose end is that of its connections too."""

    def __init__(self):
        self.connections = []
        super().__init__()

    def _serve(self, connection):
        self.connections.append(connection)
        super()._serve(connection)

    def die(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
