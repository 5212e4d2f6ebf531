"""A decoder of the packets of detailed monitoring (`xrootd.monitor`), and a collector that takes them.

It is written from the description of the format and shares nothing with the server. It is strict: a packet that does not
follow the description fails the test."""

import re
import struct

from datagrams import DatagramCollector

MAPS = "=uidTUxp"
HEADER = struct.Struct(">cBHI")
SERVER_MASK = (1 << 48) - 1


class Packet:
    """One datagram: its header, and what its kind has."""

    def __init__(self, data):
        code, self.sequence, length, self.started = HEADER.unpack_from(data)
        self.code = code.decode("ascii")
        assert length == len(data), (self.code, length, len(data))
        body = data[HEADER.size:]
        if self.code in MAPS:
            (self.id,) = struct.unpack_from(">I", body)
            self.lines = body[4:].decode().split("\n")
            self.fields = dict(re.findall(r"&(\w+)=([^&]*)", self.lines[-1])) if len(self.lines) > 1 else {}
        elif self.code == "t":
            self.records = list(trace_records(body))
        elif self.code == "r":
            self.server, self.records = redirect_records(body)
        elif self.code == "f":
            self.records = list(file_records(body))
        else:
            raise AssertionError(f"unknown packet {data[:32]!r}")

    def __repr__(self):
        return f"{self.code} {self.sequence} {getattr(self, 'lines', None) or self.records}"


def trace_records(body):
    assert len(body) % 16 == 0
    for at in range(0, len(body), 16):
        record = body[at:at + 16]
        (offset, length, last) = struct.unpack(">qiI", record)
        kind = record[0]
        if kind < 0x80:
            yield ("write", offset, -length, last) if length < 0 else ("read", offset, length, last)
        elif kind == 0x80:
            yield "open", int.from_bytes(record[1:8], "big"), last
        elif kind in (0x90, 0x91):
            vector, count, none = struct.unpack(">BHI", record[1:8])
            assert none == 0
            yield "vector" if kind == 0x90 else "unwound", vector, count, length, last
        elif kind == 0xA0:
            yield "application", record[4:].rstrip(b"\0").decode(errors="replace")
        elif kind == 0xC0:
            read_shift, write_shift, read, written = struct.unpack(">BBxII", record[1:12])
            yield "close", read << read_shift, written << write_shift, last
        elif kind == 0xD0:
            yield "disconnect", record[1], length, last
        elif kind == 0xE0:
            yield "window", int.from_bytes(record[2:8], "big"), length, last
        else:
            raise AssertionError(f"unknown trace record {record!r}")


def file_records(body):
    at = 0
    while at < len(body):
        kind, flags, size, number = struct.unpack_from(">BBHI", body, at)
        record = body[at + 8:at + size]
        assert size >= 8 and at + size <= len(body), (kind, size)
        if kind == 2:
            begin, end = struct.unpack_from(">II", record)
            server = struct.unpack_from(">Q", record, 8)[0] & SERVER_MASK if flags & 1 else None
            assert size == (24 if flags & 1 else 16)
            yield {"kind": "time", "transfers": number >> 16, "records": number & 0xFFFF, "begin": begin, "end": end, "server": server}
        elif kind == 1:
            one = {"kind": "open", "file": number, "writable": bool(flags & 2), "size": struct.unpack_from(">q", record)[0]}
            if flags & 1:
                (one["user"],) = struct.unpack_from(">I", record, 8)
                text = record[12:]
                assert text.endswith(b"\0") and len(text) % 4 == 0, record
                one["name"] = text.rstrip(b"\0").decode()
            yield one
        elif kind == 0:
            one = {"kind": "close", "file": number, "forced": bool(flags & 1)}
            one["bytes"] = struct.unpack_from(">qqq", record)
            if flags & 2:
                names = "reads vectors writes elements_min elements_max elements read_min read_max vector_min vector_max write_min write_max"
                one.update(zip(names.split(), struct.unpack_from(">iiihhqiiiiii", record, 24)))
            if flags & 4:
                one["squares"] = struct.unpack_from(">dddd", record, 72)
            assert size == 112 if flags & 4 else size == 80 if flags & 2 else size == 32
            yield one
        elif kind == 3:
            assert size == 32
            yield {"kind": "transfer", "file": number, "bytes": struct.unpack(">qqq", record)}
        elif kind == 4:
            assert size == 8
            yield {"kind": "disconnect", "user": number}
        else:
            raise AssertionError(f"unknown file record {kind}")
        at += size


def redirect_records(body):
    (server,) = struct.unpack_from(">Q", body)
    assert server >> 48 == 0xF000, hex(server)
    at, records = 8, []
    while at < len(body):
        first, second = struct.unpack_from(">II", body, at)
        kind, units, port = first >> 24, first >> 16 & 0xFF, first & 0xFFFF
        at += 8
        if kind < 0x80:
            records.append(("window", first, second))
            continue
        assert kind >> 4 in (8, 9), hex(kind)
        text = body[at:at + units * 8]
        assert len(text) == units * 8
        at += len(text)
        records.append(("redirect" if kind >> 4 == 8 else "local", kind & 15, port, second, text.split(b"\0")[0].decode()))
    return server & SERVER_MASK, records


class Collector(DatagramCollector):
    """A collector on a port of this machine."""

    def __init__(self):
        super().__init__()
        self._packets = []

    def packets(self, codes=None):
        """Returns the packets that have come up to now."""
        self._packets.extend(map(Packet, self.received()))
        return [packet for packet in self._packets if codes is None or packet.code in codes]

    def records(self, code):
        """Returns the records of a stream, of all packets."""
        return [record for packet in self.packets(code) for record in packet.records]

    def file_records(self, *kinds):
        return [record for record in self.records("f") if record["kind"] in kinds]
