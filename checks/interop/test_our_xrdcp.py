"""Our `xrdcp` and the real one on the same server, ours and the real one in turn: the same command lines, what they print, how
they end, and which files are there then.

`@` stands for the URL of a folder at the server, `%` for its path; other names are in a folder of this machine."""

import re

import pytest

import peers
import tools

PATIENCE = dict(XRD_CONNECTIONWINDOW="5", XRD_CONNECTIONRETRY="1")


class Side:
    """One program with its two folders."""

    def __init__(self, program, area, local):
        self.program, self.area, self.local = program, area, local

    def run(self, line, input=None):
        words = [word.replace("@", self.area.url("").rstrip("/")).replace("%", self.area.path) for word in line.split()]
        result = tools.run([self.program, *words], input=input, cwd=self.local, **PATIENCE)
        text = f"{result.out}--- {result.err.replace(chr(0), '')}--- {result.status}"
        for name, sign in ((str(self.local), "HERE"), (self.area.path, "%"), (self.area.server.host, "HOST")):
            text = text.replace(name, sign)
        # The real program has no newline behind a job's failure unless the server sent its text.
        text = re.sub(r"(?<=[^\n])(?=Job #|Jobs total)", "\n", text)
        return re.sub(r"\n+", "\n", text)

    def files(self):
        return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
                for folder in (self.local, self.area.local) for path in sorted(folder.rglob("*"))}


@pytest.fixture
def sides(area_on, server, tmp_path):
    sides = []
    for program, name in (("/usr/bin/xrdcp", "a"), (peers.link("xrdcp"), "b")):
        local = tmp_path / name
        for folder in ("tree/sub", "into"):
            (local / folder).mkdir(parents=True)
        (local / "small").write_bytes(b"hello")
        (local / "large").write_bytes(tools.data(3_000_001))
        (local / "empty").write_bytes(b"")
        (local / "tree/one").write_bytes(b"one")
        (local / "tree/sub/two").write_bytes(b"two")
        area = area_on(server)
        area.put("there", b"there")
        area.put("set/x", b"x")
        area.put("set/deep/y", tools.data(20_000))
        sides.append(Side(program, area, local))
    return sides


def compare(sides, lines):
    """All lines run, so that one difference does not hide the next."""
    found = []
    for line in lines:
        theirs, ours = (side.run(line, input=b"typed") for side in sides)
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
    "options": ["-d 1 -f small copy", "-v -f small @/v", "--server -f small @/v", "-DIFoo 1 -f small copy", "-DSFoo x -f small copy", "-DICPChunkSize 65536 -f large @/v", "-S 3 -f large @/v",
                "-f @/v copy -S 4", "--coerce -f small @/v", "-ODa=b -f small @/v", "-OSa=b -f @/v copy", "--tpc first -f small @/v", "--tpc only -f small @/v", "-D localhost:1 small @/v",
                "--continue -f small @/v", "-t 1 -f small @/v", "--retry 1 --retry-policy continue -f small @/v", "-I nolist into", "-y 2 -f @/v copy", "-force small copy"],
}


@pytest.mark.parametrize("name", GROUPS)
def test_copies(sides, name):
    compare(sides, GROUPS[name])


@pytest.mark.parametrize("line", ["", "-q", "--foo", "small", "-f", "--cksum", "--cksum foo small x", "-d", "-d 9 a b", "-d x a b", "--parallel 0 a b", "--parallel 129 a b", "-S 16 a b",
                                  "-y 0 a b", "-t x a b", "-X 5 a b", "-X 1x a b", "-T foo a b", "-T delegate a b", "-DICPChunkSize x a b", "-I /dev/null b", "-for a b",
                                  "http://h/x b", "small http://h/x"])
def test_wrong_use(line):
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
    """The same words and status; the real program leaves the file that is not what it should be, ours does not."""
    for line in ("--cksum adler32:12345678 @/there bad", "--rm-bad-cksum --cksum adler32:12345678 -f @/there bad", "--cksum adler32:12345678 small @/bad"):
        theirs, ours = (side.run(line) for side in sides)
        assert ours == theirs
        assert not (sides[1].local / "bad").exists() and not (sides[1].area.local / "bad").exists()


def test_new_folder_for_several_sources(sides):
    """Later versions make it where it is written as a folder."""
    assert sides[1].run("small large @/not/there/") == "--- --- 0"
    assert (sides[1].area.local / "not/there/small").read_bytes() == b"hello"
    assert "target is not a directory" in sides[1].run("small large @/neither")


def test_what_is_not_built_is_refused(sides):
    for line in ("--xattr small @/x", "-X 1m small @/x", "--zip-append small @/x", "-z member @/there x", "@/there?xrdcl.unzip=member x"):
        assert sides[1].run(line).startswith("--- Run: [ERROR] Operation not supported: -"), line
    assert not (sides[1].local / "x").exists() and not (sides[1].area.local / "x").exists()
