"""Redirectors that are none: they say who is below them, whatever the truth is."""

import socket
import struct
import threading

import raw

IS_MANAGER, IS_SUPERVISOR = 0x2, 0x402


class Manager:
    """Answers login, version and kXR_locate; everything else is refused. `below` is the answer to kXR_locate."""

    def __init__(self, flags=IS_MANAGER):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.flags = flags
        self.below = ""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def host(self):
        return f"127.0.0.1:{self.port}"

    def named(self, kind):
        """How its parent calls it: `Mr` or `Sw` and its address."""
        return f"{kind}[::127.0.0.1]:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Whoever waits in accept is not woken by a close alone.
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection):
        with connection, connection.makefile("rb") as requests:
            requests.read(20)
            connection.sendall(struct.pack(">HHiii", 0, 0, 8, 0x520, 0))
            while len(head := requests.read(24)) == 24:
                stream, code, length = struct.unpack(">HH16xi", head)
                requests.read(length)
                status, body = self._answer(code)
                connection.sendall(struct.pack(">HHi", stream, status, len(body)) + body)

    def _answer(self, code):
        if code == raw.PROTOCOL:
            return raw.OK, struct.pack(">iI", 0x520, self.flags)
        if code == raw.LOGIN:
            return raw.OK, bytes(range(16))
        if code == raw.QUERY:
            # It does not tell its role, so that is known by the flags alone.
            return raw.OK, b"role\nv0-hollow\n\0"
        if code == raw.LOCATE and self.below is not None:
            return raw.OK, self.below.encode() + b"\0"
        return raw.ERROR, struct.pack(">i", 3013) + b"not here\0"


def closed_port():
    """A port at which nobody listens, and the socket that keeps it from others."""
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))
    return holder.getsockname()[1], holder


def silent():
    """A socket that takes connections, behind which nobody ever says a word."""
    return socket.create_server(("127.0.0.1", 0))
