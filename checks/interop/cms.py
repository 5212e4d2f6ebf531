"""Bare cms frames: nodes and redirectors with arbitrary behaviour. Layouts: cms protocol version 3."""

import selectors
import socket
import struct
import threading
import zlib
from collections import namedtuple

from raw import Bytes, Closed

LOGIN, CHMOD, LOCATE, MKDIR, MKPATH, MV, PREPADD, PREPDEL, RM, RMDIR, SELECT, STATS, AVAIL, DISC, GONE, HAVE, LOAD, PING, PONG, \
    SPACE, STATE, STATFS, STATUS, TRUNC, TRY, UPDATE, USAGE, XAUTH = range(28)
DATA, ERROR, REDIRECT, WAIT, WAITRESP = range(5)
RAW = 0x20
ONLINE, PENDING = 1, 2
RESUME, SUSPEND, RESET = 4, 8, 0x10
MODE_DIRECTOR, MODE_MANAGER, MODE_SERVER, MODE_REDIRECT = 0x1, 0x2, 0x8, 0x40

Frame = namedtuple("Frame", "stream code modifier data")


def header(stream, code, modifier, length):
    return struct.pack("=I", stream) + struct.pack(">BBH", code, modifier, length)


def frame(code, data=b"", stream=0, modifier=0):
    return header(stream, code, modifier, len(data)) + data


def text(value):
    """Encodes a packed string: its length with the NUL, or nothing for None."""
    return struct.pack(">H", 0) if value is None else struct.pack(">H", len(value.encode()) + 1) + value.encode() + b"\0"


def u16(value):
    return b"\x80" + struct.pack(">H", value)


def u32(value):
    return b"\xa0" + struct.pack(">I", value)


def login(sid="s-synthetic@nowhere nowhere", mode=MODE_SERVER | MODE_REDIRECT, version=3, port=1094, own_port=1095, paths="w /",
          interfaces=None, environment="myHN=localhost", more=b""):
    """Returns the record of a node: 1 TB, 500 GB free."""
    return b"".join([u16(version), u32(mode), u32(4711), u32(1_000_000), u32(500_000), u32(10), u16(1), u16(50), u16(port), u16(own_port),
                     text(sid), text(paths), text(interfaces), text(environment), more])


def checksum(path):
    """Computes the stream id of a `state`."""
    return zlib.crc32(path.encode()) or 1


class Link(Bytes):
    """A connection to the cms port of a parent."""

    def __init__(self, node, timeout=20, source=None):
        self.socket = node.cluster.socket(node.bare_address, node.cms_port, timeout, source)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def frame(self):
        head = self.receive(8)
        code, modifier, length = struct.unpack(">BBH", head[4:])
        return Frame(struct.unpack("=I", head[:4])[0], code, modifier, self.receive(length))


class Child(Link):
    """A node that has logged in."""

    def __init__(self, parent, port=1094, resume=True, source=None, **record):
        super().__init__(parent, source=source)
        self.send(frame(LOGIN, login(port=port, **record)))
        self.reply = self.frame()
        assert self.reply.code == LOGIN, self.reply
        if resume:
            self.send(status(RESUME, port))

    def __exit__(self, *_):
        """Disconnects cleanly, if it is still logged in."""
        try:
            self.send(frame(DISC))
            self.socket.settimeout(2)
            self.closed()
        except OSError:
            pass
        self.socket.close()


def status(bits, port=0):
    """Returns a `status`. With the resume bit the data port is in the stream id, in network order."""
    return struct.pack(">IBBH", port, STATUS, bits, 0)


def have(path, stream, bits=ONLINE):
    return frame(HAVE, path.encode() + b"\0", stream, RAW | bits)


def gone(path):
    return frame(GONE, path.encode() + b"\0", 0, RAW)


class Crowd:
    """Many silent servers in one thread: they log in, answer pings, and have no file. `stop` ends
    them."""

    def __init__(self, parent, count):
        self.links = [Link(parent) for _ in range(count)]
        for number, link in enumerate(self.links):
            link.send(frame(LOGIN, login(sid=f"s-crowd{number}@nowhere nowhere", port=3000 + number)) + status(RESUME, 3000 + number))
        self.ending = False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        with selectors.DefaultSelector() as selector:
            for link in self.links:
                selector.register(link.socket, selectors.EVENT_READ, link)
            while not self.ending:
                for key, _ in selector.select(0.2):
                    try:
                        if key.data.frame().code == PING:
                            key.data.send(frame(PONG))
                    except (Closed, OSError):
                        selector.unregister(key.fileobj)

    def stop(self):
        self.ending = True
        self.thread.join()
        for link in self.links:
            link.socket.close()


class Accepted(Bytes):
    """A node that has connected to a `Parent` of ours."""

    frame = Link.frame

    def __init__(self, connection):
        self.socket = connection
        self.socket.settimeout(20)


class Parent:
    """A manager that calls `behave(link, login)` for each node that connects; `login` is its first
    frame."""

    def __init__(self, behave):
        self.behave = behave
        self.listener = socket.create_server(("localhost", 0))
        self.port = self.listener.getsockname()[1]
        self.visits = 0
        self.links = []
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            link = Accepted(connection)
            self.links.append(link)
            threading.Thread(target=self.receive, args=(link,), daemon=True).start()

    def receive(self, link):
        try:
            login_ = link.frame()
            self.behave(link, login_)
            self.visits += 1
            while link.socket.recv(65536):
                pass
        except (Closed, OSError):
            self.visits += 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for link in self.links:
            link.socket.close()


class Redirector(Link):
    """A redirector that has logged in. It numbers its requests."""

    def __init__(self, manager):
        super().__init__(manager)
        self.send(frame(LOGIN, login(sid=None, mode=MODE_DIRECTOR | MODE_REDIRECT, version=0, port=0, own_port=0, paths=None)))
        self.reply = self.frame()
        assert self.reply.code == LOGIN, self.reply
        self.stream = 0

    def ask(self, code, data, modifier=0):
        """Returns the answer to a request, after any deferral."""
        self.stream += 1
        self.send(frame(code, data, self.stream, modifier))
        while True:
            answer = self.frame()
            if answer.code == STATUS or answer.code == WAITRESP and answer.stream == self.stream:
                continue
            return answer

    def select(self, path, options=0x8, avoid=None):
        return self.ask(SELECT, text("tester") + u32(options) + text(path) + text(None) + text(avoid))
