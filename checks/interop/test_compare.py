"""The output of `xrdfs` against our server and against the real one on the same tree, line by line: standard output,
standard error and exit status. Only what must differ between two servers is masked."""

import re

import pytest

from tools import data, pattern, refused_checksum, xrdfs

MASKS = [
    (re.compile(r"localhost:\d+|:\d{4,5}\b"), ":PORT"),
    (re.compile(r"^(Id: +)\d+", re.M), r"\1ID"),
    # Times, but for those that were set.
    (re.compile(r"(?!2023-11-14 22:13:20)\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "TIME"),
    (re.compile(r"^([CA]Time: +).*", re.M), r"\1TIME"),
    # Space, which both take from the same busy file system.
    (re.compile(r"^((?:Size of|Utilization|Total|Free|Used|Largest).*: +)\d+", re.M), r"\1NUMBER"),
    (re.compile(r"(oss\.(?:space|free|maxf|used|mt|ct|at)=)\d+"), r"\1NUMBER"),
    (re.compile(r"^v?\d+\.\d+\.\d+\S*$", re.M), "VERSION"),
    (re.compile(r"^\d{6}:\d{6}\.\d$", re.M), "START"),
    # A request id of prepare names the server and a counter.
    (re.compile(r"^(?:[0-9a-f]+:[0-9a-f]+\.[0-9a-f]+:\d+|scalla[0-9a-f.]+)$", re.M), "REQUEST"),
    (re.compile(r"^\S+ \S*localhost$", re.M), "SYSTEM"),
]
# Where the installed 5.5.3 and the recorded 6.1 differ, ours does as the newer one.
SINCE_6 = [
    (re.compile(r"\[3005\] (Unable to .*; directory not empty)"), r"[3018] \1"),
    (re.compile(r"Error response: no such device"), "Error response: file exists"),
    (re.compile(r"Unable to change (\S+; no such file)"), r"Unable to stat \1"),
]
CONFIG_KEYS = ["bind_max", "chksum", "cid", "cms", "fattr", "pio_max", "proxy", "readv_ior_max", "readv_iov_max", "role",
               "sitename", "start", "tls_port", "tpc", "tpcdlg", "version", "window", "wan_port", "wan_window",
               "csname", "nonsense"]


def masked(result):
    text = f"{result.out}--- {result.err}--- {result.status}"
    for expression, replacement in MASKS + SINCE_6:
        text = expression.sub(replacement, text)
    return text


def compare(twins, *words, sort=False):
    """Runs one command on both; `@` stands for the folder. Returns the masked text."""
    words = [word.replace("@", twins.path) for word in words]
    texts = [masked(xrdfs(area.server, *words)) for area in twins.areas]
    if sort:
        texts = ["\n".join(sorted(text.splitlines())) for text in texts]
    assert texts[0] == texts[1], f"xrdfs {' '.join(words)}"
    return texts[0]


@pytest.fixture
def grown(twins):
    """A tree with files, folders, an empty folder and an executable."""
    for name in ("dir", "dir/sub", "dir/sub/empty", "closed"):
        twins.mkdir(name)
    twins.put("ten", pattern(10_000))
    twins.put("nothing", b"")
    twins.put("with blank", b"blank")
    twins.put("dir/größe", b"x" * 1234)
    twins.put("dir/program", b"#!/bin/sh\n")
    twins.put("dir/sub/text", b"".join(b"line %d\n" % number for number in range(1000)))
    for area in twins.areas:
        (area.local / "dir/program").chmod(0o755)
        (area.local / "closed").chmod(0o000)
    twins.age()
    yield twins
    for area in twins.areas:
        (area.local / "closed").chmod(0o755)


LISTINGS = [("@",), ("-l", "@"), ("-u", "@"), ("-R", "@/dir"), ("-l", "-R", "@/dir"), ("-D", "@"), ("-C", "@/dir"), ("-l", "-C", "@/dir"),
            ("-Z", "@/ten"), ("@/ten",), ("-l", "@/ten"), ("@/dir/sub/empty",), ("-l", "@/dir/sub/empty",), ("-C", "@/dir/sub/empty"),
            ("@/nope",), ("-l", "@/nope"), ("@/closed",), ("-l", "@/closed"), ("@/ten/",), ("@//dir/./sub",)]


@pytest.mark.parametrize("words", LISTINGS, ids=" ".join)
def test_ls(grown, words):
    compare(grown, "ls", *words, sort=True)


STATS = [("@",), ("@/ten",), ("@/nothing",), ("@/with blank",), ("@/dir/größe",), ("@/dir/program",), ("@/dir",), ("@/closed",),
         ("@/nope",), ("@/nope/deeper",), ("@/ten/",), ("@/ten/below",), ("@/../etc/passwd",), ("@/dir/../ten",), ("/",), ("//",),
         ("-q", "IsDir", "@"), ("-q", "IsDir", "@/ten"), ("-q", "IsReadable&IsWritable", "@/ten"), ("-q", "IsDir|Offline", "@/ten"),
         ("-q", "XBitSet", "@/dir/program"), ("-q", "Nonsense", "@/ten"), ("@/" + "n" * 256,), ("@/" + "d/" * 600,)]


@pytest.mark.parametrize("words", STATS, ids=lambda words: " ".join(words)[:40])
def test_stat(grown, words):
    compare(grown, "stat", *words)


@pytest.mark.parametrize("path", ["@", "@/ten", "@/nope", "/"])
def test_statvfs(grown, path):
    compare(grown, "statvfs", path)


LOCATES = [("@/ten",), ("@",), ("@/nope",), ("*",), ("*@",), ("*@/nope",), ("-n", "@/ten"), ("-r", "@/ten"), ("-d", "@/ten"), ("-i", "@/ten"),
           ("-p", "@/ten"), ("@/../x",)]


@pytest.mark.parametrize("words", LOCATES, ids=" ".join)
def test_locate(grown, words):
    compare(grown, "locate", *words)


@pytest.mark.parametrize("option", ["-m", "-h"])
def test_locate_by_name(grown, option):
    """Names of hosts are what each server finds out."""
    for area in grown.areas:
        assert re.fullmatch(r"\S+:\d+ Server ReadWrite \n", xrdfs(area.server, "locate", option, f"{grown.path}/ten").ok().out)


SEQUENCES = {
    "mkdir": ["mkdir @/a", "mkdir @/a", "mkdir @/b/c", "mkdir -p @/b/c", "mkdir -p @/b/c", "mkdir -mrwxr-x--- @/m", "stat @/m", "mkdir -mrwx------ @/m",
              "mkdir @/ten", "mkdir @/ten/x", "mkdir -p @/ten/x/y", "mkdir @/../x", "mkdir -mrwxr-xr-x @/wide", "stat @/wide"],
    "rmdir": ["rmdir @/dir/sub/empty", "rmdir @/dir/sub/empty", "rmdir @/dir", "rmdir @/ten", "rmdir @/nope/deeper", "rmdir @/../x"],
    "rm": ["rm @/ten", "rm @/ten", "rm @/dir", "rm @/dir/sub/empty", "stat @/dir/sub/empty", "rm @/nothing @/nope", "rm @/../x", "rm @/nope/deeper"],
    "mv": ["mv @/ten @/eleven", "stat @/ten", "stat @/eleven", "mv @/nope @/x", "mv @/eleven @/nothing", "stat @/nothing", "mv @/nothing @/new/deep/file",
           "stat @/new/deep", "stat @/new/deep/file", "mv @/dir @/moved", "ls @/moved/sub/empty", "mv @/moved @/new", "mv @/new/deep/file @/moved", "mv @/moved @/../x",
           "mv @/../x @/moved", "mv @/new/deep/file @/new/deep/file"],
    "chmod": ["chmod @/ten rwxr-x--x", "stat @/ten", "chmod @/ten r--r--r--", "stat @/ten", "chmod @/dir r-xr-xr-x", "stat @/dir", "chmod @/nope rwxrwxrwx", "chmod @/ten nonsense",
              "chmod @/../x rwxrwxrwx", "chmod @/dir rwxrwxrwx", "stat @/dir"],
    "truncate": ["truncate @/ten 100", "stat @/ten", "truncate @/ten 20000", "stat @/ten", "truncate @/ten 0", "stat @/ten", "truncate @/nope 5", "truncate @/dir 5",
                 "truncate @/ten -1", "truncate @/../x 5"],
    "cat": ["cat @/dir/sub/text", "cat @/nothing", "cat @/nope", "cat @/dir", "cat @/dir/program @/dir/sub/text"],
    "tail": ["tail @/dir/sub/text", "tail -c 10 @/dir/sub/text", "tail -c 100000 @/dir/sub/text", "tail @/nothing", "tail @/nope", "tail @/dir"],
    "xattr": ["xattr @/ten list", "xattr @/ten set user.a=1", "xattr @/ten set b=two", "xattr @/ten get user.a", "xattr @/ten get nope", "xattr @/ten list",
              "xattr @/ten del user.a", "xattr @/ten del user.a", "xattr @/ten list", "xattr @/nope list", "xattr @/nope get a", "xattr @/nope set a=1", "xattr @/dir set d=1",
              "xattr @/dir list", "xattr @/../x list", "xattr @/../x get a", "xattr @/../x set a=1", "xattr @/../x del a"],
    "spaceinfo": ["spaceinfo @", "spaceinfo /", "spaceinfo @/nope"],
    "prepare": ["prepare @/ten", "prepare -s @/ten", "prepare -s @/ten @/nothing", "prepare -s @/nope", "prepare -c -f -s -w -p 3 @/ten", "prepare -e @/ten", "prepare -a nonsense @/ten",
                "prepare -s @/../x", "query prepare nonsense @/ten"],
    "query": ["query checksum @/ten", "query checksum @/ten?cks.type=md5", "query checksum @/ten?cks.type=foo",
              "query checksumcancel @/ten", "query checksumcancel @/nope", "query space @", "query space public", "query space @/nope", "query xattr @/ten", "query xattr @/dir", "query xattr @/nope",
              "query opaque x", "query opaquefile @/ten", "query opaquefile @/../x", "query nonsense x", "query config", "query checksum"],
    "wrong use": ["nonsense", "ls @ @", "stat", "mkdir", "rm", "mv @/ten", "chmod @/ten", "truncate @/ten", "locate", "cat", "xattr @/ten", "query", "prepare"],
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequence(grown, name):
    """All commands run, so that one difference does not hide the next."""
    differences = []
    for line in SEQUENCES[name]:
        try:
            compare(grown, *line.split(), sort=line.count("@") > 1 or line.endswith("list"))
        except AssertionError as difference:
            differences.append(str(difference))
    assert not differences, "\n\n".join(differences)


def test_refused_checksums(grown):
    for number in range(4):
        grown.mkdir(f"folder{number}")
    for name in ("nope", "folder"):
        paths = [f"{grown.path}/{name}{number}" for number in range(4)]
        first, second = [re.sub(rf"{name}\d", name, masked(refused_checksum(area.server, *paths))) for area in grown.areas]
        assert first == second


@pytest.mark.parametrize("key", CONFIG_KEYS)
def test_query_config(grown, key):
    compare(grown, "query", "config", key)


def test_query_config_of_several_keys(grown):
    """The real server answers the first line only; ours may answer all, and must answer the first."""
    answers = [xrdfs(area.server, "query", "config", "bind_max", "readv_iov_max", "nonsense").ok().out.split() for area in grown.areas]
    assert answers[1][:1] == ["15"]
    assert answers[0] in (answers[1], ["15", "1024", "nonsense"])


def test_interactive(grown):
    """The same session, typed: prompts, relative paths, the working directory, the end."""
    lines = ["help", "ls", f"cd {grown.path}", "ls dir/sub", "stat ten", "cd dir", "stat ../ten", "cat program", "mkdir made", "ls -l", "mv made kept", "rmdir kept", "locate program",
             "query checksum program", "cd /nope", "ls nope", "nonsense", "truncate program 3", "chmod program rwx------", "rm program", "rm program", "statvfs .", "spaceinfo .", "xattr sub set a=b",
             "xattr sub list", "prepare sub/text", "tail -c 7 sub/text", "exit"]
    texts = [masked(xrdfs(area.server, input="\n".join(lines).encode() + b"\n")) for area in grown.areas]
    sides = [sorted(text.splitlines()) for text in texts]
    assert sides[0] == sides[1]
    assert "Goodbye" in texts[0] or "--- 0" in texts[0]


def test_cat_to_a_file(grown, tmp_path):
    for number, area in enumerate(grown.areas):
        xrdfs(area.server, "cat", "-o", tmp_path / f"out{number}", f"{grown.path}/ten").ok()
        assert (tmp_path / f"out{number}").read_bytes() == pattern(10_000)


def test_cat_of_a_large_file(twins):
    twins.put("large", data(9_000_001))
    for area in twins.areas:
        assert xrdfs(area.server, "cat", f"{twins.path}/large").ok().raw == data(9_000_001)
