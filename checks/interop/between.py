"""A proxy between clients and one server that simulates a bad network: flipped bits, silence,
delays, disconnects."""

import socket
import struct
import threading
import time

import raw

PIECE = 65536


def shut_down(*ends):
    """Ends connections, which wakes the threads that read from them."""
    for end in ends:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Between:
    """Forwards connections to `server`.

    * `flip_down`, `flip_up`: offsets within a connection of bytes in which one bit is flipped, from
      and to the server.
    * `mute_down`: number of bytes of a connection after which nothing arrives from the server.
    * `cut_up`, `cut_down`: number of bytes over all connections, to and from the server, after
      which all connections and the port are closed.
    * `pause`: delay of each piece from the server."""

    def __init__(self, server, flip_down=(), flip_up=(), mute_down=None, cut_up=None, cut_down=None, pause=0):
        self.server = server
        self.flips = {"down": set(flip_down), "up": set(flip_up)}
        self.cuts = {"down": cut_down, "up": cut_up}
        self.mute_down = mute_down
        self.pause = pause
        self.lock = threading.Lock()
        # Bytes forwarded.
        self.passed = {"down": 0, "up": 0}
        self.sockets = []

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def host(self):
        return f"127.0.0.1:{self.port}"

    def url(self, path):
        return f"root://{self.host}/{path}"

    def close(self):
        with self.lock:
            for end in [self.listener, *self.sockets]:
                shut_down(end)
                end.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(("localhost", self.server.port))
            except OSError:
                return
            self.sockets += [client, server]
            self.greet(server)
            for way, source, target in (("up", client, server), ("down", server, client)):
                threading.Thread(target=self.move, args=(way, source, target), daemon=True).start()

    def greet(self, server):
        """Speaks with the server before the client does."""

    def move(self, way, source, target):
        at = 0
        try:
            target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while piece := bytearray(source.recv(PIECE)):
                for flip in [flip for flip in self.flips[way] if at <= flip < at + len(piece)]:
                    self.flips[way].discard(flip)
                    piece[flip - at] ^= 1
                at += len(piece)
                with self.lock:
                    self.passed[way] += len(piece)
                    gone = self.cuts[way] is not None and self.passed[way] > self.cuts[way]
                if gone:
                    return self.close()
                if way == "down" and self.pause:
                    time.sleep(self.pause)
                if way == "up" or self.mute_down is None or at <= self.mute_down:
                    target.sendall(piece)
        except OSError:
            pass
        shut_down(source, target)


class Losing(Between):
    """Forwards connections, except for the reply to the first request with the code `code`. When
    the server has sent it, both ends are closed and the reply is dropped. `seen` counts the
    requests with that code."""

    def __init__(self, server, code):
        super().__init__(server)
        self.code = code
        self.seen = 0
        self.losing = threading.Event()

    def requests(self, piece):
        """Counts the requests that begin in the bytes of a client. Clients send one at a time here."""
        self.pending += piece
        if not self.greeted and len(self.pending) >= 20:
            self.greeted, self.pending = True, self.pending[20:]
        while self.greeted and len(self.pending) >= 24:
            code, length = struct.unpack(">2xH16xi", self.pending[:24])
            if len(self.pending) < 24 + length:
                return
            self.pending = self.pending[24 + length:]
            if code == self.code:
                self.seen += 1
                if self.seen == 1:
                    self.losing.set()

    def move(self, way, source, target):
        if way == "up":
            self.greeted, self.pending = False, b""
        try:
            while piece := source.recv(PIECE):
                if way == "up":
                    self.requests(piece)
                elif self.losing.is_set():
                    self.losing.clear()
                    break
                target.sendall(piece)
        except OSError:
            pass
        shut_down(source, target)


class Withholding(Between):
    """Forwards connections, except for the first write to the offset `offset`."""

    WRITES = (raw.WRITE, raw.PGWRITE)

    def __init__(self, server, offset):
        super().__init__(server)
        self.offset = offset
        self.withheld = threading.Event()

    def move(self, way, source, target):
        pending, greeted = b"", False
        try:
            while piece := source.recv(PIECE):
                if way == "up":
                    pending += piece
                    piece = b""
                    if not greeted and len(pending) >= 20:
                        piece, pending, greeted = pending[:20], pending[20:], True
                    while greeted and len(pending) >= 24:
                        code, at, length = struct.unpack(">2xH4xq4xi", pending[:24])
                        if len(pending) < 24 + length:
                            break
                        request, pending = pending[:24 + length], pending[24 + length:]
                        if code in self.WRITES and at == self.offset and not self.withheld.is_set():
                            self.withheld.set()
                        else:
                            piece += request
                target.sendall(piece)
        except OSError:
            pass
        shut_down(source, target)
