"""A decoder of the streams of JSON records (`xrootd.mongstream`), and a collector that takes their packets.

It is written from the description of the format and shares nothing with the server. It is strict: a packet that does not
follow the description fails the test."""

import json
import struct
import urllib.parse

from datagrams import DatagramCollector

BINARY = struct.Struct(">cBHIIIB7s")
# What the first line tells about the server, by the name of the header.
NAMES = {"dflthdr": 0, "sitehdr": 1, "hosthdr": 2, "insthdr": 4, "fullhdr": 6}
ALL_NAMES = ["site", "host", "port", "inst", "pgm", "ver"]


def no_duplicates(pairs):
    assert len(dict(pairs)) == len(pairs), pairs
    return dict(pairs)


def parse(text):
    """Decodes a JSON object without repeated keys."""
    found = json.loads(text, object_pairs_hook=no_duplicates)
    assert isinstance(found, dict)
    return found


class GPacket:
    """One datagram: its head, and its records."""

    def __init__(self, data, form):
        assert data.endswith(b"\0") and data.count(b"\0", BINARY.size if form == "binary" else 0) == 1, data
        self.names, self.identity = {}, False
        if form == "binary":
            code, self.sequence, length, self.started, self.begin, self.end, kind, server = BINARY.unpack_from(data)
            assert code == b"g" and length == len(data)
            self.kind, self.server = chr(kind), int.from_bytes(server, "big")
            lines = data[BINARY.size:-1].decode().split("\n")
        else:
            lines = data[:-1].decode().split("\n")
            if form != "nohdr":
                head = lines.pop(0)
                # Some servers have a line feed in front of the last fields.
                head += lines.pop(0) if lines and lines[0].startswith("&gs.") else ""
                getattr(self, form)(head)
        self.records = [parse(line) for line in lines]
        assert self.identity != bool(self.records), data

    def json(self, line):
        head = parse(line)
        self.identity = head["code"] == "="
        self.names = head.get("src", {})
        self.server, self.started, self.sequence = head["sid"], head["stod"], head["pseq"]
        order = ["code", "pseq", "stod", "sid", *(["src"] if self.names else [])]
        if not self.identity:
            assert head["code"] == "g"
            gs = head["gs"]
            assert list(gs) == ["type", "tbeg", "tend"]
            self.kind, self.begin, self.end = gs.values()
            order.append("gs")
            # Three digits, which blanks precede.
            assert f'"pseq":{self.sequence:3},' in line
        assert list(head) == order

    def cgi(self, line):
        fields = line.split("&")
        pairs = no_duplicates([tuple(field.split("=", 1)) for field in fields])
        self.identity = pairs["code"] == "="
        self.server, self.started = int(pairs["sid"]), int(pairs["stod"])
        self.sequence = int(pairs["pseq"].replace("+", " "))
        self.names = {name: urllib.parse.unquote(pairs[name]) for name in ALL_NAMES if name in pairs}
        if "port" in self.names:
            self.names["port"] = int(self.names["port"])
        if not self.identity:
            assert pairs["pseq"] == f"{self.sequence:3}".replace(" ", "+")
            self.kind, self.begin = pairs["gs.type"], int(pairs["gs.tbeg"])
            # Some servers have the id again behind the time.
            self.end = int(pairs["gs.tend"].removesuffix(pairs["sid"]))


class GCollector(DatagramCollector):
    """A collector on a port of this machine, of packets in one form."""

    def __init__(self, form="json"):
        self.form = form
        super().__init__()
        self.sizes, self._packets = [], []

    def all(self):
        """Returns the packets that have come up to now."""
        for data in self.received():
            if self.form == "binary" and data[:1] == b"=":
                continue
            self.sizes.append(len(data))
            self._packets.append(GPacket(data, self.form))
        return self._packets

    def packets(self):
        """Returns the packets with records."""
        return [packet for packet in self.all() if not packet.identity]

    def identities(self):
        return [packet for packet in self.all() if packet.identity]

    def records(self):
        return [record for packet in self.packets() for record in packet.records]
