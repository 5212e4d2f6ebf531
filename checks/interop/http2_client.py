"""One connection of HTTP/2 by Python's library, with control over what it sends and acknowledges."""

import socket

import h2.config
import h2.connection
import h2.events
import h2.settings

import peers

SECONDS = 60 * peers.SLOWNESS
FRAME_HEAD_BYTES = 9


class Reply:
    def __init__(self):
        self.headers = []
        self.body = b""
        self.trailers = {}
        self.reset = None
        self.ended = False

    @property
    def status(self):
        return int(dict(self.headers)[":status"])

    def header(self, name):
        values = [value for known, value in self.headers if known == name]
        return values[0] if values else None


class Http2Client:
    """A connection. `window` is the window of the client for each stream."""

    def __init__(self, server, window=None, acknowledges=True, address="localhost", checks=True, source=None):
        self.authority = f"localhost:{server.port}"
        source = (source, 0) if source else None
        self.socket = socket.create_connection((address, server.port), timeout=SECONDS, source_address=source)
        config = h2.config.H2Configuration(header_encoding="utf-8", validate_outbound_headers=checks, normalize_outbound_headers=checks)
        self.connection = h2.connection.H2Connection(config)
        if window is not None:
            self.connection.local_settings = h2.settings.Settings(initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.acknowledges = acknowledges
        self.replies = {}
        self.received = b""
        self.goaway = None
        self.connection.initiate_connection()
        self.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def flush(self):
        if waiting := self.connection.data_to_send():
            self.socket.sendall(waiting)

    def head(self, method, path, headers=()):
        return [(":method", method), (":scheme", "http"), (":authority", self.authority), (":path", path), *headers]

    def request(self, method, path, headers=(), ends=True, head=None):
        """Sends a request, and returns the number of its stream."""
        stream = self.connection.get_next_available_stream_id()
        self.replies[stream] = Reply()
        self.connection.send_headers(stream, head or self.head(method, path, headers), end_stream=ends)
        self.flush()
        return stream

    def send(self, stream, body, ends=True):
        """Sends a body, as fast as the windows of the server allow."""
        at = 0
        while at < len(body):
            room = min(self.connection.local_flow_control_window(stream), self.connection.max_outbound_frame_size, len(body) - at)
            if room == 0:
                self.receive()
                continue
            self.connection.send_data(stream, body[at:at + room])
            self.flush()
            at += room
        if ends:
            self.connection.end_stream(stream)
            self.flush()

    def reset(self, stream, code):
        self.connection.reset_stream(stream, code)
        self.flush()

    def receive(self):
        """Waits for bytes of the server, and handles them. Returns whether the connection goes on."""
        try:
            received = self.socket.recv(65536)
        except ConnectionError:
            received = b""
        if not received:
            return False
        self.received += received
        while len(self.received) >= FRAME_HEAD_BYTES:
            length = FRAME_HEAD_BYTES + int.from_bytes(self.received[:3], "big")
            if len(self.received) < length:
                break
            frame, self.received = self.received[:length], self.received[length:]
            # The library takes nothing more of a server that has announced its end.
            if self.goaway is None:
                for event in self.connection.receive_data(frame):
                    self.handle(event)
        self.flush()
        return True

    def handle(self, event):
        reply = self.replies.get(getattr(event, "stream_id", None))
        match event:
            case h2.events.ResponseReceived():
                reply.headers = event.headers
            case h2.events.TrailersReceived():
                reply.trailers = dict(event.headers)
            case h2.events.DataReceived():
                reply.body += event.data
                if self.acknowledges and event.flow_controlled_length:
                    self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.StreamEnded():
                reply.ended = True
            case h2.events.StreamReset() if reply:
                reply.reset, reply.ended = event.error_code, True
            case h2.events.ConnectionTerminated():
                self.goaway = event.error_code

    def reply(self, stream):
        """Waits for the end of a reply."""
        while not self.replies[stream].ended and self.receive():
            pass
        assert self.replies[stream].ended, f"the connection was closed: {self.goaway}"
        return self.replies[stream]

    def ask(self, method, path, headers=(), body=None):
        """Sends a request, and waits for its reply."""
        stream = self.request(method, path, headers, ends=body is None)
        if body is not None:
            self.send(stream, body)
        return self.reply(stream)

    def until_closed(self):
        """Waits until the server closes the connection."""
        while self.receive():
            pass
