"""Interactive use: manual pages, the map of a cluster, the interactive shells."""

import json
import os
import re
import signal
import stat
import termios

import pytest

import hollow
import peers
import terminals
import tools
from codes import ErrorCode, Exit

# Manual pages.

def test_manual_pages(tmp_path):
    tools.scalla("man", tmp_path / "man").ok().silent()
    names = {page.name for page in (tmp_path / "man").iterdir()}
    listed = re.findall(r"^  (\w[\w-]*)", tools.scalla("--help").ok().out.partition("Servers:")[2].partition("Options:")[0], re.MULTILINE)
    assert "serve" in listed and {f"scalla-{name}.1" for name in listed if name != "help"} | {"scalla.1", "scalla-cluster-status.1"} <= names
    together = tools.scalla("man").ok().out
    for page in (tmp_path / "man").iterdir():
        assert page.read_text() in together
    (tmp_path / "file").write_text("")
    tools.scalla("man", tmp_path / "file").fails(1, f"cannot make {tmp_path}/file")


def test_every_command_has_examples_and_sections(tmp_path):
    """The help ends with examples. A manual page has the usual sections and a synopsis with arguments."""
    tools.scalla("man", tmp_path / "man").ok()
    for page in sorted((tmp_path / "man").iterdir()):
        words = page.name.removesuffix(".1").split("-")
        text = page.read_text()
        for section in ("EXAMPLES", "EXIT STATUS", "SEE ALSO"):
            assert f".SH {section}" in text, f"{page.name}: {section}"
        names = [words[1:]] if len(words) < 3 else [words[1:], ["-".join(words[1:])], [words[1], "-".join(words[2:])]]
        shown = [tools.scalla(*name, "--help") for name in names]
        help_text = next((done.out for done in shown if done.status == 0), "")
        assert "Examples:\n  " in help_text, page.name
    copy = (tmp_path / "man/scalla-cp.1").read_text()
    assert ".SH ENVIRONMENT" in copy and ".SH FILES" in copy
    synopsis = copy.partition(".SH SYNOPSIS")[2].partition(".SH")[0]
    assert "FILE" in synopsis and "PLACE" in synopsis, synopsis


# The map of a cluster.

@pytest.fixture
def cluster(mapped):
    return mapped.complete()


def drawn(cluster, text):
    """Returns the lines of a tree below its first one: depth, node, role and remark."""
    found = []
    for line in text.splitlines()[1:-1]:
        branch, address, role, state = re.fullmatch(r"([ │├└─]*)(\S+)\s+(supervisor|manager|server) *(.*)", line).groups()
        found.append((len(branch) // 3, cluster.name_of(address.rpartition(":")[2]), role, state))
    return found


def test_map(cluster):
    done = tools.scalla("map", cluster.man.host).ok()
    assert done.out.startswith(cluster.man.host) and done.out.endswith("2 managers, 3 servers\n") and not done.err
    assert sorted(drawn(cluster, done.out)) == [
        (1, "s2", "server", "serving"),
        (1, "s3", "server", "serving"),
        (1, "sup", "supervisor", "serving"),
        (2, "s1", "server", "serving"),
    ]
    assert re.match(r"\S+ +manager +serving\n", done.out)


def test_map_of_a_file(cluster):
    done = tools.scalla("map", f"root://{cluster.man.host}", "--path", "/deep", "--verify").ok()
    states = {name: state for _, name, _, state in drawn(cluster, done.out)}
    assert states["s1"] == "serving; has it" and states["s2"] == states["s3"] == "serving" and "/deep is on 1 server\n" in done.out
    done = tools.scalla("map", cluster.man.host, "-p", "/all", "--list", "s").ok()
    assert sorted(cluster.named(done.out)) == ["s1", "s2", "s3"] and done.out.count("has it") == 3 and len(done.out.splitlines()) == 3
    done = tools.scalla("map", cluster.man.host, "--path", "/nope", "--verify").fails(1, "/nope is on 0 servers")


def test_map_as_json(cluster):
    tree = json.loads(tools.scalla("map", cluster.man.host, "--path", "/deep", "--verify", "--json", "--versions").ok().out)
    assert (tree["role"], tree["reachable"], "error" in tree) == ("manager", True, False)
    below = {cluster.name_of(node["address"].rpartition(":")[2]): node for node in tree["below"]}
    assert set(below) == {"sup", "s2", "s3"} and (below["s2"]["role"], below["s2"]["has"]) == ("server", False)
    assert [node["has"] for node in below["sup"]["below"]] == [True]
    managers = json.loads(tools.scalla("map", cluster.man.host, "--list", "m", "--json").ok().out)
    assert [node["role"] for node in managers["below"]] == ["supervisor"]


def test_map_of_a_single_server(server, area):
    area.put("file")
    done = tools.scalla("map", server.host, "--path", area / "file", "--verify").ok()
    assert re.fullmatch(rf"{server.host} +server +serving; has it\n0 managers, 1 server; {area.path}/file is on 1 server\n", done.out)
    tools.scalla("map", server.host, "--path", area / "nope").fails(1, "is on 0 servers")


def test_map_reports_nodes_that_do_not_answer():
    """A manager names a lost server and a manager that never answers; both are reported in time."""
    port, holder = hollow.closed_port()
    with holder, hollow.Manager() as top, hollow.Manager(hollow.IS_SUPERVISOR) as mute:
        mute.below = None
        with hollow.silent() as silent:
            silent_port = silent.getsockname()[1]
            top.below = f"Sw[::127.0.0.1]:{port} Mr[::127.0.0.1]:{silent_port} {mute.named('Mr')}"
            done = tools.scalla("map", top.host, "--timeout", "2").fails(1, "3 in trouble")
            tree = json.loads(tools.scalla("map", top.host, "--timeout", "2", "--json").fails(1).out)
    lines = {line.split()[1]: line for line in done.out.splitlines()[1:-1]}
    assert re.search("server +away: no connection .*refused", lines[f"127.0.0.1:{port}"])
    assert "away: no answer within 2 s" in lines[f"127.0.0.1:{silent_port}"]
    assert re.search("supervisor +serving; cannot tell: .*not here", lines[mute.host])
    assert sorted(node["reachable"] for node in tree["below"]) == [False, False, True] and all(node["error"] for node in tree["below"])


def test_map_of_managers_in_a_circle():
    with hollow.Manager() as top, hollow.Manager(hollow.IS_SUPERVISOR) as low:
        top.below, low.below = f"{low.named('Mr')}", f"{top.named('Mr')} {low.named('Mr')}"
        done = tools.scalla("map", top.host, "--versions").ok()
    assert done.out.count("again, see above") == 2 and done.out.count("v0-hollow") == 4 and done.out.endswith("2 managers, 0 servers\n")


def test_map_of_nothing():
    tools.scalla("map").fails(Exit.USAGE, "name the cluster")
    tools.scalla("map", "gopher://x").fails(Exit.USAGE, "gopher")
    tools.scalla("map", "localhost:1", "--path", "relative").fails(Exit.USAGE, "does not begin with /")
    tools.scalla("map", "localhost:1", "--timeout", "3").fails(1, "away: ", "1 in trouble")


# The dialogue of xrdfs.

@pytest.fixture(params=["ours", "theirs"])
def xrdfs_program(request):
    return {"ours": lambda: peers.link("xrdfs"), "theirs": lambda: tools.XRDFS}[request.param]()


def test_xrdfs_has_line_editing_and_history(server, area, tmp_path, xrdfs_program):
    area.put("file", b"content\n")
    prompt = f"[{server.host}] / > "
    with terminals.Terminal([xrdfs_program, server.host], HOME=str(tmp_path)) as person:
        person.prompt(prompt)
        # Ctrl-A moves to the beginning, Ctrl-E to the end.
        assert person.run(f"at {area / 'file'}\x01c\x05") == "content\n"
        assert "[ERROR]" in person.run("cd /nope-at-all")
        # The line before the last, by the arrow.
        assert person.run("\x1b[A\x1b[A") == "content\n"
        person.type("\x04")
        status, rest = person.end()
        assert (status, rest.endswith("\nGoodbye.\n\n")) == (0, True)
    kept = tmp_path / ".xrdquery.history"
    assert kept.read_text().splitlines()[:2] == [f"cat {area / 'file'}", "cd /nope-at-all"]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    with terminals.Terminal([xrdfs_program, server.host], HOME=str(tmp_path)) as person:
        person.prompt(prompt)
        assert ErrorCode.NOT_FOUND.shown in person.run("\x1b[A\x1b[A")
        person.type("exit\r")
        status, rest = person.end()
        assert (status, rest.endswith("Goodbye.\n\n")) == (0, True)
    assert "exit" not in kept.read_text()


def test_xrdfs_is_ended_by_an_interrupt(server, xrdfs_program, tmp_path):
    with terminals.Terminal([xrdfs_program, server.host], HOME=str(tmp_path)) as person:
        person.prompt(f"[{server.host}] / > ")
        person.type("ls")
        person.until("ls")
        person.interrupt()
        assert person.end()[0] == "SIGINT"


# The interactive shell.

@pytest.fixture
def home(tmp_path):
    """A home directory, and the initial directory."""
    (tmp_path / "here").mkdir()
    return tmp_path


def shell(home, *words, **environment):
    """A user at the shell. Local files are those of `home/here`."""
    return terminals.Terminal([peers.program(), "shell", *words], cwd=home / "here", HOME=str(home), **{"XDG_STATE_HOME": "", "NO_COLOR": "1", **environment})


def prompt(server, path="/"):
    return f"{server.host} {path}> "


def test_shell_navigates(server, area, home):
    area.mkdir("dir")
    area.put("dir/file", b"content\n")
    area.put("dir/my file", b"blank\n")
    with shell(home, f"root://{server.host}/{area.path}") as person:
        person.prompt(prompt(server, area.path))
        assert person.run("ls").strip("/\n") == "dir"
        person.run("cd dir")
        person.until(prompt(server, area / "dir"))
        assert person.run("pwd").strip() == f"root://{server.host}/{area / 'dir'}"
        assert person.run("cat file") == "content\n"
        assert person.run("cat 'my file' my\\ file \"my file\"") == "blank\n" * 3
        assert person.run(f"cat {area / 'dir/file'}") == person.run(f"cat {area.url('dir/file')}") == "content\n"
        person.run("mkdir new; exit")
        assert "`;` has no meaning" in person.shown.decode()
        assert not (area.local / "dir/new").exists() and not (area.local / "dir/new;").exists()
        assert "no such directory" in person.run("cd nowhere")
        person.run("mkdir deep")
        person.run("cd deep/../deep/./")
        person.until(prompt(server, area / "dir/deep"))
        person.run("cd -")
        person.until(prompt(server, area / "dir"))
        person.run("cd ../../../..")
        person.until(prompt(server))
        assert "no command is called" in person.run("dance")
        assert "Copy from the server" in person.run("help get")
        assert "lpwd" in person.run("help")
        # A quotation continues in the next line.
        person.type(f"cat '{area.path}\r")
        person.until(terminals.LINE_DONE)
        person.prompt("> ")
        person.interrupt()
        person.prompt(prompt(server))
        person.type("\x04")
        assert person.end()[0] == 0
    assert (area.local / "dir/deep").is_dir()


def test_shell_copies(server, area, home):
    content = tools.data(3_000_000)
    here = home / "here"
    area.mkdir("dir")
    area.put("dir/one.root", content)
    area.put("dir/two.root", b"2")
    (here / "a.txt").write_bytes(content)
    (here / "b.txt").write_bytes(b"b")
    (here / "sub").mkdir()
    with shell(home, area.url("")) as person:
        person.prompt(prompt(server, area.path))
        person.run("get dir/one.root")
        person.run("get dir/*.root sub/")
        person.run("put *.txt dir/")
        person.run("put a.txt")
        person.run("cp dir/two.root three.root")
        person.run("cp three.root file:local.root")
        person.run("lcd sub")
        assert person.run("lpwd").strip() == str(here / "sub")
        person.run("sync dir file:synced")
        assert "exists" in person.run("get ../" + area.path[1:] + "/dir/one.root")
        person.type("exit\r")
        # The exit status is that of the last failure.
        assert person.end()[0] == 1
    assert (here / "one.root").read_bytes() == (here / "sub/one.root").read_bytes() == area.get("a.txt") == area.get("dir/a.txt") == content
    assert (here / "sub/two.root").read_bytes() == area.get("three.root") == (here / "local.root").read_bytes() == b"2"
    assert sorted(path.name for path in (here / "sub/synced").iterdir()) == ["a.txt", "b.txt", "one.root", "two.root"]


def test_shell_completes(server, area, home):
    area.mkdir("directory")
    area.put("directory/with blank", b"blank\n")
    area.put("directory/with'quote", b"quote\n")
    area.put("file", b"content\n")
    (home / "here/local.txt").write_text("x")
    with shell(home, area.url("")) as person:
        person.prompt(prompt(server, area.path))
        for typed, completed, shown in [
            ("lpw\t", "lpwd", None),
            ("cat di\tw\t\\ b\t", "cat directory/with\\ blank", "blank\n"),
            ("cat 'di\twith b\t", "cat 'directory/with blank'", "blank\n"),
            ("cat fi\t", "cat file", "content\n"),
            (f"cat {area.path}/fi\t", f"cat {area.path}/file", "content\n"),
            (f"cat root://{server.host}/{area.path}/fi\t", "/file", "content\n"),
            ("put lo\t", "put local.txt", None),
            ("mkdir --par\t new/deep", "mkdir --parents", ""),
        ]:
            person.type(typed + "\r")
            person.until(terminals.LINE_DONE)
            assert completed in terminals.ESCAPES.sub(b"", person.shown).decode(), typed
            found = person.until(terminals.AT_PROMPT).removeprefix("\n")
            assert shown is None or found == shown, typed
        # An ambiguous name is completed as far as possible, and then listed. A new name is found.
        person.type("cat directory/w\t")
        person.until("ith")
        person.type("\t\t")
        person.until("with blank")
        person.until("with'quote")
        person.interrupt()
        person.prompt(prompt(server, area.path))
        assert (area.local / "new/deep").is_dir() and area.get("local.txt") == b"x"
        person.type("cd ne\td\t\r")
        person.until(terminals.LINE_DONE)
        person.prompt(prompt(server, area / "new/deep"))


def test_shell_completion_has_a_timeout(home):
    """A silent server does not block the prompt for long, and an interrupt of the line works."""
    with hollow.silent() as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        with shell(home, host, XRD_STREAMTIMEOUT="60") as person:
            # The request is in progress when a connection arrives.
            knocked, _ = silent.accept()
            person.interrupt()
            person.prompt(f"{host} /> ")
            person.type("ls fi\t")
            person.type("\x7f\x7f\x03")
            person.prompt(f"{host} /> ")
            person.type("exit\r")
            assert person.end()[0] == 130
            knocked.close()


def test_shell_has_a_history(server, home):
    state = home / "state"
    with shell(home, server.host, XDG_STATE_HOME=str(state)) as person:
        person.prompt(prompt(server))
        person.run("pwd")
        person.run("pwd")
        person.run(" lpwd")
        person.type("\x04")
        person.end()
    kept = state / "scalla/history"
    assert kept.read_text() == "pwd\n"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 and stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    kept.write_text("".join(f"lpwd {number}\n" for number in range(2500)) + "lpwd\n")
    with shell(home, server.host, XDG_STATE_HOME=str(state)) as person:
        person.prompt(prompt(server))
        assert person.run("\x1b[A").strip() == str(home / "here")
        # Reverse search.
        assert "unexpected argument" in person.run("\x122499\x05")
    lines = kept.read_text().splitlines()
    assert len(lines) <= 1001 and lines[-1] == "lpwd 2499" and lines[-2] == "lpwd"
    assert not (home / ".local").exists()


def test_shell_command_is_interrupted_and_the_shell_is_not(server, area, home):
    area.put("growing", b"first\n")
    area.put("large", b"begin\n" + b"a line of text\n" * (1 << 22))
    with shell(home, area.url("")) as person:
        person.prompt(prompt(server, area.path))
        person.type("tail -f growing\r")
        person.until("first\r\n")
        person.interrupt()
        person.prompt(prompt(server, area.path))
        person.type("cat large\r")
        person.until("begin")
        person.interrupt()
        person.prompt(prompt(server, area.path))
        assert len(person.shown) < 1 << 25
        person.interrupt()
        person.prompt(prompt(server, area.path))
        assert "growing" in person.run("ls")


def test_small_things_of_the_shell(ours, area_on, home):
    """Commands of this machine, an exit status, near names, errors without the words of the parser."""
    area = area_on(ours)
    (home / "here/local-file").write_text("")
    script(home, area.url(""), text="exit 3\nls").fails(3)
    done = script(home, area.url(""), text="lls -1\n!echo from-$((1+1))").ok()
    assert done.out.split() == ["local-file", "from-2"]
    script(home, area.url(""), text="!exit 4").fails(4)
    done = script(home, area.url(""), text="lss").fails(Exit.USAGE, "scalla: error: no command is called `lss`; is it `")
    assert "Usage" not in done.err
    done = script(home, area.url(""), text="ls -z").fails(Exit.USAGE, "scalla: error: unexpected argument '-z'")
    assert "tip:" not in done.err
    script(home, area.url(""), text="cp --retry x a b").fails(Exit.USAGE, "invalid value 'x' for '--retry <N>': it is not a whole number")


def test_a_person_is_greeted(ours, area_on, home):
    area = area_on(ours)
    with shell(home, area.url(""), NO_COLOR="") as person:
        person.until(f"connected to {ours.host} (server ")
        person.until("\x1b[1;32m")
        person.type("clear\r")
        person.until("\x1b[2J")
        person.type("exit 5\r")
        assert person.end()[0] == 5


def test_shell_quotes_wildcards(server, area, home):
    """A quoted wildcard is an ordinary character, at the server and locally; in options all of them
    reach the command."""
    for name in ("a*b", "axb", "[x]", "x"):
        area.put(name, name.encode())
        (home / "here" / name).write_text(name)
    (home / "got").mkdir()

    def shows(line, *names):
        done = script(home, area.url(""), text=line)
        assert (done.status, sorted(done.out.split())) == (0, sorted(names)), line

    shows(r"ls -d a\*b", area / "a*b")
    shows("ls -d 'a*b'", area / "a*b")
    shows('ls -d "a"*b', area / "a*b", area / "axb")
    shows("ls -d '[x]'", area / "[x]")
    shows("ls -d [x]", area / "x")
    shows(r"ls -d \[x] a*b", area / "[x]", area / "a*b", area / "axb")
    shows(r"find --name 'a*b' .", area / "a*b", area / "axb")
    shows(r"cat a\*b", "a*b")
    script(home, area.url(""), text=r"ls n\*").fails(1, "no such file")
    script(home, area.url(""), text=r"get a\*b '[x]' ../got/").ok()
    assert sorted(os.listdir(home / "got")) == ["[x]", "a*b"]
    script(home, area.url(""), text="mkdir up\nput -f a\\*b '[x]' up/").ok()
    assert sorted(os.listdir(area.local / "up")) == ["[x]", "a*b"]
    script(home, area.url(""), text=r"rm a\*b").ok()
    assert sorted(os.listdir(area.local)) == ["[x]", "axb", "up", "x"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.parametrize("program", ["shell", "xrdfs"])
def test_shell_that_is_ended_leaves_the_terminal_as_it_was(server, home, program, number):
    command = [peers.program(), "shell", server.host] if program == "shell" else [peers.link("xrdfs"), server.host]
    with terminals.Terminal(command, cwd=home / "here", HOME=str(home), **{"XDG_STATE_HOME": ""}) as person:
        person.until(terminals.AT_PROMPT)
        person.until(" > " if program == "xrdfs" else "> ")
        person.type("half a li")
        person.until("half a li")
        assert termios.tcgetattr(person.file) != person.before
        person.process.send_signal(number)
        status, rest = person.end()
        assert status == 128 + number and termios.tcgetattr(person.file) == person.before
        assert person.shown.rindex(terminals.LINE_DONE) > person.shown.rindex(terminals.AT_PROMPT)


def test_shell_outlives_its_server(serve, home):
    server = serve()
    peers.place(server.tree / "file", b"content\n")
    with shell(home, server.host, XRD_CONNECTIONWINDOW="2") as person:
        person.prompt(prompt(server))
        assert person.run("cat file") == "content\n"
        server.restart()
        assert person.run("cat file") == "content\n"
        server.kill()
        assert "scalla: error:" in person.run("cat file")
        server.start()
        assert person.run("cat file") == "content\n"


def test_shell_changes_servers(ours, theirs, area_on, home):
    areas = {server: area_on(server) for server in (ours, theirs)}
    for server, area in areas.items():
        area.put("file", server.kind.encode() + b"\n")
    with shell(home) as person:
        person.prompt("scalla> ")
        assert "names no server" in person.run("ls /")
        assert "at no server" in person.run("pwd")
        for server, area in areas.items():
            person.run(f"open root://{server.host}/{area.path}")
            person.until(prompt(server, area.path))
            assert person.run("cat file") == server.kind + "\n"
        person.run(f"connect {ours.host}")
        person.until(prompt(ours))
        assert "no connection" in person.run("open localhost:1")
        person.until(prompt(ours))
        person.run("cd -")
        person.until(prompt(theirs, areas[theirs].path))
        assert ours.host in person.run(f"map {ours.host}")


def script(home, *words, text):
    return tools.run([peers.program(), "shell", *words], input=text.encode(), cwd=home / "here", HOME=str(home))


def test_shell_runs_scripts(server, area, home):
    area.put("file", b"content\n")
    done = script(home, area.url(""), text="# a comment\n\ncat file # another\nmkdir dir\ncd dir\nput 'b c'\npwd\n")
    assert (done.status, done.out.splitlines()) == (0, ["content", f"root://{server.host}/{area / 'dir'}"]) and "b c" in done.err
    (home / "here/b c").write_text("b c")
    script(home, area.url("dir"), text="put 'b c'\nstat 'b\\\n c'").fails(1)
    assert area.get("dir/b c") == b"b c"
    # The status is that of the last command; -e stops at the first failure.
    script(home, area.url(""), text="cat nope\ncat file").ok()
    script(home, area.url(""), text="cat file\ncat nope").fails(1, "nope")
    done = script(home, "-e", area.url(""), text="cat nope\ncat file\n").fails(1, "nope")
    assert "content" not in done.out
    script(home, area.url(""), text="cat file\nexit\ncat nope\n").ok()
    script(home, area.url(""), text="dance").fails(Exit.USAGE, "no command is called")
    script(home, area.url(""), text="ls 'open\n").fails(Exit.USAGE, "within a quotation")
    script(home, area.url(""), text="put - x").fails(1, "standard input is the script")
    script(home, "localhost:1", text="lpwd").fails(1, "no connection")
    assert not (home / ".local").exists()
