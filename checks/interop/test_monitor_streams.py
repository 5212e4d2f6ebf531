"""Detailed monitoring (`xrootd.monitor`): packets of our server and of the real one about the same work, decoded by a
decoder of its own (`monitor_packets`)."""

import re
import struct

import pytest

import peers
import raw
from monitor_packets import Collector
from tools import data, wait_until, xrdcp

ALL = "all auth flush 1s fstat 1s lfn ops ssq xfr 1 ident 2s window 2s dest files fstat info io iov redir user "
KINDS = [peers.Ours, peers.Theirs]


def settings(collector, options=ALL):
    return f"{peers.SETTINGS}all.sitename SITE\nxrootd.monitor {options}{collector.address()}\n"


def vector(*segments):
    return b"".join(struct.pack(">4siq", handle, length, offset) for handle, offset, length in segments)


def work(server):
    """One session that does a bit of everything."""
    peers.place(server.tree / "old", data(100_000))
    with raw.Connection(server, user="tester", pid=4321) as client:
        old = client.open("/old")
        for offset, length in ((0, 1000), (5000, 2000), (99_000, 5000)):
            client.read(old, offset, length)
        client.ask(raw.READV, payload=vector((old, 0, 100), (old, 1000, 200), (old, 50_000, 300)))
        client.ask(raw.READV, payload=vector((old, 7, 70)))
        new = client.create("/new")
        client.write(new, 0, b"w" * 3000)
        client.write(new, 3000, b"w" * 10)
        client.close(old)
        client.close(new)
        left = client.open("/old")
        client.read(left, 1, 2)
        return client.ask(raw.SET, payload=b"monitor info some text")


def finished(collector):
    """Reports whether a session has ended in all streams."""
    return collector.file_records("disconnect") and any(record[0] == "disconnect" for record in collector.records("t"))


def generic(text):
    """Returns a text without what depends on the server and its run."""
    # The older server writes addresses of IPv4 without `ffff`.
    return re.sub(r":\d{6,15}@", ":ID@", text).replace("[::ffff:127.0.0.1]", "[::127.0.0.1]")


class Session:
    """The records of one session, with names in place of ids."""

    def __init__(self, collector, user):
        maps = collector.packets("udiT")
        (self.user,) = [packet for packet in maps if packet.code == "u" and packet.lines[0].startswith(f"xroot/{user}.")]
        self.names = {packet.id: packet.lines[1] for packet in maps if packet.code == "d" and packet.lines[0] == self.user.lines[0]}
        self.infos = [packet for packet in maps if packet.code == "i" and packet.lines[0] == self.user.lines[0]]
        self.collector = collector

    def maps(self):
        fields = {key: value for key, value in self.user.fields.items() if key not in ("R", "x")}
        return generic(self.user.lines[0]), fields, sorted(self.names.values()), [packet.lines[1] for packet in self.infos]

    def trace(self):
        """The records of the trace stream about files, in order."""
        return [(*record[:-1], self.names.get(record[-1], "?")) for record in self.collector.records("t")
                if record[0] not in ("window", "disconnect", "application")]

    def files(self):
        """The records of the file stream, without those of the time."""
        found, opens = [], {}
        for record in self.collector.records("f"):
            record = dict(record)
            if record["kind"] == "time":
                continue
            if record["kind"] == "open":
                opens[record["file"]] = record["name"]
                assert record.pop("user") == self.user.id
                assert self.names[record["file"]] == record["name"], "the id is that of the map"
            elif record["kind"] == "disconnect":
                assert record.pop("user") == self.user.id
            if "file" in record:
                record["file"] = opens[record["file"]]
            found.append(record)
        return found


def test_a_session_has_the_records_of_the_real_server():
    """With a collector of reads: one trace of all, and every kind of record of the file stream."""
    found = []
    for kind in KINDS:
        with Collector() as collector, kind(settings=settings(collector)) as server:
            info = work(server)
            wait_until(lambda: finished(collector))  # noqa: B023
            session = Session(collector, "tester")
            assert struct.unpack(">I", info)[0] == session.infos[0].id
            # The real server has a second trace for collectors of opens and closes, also for this one.
            first = next(packet for packet in collector.packets("t") if any(record[0] == "read" for record in packet.records))
            assert first.records[0][0] == first.records[-1][0] == "window"
            trace = [record for record in session.trace() if record[0] not in ("open", "close")]
            ends = {record for record in session.trace() if record[0] in ("open", "close")}
            files = session.files()
            for record in files:
                # The real server reports an initial value instead of the least size if there was one read of the kind.
                for name in ("read_min", "read_max", "write_min", "write_max"):
                    if record.get("reads", 2) < 2 and "read" in name or record.get("writes", 2) < 2 and "write" in name:
                        record.pop(name, None)
            found.append((session.maps()[0], session.maps()[2:], trace, ends, files))
            # Who sends all this.
            identity = collector.packets("=")[0]
            fields = list(identity.fields.items())
            assert fields[:4] == [("site", "SITE"), ("port", str(server.port)), ("inst", "anon"), ("pgm", "xrootd")]
            assert identity.lines[0].startswith("=/") and identity.id == 0
            sender = int(re.search(r":(\d+)@", identity.lines[0]).group(1))
            marks = {record[1] for record in collector.records("t") if record[0] == "window"}
            assert marks == {sender} == {record["server"] for record in collector.file_records("time")}
            assert len({packet.started for packet in collector.packets()}) == 1
            sequence = [packet.sequence for packet in collector.packets("f")]
            assert sequence == list(range(len(sequence)))
            for packet in collector.packets("f"):
                time, *others = packet.records
                assert time["kind"] == "time" and time["records"] == len(others) and time["begin"] <= time["end"]
                assert time["transfers"] == sum(record["kind"] == "transfer" for record in others)
    assert found[0] == found[1]


def test_a_copy_names_its_program(tmp_path):
    details = []
    for kind in KINDS:
        with Collector() as collector, kind(settings=settings(collector)) as server:
            peers.place(server.tree / "f", data(3000))
            xrdcp(server.url("/f"), tmp_path / kind.kind).ok()
            wait_until(lambda: finished(collector))  # noqa: B023
            (user,) = collector.packets("u")
            details.append((user.lines[1], collector.file_records("close")[0]["bytes"]))
    assert details[0] == details[1] and "&x=xrdcp&" in details[0][0]


def test_records_of_users_have_their_authentication():
    """With `auth`, and not without it."""
    for options, expected in ((ALL, ["p", "n", "h", "o", "r", "g", "m"]), (ALL.replace("auth ", ""), [])):
        found = []
        for kind in KINDS:
            unix = "xrootd.seclib libXrdSec.so\nsec.protocol unix\n"
            with Collector() as collector, kind(settings=settings(collector, options) + unix) as server:
                with raw.Connection(server, user="tester") as client:
                    client.ping()
                wait_until(lambda: collector.packets("u"))  # noqa: B023
                (user,) = collector.packets("u")
                assert list(user.fields)[:len(expected)] == expected, user
                found.append({key: value for key, value in user.fields.items() if key in "pnorgm"})
        assert found[0] == found[1], found


def test_bytes_of_page_writes_are_those_of_the_data(tmp_path):
    (tmp_path / "f").write_bytes(data(50_000))
    with Collector() as collector, peers.Ours(settings=settings(collector)) as server:
        xrdcp(tmp_path / "f", server.url("/f")).ok()
        wait_until(lambda: finished(collector))
        (close,) = collector.file_records("close")
        assert close["bytes"] == (0, 0, 50_000) and close["writes"] == 1
        assert close["write_min"] == close["write_max"] == 50_000 and close["squares"][3] == 50_000.0 ** 2


def test_each_collector_gets_its_events_without_gaps():
    with Collector() as one, Collector() as other:
        options = f"{ALL.replace('info io iov ', '').replace(' user', '')}{one.address()} dest iov user "
        with peers.Ours(settings=settings(other, options)) as server:
            work(server)
            wait_until(lambda: one.file_records("disconnect") and any(r[0] == "disconnect" for r in other.records("t")))
            wait_until(lambda: len([r for r in one.records("t") if r[0] == "close"]) == 3)
        assert {packet.code for packet in one.packets()} == set("=dtf")
        assert {packet.code for packet in other.packets()} == set("=udt")
        assert {record[0] for record in one.records("t")} == {"window", "open", "close", "disconnect"}
        for collector in (one, other):
            numbers = [packet.sequence for packet in collector.packets("udtir")]
            assert numbers == list(range(1, len(numbers) + 1))
            assert {packet.sequence for packet in collector.packets("=")} == {0}


def test_a_client_ends_its_trace():
    """Also with `all`, and without it all others are monitored."""
    for kind in KINDS:
        for options in (ALL, ALL.replace("all ", "")):
            with Collector() as collector, kind(settings=settings(collector, options)) as server:
                peers.place(server.tree / "f", data(100))
                for user, words in (("quiet", b"monitor off"), ("named", b"monitor on app"), ("silent", b"appid app")):
                    with raw.Connection(server, user=user) as client:
                        assert client.ask(raw.SET, payload=words) == b""
                        client.read(client.open("/f"), 0, 7)
                traced = lambda: [record for record in collector.records("t") if record[0] == "disconnect"]  # noqa: B023
                wait_until(lambda: len(collector.file_records("disconnect")) == 3 and len(traced()) == 2)  # noqa: B023
                assert {packet.lines[0].split(".")[0] for packet in collector.packets("d")} == {"xroot/named", "xroot/silent"}
                assert [record["bytes"] for record in collector.file_records("close")] == [(7, 0, 0)] * 3
                assert {record[1] for record in collector.records("t") if record[0] == "read"} == {0}
                # Records of the session whose trace has ended are missing.
                assert len([record for record in collector.records("t") if record[0] == "read"]) == 2


def test_redirects_are_recorded():
    """With marks of the time that have the configured window, as in packets of the real server."""
    with Collector() as collector, peers.Ours(settings=settings(collector) + "xrootd.redirect 127.0.0.1:9 /away\n") as server:
        with raw.Connection(server, user="tester") as client:
            for options in (raw.O_READ, raw.O_UPDT, raw.O_NEW | raw.O_UPDT):
                with pytest.raises(raw.Redirected):
                    client.open("/away/x?a=b", options)
        wait_until(lambda: len([record for record in collector.records("r") if record[0] == "redirect"]) == 3)
        session = Session(collector, "tester")
        records = collector.records("r")
        assert [record[1:] for record in records if record[0] == "redirect"] == [
            (operation, 9, session.user.id, "127.0.0.1:/away/x") for operation in (5, 6, 4)]
        assert records[0][0] == records[-1][0] == "window"
        assert {record[1] for record in records if record[0] == "window"} == {2}


def test_hostile_texts_stay_in_their_records():
    with Collector() as collector, peers.Ours(settings=settings(collector)) as server:
        payload = b"?xrd.appname=a%0a%26I=6&xrd.rn=v1&xrd.info=\x01&xrd.cc=us"
        with raw.Connection(server, login=False) as client:
            client.hello()
            client.login(user="te\nst", payload=payload)
            client.ask(raw.SET, payload=b"appid " + b"x" * 4000)
            client.ask(raw.SET, payload=b"monitor info " + b"a\n&b=" * 700)
            client.create("/w\x01x\ny" + "z" * 200)
        wait_until(lambda: finished(collector))
        for packet in collector.packets("udi"):
            assert len(packet.lines) == 2 and all(line.isprintable() for line in packet.lines), packet
        (info,) = collector.packets("i")
        assert len(info.lines[1]) <= 1024
        assert collector.packets("u")[0].lines[1].count("&I=") == 1 and collector.packets("u")[0].fields["I"] == "4"
        assert any(record == ("application", "x" * 12) for record in collector.records("t"))
        assert collector.file_records("open")[0]["name"].startswith("/w?x?yzz")


def test_a_collector_that_is_away_disturbs_nobody(tmp_path):
    """Neither one whose name has no address nor one where nobody listens."""
    with Collector() as collector:
        for away in ("nobody.invalid:9930", "127.0.0.1:9"):
            with peers.Ours(settings=settings(collector, f"{ALL}{away} dest fstat user ")) as server:
                peers.place(server.tree / "f", data(3000))
                before = len(collector.file_records("close"))
                for _ in range(3):
                    xrdcp("-f", server.url("/f"), tmp_path / "f").ok()
                wait_until(lambda: len(collector.file_records("close")) == before + 3)  # noqa: B023
                assert server.alive()


def test_many_users_at_once():
    with Collector() as collector, peers.Ours(settings=settings(collector)) as server:
        peers.place(server.tree / "f", data(100))
        clients = [raw.Connection(server, user=f"u{number}", pid=number) for number in range(300)]
        for client in clients:
            client.read(client.open("/f"), 0, 50)
        for client in clients:
            client.close_socket()
        wait_until(lambda: len(collector.file_records("disconnect")) == 300)
        users = {packet.id: packet.lines[0] for packet in collector.packets("u")}
        paths = {packet.id: packet.lines[0] for packet in collector.packets("d")}
        assert len(users) == len(set(users.values())) == 300 and len(paths) == 300
        assert len(users | paths) == 600
        for record in collector.file_records("open"):
            assert users[record["user"]] == paths[record["file"]]
        assert {record["bytes"] for record in collector.file_records("close")} == {(50, 0, 0)}


def test_the_last_records_are_sent_when_the_server_stops():
    with Collector() as collector:
        options = ALL.replace("flush 1s fstat 1s", "flush 1h fstat 1h")
        with peers.Ours(settings=settings(collector, options)) as server:
            peers.place(server.tree / "f", data(100))
            client = raw.Connection(server)
            client.read(client.open("/f"), 0, 50)
            server.stop()
            client.close_socket()
        wait_until(lambda: finished(collector))
        assert collector.file_records("close")[0]["forced"]
