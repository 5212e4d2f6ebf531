"""Authorization: the same rules for the real server and for ours under the name `xrootd`, the same
commands of the real clients on both. Error numbers, output and the resulting trees are compared."""

import re

import pytest

import authdb
import peers
from codes import ErrorCode, Exit
from tools import run, scalla, wait_until, xrdcp, xrdfs

# Rules for all clients: without a login, a client has no name. Ours compares paths by component,
# the real server by prefix; no name here is the begin of another.
RULES = """\
# Each directory has the rights of its name.
t common /open a /look l \\
         /read lr
u * /all a common /none - /noinsert a-i /nodelete a-d /norename a-n /nowrite a-w /nolookup a-l /noread a-r
"""
DIRECTORIES = ("open", "look", "read", "all", "none", "noinsert", "nodelete", "norename", "nowrite", "nolookup", "noread", "other")

COMMANDS = (
    "stat /{d}/f", "ls /{d}", "cat /{d}/f", "locate /{d}/f", "query checksum /{d}/f", "query space /{d}", "statvfs /{d}",
    "query xattr /{d}/f", "xattr /{d}/f list", "xattr /{d}/f set a=b", "prepare -s /{d}/f", "truncate /{d}/f 3", "chmod /{d}/f rw-r--r--",
    "mkdir /{d}/new", "rmdir /{d}/new", "mv /{d}/f /{d}/g", "mv /{d}/g /{d}/f", "mv /{d}/f /open/{d}", "mv /open/{d} /{d}/f", "rm /{d}/f", "stat /{d}/absent", "rm /{d}/absent",
)


def trees(kind):
    server = kind(settings=peers.SETTINGS + "ofs.authorize\nacc.authdb {rules}\nacc.audit deny grant\n")
    server.settings = server.settings.replace("{rules}", str(server.work / "authdb"))
    peers.place(server.work / "authdb", RULES.encode())
    for name in DIRECTORIES:
        (server.tree / name).mkdir()
        peers.give(server.tree / name)
        peers.place(server.tree / name / "f", b"content")
    return server


@pytest.fixture(scope="module")
def both():
    with trees(peers.Theirs) as theirs, trees(peers.Linked) as ours:
        yield theirs, ours


def outcome(done):
    """Returns the error numbers of the server, or the output of a success."""
    codes = re.findall(r"\[(3\d\d\d)\]", done.all)
    return codes or ("ok" if done.status == 0 else f"status {done.status}: {done.all}")


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_commands_have_equal_outcomes(both, directory, tmp_path):
    for command in COMMANDS:
        words = command.format(d=directory).split()
        expected, found = (outcome(xrdfs(server, *words)) for server in both)
        assert expected == found, f"{command} in {directory}"
    source = tmp_path / "source"
    source.write_bytes(b"new")
    for options, name in (((), "new"), (("-f",), "f"), ((), "f"), (("-p",), "deep/er/new")):
        results = [outcome(xrdcp(*options, source, server.url(f"/{directory}/{name}"))) for server in both]
        assert results[0] == results[1], f"xrdcp {options} {name} in {directory}"
    results = [outcome(xrdcp("-f", server.url(f"/{directory}/f"), tmp_path / "copy")) for server in both]
    assert results[0] == results[1]
    content = [{p.relative_to(server.tree): p.is_file() and p.read_bytes() for p in server.tree.rglob("*")} for server in both]
    assert content[0] == content[1]


def test_denials_are_logged_with_the_rule(both):
    ours = both[1]
    xrdfs(ours, "stat", "/none/f")
    wait_until(lambda: re.search(r"deny host \*@\S+ stat /none/f \(\S+/authdb: \d+:\d+\)", ours.output()))


def test_rules_are_renewed_by_a_reload():
    with trees(peers.Ours) as server:
        rules = server.work / "authdb"
        assert outcome(xrdfs(server, "stat", "/other/f")) == [str(ErrorCode.NOT_AUTHORIZED.value)]
        peers.place(rules, b"u * / lr\nbroken\n")
        admin = ["admin", "--admin-path", server.work / "admin"]
        scalla(*admin, "reload").ok()
        # The log is written by a thread of its own.
        wait_until(lambda: "broken" in server.output())
        assert outcome(xrdfs(server, "stat", "/other/f")) == [str(ErrorCode.NOT_AUTHORIZED.value)]
        assert outcome(xrdfs(server, "stat", "/look/f")) == "ok", "the earlier rules"
        assert "the present file is not in force" in scalla(*admin, "status").ok().out
        peers.place(rules, b"u * / lr\n")
        scalla(*admin, "reload").ok()
        assert outcome(xrdfs(server, "stat", "/other/f")) == "ok"


def test_a_broken_rule_file_prevents_the_start():
    server = trees(peers.Ours)
    try:
        peers.place(server.work / "authdb", b"u * / lr\nu bob /x q\n")
        with pytest.raises(RuntimeError, match=r"authdb:2:10: invalid privileges 'q'"):
            server.start()
    finally:
        server.remove()


@pytest.mark.parametrize("privileges, starts", [("lr", True), ("-r", False)])
def test_an_unknown_netgroup_stops_only_a_denial(privileges, starts):
    server = trees(peers.Ours)
    try:
        peers.place(server.work / "authdb", f"u * / l\nn scalla-no-such /all {privileges}\n".encode())
        if starts:
            server.start()
            wait_until(lambda: "netgroup scalla-no-such of the authorization rules does not exist" in server.output())
        else:
            with pytest.raises(RuntimeError, match="the netgroups of the rules: netgroup scalla-no-such does not exist"):
                server.start()
    finally:
        server.remove()


def test_a_missing_rule_file_is_named():
    server = trees(peers.Ours)
    try:
        (server.work / "authdb").unlink()
        with pytest.raises(RuntimeError, match="authdb: no such file or directory; create the file, or name another one\n"):
            server.start()
    finally:
        server.remove()


def test_a_decision_is_explained(tmp_path):
    rules = tmp_path / "authdb"
    rules.write_text("u bob /store rw-d\n")
    config = tmp_path / "site.cf"
    config.write_text(f"ofs.authorize\nacc.authdb {rules}\n")
    check = lambda *words: scalla("auth", "check", *words, "--config", config)
    allowed = check("bob", "/store/x", "update").ok()
    assert f"{rules}:1:7: u bob (line 1) grants rw, denies d" in allowed.out
    check("bob", "/store/x", "delete").fails(Exit.FAILED, "denied: bob delete /store/x", "has rw")
    check("*", "/store/x", "read").fails(Exit.FAILED, "no rule")
    check("bob", "/store/x", "fly").fails(Exit.USAGE, "no operation 'fly'")
    unused = scalla("auth", "check", "bob", "/store/x", "read", "--authdb", rules, "--instance", "a")
    unused.fails(Exit.USAGE, "--config")


def test_the_check_of_a_configuration_reads_the_rules(tmp_path):
    rules, config = tmp_path / "authdb", tmp_path / "site.cf"
    config.write_text(f"ofs.authorize\nacc.authdb {rules}\nall.export {tmp_path}\n")
    rules.write_text("u bob /store rw /store/sub l\n")
    checked = scalla("config", "check", config).ok()
    assert f"{rules}:1:17: warning: /store/sub never applies" in checked.all
    rules.write_text("u bob /store q\n")
    scalla("config", "check", config).fails(Exit.FAILED, f"{rules}:1:14: error: invalid privileges 'q'")
    rules.unlink()
    scalla("config", "check", config).fails(Exit.FAILED, f"cannot read {rules}")


def test_xrdacctest_answers_lines(tmp_path):
    rules = tmp_path / "authdb"
    rules.write_text("u bob /store rw-d\n")
    config = tmp_path / "acc.cf"
    config.write_text(f"acc.authdb {rules}\n")
    lines = b"bob h.o rd /store/x\nbob h.o rm /store/x\n-u bob -h h.o ? /store /x\n"
    done = run([peers.link("xrdacctest"), "-c", config], input=lines).ok()
    assert done.out == "allowed: /store/x\ndenied: /store/x\nrw: /store\n: /x\n"
    run([peers.link("xrdacctest"), "-c", config, "bob", "h.o", "rd", "/store"]).ok()
    # The client persists between lines until it is forgotten, which the options in front do not change.
    lines = b"-u bob -h h.o ? /store\n? /store\n-u bob *\n? /store\n"
    answers = [run([program, "-c", config], input=lines).ok().out for program in (authdb.REAL, peers.link("xrdacctest"))]
    assert answers == ["rw: /store\nrw: /store\n: /store\n"] * 2
    long = b"bob h.o rd" + b" /store" * 10_000 + b"\n"
    done = run([peers.link("xrdacctest"), "-c", config], input=long)
    done.fails(Exit.FAILED, "line too long")
    assert done.out == ""
    rules.write_text("u bob\n")
    run([peers.link("xrdacctest"), "-c", config, "bob", "h.o", "rd", "/store"]).fails(2, "Initialization failed")
