"""Text chosen by servers, files and command lines: no control character of it reaches a terminal.

A pipe receives names and contents unchanged."""

import re

import pytest

import hollow
import peers
import terminals
import tools

# A title, a cleared screen, a colour; the C1 form of it; a line end for some terminals; changes of
# text direction.
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[31m\x7f\u009b2J\u0085\u2028\u202e\b"
# Not UTF-8: the C1 control that begins a sequence on 8-bit terminals.
BYTES = HOSTILE.encode() + b"\x9b2J\r"
# Our own colours, and those of usage errors.
COLOURS = re.compile("\x1b\\[(0|1|2|4|31|32|33|1;34|1;32)m")
RAW = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# The only tabs are those between the columns of `du`, and those of contents.
TABS = re.compile("^\\S+\t", re.M)


def shown(command, cwd=None, typed="", **environment):
    """Returns the output of a command on a terminal."""
    with terminals.Terminal(command, cwd=cwd, XRD_CONNECTIONRETRY="1", XRD_CONNECTIONWINDOW="2", XRD_STREAMERRORWINDOW="0", **environment) as person:
        if typed:
            person.type(typed)
        person.end()
        return person.shown


def check(text, command):
    """Asserts that text consists of lines of plain text and our colours."""
    text = text.decode("utf-8").replace("\r\n", "\n")
    text = TABS.sub("", COLOURS.sub("", text))
    assert not RAW.search(text), (command, text)
    return text


SCALLA = [
    "ls {u}/dir", "ls -l {u}/dir", "ls -R {u}/dir", "ls -1 {u}/dir", "ls -l {u}/file", "ls --json {u}/dir", "stat {u}/file", "stat {u}/dir --checksum {u}/file",
    "stat --json {u}/file", "cat {u}/file", "head {u}/file", "head -c 5 {u}/file", "tail {u}/file", "tail -c 9 {u}/file", "head {u}/file {u}/other",
    "mkdir {u}/new", "mv {u}/file {u}/other", "rm -v {u}/file", "rm -rfv {u}/dir", "rm -rn {u}/dir", "rmdir {u}/dir", "chmod 600 {u}/file", "chmod -R 600 {u}/dir",
    "truncate -s 1 {u}/file", "locate {u}/file", "locate {u}/file {u}/other", "locate --json {u}/file", "checksum {u}/file", "checksum --read {u}/file",
    "checksum -t adler32 {u}/file {u}/other", "checksum --check {list}", "checksum --check {list} --json", "xattr list {u}/file", "xattr list {u}/file {u}/other",
    "xattr get {u}/file a", "xattr get --raw {u}/file a", "xattr list --json {u}/file", "xattr set {u}/file a=b", "xattr rm {u}/file a",
    "prepare stage {u}/file", "prepare evict {u}/file", "prepare status {u} id {u}/file", "prepare cancel {u} id", "query server {u}", "query config {u}",
    "query config {u} version", "query config --json {u}", "query checksums {u}", "query stats {u}", "query space {u}", "query attributes {u}/file",
    "query opaque {u}/file", "query opaque {u} what", "query stats --json {u}", "space {u}", "space --json {u}", "du {u}/dir", "du {u}/file", "du --json {u}/dir",
    "find {u}/dir", "find --json {u}/dir", "tree {u}/dir", "tree --json {u}/dir", "cp -N -f -v {u}/file {here}/", "cp -N -f -r -v {u}/dir {here}/",
    "cp -N -f -v --checksum adler32:print {u}/file {here}/", "cp -N -v {here}/local {u}/target", "cp -N --json -f {u}/file {here}/", "cp -N -f {u}/{h}1* {here}/",
    "sync -n {u}/dir {here}/into", "sync -N -v {u}/dir {here}/into", "sync -N --json {u}/dir {here}/into", "sync -n --delete {here} {u}/dir", "map {u}", "map --json {u}",
    "map --path /file --versions {u}", "ls {u}/dir/n*", "ls {u}/{h}", "cat {u}/{h}", "cp -N {u}/{h} {here}/", "ls {h}", "ls -{h}", "{h}", "cp {u}/file", "stat root://{h}//a",
    "cp -N {h} {here}/x", "config check {here}/{h}", "config show --config {here}/bad.cfg", "config check {here}/bad.cfg", "config check --json {here}/bad.cfg",
    "admin --admin-path {here}/{h} status", "cluster --admin-path {here}/{h} status", "bench read {u}/{h} -t 1s", "bench gen {here}/{h}", "links {here}/{h}", "serve {here}/{h}",
    "man {here}/bad.cfg/{h}",
]
TOOLS = [
    "xrdfs {s} ls /dir", "xrdfs {s} ls -l /dir", "xrdfs {s} ls -lR /dir", "xrdfs {s} ls -u /dir", "xrdfs {s} ls -C /dir", "xrdfs {s} stat /file", "xrdfs {s} stat /{h}",
    "xrdfs {s} stat /file /other", "xrdfs {s} statvfs /{h}", "xrdfs {s} spaceinfo /{h}", "xrdfs {s} locate /file", "xrdfs {s} locate -d /file",
    "xrdfs {s} query config version", "xrdfs {s} query checksum /file", "xrdfs {s} query stats a", "xrdfs {s} query space x", "xrdfs {s} query xattr /file",
    "xrdfs {s} query opaque x", "xrdfs {s} query opaquefile x", "xrdfs {s} query prepare id", "xrdfs {s} cat /file", "xrdfs {s} tail /file", "xrdfs {s} xattr /{h} list",
    "xrdfs {s} xattr /file get a", "xrdfs {s} xattr /file set a=b", "xrdfs {s} xattr /file del a", "xrdfs {s} prepare -s /file", "xrdfs {s} rm /{h}", "xrdfs {s} mkdir /{h}",
    "xrdfs {s} rmdir /{h}", "xrdfs {s} mv /{h} /a", "xrdfs {s} chmod /{h} rwxr-x---", "xrdfs {s} truncate /{h} 1", "xrdfs {s} cache evict /{h}", "xrdfs {s} {h}", "xrdfs {h} ls /",
    "xrdcp -N -f {u}/file {here}/", "xrdcp -N -f -r {u}/dir {here}/into", "xrdcp -N -f -C adler32:print {u}/file {here}/", "xrdcp -N {u}/{h} {here}/", "xrdcp -N {h} {here}/x",
    "xrdcp --{h} a b", "xrdcp -N {here}/local {u}/target", "xrdadler32 {u}/file", "xrdadler32 {h}", "xrdcrc32c {u}/file", "xrdcrc32c {h}", "xrdcrc32c -{h}",
    "xrdmapc {s} /file", "xrdmapc --format json {s} /file", "xrdmapc {h}:1", "xrdmapc --{h} {s}", "xrdprep {s} prepare /file", "xrdprep {s} query id", "xrdprep {h} prepare /a",
    "xrdprep -f {here}/{h} {s} prepare", "xrootd --{h}", "xrootd -c {here}/{h}", "cmsd -c {here}/{h}",
]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    directory = tmp_path_factory.mktemp("terminal")
    (directory / "into").mkdir()
    (directory / "local").write_bytes(b"local")
    (directory / f"name{HOSTILE}").write_bytes(b"x")
    (directory / "bad.cfg").write_text(f"all.export /\nnon{HOSTILE} sense{HOSTILE}\nxrd.port {HOSTILE}\n")
    return directory


def words(line, server, here):
    """Returns the words of a line with their letters replaced."""
    url = f"root://{server.host}/"
    (here / "list").write_text(f"adler32:{HOSTILE}  {url}/file\n")
    return [word.format(u=url, s=server.host, here=here, h=HOSTILE, list=here / "list") for word in line.split()]


def lines():
    return [f"scalla {line}" for line in SCALLA] + TOOLS


@pytest.mark.parametrize("line", lines())
def test_no_control_character_reaches_a_terminal(line, here):
    name, _, rest = line.partition(" ")
    program = peers.program() if name == "scalla" else peers.link(name)
    with hollow.Forger(BYTES.replace(b"\r", b"")) as forger, hollow.Forger(BYTES, refuses=True) as refuser, hollow.Forger(BYTES, refuses="login") as closed, \
            hollow.Forger(BYTES.replace(b"\r", b""), flags=hollow.IS_MANAGER) as manager:
        for server in (forger, refuser, closed, manager):
            check(shown([program, *words(rest, server, here)], cwd=here), line)


def test_questions_are_escaped(here):
    with hollow.Forger(HOSTILE.encode()) as server:
        check(shown([peers.program(), "rm", "-r", f"root://{server.host}//dir"], typed="n\r"), "rm -r")
        text = check(shown([peers.program(), "rm", "-i", f"root://{server.host}//a{HOSTILE}"], typed="y\r"), "rm -i")
        assert "\\u001b]0;owned" in text


def test_a_prompt_and_its_completions(here):
    """The line editor itself controls the terminal; a name does not."""
    with hollow.Forger(HOSTILE.encode()) as server:
        with terminals.Terminal([peers.program(), "shell", f"root://{server.host}//dir"], cwd=here, HOME=str(here), XDG_STATE_HOME="", NO_COLOR="1") as person:
            person.until(terminals.AT_PROMPT)
            person.type("ls n\t\t")
            person.type("\x15ls -l\r")
            person.until("\\u001b]0;owned")
            # Before the prompt the terminal is not in the editor's mode, and would lose the end.
            person.until(terminals.AT_PROMPT)
            person.type("\x04")
            person.end()
            assert not any(part in person.shown for part in (b"\x1b]0;", b"\x1b[2J", b"\xc2\x9b", b"\xe2\x80\xae")), person.shown


def test_escaped_text_is_shown(here):
    """Names, owners, contents and checksums appear, escaped."""
    with hollow.Forger(HOSTILE.encode()) as server:
        url = f"root://{server.host}/"
        for command in (["ls", "-l", f"{url}/dir"], ["stat", f"{url}/file"], ["cat", f"{url}/file"], ["query", "stats", url], ["du", f"{url}/dir"]):
            assert "\\u001b]0;owned\\u0007\\u001b[2J" in check(shown([peers.program(), *command]), command), command
        assert "o\\u001b]0;" in check(shown([peers.link("xrdfs"), server.host, "ls", "-l", "/dir"]), "xrdfs ls -l")
    # Bytes that are not UTF-8 are not interpreted as characters.
    with hollow.Forger(BYTES) as server:
        for command in ([peers.program(), "cat", f"root://{server.host}//file"], [peers.link("xrdfs"), server.host, "cat", "/file"]):
            assert "\\x9b2J\n" in check(shown(command), command)


def test_a_pipe_receives_names_and_contents_unchanged():
    with hollow.Forger(HOSTILE.encode()) as server:
        url = f"root://{server.host}/"
        content = (b"content" + HOSTILE.encode() + b"\n") * 3
        assert tools.scalla("cat", f"{url}/file").ok().raw == content
        assert tools.run([peers.link("xrdfs"), server.host, "cat", "/file"]).ok().raw == content
        assert tools.scalla("ls", f"{url}/dir").ok().raw.splitlines(keepends=True)[-1].startswith(b"n\x1b]0;owned")
        assert b"/dir/n" + HOSTILE.encode() + b"1\n" in tools.run([peers.link("xrdfs"), server.host, "ls", "/dir"]).ok().raw
        failed = tools.scalla("ls", f"{url}/none{HOSTILE}", "--nothing")
        assert not RAW.search(failed.err)
