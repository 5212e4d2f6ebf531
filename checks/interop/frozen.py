"""A file system that hangs on command, like a network mount whose server is gone.

It is a FUSE file system, served by this file as a program of its own, which is stopped and
continued by signals. The kernel asks it about each name and each file again, without caching."""

import ctypes
import errno
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_MNT_DETACH = 2
_REQUEST_BYTES = 1 << 20


def possible():
    """Reports whether the tests can mount one on this machine."""
    return os.geteuid() == 0 and Path("/dev/fuse").exists()


class Frozen:
    """A mounted file system at `directory`. `freeze` and `thaw` control it. Its content is in
    `backing`, which does not hang."""

    def __init__(self):
        self.work = Path(tempfile.mkdtemp(prefix="scalla-frozen-", dir="/var/tmp"))
        self.work.chmod(0o755)
        self.directory, self.backing = self.work / "mount", self.work / "backing"
        for path in (self.directory, self.backing):
            path.mkdir()
            path.chmod(0o777)
        self.process = subprocess.Popen([sys.executable, __file__, str(self.backing), str(self.directory)], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"mounted\n", "no file system in user space can be mounted"

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)
        self.wait_until_frozen()

    def freeze_at_removal(self):
        """Freezes when it is asked to remove a file; `wait_until_frozen` waits for that."""
        (self.work / "stop").touch()

    def wait_until_frozen(self):
        while "T (stopped)" not in Path(f"/proc/{self.process.pid}/status").read_text():
            time.sleep(0.01)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _LIBC.umount2(os.fsencode(self.directory), _MNT_DETACH)
        # Pending requests now fail.
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.work, ignore_errors=True)


# The program. The kernel's side of the protocol is in linux/fuse.h, version 7.31.

_HEADER = struct.Struct("<IIQQIII4x")
_ANSWER = struct.Struct("<IiQ")
LOOKUP, FORGET, GETATTR, SETATTR, MKDIR, UNLINK, RMDIR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, \
    CREATE, INTERRUPT, BATCH_FORGET = 1, 2, 3, 4, 9, 10, 11, 14, 15, 16, 17, 18, 20, 25, 26, 27, 28, 29, 35, 36, 42
_SILENT = (FORGET, BATCH_FORGET, INTERRUPT)


class Disk:
    """Answers requests from a directory."""

    def __init__(self, backing):
        self.backing = backing
        self.paths = {1: ""}
        self.numbers = {"": 1}

    def at(self, node, name=b""):
        name = os.fsdecode(name.split(b"\0")[0])
        return os.path.normpath(os.path.join(self.backing, self.paths[node], name))

    def attributes(self, path):
        s = os.lstat(path)
        seconds = [int(t) for t in (s.st_atime, s.st_mtime, s.st_ctime)]
        parts = [t % 10**9 for t in (s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns)]
        return struct.pack("<6Q10I", s.st_ino, s.st_size, s.st_blocks, *seconds, *parts, s.st_mode, s.st_nlink, s.st_uid, s.st_gid, 0, 4096, 0)

    def entry(self, path):
        attributes = self.attributes(path)
        relative = os.path.relpath(path, self.backing)
        node = self.numbers.setdefault(relative, len(self.numbers) + 1)
        self.paths[node] = relative
        return struct.pack("<4QII", node, 0, 0, 0, 0, 0) + attributes

    def change(self, node, body):
        valid, _, size, mode = struct.unpack_from("<I4xQQ44xI", body)
        path = self.at(node)
        if valid & 1:
            os.chmod(path, stat.S_IMODE(mode))
        if valid & 8:
            os.truncate(path, size)
        if valid & 0x1B0:
            os.utime(path)
        return struct.pack("<Q8x", 0) + self.attributes(path)

    def create(self, node, user, group, body):
        flags, mode = struct.unpack_from("<II", body)
        path = self.at(node, body[16:])
        handle = os.open(path, flags & ~os.O_NOFOLLOW | os.O_CREAT, stat.S_IMODE(mode))
        os.close(handle)
        os.chown(path, user, group)
        return self.entry(path) + struct.pack("<Q8x", 0)

    def make_directory(self, node, user, group, body):
        path = self.at(node, body[8:])
        os.mkdir(path, stat.S_IMODE(struct.unpack_from("<I", body)[0]))
        os.chown(path, user, group)
        return self.entry(path)

    def figures(self):
        f = os.statvfs(self.backing)
        return struct.pack("<5Q4I24x", f.f_blocks, f.f_bfree, f.f_bavail, f.f_files, f.f_ffree, f.f_bsize, f.f_namemax, f.f_frsize, 0)

    def read(self, node, body):
        offset, size = struct.unpack_from("<8xQI", body)
        with open(self.at(node), "rb") as file:
            return os.pread(file.fileno(), size, offset)

    def write(self, node, body):
        offset, size = struct.unpack_from("<8xQI", body)
        with open(self.at(node), "r+b") as file:
            return struct.pack("<I4x", os.pwrite(file.fileno(), body[40:40 + size], offset))

    def answer(self, code, node, user, group, body):
        if code == INIT:
            return struct.pack("<4I2H2I2H32x", 7, 31, 131072, 0, 16, 12, 131072, 1, 32, 0)
        if code == LOOKUP:
            return self.entry(self.at(node, body))
        if code == GETATTR:
            return struct.pack("<Q8x", 0) + self.attributes(self.at(node))
        if code == SETATTR:
            return self.change(node, body)
        if code == CREATE:
            return self.create(node, user, group, body)
        if code == MKDIR:
            return self.make_directory(node, user, group, body)
        if code == UNLINK and os.path.exists(f"{self.backing}/../stop"):
            os.kill(os.getpid(), signal.SIGSTOP)
        if code in (UNLINK, RMDIR):
            (os.unlink if code == UNLINK else os.rmdir)(self.at(node, body))
            return b""
        if code in (OPEN, OPENDIR):
            return struct.pack("<Q8x", 0)
        if code == READ:
            return self.read(node, body)
        if code == WRITE:
            return self.write(node, body)
        if code == STATFS:
            return self.figures()
        if code in (RELEASE, RELEASEDIR, FLUSH, FSYNC, READDIR):
            return b""
        raise OSError(errno.ENOSYS, "not here")


def serve(backing, directory):
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if _LIBC.mount(b"frozen", os.fsencode(directory), b"fuse", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "cannot be mounted")
    print("mounted", flush=True)
    disk = Disk(backing)
    while True:
        try:
            request = os.read(device, _REQUEST_BYTES)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return
            if error.errno in (errno.ENOENT, errno.EINTR):
                continue
            raise
        _, code, unique, node, user, group, _ = _HEADER.unpack_from(request)
        if code in _SILENT:
            continue
        try:
            problem, body = 0, disk.answer(code, node, user, group, request[_HEADER.size:])
        except OSError as error:
            problem, body = -error.errno, b""
        try:
            os.write(device, _ANSWER.pack(_ANSWER.size + len(body), problem, unique) + body)
        except OSError as error:
            # The request was interrupted.
            if error.errno != errno.ENOENT:
                raise


if __name__ == "__main__":
    # The tests end it; it must not outlive them. 1 is PR_SET_PDEATHSIG.
    _LIBC.prctl(1, signal.SIGKILL)
    serve(sys.argv[1], sys.argv[2])
