"""The recorded exchanges of `vectors/xroot`, as requests and answers to replay at a live server."""

import json
import struct

import peers
import raw
from tools import pattern

DIRECTORY = peers.REPOSITORY / "vectors" / "xroot"

# Files that each scenario of the recorded server may use.
FILES = {"f10k": 10_000, "f5m": 5_000_000, "f0": 0, "dir1/ten": 10_000, "dir1/empty": 0}

HANDLE_AT_4 = {raw.CLOSE, raw.READ, raw.SYNC, raw.WRITE, raw.FATTR, raw.PGWRITE, raw.PGREAD, raw.TRUNCATE, raw.CHKPOINT, raw.CLONE}


class Exchange:
    """One request and its whole answer: `status` final, `body` joined over all partial answers."""

    def __init__(self, frame, number):
        self.number = number
        self.bytes = bytes.fromhex(frame["hex"])
        self.stream, self.code = struct.unpack(">HH", self.bytes[:4])
        self.status = None
        self.body = b""
        self.complete = not frame.get("truncated")
        self.answered_before = None

    def payload(self):
        return self.bytes[24:]


class Dialogue:
    """One connection of a scenario. `steps` are `("ask", exchange)` and `("await", exchange)` in
    recorded order."""

    def __init__(self, connection):
        self.steps = []
        self.hello = None
        self.exchanges = []
        self.bound = any(frame["kind"] == "bound-payload" or frame.get("request") == "kXR_bind" for frame in connection["frames"])
        open_by_stream = {}
        for frame in connection["frames"]:
            data = bytes.fromhex(frame["hex"])
            if frame["kind"] == "handshake":
                continue
            if frame["kind"] == "handshake-response":
                self.hello = data
            elif frame["dir"] == "c2s":
                exchange = Exchange(frame, len(self.exchanges))
                self.exchanges.append(exchange)
                open_by_stream[exchange.stream] = exchange
                self.steps.append(("ask", exchange))
            else:
                self._answer(frame, data, open_by_stream)

    def _answer(self, frame, data, open_by_stream):
        stream, status = struct.unpack(">HH", data[:4])
        body = data[8:]
        if status == raw.ATTN:
            stream, status = struct.unpack(">HH", body[8:12])
            body = body[16:]
        exchange = open_by_stream[stream]
        if frame.get("truncated"):
            exchange.complete = False
        if status == raw.WAITRESP:
            return
        if status == raw.STATUS:
            partial = body[7] == 1
            exchange.body += body[24:]
            if partial:
                return
        else:
            exchange.body += body
            if status == raw.OKSOFAR:
                return
        exchange.status = status
        self.steps.append(("await", exchange))


class Scenario:
    """A recorded scenario."""

    def __init__(self, name):
        content = json.loads((DIRECTORY / f"{name}.json").read_text())
        self.name = name
        self.server = content["server"]
        self.dialogues = [Dialogue(connection) for connection in content["connections"]]

    def files_read(self):
        """Returns the content of non-standard files that the recording reads: path -> bytes."""
        files = {}
        for dialogue in self.dialogues:
            paths = {}
            for exchange in dialogue.exchanges:
                if exchange.code == raw.OPEN and exchange.status == raw.OK:
                    paths[exchange.body[:4]] = exchange.payload().split(b"?")[0].decode()
                elif exchange.code in (raw.READ, raw.PGREAD) and exchange.status in (raw.OK, raw.STATUS) and exchange.complete:
                    offset = struct.unpack(">q", exchange.bytes[8:16])[0]
                    data = exchange.body
                    if exchange.code == raw.PGREAD:
                        data = without_checksums(offset, data)
                    path = paths.get(exchange.bytes[4:8])
                    if path and not path.endswith(tuple(FILES)):
                        content = files.setdefault(path, bytearray())
                        content.extend(bytes(max(0, offset + len(data) - len(content))))
                        content[offset:offset + len(data)] = data
        return {path: bytes(content) for path, content in files.items()}


def without_checksums(offset, data):
    """Returns the file's bytes of a pgread answer."""
    out = bytearray()
    while data:
        page = min(4096 - offset % 4096, len(data) - 4)
        out += data[4:4 + page]
        data = data[4 + page:]
        offset += page
    return bytes(out)


def plant(tree):
    """Creates the recorded server's files below `tree/data`."""
    data = tree / "data"
    for directory in (data, data / "dir1", data / "dir1/sub"):
        directory.mkdir()
        directory.chmod(0o755)
        peers.give(directory)
    for name, size in FILES.items():
        peers.place(data / name, pattern(size))


def plant_uploads(tree):
    """Creates the files that earlier scenarios had left when those of `xrdfs` were recorded."""
    data = tree / "data"
    for name in ("newdir", "newdir/a", "newdir/a/b"):
        directory = data / name
        directory.mkdir()
        directory.chmod(0o775)
        peers.give(directory)
    peers.place(data / "newdir/a/b/f", b"")
    for number in range(1, 7):
        peers.place(data / f"up{number}", pattern(5_000_000 if number == 5 else 10_000))
    peers.place(data / "arch.zip", bytes(288))


def plant_many(tree):
    """Creates a directory whose listing does not fit into one frame."""
    directory = tree / "data/big"
    directory.mkdir()
    peers.give(directory)
    for number in range(1, 401):
        peers.place(directory / f"file_with_a_longer_name_{number}", b"")


class Replay:
    """Replays one dialogue at a live server."""

    def __init__(self, server, dialogue, sessions):
        self.dialogue = dialogue
        self.connection = raw.Connection(server, login=False)
        self.handles = {}
        self.sessions = sessions
        self.partial = {}
        self.answers = {}

    def run(self):
        """Returns `[(exchange, status, body)]`."""
        self.connection.send(raw.HANDSHAKE)
        hello = self.connection.receive(16)
        assert hello[:8] == self.dialogue.hello[:8]
        for step, exchange in self.dialogue.steps:
            if step == "ask":
                self.connection.send(self.live(exchange))
            else:
                self.wait_for(exchange)
        return [(exchange, *self.answers[exchange.number]) for exchange in self.dialogue.exchanges if exchange.status is not None]

    def live(self, exchange):
        """Returns the request with this server's handles and session ids instead of the recorded
        ones."""
        data = exchange.bytes
        swap = lambda at: data[:at] + self.handles.get(data[at:at + 4], data[at:at + 4]) + data[at + 4:]
        if exchange.code in HANDLE_AT_4:
            data = swap(4)
        elif exchange.code in (raw.STAT, raw.STATX):
            data = swap(16)
        elif exchange.code == raw.QUERY:
            data = swap(8)
        elif exchange.code in (raw.READV, raw.WRITEV):
            length = struct.unpack(">i", data[20:24])[0]
            for at in range(24, 24 + length - length % 16, 16):
                data = swap(at)
        elif exchange.code in (raw.ENDSESS, raw.BIND):
            data = data[:4] + self.sessions.get(data[4:20], data[4:20]) + data[20:]
        if exchange.code == raw.CHKPOINT and data[19] == 4 and len(data) >= 48:
            inner = struct.unpack(">H", data[26:28])[0]
            if inner in HANDLE_AT_4:
                data = swap(28)
            elif inner == raw.WRITEV:
                data = swap(48)
        return data

    def wait_for(self, exchange):
        while exchange.number not in self.answers:
            frame = self.connection.answer()
            asked = [other for other in self.dialogue.exchanges if other.stream == frame.stream and other.number not in self.answers]
            assert asked, f"an answer nobody waits for: {frame}"
            question = asked[0]
            body = self.partial.pop(question.number, b"")
            if frame.status == raw.WAITRESP:
                self.partial[question.number] = body
            elif frame.status == raw.STATUS and frame.body[7] == 1:
                self.partial[question.number] = body + frame.data
            elif frame.status == raw.OKSOFAR:
                self.partial[question.number] = body + frame.body
            else:
                self.answers[question.number] = (frame.status, body + (frame.data if frame.status == raw.STATUS else frame.body))
                self.learn(question, *self.answers[question.number])

    def learn(self, exchange, status, body):
        if status == raw.OK and exchange.status == raw.OK:
            if exchange.code == raw.OPEN:
                self.handles[exchange.body[:4]] = body[:4]
            elif exchange.code == raw.LOGIN:
                self.sessions[exchange.body[:16]] = body[:16]
