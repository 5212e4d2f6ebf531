"""Configuration: the same file for the real server and for ours under the name `xrootd`, the same
commands of the real clients on both.

Output, errors, exit statuses and the resulting files on disk are compared."""

import contextlib
import os
import re
import shlex
import shutil
import tempfile
from pathlib import Path

import pytest

import peers
from codes import ErrorCode
from test_compare import masked
from tools import pattern, wait_until, xrdcp, xrdfs

# Name: the lines of the file beyond the export, the export itself, and the commands. `cp` uploads,
# `get` downloads, `hold` keeps a file open; all others are commands of `xrdfs`.
SETTINGS = {
    "read-only": ("", "/ r/o", [
        "ls /", "get /file", "cp /new", "cp -f /file", "mkdir /d", "rm /file", "rmdir /folder", "mv /file /x",
        "truncate /file 0", "xattr /file set a=b", "xattr /file list", "stat /file", "locate /file", "prepare -s /file", "query space /", "statvfs /"]),
    "forced read-only": ("", "/ forcero", ["get /file", "cp /new", "cp -f /file", "mkdir /d", "rm /file", "truncate /file 0", "stat /file"]),
    "defaults below an export": ("oss.defaults r/o\n", "/", ["cp /new", "stat /file"]),
    "defaults above an export": ("oss.defaults r/o\nall.export /folder\noss.defaults r/w\n", "/", ["cp /new", "cp /folder/new", "stat /folder/inner"]),
    "an export again": ("all.export / r/o\nall.export / nolock\n", "/", ["cp /new", "stat /file"]),
    "one part read-only": ("all.export /folder r/o\n", "/", [
        "cp /folder/new", "cp /new", "mv /file /folder/x", "mv /folder/inner /x", "stat /folder/inner", "rm /folder/inner", "mkdir /folder/d",
        "rmdir /folder"]),
    "one part alone": ("", "/folder", [
        "ls /", "ls /folder", "stat /", "stat /file", "get /file", "get /folder/inner", "mv /folder/inner /x", "mv /folder/inner /folder/x",
        "rm /file", "mkdir -p /a/b", "locate /file", "locate *", "query space /", "statvfs /", "statvfs /folder",
        "prepare -s /file", "chmod /file rwx------", "truncate /file 0", "xattr /file list", "ls /folder/../"]),
    "no checksums": ("", "/", ["query checksum /file", "query config chksum", "ls -C /", "cp --cksum adler32:print /new"]),
    "one checksum": ("xrootd.chksum md5\n", "/", [
        "query checksum /file", "query config chksum", "ls -C /", "cp --cksum md5 /new"]),
    "checksum of the cgi": ("xrootd.chksum chkcgi adler32 md5\n", "/", ["query checksum /file?cks.type=md5", "query checksum /file?cks.type=crc32c"]),
    "persist always": ("ofs.persist auto hold 1m\n", "/", ["cp /new", "cp -f /file", "stat /new"]),
    "persist never": ("ofs.persist off\n", "/", ["cp --posc /new", "stat /new"]),
    "attributes off": ("ofs.xattr uset off\n", "/", ["xattr /file set a=b", "xattr /file list", "query config fattr"]),
    "attribute limits": ("ofs.xattr maxnsz 10 maxvsz 4\n", "/", [
        "xattr /file set a=1234", "xattr /file set a=12345", "xattr /file set abc=1", "xattr /file set abcd=1", "xattr /file list",
        "query config fattr"]),
    "largest file": ("oss.maxsize 1m\n", "/", ["cp --size 1048576 /new", "truncate /file 1048576"]),
    "redirect of functions": ("xrootd.redirect localhost:{target} rm mkdir dirlist\n", "/", [
        "ls /", "rm /file", "stat /file", "mkdir /d", "stat /d", "get /file", "query config role"]),
    "redirect of paths": ("xrootd.redirect localhost:{target} /folder\n", "/", [
        "ls /folder", "cp /folder/new", "stat /folder/new", "get /folder/new", "get /file", "mv /folder/inner /folder/x", "rm /folder/inner", "cp /new"]),
    "redirect of what is missing": ("xrootd.redirect localhost:{target} ? /\n", "/", [
        "get /there", "get /file", "get /nowhere", "stat /there", "truncate /there 2", "stat /there", "chmod /there rw-------", "locate /file",
        "xattr /there list", "rm /there", "stat /there", "ls /there", "mkdir /nowhere/deep", "query checksum /there", "cp /new", "stat /new"]),
    "a space": ("oss.space public {spaces}/a\n", "/", [
        "cp /new", "ls -l /", "get /new", "stat /new", "query xattr /new", "mv /new /other", "cp -f /other", "rm /other", "query space /"]),
    "an export that uses no space": ("oss.space public {spaces}/a\n", "/ inplace", ["cp /new", "get /new", "stat /new"]),
    "spaces by path": ("oss.space public {spaces}/a\noss.space hot {spaces}/b\noss.space hot assign /folder\n", "/", [
        "cp /new", "cp /folder/new", "query space /?oss.cgroup=hot", "query space /", "query xattr /folder/new", "cp /third?oss.cgroup=hot",
        "query xattr /third", "query space /?oss.cgroup=nope", "cp /fourth?oss.cgroup=nope", "rm /folder/new", "rm /third"]),
    "site": ("all.sitename T2_XX\n", "/", ["query config sitename"]),
    "prepares limited": ("xrootd.limit prepare 1\n", "/", ["prepare -s /file", "prepare -s /file /folder/inner"]),
    "window": ("xrd.network buffsz 64k\n", "/", ["get /file", "cp /new", "query config window"]),
    "links": ("", "/", ["stat /link", "get /link", "rm /link", "stat /file", "ls -l /"]),
    "no sendfile": ("xrootd.async nosf off\n", "/", ["get /file", "cp /new"]),
}



def newer(result):
    """Exports that forbid changes return the protocol's code for that, where 5.5.3 has the general
    error code for files."""
    result.err, count = re.subn(rf"\[{ErrorCode.FS_ERROR}\] (Unable to .*); file path marked read/only", rf"{ErrorCode.FS_READ_ONLY.shown} \1; read-only file system", result.err)
    if count:
        result.out = result.out.replace("no such device", "read-only file system")
    return result


def tree(server, *more):
    """Creates a small tree, and more files at its top."""
    for name in ("folder", "folder/empty"):
        (server.tree / name).mkdir()
        (server.tree / name).chmod(0o755)
        peers.give(server.tree / name)
    for name, content in [("file", pattern(10_000)), ("folder/inner", b"inner"), *((name, b"more") for name in more)]:
        (server.tree / name).write_bytes(content)
        (server.tree / name).chmod(0o644)
        peers.give(server.tree / name)
    (server.tree / "link").symlink_to("file")


def lies_there(directory):
    """Returns names, modes and contents below a directory. A file in a space has a name there that
    the server chooses."""
    found = []
    for at, directories, files in os.walk(directory):
        for name in sorted(directories + files):
            path = os.path.join(at, name)
            mode = os.lstat(path).st_mode
            content = open(path, "rb").read() if name in files and os.path.isfile(path) else b""
            found.append((os.path.relpath(path, directory), oct(mode), content))
    return sorted(found)


def perform(server, command, tmp_path):
    words = shlex.split(command)
    if words[0] == "cp":
        size = 5_000
        if "--size" in words:
            at = words.index("--size")
            size = int(words[at + 1])
            del words[at:at + 2]
        source = tmp_path / "source"
        source.write_bytes(pattern(size))
        result = xrdcp(*words[1:-1], source, server.url(words[-1]))
    elif words[0] == "get":
        target = tmp_path / "got"
        result = xrdcp("-f", server.url(words[1]), target)
        result.out += repr(target.read_bytes()) if target.exists() else "nothing"
        target.unlink(missing_ok=True)
    else:
        result = xrdfs(server, *words)
    text = masked(newer(result))
    # Our server names the exports and spaces that it has.
    text = re.sub(r"(is disallowed\.) This server exports [/\w, ]*\.", r"\1", text)
    text = re.sub(r"no space has the name \w+; this server has \w+(, \w+)*", "no such file or directory", text)
    # A file system lists attributes in its own order.
    return "\n".join(sorted(text.splitlines())) if words[0] == "xattr" else text


def started(stack, kind, settings, export):
    """Starts a server of that kind with its own target for redirections and its own spaces."""
    spaces = Path(tempfile.mkdtemp(prefix="scalla-spaces-", dir="/var/tmp"))
    stack.callback(shutil.rmtree, spaces, ignore_errors=True)
    for directory in (spaces / "a", spaces / "b"):
        directory.mkdir()
        peers.give(directory)
    peers.give(spaces)
    target = 0
    if "{target}" in settings:
        other = stack.enter_context(peers.Theirs())
        tree(other, "there")
        target = other.port
    server = stack.enter_context(kind(settings=settings.format(target=target, spaces=spaces), export=export))
    tree(server)
    return server


@pytest.mark.parametrize("name", SETTINGS)
def test_setting(name, tmp_path):
    settings, export, commands = SETTINGS[name]
    with contextlib.ExitStack() as stack:
        servers = [started(stack, kind, settings, export) for kind in (peers.Linked, peers.Theirs)]
        for command in commands:
            ours, theirs = [perform(server, command, tmp_path) for server in servers]
            assert ours == theirs, command
            ours, theirs = [lies_there(server.tree) for server in servers]
            assert ours == theirs, command


def test_each_takes_over_from_the_other(tmp_path):
    """Servers take turns on one tree, one space and one admin directory: each finds the files of
    the other, and may change them."""
    with contextlib.ExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix="scalla-turns-", dir="/var/tmp"))
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        for name in ("tree", "space", "admin"):
            (home / name).mkdir()
            peers.give(home / name)
        peers.give(home)
        settings = f"{peers.SETTINGS}oss.space public {home}/space\n"

        def turn(kind, *commands):
            with kind(settings=settings, tree=home / "tree", arguments=["-a", home / "admin"]) as server:
                results = [perform(server, command, tmp_path) for command in commands]
                assert all("--- 0" in result for result in results), results
                assert server.stop() == 0 or kind is peers.Theirs
                return results

        for number, (first, second) in enumerate([(peers.Theirs, peers.Linked), (peers.Linked, peers.Theirs)]):
            one, two, three = (f"/{name}{number}" for name in ("one", "two", "three"))
            written = turn(first, f"cp {one}", f"cp --posc {two}", f"cp {three}", f"xattr {one} set key=value", f"query checksum {one}",
                           f"get {one}", f"stat {one}")
            found = turn(second, f"mv {one} /moved{number}", f"xattr /moved{number} list", f"query checksum /moved{number}",
                         f"get /moved{number}", f"rm {two}", f"cp -f {three}", f"truncate {three} 10")
            assert found[2:4] == written[4:6] and 'key="value"' in found[1]
            turn(first, f"get {three}", f"rm /moved{number}", f"rm {three}")
        # No data file is left in the space.
        assert [path for path in (home / "space").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("kind", [peers.Theirs, peers.Linked], ids=["theirs", "ours"])
def test_a_relative_pid_file_is_in_the_directory_of_the_instance(kind):
    """Scripts stop a server by the file named with `-s`."""
    with kind(arguments=["-n", "one", "-s", "server.pid"]) as server:
        wait_until(lambda: "initialization completed" in server.output())
        assert Path(f"/proc/{server.process.pid}/cwd").resolve() == server.work / "one"
        assert (server.work / "one/server.pid").read_text().strip() == str(server.process.pid)
        assert (server.work / "run/one/xrootd.pid").read_text().strip() == str(server.process.pid)
        assert not (server.work / "server.pid").exists()
        if kind is peers.Linked:  # As of XRootD 6; the real one here is older.
            assert (server.work / "run/one/xrootd.one.env").read_text().startswith(f"pid={server.process.pid}&")


@pytest.mark.parametrize("kind", [peers.Theirs, peers.Linked], ids=["theirs", "ours"])
def test_the_environment_file_is_beside_a_pid_file_with_a_full_path(kind):
    server = kind()
    server.arguments = ["-n", "one", "-s", server.work / "server.pid"]
    with server:
        wait_until(lambda: "initialization completed" in server.output())
        assert (server.work / "server.pid").read_text().strip() == str(server.process.pid)
        assert (server.work / "xrootd.one.env").read_text().startswith(f"pid={server.process.pid}&")
