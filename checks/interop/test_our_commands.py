"""`scalla ls`, `stat`, `cat` and the other commands for files and directories, at one server of
each kind."""

import hashlib
import json
import os
import pty
import signal
import subprocess

import pytest

import hollow
import peers
import terminals
import tools
from codes import Exit
from tools import data, scalla

ODD = ["with blank", "ünïcödé", "quote'\"$x", "-dash", "[br]", "back\\slash", "a&b=c", "#+%41"]
MIB = 1024 * 1024


def lines(result):
    return result.ok().out.split("\n")[:-1]


def items(result):
    """Returns the JSON lines of a command's output."""
    return [json.loads(line) for line in result.out.split("\n")[:-1]]


@pytest.fixture
def full(area):
    """A directory with files and directories."""
    area.put("a", b"hello")
    area.put("b/c", data(1000))
    area.put("b/d/e", data(2 * MIB))
    area.put(".hidden", b"")
    return area


def below(area, *names):
    return [area.url(name) for name in names]


# ls

def test_ls(full):
    here = full.url("")
    assert lines(scalla("ls", here)) == ["a", "b"]
    assert lines(scalla("ls", "-a", here)) == [".hidden", "a", "b"]
    assert lines(scalla("ls", "-r", here)) == ["b", "a"]
    assert lines(scalla("ls", "-d", here)) == [here]
    assert lines(scalla("ls", full.url("a"))) == [full.url("a")]
    assert lines(scalla("ls", full.url("a"), full.url("b"))) == [full.url("a"), "", full.url("b") + ":", "c", "d"]
    assert lines(scalla("ls", "-R", full.url("b"))) == [full.url("b") + ":", "c", "d", "", full.url("b/d") + ":", "e"]


def test_ls_long(full):
    rows = [line.split() for line in lines(scalla("ls", "-l", full.url("b")))]
    assert [(row[0], row[3], row[-1]) for row in rows][0] == ("-rw-r--r--", "1000", "c")
    assert rows[1][0].startswith("drwx") and rows[1][-1] == "d"
    assert lines(scalla("ls", "-lh", full.url("b/d")))[0].split()[3] == "2.0M"
    assert lines(scalla("ls", "-lB", full.url("b/d")))[0].split()[3] == str(2 * MIB)


def test_ls_in_order(area):
    for age, (name, size) in enumerate((("x", 10), ("y", 30), ("z", 20))):
        area.put(name, data(size))
        os.utime(area.local / name, (tools.AGED - age, tools.AGED - age))
    assert lines(scalla("ls", "-t", area.url(""))) == ["x", "y", "z"]
    assert lines(scalla("ls", "-S", area.url(""))) == ["y", "z", "x"]
    assert lines(scalla("ls", "-Sr", area.url(""))) == ["x", "z", "y"]


def test_ls_as_json(full):
    found = {item["name"]: item for item in items(scalla("ls", "-a", "--json", full.url("")).ok())}
    assert found["a"]["size"] == 5 and found["a"]["type"] == "file" and found["a"]["url"] == full.url("a")
    assert found["b"]["type"] == "directory" and set(found) == {".hidden", "a", "b"}
    assert found["a"]["mtime"] == int((full.local / "a").stat().st_mtime)


def test_ls_of_a_missing_path(full):
    result = scalla("ls", full.url("nope"), full.url("a")).fails(1, full.url("nope"), "no such file")
    assert result.out == full.url("a") + "\n"
    scalla("ls", full.url("nope")).fails(1, "no such file", full.server.host)
    failed = items(scalla("ls", "--json", full.url("nope")).fails(1))
    assert failed[0]["url"] == full.url("nope") and "kXR_NotFound" in failed[0]["error"] and failed[0]["code"] == "NotFound"


def test_wildcards(full):
    assert lines(scalla("ls", "-d", full.url("[ab]"))) == below(full, "a", "b")
    assert lines(scalla("ls", "-d", full.url("*/*"))) == below(full, "b/c", "b/d")
    assert lines(scalla("ls", "-d", full.url("*/d/e"))) == below(full, "b/d/e")
    assert scalla("cat", full.url("[a]")).ok().raw == b"hello"
    scalla("ls", full.url("x*")).fails(1, "nothing matches")
    scalla("cat", full.url("*/nope")).fails(1, "nothing matches")


@pytest.mark.parametrize("name", ODD)
def test_odd_names(area, name):
    area.put(name, b"odd")
    assert lines(scalla("ls", area.url(""))) == [name]
    assert items(scalla("ls", "--json", area.url("")).ok())[0]["name"] == name
    plain = area.url(name)
    if "&" not in name:
        assert scalla("cat", plain).ok().raw == b"odd"
    assert lines(scalla("find", area.url(""), "--name", "*", "-t", "f")) == [plain]
    scalla("mv", plain, area.url("new name")).ok().silent()
    assert os.listdir(area.local) == ["new name"]
    scalla("mv", area.url("new name"), plain).ok()
    scalla("rm", plain).ok()
    assert os.listdir(area.local) == []


def on_a_terminal(*words, **more):
    """Returns the output of a program on a terminal of 40 columns."""
    ours, its = pty.openpty()
    with subprocess.Popen([peers.program(), *words], stdin=subprocess.DEVNULL, stdout=its, stderr=its,
                          env=peers.environment(COLUMNS="40", TERM="xterm", **more)) as process:
        os.close(its)
        out = b""
        try:
            while piece := os.read(ours, 65536):
                out += piece
        except OSError:
            pass  # The program has ended.
        os.close(ours)
        assert process.wait(tools.PATIENCE_SECONDS) == 0
    return out.decode().replace("\r\n", "\n")


def test_on_a_terminal(area):
    for name in ("one", "two", "three-is-long", "four", "\x1b[2Jclear"):
        area.put(name)
    area.mkdir("folder")
    plain = on_a_terminal("ls", area.url(""), NO_COLOR="1")
    assert plain.splitlines() == ["\\u001b[2Jclear  four  three-is-long", f"{'folder':16}one   two"]
    assert "\x1b[1;34mfolder\x1b[0m" in on_a_terminal("ls", area.url(""))
    assert len(on_a_terminal("ls", "-1", area.url("")).splitlines()) == 6


def test_a_name_with_a_line_end(area):
    """Listings of the protocol cannot contain it, but a user can name it."""
    area.put("a\nb", b"odd")
    assert scalla("cat", area.url("a\nb")).ok().raw == b"odd"
    assert items(scalla("stat", "--json", area.url("a\nb")).ok())[0]["size"] == 3
    items(scalla("ls", "--json", area.url("")))
    scalla("prepare", "stage", area.url("a\nb")).fails(Exit.USAGE, "line end")
    scalla("rm", area.url("a\nb")).ok()
    assert os.listdir(area.local) == []


# stat

def test_stat(full):
    told = scalla("stat", full.url("a")).ok().out
    assert told.startswith(full.url("a") + "\n") and "5 bytes" in told and "readable" in told and "0644" in told
    result = scalla("stat", full.url("nope"), full.url("b")).fails(1, "no such file")
    assert "directory" in result.out
    assert "+09:00" in scalla("stat", full.url("a"), TZ="JST-9").ok().out
    one, two = items(scalla("stat", "--json", "--checksum=md5", full.url("a"), full.url("b")).ok())
    assert one["checksum"] == {"type": "md5", "value": hashlib.md5(b"hello").hexdigest()} and two["type"] == "directory"


# cat, head, tail

def test_cat(area, tmp_path):
    content = data(20 * MIB + 5)
    area.put("big", content)
    area.put("small", b"x\n")
    assert scalla("cat", area.url("big"), area.url("small")).ok().raw == content + b"x\n"
    result = scalla("cat", area.url("nope"), area.url("small")).fails(1, "no such file")
    assert result.raw == b"x\n"
    scalla("cat", area.url("")).fails(1, area.url(""))
    with open("/dev/full", "wb") as device:
        done = subprocess.run([peers.program(), "cat", area.url("big")], stdout=device, stderr=subprocess.PIPE,
                              env=peers.environment(), timeout=tools.PATIENCE_SECONDS)
    assert done.returncode == 1 and b"No space left" in done.stderr


@pytest.mark.parametrize("words", [["cat"], ["find"]], ids=" ".join)
def test_a_reader_that_stops_early(area, words):
    area.put("big", data(20 * MIB))
    name = "big" if words == ["cat"] else ""
    with subprocess.Popen([peers.program(), *words, area.url(name)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=peers.environment()) as process:
        process.stdout.read(5)
        process.stdout.close()
        assert process.wait(tools.PATIENCE_SECONDS) == 0 and process.stderr.read() == b""


def test_head_and_tail(area):
    text = b"".join(b"line %d\n" % number for number in range(30_000))
    area.put("text", text)
    area.put("open", b"1\n2\n3")
    rows = text.splitlines(keepends=True)
    url = area.url("text")
    assert scalla("head", url).ok().raw == b"".join(rows[:10])
    assert scalla("tail", url).ok().raw == b"".join(rows[-10:])
    assert scalla("head", "-n", "20000", url).ok().raw == b"".join(rows[:20000])
    assert scalla("tail", "-n", "20000", url).ok().raw == b"".join(rows[-20000:])
    assert scalla("head", "-c", "70k", url).ok().raw == text[:70 * 1024]
    assert scalla("tail", "-c", "70k", url).ok().raw == text[-70 * 1024:]
    assert scalla("head", "-n", "99999", url).ok().raw == text
    assert scalla("tail", "-n", "99999", url).ok().raw == text
    assert scalla("head", "-n", "0", url).ok().raw == scalla("tail", "-n", "0", url).ok().raw == b""
    assert scalla("tail", "-n", "2", area.url("open")).ok().raw == b"2\n3"
    # From the beginning on, counted from 1.
    for number, expected in ((0, text), (1, text), (2, b"".join(rows[1:])), (25_001, b"".join(rows[25_000:])), (30_001, b""), (99_999, b"")):
        assert scalla("tail", "-n", f"+{number}", url).ok().raw == expected, number
    assert scalla("tail", "-n", "+3", area.url("open")).ok().raw == b"3"
    assert scalla("tail", "-c", "+70000", url).ok().raw == text[69_999:]
    assert scalla("tail", "-c", "+1g", url).ok().raw == b""
    scalla("tail", "-n", "+x", url).fails(Exit.USAGE, "+10")
    both = scalla("head", "-n", "1", area.url("open"), url).ok().out
    assert both == f"==> {area.url('open')} <==\n1\n\n==> {url} <==\nline 0\n"
    scalla("tail", area.url("nope")).fails(1, "no such file")


def test_tail_follows(area):
    area.put("log", b"one\n")
    with subprocess.Popen([peers.program(), "tail", "-f", area.url("log")], stdout=subprocess.PIPE,
                          env=peers.environment()) as process:
        assert process.stdout.readline() == b"one\n"
        with open(area.local / "log", "ab") as log:
            log.write(b"two\n")
        assert process.stdout.readline() == b"two\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(tools.PATIENCE_SECONDS) == 130


# Changes

def test_mkdir_and_rmdir(area):
    scalla("mkdir", area.url("x"), area.url("y")).ok().silent()
    scalla("mkdir", area.url("x")).fails(1, "exists")
    scalla("mkdir", "-p", area.url("x"), area.url("p/q/r")).ok()
    scalla("mkdir", "-m", "700", area.url("secret")).ok()
    assert (area.local / "secret").stat().st_mode & 0o777 == 0o700
    assert (area.local / "p/q/r").is_dir()
    scalla("rmdir", area.url("p")).fails(1, area.url("p"))
    scalla("rmdir", area.url("nope"), area.url("x")).fails(1, "no such file")
    area.put("file", b"")
    scalla("rmdir", area.url("file")).fails(1, "no directory")
    assert sorted(os.listdir(area.local)) == ["file", "p", "secret", "y"]
    scalla("rmdir", area.server.url("/")).fails(1, "root")


def test_mv(full, ours, theirs):
    scalla("mv", full.url("a"), full.url("z")).ok().silent()
    assert full.get("z") == b"hello"
    scalla("mv", full.url("z"), full.url("b/[c]"), full.url("b/d")).ok()
    assert sorted(os.listdir(full.local / "b/d")) == ["c", "e", "z"]
    full.put("new", b"new")
    scalla("mv", "-n", full.url("b/d/z"), full.url("new")).fails(1, "exists")
    assert full.get("new") == b"new" and full.get("b/d/z") == b"hello"
    scalla("mv", full.url("b/d/z"), full.url("new")).ok()
    assert full.get("new") == b"hello"
    scalla("mv", full.url("nope"), full.url("x")).fails(1, "no such file")
    scalla("mv", full.url("new"), full.url("b"), full.url("x")).fails(Exit.USAGE, "no directory")
    scalla("mv", full.url("new"), full.url("x/")).fails(Exit.USAGE, "no directory")
    other = theirs if full.server is ours else ours
    scalla("mv", full.url("new"), other.url("/new")).fails(Exit.USAGE, "different servers", "scalla cp")
    assert full.get("new") == b"hello"


def test_rm(full):
    scalla("rm", full.url("b")).fails(1, "directory", "--recursive")
    (full.local / "empty").mkdir()
    scalla("rm", full.url("empty")).fails(1, "directory")
    result = scalla("rm", "-v", full.url("nope"), full.url("a")).fails(1, "no such file")
    assert result.out == f"removed {full.url('a')}\n"
    scalla("rm", "-f", full.url("nope"), full.url("x*")).ok().silent()
    told = lines(scalla("rm", "-rv", full.url("b")))
    assert told[0] == f"removed {full.url('b/c')}" and told[-1] == f"removed {full.url('b')}" and len(told) == 4
    scalla("rm", "-r", full.url("nope")).fails(1, "no such file")
    scalla("rm", "-rf", full.url("nope")).ok()
    assert sorted(os.listdir(full.local)) == [".hidden", "empty"]


def test_rm_asks_for_confirmation(full):
    """Each removal is confirmed; declined ones are kept."""
    names = ["one.txt", "two.txt", "three.txt"]
    files = [full.url(f"dir/{name}") for name in names]
    for name in names:
        full.put(f"dir/{name}", b"x")
    scalla("rm", "-i", *files).fails(Exit.USAGE, "terminal")
    with terminals.Terminal([peers.program(), "rm", "-i", *files]) as person:
        for url, answer in zip(files, ("y", "n", "")):
            person.until(f"remove {url}?")
            person.type(answer + "\n")
        assert person.end()[0] == 0
    assert [(full.local / "dir" / name).exists() for name in names] == [False, True, True]
    with terminals.Terminal([peers.program(), "rm", "-i", "-r", full.url("dir")]) as person:
        person.until("and all in it?")
        person.type("no\n")
        assert person.end()[0] == 0
    with terminals.Terminal([peers.program(), "rm", "-i", *files[1:]]) as person:
        person.until("?")
        person.interrupt()
        assert person.end()[0] == 130
    assert (full.local / "dir/two.txt").exists() and (full.local / "dir/three.txt").exists()


def test_rm_of_directories_asks_once_with_numbers(full):
    """A person is asked, a program is not; -f never asks, and -n only lists."""
    planned = scalla("rm", "-r", "-n", full.url("b")).ok()
    assert planned.out.splitlines() == [f"would remove {full.url(name)}" for name in ("b/c", "b/d/e", "b/d", "b")]
    assert "2 files, 2.00 MiB, 2 directories" in planned.err
    scalla("rm", "-n", full.url("b")).fails(1, "--recursive")
    assert scalla("rm", "-n", full.url("a")).ok().out == f"would remove {full.url('a')}\n"
    with terminals.Terminal([peers.program(), "rm", "-r", full.url("b"), full.url("a")]) as person:
        person.until("remove ")
        person.until("b and all in it and 1 more (3 files, 2.00 MiB, 2 directories)? [y/N] ")
        person.type("\n")
        assert person.end()[0] == 0
    assert (full.local / "b/d/e").exists() and (full.local / "a").exists()
    # For files alone there is no question: the user has named them.
    with terminals.Terminal([peers.program(), "rm", "-r", full.url("a")]) as person:
        assert person.end() == (0, "")
    with terminals.Terminal([peers.program(), "rm", "-r", full.url("b/d")]) as person:
        person.until("? [y/N] ")
        person.type("y\n")
        assert person.end()[0] == 0
    assert os.listdir(full.local / "b") == ["c"]
    full.mkdir("b/x")
    with terminals.Terminal([peers.program(), "rm", "-rf", full.url("b/x")]) as person:
        assert person.end() == (0, "")
    scalla("rm", "-r", full.url("b")).ok().silent()
    assert not (full.local / "b").exists()


@pytest.mark.parametrize("path", ["/", "//", "/.", "/area/.."])
def test_the_root_is_not_removed(full, path):
    scalla("rm", "-rf", full.url("a"), full.server.url(path)).fails(Exit.USAGE, "is not removed", "everything")
    assert full.get("a") == b"hello"


def test_rm_of_many(area):
    for directory in range(10):
        for number in range(50):
            area.put(f"t/{directory}/{number}")
    scalla("rm", "-r", area.url("t")).ok().silent()
    assert os.listdir(area.local) == []


def test_chmod(full):
    def mode(name):
        return (full.local / name).stat().st_mode & 0o777

    scalla("chmod", "600", full.url("a")).ok().silent()
    assert mode("a") == 0o600
    scalla("chmod", "go+r,u+x", full.url("a")).ok()
    assert mode("a") == 0o744
    scalla("chmod", "rw-rw----", full.url("a"), full.url("nope")).fails(1, "no such file")
    assert mode("a") == 0o660
    scalla("chmod", "-R", "u=rwX,go=", full.url("b")).ok()
    assert [mode(name) for name in ("b", "b/c", "b/d", "b/d/e")] == [0o700, 0o600, 0o700, 0o600]


def test_truncate(full):
    scalla("truncate", "-s", "3", full.url("a")).ok().silent()
    assert full.get("a") == b"hel"
    scalla("truncate", "--size", "1k", full.url("a"), full.url("nope")).fails(1, "no such file")
    assert full.get("a") == b"hel" + bytes(1021)


# Queries

def test_locate(full):
    (found,) = items(scalla("locate", "--json", full.url("a")).ok())
    assert found["role"] == "server" and found["place"].endswith(f":{full.server.port}/{full / 'a'}")
    assert found["writable"] and not found["pending"] and found["url"] == full.url("a")
    place, role, access = lines(scalla("locate", full.url("a")))[0].split()
    assert (place, role, access) == (found["place"], "server", "read-write")
    assert scalla("cat", place).ok().raw == b"hello"
    scalla("locate", full.url("nope")).fails(1, "no such file")


def test_checksum(full, tmp_path):
    md5 = hashlib.md5(b"hello").hexdigest()
    assert scalla("checksum", "-t", "md5", full.url("a")).ok().out == f"md5:{md5}  {full.url('a')}\n"
    assert scalla("checksum", "-t", "md5", "--read", full.url("a")).ok().out == f"md5:{md5}  {full.url('a')}\n"
    found = items(scalla("checksum", "--json", full.url("a"), full.url("nope")).fails(1))
    assert [item.get("type") for item in found] == ["adler32", None] and "error" in found[1]
    scalla("checksum", "-t", "nonsense", full.url("a")).fails(1, full.url("a"))
    scalla("checksum", full.url("nope")).fails(1, full.url("nope"))


def test_checksum_of_a_directory(ours, area_on):
    """Ours only: the real server may never answer, see `tools.refused_checksum`."""
    area = area_on(ours)
    area.put("a", b"hello")
    area.put("b/c", b"")
    found = items(scalla("checksum", "--json", area.url("*")).fails(1))
    assert [item.get("type") for item in found] == ["adler32", None] and "directory" in found[1]["error"]


def test_checksums_of_a_list(full, tmp_path):
    made = scalla("checksum", full.url("a"), full.url("b/c")).ok().out
    (tmp_path / "list").write_text(made)
    assert lines(scalla("checksum", "--check", tmp_path / "list")) == [f"{full.url(name)}: ok" for name in ("a", "b/c")]
    local = subprocess.run(["md5sum", "a", "b/c"], cwd=full.local, capture_output=True, text=True, check=True).stdout
    assert len(lines(scalla("checksum", "--check", "-", full.url(""), input=local.encode()))) == 2
    scalla("checksum", "--check", "-", "--quiet", full.url(""), input=local.encode()).ok().silent()
    wrong = local.replace(hashlib.md5(b"hello").hexdigest(), "0" * 31 + "1")
    result = scalla("checksum", "-c", "-", full.url(""), input=wrong.encode()).fails(1, full.url("a"), "should be")
    assert result.out == f"{full.url('b/c')}: ok\n"
    for bad in ("nonsense", "zz  a", "12345678  a"):
        scalla("checksum", "-c", "-", full.url(""), input=bad.encode()).fails(Exit.USAGE, "-:1")


def test_xattr(full):
    url = full.url("a")
    scalla("xattr", "set", url, "one=1", "two=x=y", "empty=").ok().silent()
    assert lines(scalla("xattr", "get", url, "two")) == ["two=x=y"]
    assert scalla("xattr", "get", "--raw", url, "one").ok().raw == b"1"
    assert sorted(lines(scalla("xattr", "list", url))) == ["empty=", "one=1", "two=x=y"]
    assert {item["name"]: item["value"] for item in items(scalla("xattr", "list", "--json", url).ok())}["one"] == "1"
    scalla("xattr", "set", "--new", url, "one=2").fails(1, "one")
    scalla("xattr", "get", url, "nope", "one").fails(1, "no attribute nope")
    scalla("xattr", "rm", url, "one", "two").ok().silent()
    assert lines(scalla("xattr", "list", url)) == ["empty="]
    scalla("xattr", "set", url, "nothing").fails(Exit.USAGE, "NAME=VALUE")


def test_prepare(full):
    identity = lines(scalla("prepare", "stage", "--wait", full.url("a"), full.url("b/*")))
    assert len(identity) == 1 and identity[0]
    told = items(scalla("prepare", "stage", "--json", full.url("a")).ok())
    assert told[0]["files"] == 1 and told[0]["id"]
    scalla("prepare", "evict", full.url("a")).ok()


def test_query(full):
    url = full.url("a")
    assert lines(scalla("query", "config", url, "role")) == ["server"]
    pairs = {item["key"]: item["value"] for item in items(scalla("query", "config", "--json", url).ok())}
    assert pairs["role"] == "server" and int(pairs["readv_iov_max"]) > 0
    scalla("query", "config", url, "role", "nonsense").fails(1, "nonsense")
    assert lines(scalla("query", "checksums", url))[0] == "adler32"
    assert "<statistics" in scalla("query", "stats", url).ok().out
    assert "oss.space" in scalla("query", "space", url).ok().out
    (server,) = items(scalla("query", "server", "--json", url).ok())
    assert server["role"] == ["server"] and server["protocol"].startswith("5.")


def test_space(full):
    (row,) = items(scalla("space", "--json", full.url("")).ok())
    assert row["total"] >= row["free"] > 0 and row["server"] == full.server.host
    titles, numbers = lines(scalla("space", full.url("")))
    assert titles.split() == ["Server", "Space", "Size", "Used", "Free", "Use%", "Largest"]
    assert numbers.split()[0] == full.server.host


# Trees

def test_du(full):
    total = 5 + 1000 + 2 * MIB
    told = [line.split("\t") for line in lines(scalla("du", "-B", full.url("")))]
    assert told == [[str(2 * MIB), full.url("b/d")], [str(2 * MIB + 1000), full.url("b")], [str(total), full.url("")]]
    assert lines(scalla("du", "-sh", full.url(""))) == [f"2.1M\t{full.url('')}"]
    assert len(lines(scalla("du", "--max-depth", "1", full.url("")))) == 2
    (item,) = items(scalla("du", "-s", "--json", full.url("")).ok())
    assert (item["bytes"], item["files"], item["directories"]) == (total, 4, 3)
    assert lines(scalla("du", "-B", full.url("a"))) == [f"5\t{full.url('a')}"]


def test_find(full):
    here = full.url("").rstrip("/")

    def found(*words):
        return lines(scalla("find", here, *words))

    assert found() == [here, *below(full, ".hidden", "a", "b", "b/c", "b/d", "b/d/e")]
    assert found("--type", "d") == [here, *below(full, "b", "b/d")]
    assert found("--name", "[ae]") == below(full, "a", "b/d/e")
    assert found("--iname", "A") == below(full, "a")
    assert found("--name", "*i*") == below(full, ".hidden")
    assert found("--size", "+1k") == below(full, "b/d/e")
    assert found("--size", "-6", "--size", "+0") == below(full, "a")
    assert found("--max-depth", "1") == [here, *below(full, ".hidden", "a", "b")]
    assert found("--min-depth", "2", "-t", "f") == below(full, "b/c", "b/d/e")
    os.utime(full.local / "b/c", (tools.AGED, tools.AGED))
    assert found("--mtime", "+30") == below(full, "b/c")
    assert found("-t", "f", "--newer", full.url("b/c"), "--size", "5") == below(full, "a")
    assert below(full, "b/c")[0] not in found("--newer", "2024-01-01")
    assert scalla("find", here, "-0", "-t", "f", "--name", "a").ok().out == full.url("a") + "\0"
    assert [item["size"] for item in items(scalla("find", here, "--json", "--name", "a").ok())] == [5]
    scalla("find", full.url("nope")).fails(1, "no such file")
    scalla("find", here, "--newer", "nonsense").fails(Exit.USAGE, "2026-11-20")


def test_find_in_a_wide_and_deep_tree(area):
    expected = [area.url("").rstrip("/") + "/top"]
    for one in range(30):
        expected.append(area.url(f"top/{one:02}"))
        for two in range(7):
            area.put(f"top/{one:02}/{two}/f")
            expected += below(area, f"top/{one:02}/{two}", f"top/{one:02}/{two}/f")
    assert sorted(lines(scalla("find", area.url("top")))) == sorted(expected)


def test_tree(full):
    here = full.url("b")
    assert scalla("tree", here).ok().out == f"{here}\n├── c\n└── d\n    └── e\n\n1 directory, 2 files\n"
    assert scalla("tree", "-L", "1", here).ok().out == f"{here}\n├── c\n└── d\n\n1 directory, 1 file\n"
    assert scalla("tree", "-d", here).ok().out == f"{here}\n└── d\n\n1 directory\n"
    assert [item["name"] for item in items(scalla("tree", "--json", here).ok())] == ["c", "d", "e"]
    scalla("tree", full.url("nope")).fails(1, "no such file")


# Failures

URL = "root://{host}//a"
COMMANDS = ["ls URL", "ls -R URL", "stat URL", "cat URL", "head URL", "tail URL", "mkdir URL", "mv URL URL", "rm URL", "rm -r URL",
            "rmdir URL", "chmod 600 URL", "chmod u+w URL", "truncate -s 1 URL", "locate URL", "checksum URL", "xattr list URL",
            "prepare stage URL", "query config URL", "query server URL", "space URL", "du URL", "find URL", "tree URL"]


# Time of a command for an unreachable server. One round of attempts takes 2 s, and a command makes
# a few of them.
UNREACHABLE_SECONDS = 30 * peers.SLOWNESS
# A request to a live server that is not answered may have been executed.
UNCERTAIN = ("mkdir URL", "mv URL URL", "cp SOURCE URL")
# Only the identification of the server at the login, and a ping, are needed.
LOGIN_IS_ENOUGH = ("query server URL",)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unreachable_server(command):
    """Each command ends after few rounds of attempts, long before the time of an operation."""
    url = f"root://localhost:{peers.free_port()}//a"
    words = [word.replace("URL", url) for word in command.split()]
    done = scalla(*words, seconds=UNREACHABLE_SECONDS, XRD_CONNECTIONWINDOW="2", XRD_CONNECTIONRETRY="1")
    done.fails(1, url.split("/")[2], "no connection")


@pytest.mark.parametrize("command", [*COMMANDS, "cp URL out", "cp -r URL out", "cp SOURCE URL", "sync URL out", "map --timeout 3 URL"])
@pytest.mark.parametrize("kind", [hollow.Deaf, hollow.Debtor], ids=["deaf", "debtor"])
def test_a_server_that_never_answers(kind, command, tmp_path):
    """One server that is silent after the login, and one that answers pings only: both time out
    after seconds."""
    (tmp_path / "source").write_bytes(b"source")
    with kind() as mute:
        words = [word.replace("URL", f"root://{mute.host}//a").replace("SOURCE", "source") for word in command.split()]
        done = scalla(*words, cwd=tmp_path, XRD_STREAMTIMEOUT="2", XRD_REQUESTTIMEOUT="3", XRD_CONNECTIONWINDOW="2")
        if kind is hollow.Deaf or command not in LOGIN_IS_ENOUGH:
            uncertain = kind is hollow.Debtor and command in UNCERTAIN
            done.fails(Exit.UNCERTAIN if uncertain else Exit.FAILED, mute.host)
        else:
            done.ok()
        # Directories of a copy may have been made, but no other file.
        assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["source"]


@pytest.mark.parametrize("command", COMMANDS)
def test_paths_of_this_machine(command, tmp_path):
    words = [word.replace("URL", str(tmp_path)) for word in command.split()]
    scalla(*words).fails(Exit.USAGE, str(tmp_path), "names no server", "root://HOST")


@pytest.mark.parametrize("command", ["ls", "du", "find", "tree", "space"])
def test_without_arguments(command):
    scalla(command).fails(Exit.USAGE, "root://HOST")


def test_waiting_for_a_checksum_shows():
    """On a terminal; the server computes it, or does not."""
    with hollow.Debtor("1 4096 16 1700000000") as server:
        with terminals.Terminal([peers.program(), "checksum", f"root://{server.host}//file"], XRD_REQUESTTIMEOUT="60") as person:
            person.until("waiting for the server's checksum")
