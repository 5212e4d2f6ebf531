"""The storage calls of a program, from a trace of `strace`, and what they leave on a disk after a crash.

A crash of the process keeps all calls until then. A power failure keeps what was synced: the content of a file until
its last sync, and the names in a directory until that of the directory. Of what came later, a disk may have any part
in any order, in sectors."""

import re
from pathlib import PurePosixPath

SECTOR = 512
CALLS = "openat,pwrite64,ftruncate,fsync,fdatasync,unlink,unlinkat,renameat,renameat2,write"

_LINE = re.compile(r"(?:(\d+) +)?(\w+)\((.*)\) += (-?\d+)")
_UNFINISHED = re.compile(r"(\d+) +(.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)$")


def command(trace, *words):
    """Returns a command line that writes the storage calls of another one to the file `trace`."""
    return ["strace", "-f", "-y", "-xx", "-s", "200000", "-e", f"trace={CALLS}", "-o", str(trace), *map(str, words)]


def _bytes(text):
    """Decodes `\\x2f\\x61` with or without quotes."""
    return bytes.fromhex(text.strip('"').replace("\\x", ""))


def _path(argument):
    """Returns the path of a descriptor as `5<\\x2f...>`."""
    found = re.search(r"<([^>]*)>", argument)
    return _bytes(found.group(1)).decode() if found else None


def _lines(text):
    """Returns the lines of a trace, with calls of several threads in one piece each, at their end."""
    begun = {}
    for line in text.splitlines():
        if found := _UNFINISHED.match(line):
            begun[found.group(1)] = found.group(2)
        elif found := _RESUMED.match(line):
            yield f"{found.group(1)} {begun.pop(found.group(1), '')}{found.group(2)}"
        else:
            yield line


def calls(text):
    """Returns the calls of a trace that succeeded, each as a tuple: `("write", path, offset, bytes)`, `("create", path)`,
    `("truncate", path, size)`, `("sync", path)`, `("unlink", path)`, `("rename", from, to)`, `("print", bytes)`."""
    found = []
    for line in _lines(text):
        match = _LINE.match(line)
        if not match or int(match.group(4)) < 0:
            continue
        name, arguments = match.group(2), match.group(3).split(", ")
        if name == "openat" and "O_CREAT" in arguments[2]:
            found.append(("create", str(PurePosixPath(_path(arguments[0]) or "/") / _bytes(arguments[1]).decode())))
        elif name == "pwrite64":
            found.append(("write", _path(arguments[0]), int(arguments[3]), _bytes(arguments[1])[:int(match.group(4))]))
        elif name == "write" and arguments[0].startswith("1<"):
            found.append(("print", _bytes(arguments[1])))
        elif name == "ftruncate":
            found.append(("truncate", _path(arguments[0]), int(arguments[1])))
        elif name in ("fsync", "fdatasync"):
            found.append(("sync", _path(arguments[0])))
        elif name == "unlink":
            found.append(("unlink", _bytes(arguments[0]).decode()))
        elif name == "unlinkat":
            found.append(("unlink", str(PurePosixPath(_path(arguments[0])) / _bytes(arguments[1]).decode())))
        elif name in ("renameat", "renameat2"):
            names = [str(PurePosixPath(_path(arguments[at])) / _bytes(arguments[at + 1]).decode()) for at in (0, 2)]
            found.append(("rename", *names))
    return found


def _apply(content, call):
    """Applies a change to the content of a file."""
    if call[0] == "truncate":
        return content[:call[2]] + bytes(max(0, call[2] - len(content)))
    _, _, offset, data = call
    content = content + bytes(max(0, offset - len(content)))
    return content[:offset] + data + content[offset + len(data):]


class Disk:
    """The files of one directory, as the system sees them and as they are on the disk."""

    def __init__(self, directory):
        self.directory = str(directory)
        # The files by their names, as the system sees them, and as they are durable. A file is a list: its content, the
        # durable one, and the changes since.
        self.seen, self.durable = {}, {}
        # Changes of names since the last sync of the directory: the names before each.
        self.changed = []

    def has(self, path):
        return path is not None and str(PurePosixPath(path).parent) == self.directory

    def run(self, call):
        kind, path = call[0], call[1] if call[0] != "print" else None
        if kind == "sync" and path == self.directory:
            self.durable, self.changed = dict(self.seen), []
        elif kind == "rename" and self.has(path):
            self.changed.append(dict(self.seen))
            self.seen[call[2]] = self.seen.pop(path, [b"", b"", []])
        elif not self.has(path):
            return False
        elif kind == "create" and path not in self.seen:
            self.changed.append(dict(self.seen))
            self.seen[path] = [b"", b"", []]
        elif kind == "unlink":
            self.changed.append(dict(self.seen))
            self.seen.pop(path, None)
        elif kind in ("write", "truncate") and path in self.seen:
            file = self.seen[path]
            file[0] = _apply(file[0], call)
            file[2].append(call)
        elif kind == "sync" and path in self.seen:
            file = self.seen[path]
            file[1], file[2] = file[0], []
        else:
            return False
        return True

    def after_crash(self):
        """Returns the contents of the files after a crash of the process."""
        return {path: file[0] for path, file in self.seen.items()}

    def after_power_failure(self, random=None):
        """Returns the contents of the files after a power failure: without anything that was not synced, or, with a source
        of random numbers, with any part of it."""
        names = self.durable
        if random:
            # Names of a directory change in their order.
            states = [*self.changed, self.seen]
            names = random.choice([self.durable, *states[1:], self.seen])
        return {path: self._content(file, random) for path, file in names.items()}

    @staticmethod
    def _content(file, random):
        content = file[1]
        for call in file[2] if random else ():
            if call[0] == "truncate":
                content = _apply(content, call) if random.random() < 0.5 else content
                continue
            _, path, offset, data = call
            for begin in range(0, len(data), SECTOR):
                if random.random() < 0.7:
                    content = _apply(content, ("write", path, offset + begin, data[begin:begin + SECTOR]))
        return content
