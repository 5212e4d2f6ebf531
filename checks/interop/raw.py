"""A small xroot client on a bare socket, which can send invalid requests."""

import socket
import struct
from collections import namedtuple

AUTH, QUERY, CHMOD, CLOSE, DIRLIST, GPFILE, PROTOCOL, LOGIN, MKDIR, MV, OPEN, PING, CHKPOINT, READ, RM, RMDIR, SYNC, STAT, SET, WRITE, \
    FATTR, PREPARE, STATX, ENDSESS, BIND, READV, PGWRITE, LOCATE, TRUNCATE, SIGVER, PGREAD, WRITEV, CLONE = range(3000, 3033)

OK, OKSOFAR, ATTN, AUTHMORE, ERROR, REDIRECT, WAIT, WAITRESP, STATUS = 0, *range(4000, 4008)
ASYNCRESP = 5008

O_DELETE, O_FORCE, O_NEW, O_READ, O_UPDT, O_MKPATH, O_APND, O_RETSTAT, O_POSC, O_WRTO = \
    0x2, 0x4, 0x8, 0x10, 0x20, 0x100, 0x200, 0x400, 0x1000, 0x8000


HANDSHAKE = struct.pack(">5i", 0, 0, 0, 4, 2012)

Frame = namedtuple("Frame", "stream status body data")


class Failed(Exception):
    """The server answered with kXR_error."""

    def __init__(self, code, text):
        super().__init__(f"[{code}] {text}")
        self.code = code
        self.text = text


class Redirected(AssertionError):
    """The server answered with kXR_redirect, but the test expects an answer."""


class Closed(Exception):
    """The other side closed the connection."""


def header(stream, code, body=b"", length=0):
    """Encodes 24 bytes: stream id, request code, 16 bytes of parameters (zero filled), length of
    the payload."""
    return struct.pack(">HH16si", stream, code, body, length)


def request(stream, code, body=b"", payload=b""):
    return header(stream, code, body, len(payload)) + payload


class Bytes:
    """The bytes of a connected `socket`, for any protocol."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close_socket()

    def close_socket(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def receive(self, size):
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self.socket.recv(size - len(parts))
            except ConnectionResetError:
                part = b""
            if not part:
                raise Closed(f"after {len(parts)} of {size} bytes")
            parts += part
        return bytes(parts)

    def closed(self):
        """Reports whether the other side closes, after any remaining bytes. False if it stays open
        and silent until the timeout."""
        try:
            while True:
                self.receive(1)
        except Closed:
            return True
        except TimeoutError:
            return False


class Connection(Bytes):
    """One TCP connection. It numbers its requests; `send` and `frame` bypass that. A login is
    followed by the protocol `unix` if the server offers it."""

    def __init__(self, server, login=True, user="tester", pid=1234, timeout=30, receive_buffer=None, authenticates=True):
        self.server = server
        self.authenticates = authenticates
        # A node of a cluster may have an address of its own, in a network of its own.
        place, host = getattr(server, "place", None), getattr(server, "bare_address", "localhost")
        family, kind, protocol, _, address = socket.getaddrinfo(host, server.port, type=socket.SOCK_STREAM)[0]
        self.socket = place.network.bare_socket(family, kind, protocol) if place else socket.socket(family, kind, protocol)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = 0
        self.session = None
        if login:
            self.hello()
            self.login(user, pid)

    def vanish(self):
        """Disconnects with a reset, like a client that is killed or cut off."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def frame(self):
        """Reads the next response; for kXR_status with the data that follows it."""
        stream, status, length = struct.unpack(">HHi", self.receive(8))
        body = self.receive(length)
        data = b""
        if status == STATUS:
            data = self.receive(struct.unpack(">i", body[12:16])[0])
        return Frame(stream, status, body, data)

    def answer(self):
        """Reads the next response. A deferred one is unwrapped."""
        frame = self.frame()
        if frame.status == ATTN and struct.unpack(">i", frame.body[:4])[0] == ASYNCRESP:
            stream, status, _ = struct.unpack(">HHi", frame.body[8:16])
            return Frame(stream, status, frame.body[16:], b"")
        return frame

    # Requests.

    def hello(self, expect=3, version=0x520):
        """Sends handshake and kXR_protocol in one segment. Returns the protocol reply."""
        self.send(HANDSHAKE + request(0, PROTOCOL, struct.pack(">iBB", version, 1, expect)))
        assert self.receive(16)[:8] == bytes(7) + b"\x08"
        return self.frame().body

    def login(self, user="tester", pid=1234, capability=5, payload=b"", ability=0):
        frame = self.ask(LOGIN, struct.pack(">i8sBBBB", pid, user.encode(), 0, ability, capability, 0), payload)
        self.session = frame[:16]
        if self.authenticates and b"&P=unix" in frame:
            self.ask(AUTH, bytes(12) + b"unix", b"unix\0" + user.encode() + b"\0")
        return frame

    def start(self, code, body=b"", payload=b"", length=None):
        """Sends a request and returns its stream id."""
        self.stream = self.stream % 60000 + 1
        self.send(header(self.stream, code, body, len(payload) if length is None else length) + payload)
        return self.stream

    def result(self, stream):
        """Returns the whole answer to a request: oksofar parts and data of kXR_status joined,
        deferred answers awaited."""
        body = b""
        while True:
            frame = self.answer()
            assert frame.stream == stream, f"answer to {frame.stream} while waiting for {stream}"
            if frame.status == WAITRESP:
                continue
            if frame.status == ERROR:
                raise Failed(struct.unpack(">i", frame.body[:4])[0], frame.body[4:].rstrip(b"\0").decode(errors="replace"))
            if frame.status == STATUS:
                body += frame.data
                if frame.body[7] == 0:
                    return body
                continue
            body += frame.body
            if frame.status == OK:
                return body
            if frame.status == REDIRECT:
                raise Redirected(f"redirected to {frame.body[4:]!r}")
            assert frame.status == OKSOFAR, f"unexpected status {frame.status}: {frame.body!r}"

    def ask(self, code, body=b"", payload=b"", length=None):
        return self.result(self.start(code, body, payload, length))

    def error(self, code, body=b"", payload=b"", length=None):
        """Returns the error code of the answer to a request."""
        try:
            answer = self.ask(code, body, payload, length)
        except Failed as failed:
            return failed.code
        raise AssertionError(f"request {code} succeeded: {answer[:64]!r}")

    def ping(self):
        return self.ask(PING)

    def open(self, path, options=O_READ, mode=0o644):
        """Returns the handle."""
        return self.ask(OPEN, struct.pack(">HH", mode, options), path.encode() if isinstance(path, str) else path)[:4]

    def create(self, path, options=0):
        return self.open(path, O_NEW | O_UPDT | O_MKPATH | options)

    def read(self, handle, offset, length):
        return self.ask(READ, struct.pack(">4sqi", handle, offset, length))

    def write(self, handle, offset, data, path_id=0):
        return self.ask(WRITE, struct.pack(">4sqB", handle, offset, path_id), data)

    def sync(self, handle):
        return self.ask(SYNC, handle)

    def close(self, handle):
        return self.ask(CLOSE, handle)

    def stat(self, path=None, handle=b""):
        """Returns the words of the stat line."""
        body = struct.pack(">B11x4s", 0, handle)
        return self.ask(STAT, body, path.encode() if path else b"").rstrip(b"\0").decode().split()

    def checkpoint(self, handle, operation, payload=b""):
        return self.ask(CHKPOINT, struct.pack(">4s11xB", handle, operation), payload)

    def checkpointed_write(self, handle, offset, data):
        """kXR_chkpoint xeq around a kXR_write: the length field counts the inner header only."""
        self.stream += 1
        inner = header(self.stream, WRITE, struct.pack(">4sq", handle, offset), len(data))
        self.send(header(self.stream, CHKPOINT, struct.pack(">4s11xB", handle, 4), 24) + inner + data)
        return self.result(self.stream)


def bind(server, session):
    """Returns a bound connection and its path id."""
    connection = Connection(server, login=False)
    try:
        connection.hello(expect=1)
        return connection, connection.ask(BIND, session)[0]
    except Failed:
        connection.close_socket()
        raise
