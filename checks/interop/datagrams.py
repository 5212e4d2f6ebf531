"""A collector of datagrams (UDP) on a port of this machine."""

import contextlib
import socket


class DatagramCollector:
    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.setblocking(False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    @property
    def port(self):
        return self.socket.getsockname()[1]

    def address(self):
        return f"127.0.0.1:{self.port}"

    def received(self):
        """Yields the datagrams that have come since the last call."""
        with contextlib.suppress(BlockingIOError):
            while True:
                yield self.socket.recv(65536)
