"""Our `xrdfs` and the real one on the same server, ours and the real one in turn: output and exit
status of the same command lines.

Only the real one prints the NUL that ends a server's text."""

import io
import re
import zipfile

import pytest

import peers
import tools
from codes import ErrorCode, ShellCode
from command_lines import DIALOGUE, LISTINGS, LOCATES, SEQUENCES, STATS, USE, grow, masked


@pytest.fixture
def pair(area_on, server):
    """The same tree in two directories of one server, for the real program and for ours. Names have
    the same length."""
    pair = Pair(area_on(server), area_on(server))
    with grow(*pair.areas):
        yield pair


class Pair:
    def __init__(self, *areas):
        self.areas = areas
        self.programs = (tools.XRDFS, peers.link("xrdfs"))

    def run(self, *words, input=None):
        """Returns the output and exit status of both."""
        for area, program in zip(self.areas, self.programs):
            given = [word.replace("@", area.path) for word in words]
            typed = input and input.replace("@", area.path).encode()
            result = tools.xrdfs(area.server, *given, input=typed, program=program)
            text = masked(result).replace("\0", "").replace(area.path, "@")
            if words[:1] == ("rm",) and len(words) > 2:
                # The real one sends all removals in parallel, and forgets a failure if the last
                # answer is a success.
                text = text.partition("--- ")[0]
            yield "\n".join(sorted(text.splitlines())) if _has_no_order(words) else text

    def compare(self, *words, input=None):
        theirs, ours = self.run(*words, input=input)
        assert ours == theirs, f"xrdfs {' '.join(words)}"


def _has_no_order(words):
    """Reports whether the real program prints in the order of a directory on disk, or in that of
    the answers."""
    return words[:1] in (("ls",), ("rm",)) or words[2:] == ("list",)


def differences(pair, lines):
    """All lines run, so that one difference does not hide the next."""
    found = []
    for words in lines:
        try:
            pair.compare(*words)
        except AssertionError as difference:
            found.append(str(difference))
    return "\n\n".join(found)


READ_ONLY = {
    "ls": [("ls", *words) for words in LISTINGS],
    "stat": [("stat", *words) for words in STATS],
    "statvfs": [("statvfs", path) for path in ("@", "@/ten", "@/nope", "/")],
    "locate": [("locate", *words) for words in LOCATES],
}


@pytest.mark.parametrize("name", READ_ONLY)
def test_questions(pair, name):
    assert not differences(pair, READ_ONLY[name])


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences(pair, name):
    assert not differences(pair, [line.split() for line in SEQUENCES[name]])


def test_use(pair):
    assert not differences(pair, [line.split() for line in USE])


def test_dialogue(pair):
    lines = [line for line in DIALOGUE[:-1] if line not in ("help", "ls")]
    more = ["", "   ", "cd ../../../..", "cd dir/program", 'ls "@/dir""/sub"', 'stat "with blank"', " stat  ten  ", "quit", "ls"]
    pair.compare(input="\n".join([*lines, "cd @", *more]))


def test_dialogue_at_the_end_of_the_input(pair):
    pair.compare(input="cd @/dir\nls sub")
    pair.compare(input="")


def test_cat_to_a_file(pair, tmp_path):
    """A new file is written, an existing one is not changed, and no file is left if the source
    cannot be read."""
    (tmp_path / "there").write_bytes(b"kept")
    for path, target in (("@/ten", "deep/new"), ("@/ten", "there"), ("@/nope", "nothing")):
        sides = []
        for area, program in zip(pair.areas, pair.programs):
            written = tmp_path / target
            result = tools.xrdfs(area.server, "cat", "-o", written, path.replace("@", area.path), program=program)
            content = written.read_bytes() if written.exists() else b""
            text = masked(result).replace("\0", "").replace(area.path, "@")
            # The number of equal progress lines depends on the time that the copy takes.
            sides.append((re.sub(r"(\rProgress: [^\r\n]*)\1+", r"\1", text), content))
            if target != "there":
                written.unlink(missing_ok=True)
        assert sides[0] == sides[1]


@pytest.mark.parametrize("words", ["localhost:1 ls /", "localhost:1 rm /x", "localhost:1 cat /x", "localhost:1 nonsense", "[::1]:1 stat /",
                                   "localhost:99999 ls /", "xyz://h ls /", "/tmp ls /", "- ls",
                                   "--foo localhost:1 ls"])
def test_invalid_servers(words):
    theirs, ours = tools.both("xrdfs", *words.split())
    assert (ours.status, ours.out, ours.err) == (theirs.status, theirs.out, theirs.err)


def test_servers_of_http_are_connected():
    """The real program refuses their URLs."""
    tools.run([peers.link("xrdfs"), "http://localhost:1", "ls", "/"]).fails(51, "Connection error")


@pytest.mark.parametrize("words", ["", "-h", "--help", ":::: ls", "localhost:1 help", "localhost:x ls"])
def test_help_has_the_same_exit_status(words):
    """The text is ours; each command has its line."""
    theirs, ours = tools.both("xrdfs", *words.split())
    assert (ours.status, ours.err) == (theirs.status, theirs.err)
    names = [{line.split()[0] for line in result.out.splitlines() if line.startswith("   ") and line[3:4].isalpha()} for result in (theirs, ours)]
    assert names[0] <= names[1]


def test_features_of_newer_versions(ours, area_on):
    """Several paths, combined letters, and `cache`."""
    area = area_on(ours)
    area.put("a", b"a")
    area.mkdir("b")
    program = peers.link("xrdfs")
    both = tools.xrdfs(ours, "stat", area / "a", area / "b", program=program).ok().out
    assert both.startswith(f"\nPath:   {area / 'a'}\n") and f"\n\nPath:   {area / 'b'}\n" in both
    assert tools.xrdfs(ours, "ls", "-lR", area.path, program=program).ok().out == tools.xrdfs(ours, "ls", "-l", "-R", area.path, program=program).ok().out
    tools.xrdfs(ours, "locate", "-rdn", area / "a", program=program).ok()
    tools.xrdfs(ours, "cache", "evict", area / "a", program=program).fails(ShellCode.SERVER_ERROR, ErrorCode.ARG_INVALID.shown + " ")
    tools.xrdfs(ours, "cache", "remove", area / "a", program=program).fails(ShellCode.CLIENT_ERROR, "[ERROR] Invalid arguments")


def test_members_of_archives(pair):
    """`ls -Z`: the names of the members, with the status of the archive."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as made:
        for name in ("b", "dir/", "dir/c", "a"):
            made.writestr(name, name * 1000)
    for area in pair.areas:
        for name, data in (("a.zip", written.getvalue()), ("no.zip", b"no archive"), ("empty.zip", b"")):
            area.put(name, data)
        area.age()
    options = (("-Z",), ("-l", "-Z"), ("-Z", "-u"), ("-C", "-Z"))
    assert not differences(pair, [("ls", *given, f"@/{name}") for given in options for name in ("a.zip", "no.zip", "nope.zip", "dir")])
    # The result of the real program for an empty file varies from run to run, so only ours is tested.
    for given in options:
        area, program = pair.areas[1], pair.programs[1]
        tools.xrdfs(area.server, "ls", *given, area / "empty.zip", program=program).ok().silent()


def test_a_recursive_listing_does_not_enter_a_link_to_a_directory_above(area_on, ours):
    area = area_on(ours)
    area.put("dir/sub/text", b"text")
    (area.local / "dir/sub/up").symlink_to("..")
    result = tools.xrdfs(ours, "ls", "-R", f"{area.path}/dir", program=peers.link("xrdfs")).ok()
    assert result.out.splitlines() == [f"{area.path}/dir/{name}" for name in ("sub", "sub/text", "sub/up")]
    assert "may be incomplete" in result.err


def test_a_recursive_listing_has_names_that_no_request_can_carry(area_on, ours):
    area = area_on(ours)
    area.put("dir/a", b"a")
    area.put("dir/b?c", b"bc")
    area.put("dir/d?/e", b"e")
    result = tools.xrdfs(ours, "ls", "-R", f"{area.path}/dir", program=peers.link("xrdfs")).ok()
    assert result.out.splitlines() == [f"{area.path}/dir/{name}" for name in ("a", "b?c", "d?")]
    # The directory is not listed.
    assert "may be incomplete" in result.err
    (area.local / "dir/d?/e").unlink()
    (area.local / "dir/d?").rmdir()
    result = tools.xrdfs(ours, "ls", "-R", f"{area.path}/dir", program=peers.link("xrdfs")).ok()
    assert result.out.splitlines() == [f"{area.path}/dir/{name}" for name in ("a", "b?c")] and result.err == ""
