"""Our `xrdcp` and the real one on the same server, ours and the real one in turn: the same command
lines.

Output, exit status and the resulting files are compared. `@` stands for the URL of a directory at
the server, `%` for its path; other names are in a local directory."""

import io
import re
import time
import zipfile

import pytest

import peers
import tools
from codes import ShellCode

PATIENCE = dict(XRD_CONNECTIONWINDOW="5", XRD_CONNECTIONRETRY="1")


class Side:
    """One program with its two directories."""

    def __init__(self, program, area, local):
        self.program, self.area, self.local = program, area, local

    def run(self, line, input=None):
        words = [word.replace("@", self.area.url("").rstrip("/")).replace("%", self.area.path) for word in line.split()]
        result = tools.run([self.program, *words], input=input, cwd=self.local, **PATIENCE)
        text = f"{result.out}--- {result.err.replace(chr(0), '')}--- {result.status}"
        for name, sign in ((str(self.local), "HERE"), (self.area.path, "%"), (self.area.server.host, "HOST")):
            text = text.replace(name, sign)
        # The real program prints no newline after a job's failure unless the server sent its text.
        text = re.sub(r"(?<=[^\n])(?=Job #|Jobs total)", "\n", text)
        return re.sub(r"\n+", "\n", text)

    def files(self):
        return {str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
                for directory in (self.local, self.area.local) for path in sorted(directory.rglob("*"))}


@pytest.fixture
def sides(area_on, server, tmp_path):
    sides = []
    for program, name in ((peers.real("xrdcp"), "a"), (peers.link("xrdcp"), "b")):
        local = tmp_path / name
        for directory in ("tree/sub", "into"):
            (local / directory).mkdir(parents=True)
        (local / "small").write_bytes(b"hello")
        (local / "large").write_bytes(tools.data(3_000_001))
        (local / "empty").write_bytes(b"")
        (local / "tree/one").write_bytes(b"one")
        (local / "tree/sub/two").write_bytes(b"two")
        area = area_on(server)
        area.put("there", b"there")
        area.put("set/x", b"x")
        area.put("set/deep/y", tools.data(20_000))
        for name, how in ARCHIVES.items():
            area.put(f"{name}.zip", archive(how))
        (local / "stored.zip").write_bytes(archive(zipfile.ZIP_STORED))
        sides.append(Side(program, area, local))
    return sides


ARCHIVES = dict(stored=zipfile.ZIP_STORED, deflated=zipfile.ZIP_DEFLATED, other=zipfile.ZIP_BZIP2)
MEMBER = b"a member\n" * 20


def archive(how):
    """Creates a ZIP archive of some members, one of them larger than a single read."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", how) as made:
        for name, data in (("member", MEMBER), ("dir/", b""), ("dir/deep", tools.data(300_000)), ("empty", b"")):
            made.writestr(zipfile.ZipInfo(name, (2026, 11, 21, 23, 3, 10)), data, compress_type=how)
    return written.getvalue()


def run_real(side, line):
    """Runs the real program. If its connection stalls, it restarts a copy and then fails on its own
    file; it is run again without that file."""
    before = side.files()
    text = side.run(line, input=b"typed")
    left = side.files().keys() - before.keys()
    if "Local error: file exists" in text and left:
        for path in (side.local / name for name in left):
            if path.is_file():
                path.unlink()
        text = side.run(line, input=b"typed")
    return text


def compare(sides, lines):
    """All lines run, so that one difference does not hide the next."""
    found = []
    for line in lines:
        theirs, ours = run_real(sides[0], line), sides[1].run(line, input=b"typed")
        if theirs != ours:
            found.append(f"xrdcp {line}\n{theirs}\nOURS:\n{ours}")
        theirs, ours = (side.files() for side in sides)
        if theirs != ours:
            found.append(f"xrdcp {line}: files {sorted(set(theirs.items()) ^ set(ours.items()))!r:.300}")
            break
    assert not found, "\n\n".join(found)


GROUPS = {
    "upload": ["small @/small", "small @/small", "-f small @/small", "large @/new/deep/large", "empty @/empty", "small @", "small @", "small @/new/", "-P -f small @/small",
               "--posc -f large @/small", "nofile @/x", "tree @/x", "small @/set", "- @/typed", "-s -f small @/small", "-N -f small @/small", "-np -f small @/small"],
    "download": ["@/there copy", "@/there copy", "-f @/there copy", "@/nope other", "@/set other", "@/there into", "@/there into", "@/set/deep/y deep/new/y", "@/there -",
                 "@/nope -", "@//set/../nope other", "root://localhost:1//x other", "@/there ./", "-s @/nope other"],
    "local": ["small copy", "small copy", "-f large copy", "small into", "small -", "- typed", "tree copy2", "nofile copy2", "small new/deep/copy"],
    "several": ["small large @/", "small large @", "small nofile @/", "small large into", "small large nofolder", "small large there.txt", "@/there @/nope into", "-f @/there @/set/x into",
                "-f @/nope @/there @/nope2 into", "--parallel 2 -f small large empty @/", "small large @/there"],
    "recursive": ["-r tree @", "-r tree @", "-r -f tree @/", "-r @/set into", "-r @/set into", "-f -r @/set into", "-r tree nofolder", "-r tree into", "-r small @/set"],
    "checksums": ["--cksum adler32 small @/a", "--cksum adler32:print -f small @/a", "--cksum adler32:source -f small @/a", "--cksum md5:print -f small @/a", "-md5 @/a m1", "-adler @/a m2",
                  "--cksum crc32c:print @/a m3", "--cksum adler32:print @/a m4", "--cksum adler32:source @/a m5", "--cksum adler32:062c0215 @/a m6", "--cksum zcrc32:print small m7",
                  "--cksum crc32:print small m8", "--cksum auto @/a m9", "--cksum adler32:print @/a -"],
    "members": ["-z member @/stored.zip m1", "-z member @/deflated.zip m2", "-z dir/deep @/stored.zip m3", "-z dir/deep @/deflated.zip m4", "-z empty @/stored.zip m5",
                "-z empty @/deflated.zip m6", "-z dir/ @/stored.zip m7", "-z dir @/stored.zip m8", "-z ./member @/stored.zip m9", "-z member @/nope.zip m10", "-z member @/there m11",
                "-z member stored.zip m12", "@/stored.zip?xrdcl.unzip=member m13", "@/deflated.zip?xrdcl.unzip=dir/deep m14", "-z dir/deep @/stored.zip into", "-z dir/deep @/stored.zip @/set",
                "-z member @/stored.zip -", "-z dir/deep @/deflated.zip @/new/deep", "--cksum zcrc32:print -z member @/stored.zip m15", "--cksum zcrc32:source -z member @/stored.zip m16",
                "--cksum zcrc32 -z dir/deep @/deflated.zip m17", "--cksum auto:print -z member @/stored.zip m18", "--cksum crc32:print -z member @/stored.zip m19",
                "--cksum adler32:print -z dir/deep @/deflated.zip m20", "-S 2 -z dir/deep @/stored.zip m21", "--zip-append -f small @/stored.zip", "--zip-append --continue small @/stored.zip",
                "--zip-append small large @/stored.zip", "--zip-append nofile @/stored.zip", "--zip-append small @/there"],
    "options": ["-d 1 -f small copy", "-v -f small @/v", "--server -f small @/v", "-DIFoo 1 -f small copy", "-DSFoo x -f small copy", "-DICPChunkSize 65536 -f large @/v", "-S 3 -f large @/v",
                "-f @/v copy -S 4", "--coerce -f small @/v", "-ODa=b -f small @/v", "-OSa=b -f @/v copy", "--tpc first -f small @/v", "--tpc only -f small @/v", "-D localhost:1 small @/v",
                "--continue -f small @/v", "-t 1 -f small @/v", "--retry 1 --retry-policy continue -f small @/v", "-I nolist into", "-y 2 -f @/v copy", "-force small copy"],
}


@pytest.mark.parametrize("name", GROUPS)
def test_copies(sides, name):
    compare(sides, GROUPS[name])


@pytest.mark.parametrize("line", ["", "-q", "--foo", "small", "-f", "--cksum", "--cksum foo small x", "-d", "-d 9 a b", "-d x a b", "--parallel 0 a b", "--parallel 129 a b", "-S 16 a b",
                                  "-y 0 a b", "-t x a b", "-X 5 a b", "-X 1x a b", "-T foo a b", "-T delegate a b", "-DICPChunkSize x a b", "-I /dev/null b", "-for a b"])
def test_usage_errors(line):
    """The first line is the same; the usage follows it."""
    theirs, ours = tools.both("xrdcp", *line.split(), **PATIENCE)
    first = [[text for text in result.err.splitlines() if "xrdcpCksMan" not in text][:5] for result in (theirs, ours)]
    assert (ours.status, ours.out, first[1]) == (theirs.status, theirs.out, first[0])


@pytest.mark.parametrize("name", ["xrdcp", "xrdcopy"])
def test_help_and_version(name):
    theirs, ours = tools.both(name, "-h")
    assert (ours.status, ours.out) == (theirs.status, theirs.out)
    options = [set(re.findall(r"--[a-z-]+", result.err)) for result in (theirs, ours)]
    assert options[0] <= options[1]
    for option in ("-V", "--version", "-version", "-H"):
        assert tools.run([peers.link(name), option]).ok().err


def test_list_of_sources(sides):
    for side in sides:
        (side.local / "list").write_text("small\n\nlarge\n")
    compare(sides, ["-I list into", "-I list @/", "-I list nofolder"])


def test_wrong_checksum(sides):
    """The same text and status; the real program keeps the wrong file, ours does not."""
    for line in ("--cksum adler32:12345678 @/there bad", "--rm-bad-cksum --cksum adler32:12345678 -f @/there bad", "--cksum adler32:12345678 small @/bad"):
        theirs, ours = (side.run(line) for side in sides)
        assert ours == theirs
        assert not (sides[1].local / "bad").exists() and not (sides[1].area.local / "bad").exists()


def test_new_directory_for_several_sources(sides):
    """Later versions create it if it is written as a directory."""
    assert sides[1].run("small large @/not/there/") == "--- --- 0"
    assert (sides[1].area.local / "not/there/small").read_bytes() == b"hello"
    assert "target is not a directory" in sides[1].run("small large @/neither")


def test_invalid_sources_are_not_copied(sides):
    """The text is the same; the real program keeps files. It does not verify the checksum of a
    member by default."""
    damaged = archive(zipfile.ZIP_STORED).replace(b"a member", b"A member")
    for side in sides:
        side.area.put("damaged.zip", damaged)
    for line in ("-z member @/other.zip x", "--cksum adler32 -z member @/stored.zip x", "--cksum zcrc32:12345678 -z member @/stored.zip x", "--cksum zcrc32 -z member @/damaged.zip x"):
        theirs, ours = (side.run(line) for side in sides)
        assert ours == theirs, line
        (sides[0].local / "x").unlink()
        assert not (sides[1].local / "x").exists()
    assert sides[1].run("-z member @/damaged.zip x") == "--- Run: [ERROR] CheckSum error\n--- 53"
    assert not (sides[1].local / "x").exists()


def names(side, name):
    with zipfile.ZipFile(side.area.local / name) as made:
        assert made.testzip() is None
        return [(member.filename, member.file_size) for member in made.infolist()]


def test_appending_to_archives(area_on, ours, tmp_path):
    """A member is added, to a new archive too. Present members are unchanged, and an impossible
    addition changes nothing."""
    side = Side(peers.link("xrdcp"), area_on(ours), tmp_path)
    (tmp_path / "small").write_bytes(b"hello")
    (tmp_path / "large").write_bytes(tools.data(3_000_001))
    side.area.put("a.zip", archive(zipfile.ZIP_DEFLATED))
    before = names(side, "a.zip")
    for line in ("--zip-append small @/a.zip", "--zip-append large @/a.zip", "--zip-append small @/new/b.zip", "--zip-append -z dir/deep @/a.zip @/new/b.zip"):
        assert side.run(line) == "--- --- 0", line
    assert names(side, "a.zip") == [*before, ("small", 5), ("large", 3_000_001)]
    assert names(side, "new/b.zip") == [("small", 5), ("deep", 300_000)]
    assert side.run("-z large @/a.zip back") == "--- --- 0" and (tmp_path / "back").read_bytes() == tools.data(3_000_001)
    assert side.run("--zip-append small @/a.zip") == "--- Run: [ERROR] Invalid operation: file exists: The file already exists in the ZIP archive. (destination)\n--- 50"
    assert side.run("--zip-append - @/a.zip").startswith("--- Run: [ERROR] Operation not supported: ")


def test_rates_and_attributes(sides):
    """At the allowed rate, not faster; attributes are copied in both directions."""
    for side in sides:
        tools.xrdfs(side.area.server, "xattr", side.area / "there", "set", "a=1").ok()
    compare(sides, ["--xattr @/there x1", "--xattr @/there @/x2"])
    listed = [tools.xrdfs(side.area.server, "xattr", side.area / "x2", "list").ok().out.replace(side.area.path, "%") for side in sides]
    assert listed[0] == listed[1] and 'a="1"' in listed[1]
    begun = time.monotonic()
    assert sides[1].run("-X 1m large @/slow") == "--- --- 0"
    assert time.monotonic() - begun > 2


def metalink(*urls, name="named", size=None, hashes=()):
    size = "" if size is None else f"<size>{size}</size>"
    hashes = "".join(f'<hash type="{kind}">{value}</hash>' for kind, value in hashes)
    urls = "".join(f'<url priority="{index + 1}">{url}</url>' for index, url in enumerate(urls))
    return f'<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="{name}">{size}{hashes}{urls}</file></metalink>'.encode()


METALINKS = {
    "@/good.meta4 o": 0, "@/nothing.meta4 o": ShellCode.SERVER_ERROR, "@/none.meta4 o": ShellCode.CLIENT_ERROR, "@/text.meta4 o": ShellCode.CLIENT_ERROR, "@/two.meta4 o": ShellCode.CLIENT_ERROR, "@/nope.meta4 o": ShellCode.SERVER_ERROR, "@/old.metalink o": 0, "@/other.meta4 o": 0,
    "good.meta4 o": 0, "-DIMetalinkProcessing 0 @/there o": 0, "--cksum adler32 @/good.meta4 o": 0, "--cksum auto:print @/good.meta4 o": 0, "--cksum adler32:source @/good.meta4 o": 0,
    "-y 2 @/good.meta4 o": 0, "@/good.meta4 into": 0, "-f @/good.meta4 @/copied": 0, "-z dir/deep @/archive.meta4 o": 0, "--cksum zcrc32:source -z member @/archive.meta4 o": 0,
    "--cksum adler32 @/lies.meta4 o": ShellCode.PROTOCOL,
}


@pytest.fixture
def mirrored(sides):
    for side in sides:
        at = side.area.url
        good = metalink(at("there"), size=5, hashes=[("adler32", "6610219")])
        for name, text in {
            "good.meta4": good, "nothing.meta4": metalink(at("nope"), at("neither")), "none.meta4": metalink(), "text.meta4": b"text",
            "two.meta4": good.replace(b"</file>", b"</file><file><url>root://h//x</url></file>"), "other.meta4": metalink("http://localhost:1/x", at("there")),
            "old.metalink": (f"<metalink version='3.0' xmlns='http://www.metalinker.org/'><files><file name='f'><resources><url type='root' preference='1'>{at('nope')}</url>"
                             f"<url type='root' preference='9'>{at('there')}</url></resources></file></files></metalink>").encode(),
            "archive.meta4": metalink(at("deflated.zip")), "lies.meta4": metalink(at("there"), hashes=[("adler32", "12345678")]),
            "second.meta4": metalink(at("nope"), "root://localhost:1//x", at("there")), "short.meta4": metalink(at("there"), size=4),
            "local.meta4": metalink(f"file://{side.local}/small"),
        }.items():
            side.area.put(name, text)
        (side.local / "good.meta4").write_bytes(good)
    return sides


def test_metalinks(mirrored):
    """The file of a metalink is copied; text and status are the same."""
    for line, status in METALINKS.items():
        theirs, ours = (side.run(line) for side in mirrored)
        assert ours == theirs and ours.endswith(f"--- {int(status)}"), f"{line}\n{theirs}\nOURS:\n{ours}"
        if status == 0:
            made = [{name: data for name, data in side.files().items() if name in ("o", "copied", "into/named")} for side in mirrored]
            assert made[0] == made[1] and made[0], line
        for side in mirrored:
            (side.local / "o").unlink(missing_ok=True)


def test_metalinks_are_trusted_and_all_locations_tried(mirrored):
    """Of several locations on one host the real program tries one. It does not verify sizes, nor
    checksums by default. A metalink of a server never causes an upload of a local file."""
    side = mirrored[1]
    assert side.run("@/second.meta4 o") == "--- --- 0" and (side.local / "o").read_bytes() == b"there"
    assert side.run("@/lies.meta4 x") == "--- Run: [ERROR] CheckSum error\n--- 53"
    assert side.run("@/short.meta4 x").endswith("[ERROR] Received corrupted data (source)\n--- 54")
    assert side.run("@/local.meta4 x").startswith("--- Prepare: [ERROR] Received corrupted data: Malformed")
    assert not (side.local / "x").exists()
