"""Command lines of `xrdfs`, and masks for their output.

They are used by tests that compare our server or our program with the real one. `@` stands for the
directory of the test."""

import contextlib
import re

from codes import ErrorCode
from tools import pattern

MASKS = [
    (re.compile(r"localhost:\d+|:\d{4,5}\b"), ":PORT"),
    (re.compile(r"^(Id: +)\d+", re.M), r"\1ID"),
    # Times, except those that were set.
    (re.compile(r"(?!2023-11-14 22:13:20)\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "TIME"),
    (re.compile(r"^([CA]Time: +).*", re.M), r"\1TIME"),
    # Space, which both read from the same busy file system.
    (re.compile(r"^((?:Size of|Utilization|Total|Free|Used|Largest).*: +)\d+", re.M), r"\1NUMBER"),
    (re.compile(r"(oss\.(?:space|free|maxf|used|mt|ct|at)=)\d+"), r"\1NUMBER"),
    (re.compile(r"^v?\d+\.\d+\.\d+\S*$", re.M), "VERSION"),
    (re.compile(r"^\d{6}:\d{6}\.\d$", re.M), "START"),
    (re.compile(r'tod="\d+"'), 'tod="TIME"'),
    # A request id of prepare contains the server and a counter.
    (re.compile(r"^(?:[0-9a-f]+:[0-9a-f]+\.[0-9a-f]+:\d+|scalla[0-9a-f.]+)$", re.M), "REQUEST"),
    (re.compile(r"^\S+ \S*localhost$", re.M), "SYSTEM"),
]
# Where the installed 5.5.3 and the recorded 6.1 differ, ours behaves like the newer one.
SINCE_6 = [
    (re.compile(rf"\[{ErrorCode.FS_ERROR}\] (Unable to .*; directory not empty)"), rf"{ErrorCode.IT_EXISTS.shown} \1"),
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


LISTINGS = [("@",), ("-l", "@"), ("-u", "@"), ("-R", "@/dir"), ("-l", "-R", "@/dir"), ("-D", "@"), ("-C", "@/dir"), ("-l", "-C", "@/dir"),
            ("-Z", "@/ten"), ("@/ten",), ("-l", "@/ten"), ("@/dir/sub/empty",), ("-l", "@/dir/sub/empty",), ("-C", "@/dir/sub/empty"),
            ("@/nope",), ("-l", "@/nope"), ("@/closed",), ("-l", "@/closed"), ("@/ten/",), ("@//dir/./sub",)]

STATS = [("@",), ("@/ten",), ("@/nothing",), ("@/with blank",), ("@/dir/größe",), ("@/dir/program",), ("@/dir",), ("@/closed",),
         ("@/nope",), ("@/nope/deeper",), ("@/ten/",), ("@/ten/below",), ("@/../etc/passwd",), ("@/dir/../ten",), ("/",), ("//",),
         ("-q", "IsDir", "@"), ("-q", "IsDir", "@/ten"), ("-q", "IsReadable&IsWritable", "@/ten"), ("-q", "IsDir|Offline", "@/ten"),
         ("-q", "XBitSet", "@/dir/program"), ("-q", "Nonsense", "@/ten"), ("@/" + "n" * 256,), ("@/" + "d/" * 600,)]

LOCATES = [("@/ten",), ("@",), ("@/nope",), ("*",), ("*@",), ("*@/nope",), ("-n", "@/ten"), ("-r", "@/ten"), ("-d", "@/ten"), ("-i", "@/ten"),
           ("-p", "@/ten"), ("@/../x",)]

SEQUENCES = {
    "mkdir": ["mkdir @/a", "mkdir @/a", "mkdir @/b/c", "mkdir -p @/b/c", "mkdir -p @/b/c", "mkdir -mrwxr-x--- @/m", "stat @/m", "mkdir -mrwx------ @/m",
              "mkdir @/ten", "mkdir @/ten/x", "mkdir -p @/ten/x/y", "mkdir @/../x", "mkdir -mrwxr-xr-x @/wide", "stat @/wide"],
    "rmdir": ["rmdir @/dir/sub/empty", "rmdir @/dir/sub/empty", "rmdir @/dir", "rmdir @/ten", "rmdir @/nope/deeper", "rmdir @/../x"],
    "rm": ["rm @/ten", "rm @/ten", "rm @/dir", "rm @/dir/sub/empty", "stat @/dir/sub/empty", "rm @/nothing @/nope", "rm @/../x", "rm @/nope/deeper"],
    "mv": ["mv @/ten @/eleven", "stat @/ten", "stat @/eleven", "mv @/nope @/x", "mv @/eleven @/nothing", "stat @/nothing", "mv @/nothing @/new/deep/file",
           "stat @/new/deep", "stat @/new/deep/file", "mv @/dir @/moved", "ls @/moved/sub/empty", "mv @/moved @/new", "mv @/new/deep/file @/moved", "mv @/moved @/../x",
           "mv @/../x @/moved", "mv @/new/deep/file @/new/deep/file"],
    "chmod": ["chmod @/ten rwxr-x--x", "stat @/ten", "chmod @/ten rw-r--r--", "stat @/ten", "chmod @/dir rwxr-xr-x", "stat @/dir", "chmod @/nope rwxrwxrwx", "chmod @/ten nonsense",
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

# Lines that never reach a server, or for which no two servers give the same answer: for programs on
# one server. Words are joined by blanks.
USE = ["ls -x @", "ls @ -l", "ls @/dir @", "ls -l -u @", "ls -u -R @/dir", "ls -D -R @/dir", "ls -C @", "ls -C -R @/dir", "ls -R @", "ls d", "ls @/dir/",
       "stat -q", "stat -q IsDir", "stat -x", "stat ten", "stat @ -q IsDir", "stat -q IsDir&Offline|IsReadable @", "stat -q BackUpExists @", "stat -q IsWriteable @",
       "statvfs", "statvfs @ @", "statvfs relative", "spaceinfo", "spaceinfo @ @", "spaceinfo relative",
       "locate", "locate @ @", "locate -x @", "locate -d @", "locate -d *", "locate -m @", "locate -d -m @", "locate -d @/nope", "locate relative",
       "cd @", "cd @/ten", "cd @/nope", "cd", "exit", "quit", "nonsense", "pwd",
       "mkdir -p", "mkdir -m @/x", "mkdir -mbad @/x", "mkdir -mrwxr-xr @/x", "mkdir -mrwxrwxrwz @/x", "mkdir -x @/y", "mkdir @/y @/z", "mkdir @/v -p", "ls -l @",
       "rmdir", "rmdir @/y @/z", "rmdir @/z", "mv", "mv @", "mv @/a @/b @/c", "mv relative @/x", "rm relative",
       "chmod", "chmod @/ten bad", "chmod @/ten rw-r--r-- x", "chmod rw-r--r-- @/ten", "chmod @/ten 644", "chmod @/ten xwrxwrxwr", "stat @/ten",
       "truncate", "truncate @/ten x", "truncate @/ten 1x", "truncate @/ten 0x10", "stat @/ten", "truncate @/ten 010", "stat @/ten", "truncate @/ten 99999999999999999999", "truncate @/ten -1",
       "cat", "cat @/nope @/dir/program", "cat @/dir/program @/dir/program", "cat @/nope @/nope2", "cat -o", "cat -x @/dir/program", "cat relative",
       "tail", "tail -c", "tail -c x @/ten", "tail -c -5 @/dir/program", "tail -c 0 @/ten", "tail -c 5x @/ten", "tail @/dir/program -c 3", "tail @/nope @/dir/program",
       "xattr", "xattr @/ten", "xattr @/ten set", "xattr @/ten set b=2 c=3", "xattr @/ten set x==y=z", "xattr @/ten get x", "xattr @/ten get x y", "xattr @/ten set =x",
       "xattr @/ten set x=", "xattr @/ten list", "xattr @/ten list x", "xattr @/ten del x", "xattr @/ten nonsense", "xattr list @/ten", "xattr @/nope del a",
       "prepare", "prepare -s", "prepare -p", "prepare -p 4 @/ten", "prepare -p x @/ten", "prepare -a", "prepare -a nonsense", "prepare -x @/ten", "prepare @/ten -s", "prepare -s -e @/ten", "prepare relative",
       "query", "query config", "query config tpc role", "query checksum", "query checksum relative", "query checksum @/ten @/nothing", "query checksumcancel", "query space", "query space a b",
       "query xattr", "query xattr @/ten @", "query opaque", "query opaque x y", "query opaquefile relative", "query nonsense", "query stats", "query stats z", "query stats a b", "query prepare", "query prepare x y z"]

DIALOGUE = ["help", "ls", "cd @", "ls dir/sub", "stat ten", "cd dir", "stat ../ten", "cat program", "mkdir made", "ls -l", "mv made kept", "rmdir kept", "locate program",
            "query checksum program", "cd /nope", "ls nope", "nonsense", "truncate program 3", "chmod program rwx------", "rm program", "rm program", "statvfs .", "spaceinfo .", "xattr sub set a=b",
            "xattr sub list", "prepare sub/text", "tail -c 7 sub/text", "exit"]


@contextlib.contextmanager
def grow(*areas):
    """Creates a tree with files, directories, an empty directory, an inaccessible one, and an
    executable, in each of these directories."""
    for area in areas:
        for name in ("dir", "dir/sub", "dir/sub/empty", "closed"):
            area.mkdir(name)
        area.put("ten", pattern(10_000))
        area.put("nothing", b"")
        area.put("with blank", b"blank")
        area.put("dir/größe", b"x" * 1234)
        area.put("dir/program", b"#!/bin/sh\n")
        area.put("dir/sub/text", b"".join(b"line %d\n" % number for number in range(1000)))
        (area.local / "dir/program").chmod(0o755)
        (area.local / "closed").chmod(0o000)
        area.age()
    yield
    for area in areas:
        (area.local / "closed").chmod(0o755)
