"""A proxy before fake origins that are slow, frozen or dead."""

import struct
import threading

import pytest

import raw
from codes import ErrorCode
from origins import CONTENT, Freezing, Proxy, Recorder
from tools import wait_until

READ = struct.pack(">HH", 0, raw.O_READ)


def answers(connection, *request):
    """Reports whether a request succeeds."""
    try:
        connection.ask(*request)
    except raw.Failed:
        return False
    return True


def test_a_file_whose_open_the_breaker_has_ended_is_closed():
    with Freezing() as fake, Proxy(fake.host) as proxy:
        connection = raw.Connection(proxy)
        # It keeps the connection to the origin alive.
        kept = connection.open("/f")
        fake.thawed.clear()
        assert connection.error(raw.OPEN, struct.pack(">HH", 0, raw.O_UPDT), b"/f") == ErrorCode.NO_SERVER
        fake.thawed.set()
        wait_until(lambda: fake.counts.get(raw.CLOSE) == 1)
        wait_until(lambda: answers(connection, raw.READ, struct.pack(">4sqi", kept, 0, 100)))


class Staging(Recorder):
    """Asks clients to wait with opens."""

    def __init__(self):
        super().__init__()
        self.opens = 0

    def _reply(self, code, body, argument):
        if code == raw.OPEN:
            self.opens += 1
            yield raw.WAIT, struct.pack(">i", 20) + b"staging"
        else:
            yield from super()._reply(code, body, argument)


def test_opens_of_a_client_that_has_left_keep_no_turns():
    with Staging() as fake, Proxy(fake.host) as proxy:
        client = raw.Connection(proxy)
        for _ in range(600):
            client.start(raw.OPEN, READ, b"/f")
        wait_until(lambda: fake.opens >= 100)
        client.vanish()
        # Its opens end within a second, not with the tape.
        assert raw.Connection(proxy, timeout=15).stat("/f")[1] == str(len(CONTENT))
