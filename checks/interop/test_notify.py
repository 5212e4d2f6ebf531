"""Events about files for a program of the site (`ofs.notify`, `ofs.notifymsg`): the same operations by the real clients at our
server and at the real one, and the receivers of our server: programs and named pipes that stop, are slow, or are missing."""

import re
import stat
import subprocess

import pytest

import peers
import raw
from origins import Proxy
from tools import data, wait_until, xrdcp, xrdfs
from web import OurWebServer

# Writes the lines that it reads to a file, and its starts and arguments to another.
RECORDER = """\
#!/bin/sh
echo "$*" >> {work}/starts
exec cat >> {work}/lines
"""


KINDS = {"ours": peers.Ours, "theirs": peers.Theirs}


class Site:
    """A server with a program that records its lines."""

    def __init__(self, server, events="all", messages=(), script=RECORDER, target="|{work}/recorder a -b"):
        self.server = server
        self.work = server.work
        program = self.work / "recorder"
        program.write_text(script.format(work=self.work))
        program.chmod(0o755)
        peers.give(program)
        lines = [f"ofs.notify {events} {target.format(work=self.work)}", *(f"ofs.notifymsg {text}" for text in messages)]
        server.settings += "\n".join(lines) + "\n"

    def lines(self):
        path = self.work / "lines"
        return path.read_text(errors="surrogateescape").split("\n")[:-1] if path.exists() else []

    def events(self, count):
        """Waits for a number of lines, and returns them without their clients."""
        wait_until(lambda: len(self.lines()) >= count)
        return [line.partition(" ")[2] for line in self.lines()]


@pytest.fixture
def started(begin):
    """Starts a server with a receiver: `started(server, ...)`."""

    def start(server, *how, **more):
        site = Site(server, *how, **more)
        begin(server)
        return site

    return start


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(data(5000))
    return path


EVENTS = """\
create 644 /f|openw /f|fwrite /f|closew /f|create 644 /f|openw /f|fwrite /f|closew /f|create 644 /p|openw /p|fwrite /p|closew /p|\
openr /f|closer /f|mkdir 750 /d|mkdir 750 /e/g|chmod 640 /f|trunc 100|mv /f /h|rm /h|rmdir /d""".split("|")


@pytest.mark.parametrize("kind", KINDS)
def test_events_have_the_lines_of_the_real_server(started, source, kind):
    """The program is started once, with its arguments."""
    site = started(KINDS[kind](settings=""))
    url = site.server.url
    xrdcp(source, url("/f")).ok()
    xrdcp("-f", source, url("/f")).ok()
    xrdcp("-f", "--posc", source, url("/p")).ok()
    xrdcp(url("/f"), source.with_name("back")).ok()
    for words in ["mkdir /d", "mkdir -p /e/g", "chmod /f rw-r-----", "truncate /f 100", "mv /f /h", "rm /h", "rmdir /d"]:
        xrdfs(site.server, *words.split()).ok()
    assert site.events(len(EVENTS)) == EVENTS
    assert (site.work / "starts").read_text() == "a -b\n"
    for line in site.lines():
        assert re.match(r"\w+\.\d+:\d+@\S+ ", line), line


@pytest.mark.parametrize("kind", KINDS)
def test_texts_have_the_values_of_their_event(started, source, kind):
    messages = ["create $TID create $FMODE $LFN?$CGI", "closew $TID closew $LFN $FSIZE", "trunc \\$TID trunc $LFN $FSIZE",
                "rm x rm $LFN?$CGI"]
    site = started(KINDS[kind](settings=""), "create closew trunc rm", messages)
    xrdcp(source, site.server.url("/f?x=1&y=2")).ok()
    xrdfs(site.server, "truncate", "/f?q=1", "77").ok()
    xrdfs(site.server, "rm", "/f?r=1").ok()
    create, *rest = site.events(4)
    # The client adds the size of the copy.
    assert re.fullmatch(r"create 644 /f\?(oss\.asize=5000&)?x=1&y=2", create)
    assert rest == ["closew /f 5000", "trunc /f 77", "rm /f?r=1"]
    assert site.lines()[2].startswith("$TID trunc")


def test_an_operation_that_fails_is_no_event(started, source):
    site = started(peers.Ours(settings=""))
    for words in ["mv /none /x", "rm /none", "truncate /none 1", "chmod /none rwx------"]:
        assert xrdfs(site.server, *words.split()).status
    assert xrdcp(site.server.url("/none"), source.with_name("back")).status
    xrdfs(site.server, "mkdir", "/d").ok()
    assert site.events(1) == ["mkdir 750 /d"]


def test_names_make_one_line(started):
    """Control characters and backslashes are written as hexadecimal numbers."""
    site = started(peers.Ours(settings=""), "mkdir mv")
    xrdfs(site.server, "mkdir", "/a\nroot.1:2@h mkdir 777 b\\").ok()
    xrdfs(site.server, "mkdir", "/c d\x7f\t\u00e9").ok()
    assert site.events(2) == [r"mkdir 750 /a\x0aroot.1:2@h mkdir 777 b\x5c", "mkdir 750 /c d\\x7f\\x09\u00e9"]


def test_requests_of_http_are_events(started):
    site = started(OurWebServer())
    url = f"http://localhost:{site.server.port}"

    def curl(*words):
        subprocess.run(["curl", "--silent", "--show-error", "--fail", "--max-time", "30", *words], check=True, stdout=subprocess.DEVNULL)

    curl("-X", "MKCOL", f"{url}/d")
    curl("-X", "PUT", "--data-binary", "abc", f"{url}/d/f")
    curl(f"{url}/d/f")
    curl("-X", "MOVE", "-H", f"Destination: {url}/d/g", f"{url}/d/f")
    curl("-X", "DELETE", f"{url}/d/g")
    expected = ["mkdir # /d", "create # /d/f", "openw /d/f", "fwrite /d/f", "closew /d/f", "openr /d/f", "closer /d/f",
                "mv /d/f /d/g", "rm /d/g"]
    assert [re.sub(r"^(mkdir|create) \d+", r"\1 #", event) for event in site.events(len(expected))] == expected


def test_third_party_copies_are_events(started, source):
    site = started(peers.Ours(settings="ofs.tpc ttl 60 70\nscalla.tpcsource allow loopback private\n"), "create closew closer")
    other = started(peers.Ours(settings="ofs.tpc ttl 60 70\n"), "closer")
    peers.place(other.server.tree / "f", data(100_000))
    xrdcp("--tpc", "only", other.server.url("/f"), site.server.url("/copy")).ok()
    assert site.events(2) == ["create 644 /copy", "closew /copy"]
    assert other.events(1)[0] == "closer /f"


def test_a_client_that_vanishes_has_closed_its_files(started):
    site = started(peers.Ours(settings=""), "closew closer", ["closew $TID closew $LFN $FSIZE"])
    connection = raw.Connection(site.server)
    handle = connection.open("/f", raw.O_UPDT | raw.O_NEW)
    connection.write(handle, 0, b"abc")
    connection.vanish()
    assert site.events(1) == ["closew /f 3"]


def test_files_of_a_proxy_are_events(started, begin, source):
    origin = begin(peers.Ours(settings=""))
    site = started(Proxy(f"localhost:{origin.port}"), "create closew openr rm")
    xrdcp(source, site.server.url("/f")).ok()
    xrdcp(site.server.url("/f"), source.with_name("back")).ok()
    xrdfs(site.server, "rm", "/f").ok()
    assert site.events(4) == ["create 644 /f", "closew /f", "openr /f", "rm /f"]


def make_directories(site, names):
    for name in names:
        xrdfs(site.server, "mkdir", f"/{name}").ok()


def test_a_program_that_ends_is_started_again(started):
    """Lines of the time without it go to the next process. Its output is in the log."""
    once = "#!/bin/sh\necho start >> {work}/starts\nread -r line && echo \"$line\" >> {work}/lines\necho so long\n"
    site = started(peers.Ours(settings=""), "mkdir", script=once)
    for number, name in enumerate("abc", 1):
        wait_until(lambda: site.server.output().count("is started again") == number - 1)
        make_directories(site, name)
        assert site.events(number)[-1] == f"mkdir 750 /{name}"
    assert "so long" in site.server.output()


def test_the_last_lines_are_read_before_the_server_ends(started):
    site = started(peers.Ours(settings=""), "closer", script="#!/bin/sh\ncat > {work}/lines\necho end >> {work}/lines\n")
    peers.place(site.server.tree / "f", b"x")
    connection = raw.Connection(site.server)
    connection.open("/f", raw.O_READ)
    site.server.stop()
    assert [line.rpartition(" ")[2] for line in site.lines()] == ["/f", "end"]


def test_all_files_are_closed_before_the_last_line(started):
    """Also those of sessions with a request in progress."""
    site = started(peers.Ours(settings=""), "openw closew")
    connections = [raw.Connection(site.server) for _ in range(20)]
    for number, connection in enumerate(connections):
        for half in "ab":
            handle = connection.open(f"/f{number}{half}", raw.O_UPDT | raw.O_NEW)
        # A write of which only the head and a part have come.
        connection.send(raw.request(9, raw.WRITE, handle + bytes(12), bytes(1_000_000))[:1000])
    wait_until(lambda: len(site.lines()) == 40)
    site.server.stop()
    assert sorted(line.split()[1] for line in site.lines()) == ["closew"] * 40 + ["openw"] * 40


def test_no_client_makes_its_events_too_long_to_be_reported(started):
    for target, limit in [("|{work}/recorder a -b", 48 * 1024), (">{work}/run/events", 4096)]:
        site = started(peers.Ours(settings=""), "mkdir", ["mkdir $TID mkdir $LFN $CGI"], target=target)
        path = b"".join(b"/" + b"\x01" * 200 for _ in range(6))
        with raw.Connection(site.server) as connection:
            connection.ask(raw.MKDIR, b"\x01" + bytes(13) + b"\x01\xed", path + b"?x=" + b"y" * 100)
        if "recorder" in target:
            shown = site.events(1)[0].encode()
            assert shown == b"mkdir " + path.replace(b"\x01", b"\\x01") + b" x=" + b"y" * 100
        else:
            with open(site.work / "run" / "events", "rb") as reader:
                line = reader.readline()
            assert len(line) <= limit and line.endswith(b"\\x01\\...\n")


def test_a_program_that_reads_nothing_delays_nobody(started):
    site = started(peers.Ours(settings=""), "mkdir msgs 1 1", ["mkdir " + "x" * 3000], script="#!/bin/sh\nexec sleep 600\n")
    connection = raw.Connection(site.server)
    for number in range(100):
        connection.ask(raw.MKDIR, bytes(14) + b"\x01\xed", f"/d{number}".encode())
    wait_until(lambda: "events are lost" in site.server.output())
    site.server.stop()


def test_lines_go_to_a_pipe(started):
    """The pipe is created. Lines wait in it for a reader."""
    site = started(peers.Ours(settings=""), "mkdir", target=">{work}/run/events")
    pipe = site.work / "run" / "events"
    status = pipe.stat()
    assert stat.S_ISFIFO(status.st_mode) and stat.S_IMODE(status.st_mode) & 0o027 == 0
    for names in ["ab", "cd"]:
        make_directories(site, names)
        with open(pipe, "rb") as reader:
            for name in names:
                assert reader.readline().endswith(f" mkdir 750 /{name}\n".encode())


@pytest.mark.parametrize("target, expected", [
    ("|{work}/none", "cannot run .*/none: .*o such file.*; name an executable program in ofs.notify"),
    ("|{work}/plain", "cannot run .*/plain: .*; name an executable program in ofs.notify"),
    (">{work}/plain", "/plain exists and is not a named pipe; remove it, or name another path"),
    (">{work}/link", "/link exists and is not a named pipe; remove it"),
    (">{work}/none/pipe", "cannot create or open the pipe .*/none/pipe: .*o such file"),
])
def test_receivers_that_cannot_be_used_stop_the_start(target, expected):
    server = peers.Ours(settings="")
    (server.work / "plain").write_text("text")
    (server.work / "link").symlink_to("plain")
    Site(server, target=target)
    assert re.search(expected, peers.refused_start(server))


def test_the_log_names_events_and_variables_that_do_not_exist():
    server = peers.Ours(settings="ofs.notifymsg create $NAME\n")
    Site(server, "created")
    said = peers.refused_start(server)
    for text in (":3:22: error: ofs.notifymsg: there is no variable '$NAME'", ":4:12: error: ofs.notify: there is no event 'created'; allowed: all"):
        assert text in said, said
