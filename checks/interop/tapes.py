"""Mass storage of a site: a directory with the files on tape, and the programs that copy them."""

import contextlib
import os
import signal
import tempfile
from pathlib import Path

import peers

STATUS = """\
#!/bin/sh
[ "$1" = statx ] || { echo 38; exit; }
[ -e "$2" ] || { echo 2; exit; }
echo 0
exec stat -c '%A %h %u %g %X %Z %Y %s %o %b' "$2"
"""


class Tape:
    """A directory with programs of the site, and the files on tape in `files`."""

    def __init__(self, directory, programs):
        self.directory = directory
        self.files = directory / "files"
        self.files.mkdir()
        for name, text in {**programs, "status": STATUS}.items():
            program = directory / name
            program.write_text(text)
            program.chmod(0o755)
        for path in (directory, self.files):
            path.chmod(0o755)
            peers.give(path)

    def put(self, name, content):
        path = self.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def content(self, name):
        path = self.files / name
        return path.read_bytes() if path.exists() else None

    @contextlib.contextmanager
    def flag(self, name):
        """Creates a file that the programs look for."""
        flag = self.directory / name
        flag.touch()
        try:
            yield
        finally:
            flag.unlink()

    def runs(self):
        """Returns the lines that the programs have written, one for each run."""
        runs = self.directory / "runs"
        return runs.read_text().splitlines() if runs.exists() else []

    def copies_in(self, copy="copy $SRC $DST", before="", more=""):
        """Returns the settings of a server that stages."""
        return f"oss.remoteroot {self.files}\nfrm.xfr.copycmd in {before} {self.directory}/{copy}\n{more}"


@contextlib.contextmanager
def tape(**programs):
    """A tape with these programs, which is removed afterwards. Programs that outlived their server are ended."""
    with tempfile.TemporaryDirectory(prefix="scalla-tape-", dir="/var/tmp") as directory:
        try:
            yield Tape(Path(directory), programs)
        finally:
            end_programs(directory)


def end_programs(directory):
    """Ends the process groups of programs in a directory that no other test uses."""
    for process in Path("/proc").iterdir():
        # It may end meanwhile.
        with contextlib.suppress(OSError, ValueError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if any(word.startswith(f"{directory}/".encode()) for word in words[:2]):
                group = os.getpgid(int(process.name))
                if group != os.getpgrp():
                    os.killpg(group, signal.SIGKILL)


def names(directory):
    return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []


def is_running(process):
    """Reports whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
