"""Servers for the tests: ours and the real xrootd, on trees of the same shape, as the same user, in their own
process groups, with everything they write below one temporary folder."""

import atexit
import collections
import ctypes
import fcntl
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import refusal

REPOSITORY = Path(__file__).resolve().parents[2]
# How many times the usual patience machines deserve that are slow, or stopped now and then.
SLOWNESS = float(os.environ.get("SCALLA_INTEROP_SLOWNESS", "1"))
START_SECONDS = 30 * SLOWNESS
STOP_SECONDS = 40 * SLOWNESS

# What one look at a clock takes off a patience at most.
STRETCH_SECONDS = 5

# What both servers are told beyond the tree they serve. Everything here is a deviation from the defaults that some
# test needs; the defaults themselves are tested by servers that are given nothing.
SETTINGS = """\
xrootd.chksum max 3 adler32 crc32 crc32c md5 zcrc32
ofs.ckslib zcrc32 libXrdCksCalczcrc32.so
ofs.persist manual hold 20
ofs.chkpnt enable maxsz 1m
"""


class Patience:
    """How long something is waited for. Of a stretch in which the test itself did not get to run only the beginning counts:
    the machine was stopped or busy with others, and what is waited for had no more of that time than the test."""

    def __init__(self, seconds):
        self.left = seconds
        self.looked = time.monotonic()

    def over(self):
        now = time.monotonic()
        self.left -= min(now - self.looked, STRETCH_SECONDS)
        self.looked = now
        return self.left <= 0


def unprivileged():
    """(uid, gid) under which servers run: `nobody` when the tests run as root, else nobody else."""
    if os.geteuid() == 0:
        entry = pwd.getpwnam("nobody")
        return entry.pw_uid, entry.pw_gid
    return os.geteuid(), os.getegid()


def give(path):
    """Hands a file or folder to the user the servers run as."""
    if os.geteuid() == 0:
        os.chown(path, *unprivileged())
    return path


def place(path, content):
    """Writes a file by hand that belongs to the user the servers run as."""
    path.write_bytes(content)
    path.chmod(0o644)
    return give(path)


def process_status(pid, field):
    """A number of /proc/PID/status."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise KeyError(field)


def _die_with_parent():
    # A test run that is killed must not leave servers behind. 1 is PR_SET_PDEATHSIG.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


# Ports for programs, outside of those that the kernel gives to whoever asks for any, so that none is lost while its program is
# down. A locked file for each keeps it for this process; locks end with it. Of a process that needs very many the oldest go.
_PORT_LOCKS = Path("/var/tmp/scalla-ports")
_PORTS_KEPT = 400
_kept_ports = collections.deque()


def _ports_of_programs():
    """Ports that the kernel gives to nobody by itself, of the larger side of its range."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    return max(range(10_000, low), range(high + 1, 65_536), key=len)


def _lock_port(port):
    """The locked file of a port that nobody else has; None if somebody has it."""
    if not _PORT_LOCKS.is_dir():
        _PORT_LOCKS.mkdir(exist_ok=True)
        _PORT_LOCKS.chmod(0o1777)
    lock = os.open(_PORT_LOCKS / str(port), os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket(socket.AF_INET6) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("::", port))
            probe.listen(1)
        return lock
    except OSError:
        os.close(lock)
        return None


def free_port():
    """A port that is free, and stays so for a program that cannot say which one the kernel gave it, or that is restarted."""
    for port in random.sample(_ports_of_programs(), 1000):
        lock = _lock_port(port)
        if lock is not None:
            _kept_ports.append(lock)
            if len(_kept_ports) > _PORTS_KEPT:
                os.close(_kept_ports.popleft())
            return port
    raise RuntimeError("of 1000 ports none is free")


def environment(**more):
    """An environment without settings of the person who runs the tests, and with short patience."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XRD", "PYTHON"))}
    kept.update(LC_ALL="C.UTF-8", TZ="UTC", XRD_CONNECTIONWINDOW="20", XRD_CONNECTIONRETRY="1", XRD_REQUESTTIMEOUT="120",
                XRD_STREAMTIMEOUT="60", XRD_TIMEOUTRESOLUTION="1")
    kept.update(more)
    return kept


class Server:
    """One running server. `tree` is what it serves as `/`."""

    kind = None

    def __init__(self, settings=SETTINGS, export="/", tree=None, limits=None, as_user=True, arguments=()):
        self.work = Path(tempfile.mkdtemp(prefix=f"scalla-{self.kind}-", dir="/var/tmp"))
        self.work.chmod(0o755)
        for name in ("admin", "run"):
            give_path = self.work / name
            give_path.mkdir()
            give(give_path)
        give(self.work)
        self.tree = Path(tree) if tree else self.work / "tree"
        if not tree:
            self.tree.mkdir()
            give(self.tree)
        self.log = self.work / "log"
        self.settings = settings
        self.export = export
        self.limits = limits
        self.as_user = as_user
        self.arguments = list(arguments)
        self.process = None
        self.port = None

    def configuration(self):
        """The lines both programs read."""
        return f"all.adminpath {self.work}/admin\nall.pidpath {self.work}/run\n{self.settings}"

    def command(self):
        raise NotImplementedError

    def find_port(self):
        raise NotImplementedError

    def start(self):
        """Starts it and returns when its port is open."""
        command = self.command()
        user = dict(zip(("user", "group"), unprivileged())) if self.as_user and os.geteuid() == 0 else {}
        if user:
            user["extra_groups"] = []

        def prepare():
            _die_with_parent()
            if self.limits:
                self.limits()

        with open(self.log, "ab") as log:
            self.log_start = log.tell()
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.work,
                                            start_new_session=True, preexec_fn=prepare, env=environment(), **user)
        patience = Patience(START_SECONDS)
        while not patience.over():
            port = self.find_port()
            if port and self.answers(port):
                self.port = port
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        text = self.output()
        self.kill()
        raise RuntimeError(f"{' '.join(map(str, command))} did not start:\n{text}")

    def answers(self, port):
        try:
            with socket.create_connection(("localhost", port), timeout=1):
                return True
        except OSError:
            return False

    def output(self):
        """What it has written since its last start."""
        with open(self.log, "rb") as log:
            log.seek(self.log_start)
            return log.read().decode(errors="replace")

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self, number=signal.SIGKILL):
        """Ends its whole process group at once, as a crash would."""
        if self.process is not None:
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                pass
            self.process.wait()
            self.process = None

    def stop(self):
        """Asks it to end and returns its exit status."""
        self.process.terminate()
        status = self.process.wait(STOP_SECONDS)
        self.process = None
        return status

    def restart(self):
        """Kills it as a crash would and starts it again on the same tree and, where it can be chosen, the same port."""
        self.kill()
        return self.start()

    def remove(self):
        """Ends it and removes what it wrote."""
        self.kill()
        shutil.rmtree(self.work, ignore_errors=True)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.remove()
            raise

    def __exit__(self, *_):
        self.remove()

    @property
    def host(self):
        return f"localhost:{self.port}"

    def url(self, path):
        """The URL of an absolute path: `root://host:port//path`."""
        return f"root://{self.host}/{path}"

    def memory(self):
        """Resident bytes of the process."""
        return process_status(self.process.pid, "VmRSS") * 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


class Ours(Server):
    """`scalla serve TREE`, started as a newcomer would, with a configuration file for what the tests change."""

    kind = "ours"

    def command(self):
        configuration = self.work / "scalla.cfg"
        configuration.write_text(self.configuration())
        if self.port is None:
            self.port = free_port()
        return [program(), "serve", self.tree, "--port", str(self.port), "--config", configuration, *self.arguments]

    def find_port(self):
        found = re.search(r"listening on \S*:(\d+)", self.output())
        return int(found.group(1)) if found else None


class Refused(Ours):
    """Ours, to which the kernel refuses what the data path would like to use."""

    def __init__(self, **how):
        super().__init__(limits=refusal.refuse, **how)


class Theirs(Server):
    """Debian's xrootd on the same kind of tree."""

    kind = "theirs"

    def command(self):
        configuration = self.work / "xrootd.cfg"
        # Names of clients are not looked up: where no name server answers, that takes seconds.
        configuration.write_text(f"xrd.network nodnr\nall.export {self.export}\noss.localroot {self.tree}\n{self.configuration()}")
        if self.port is None:
            self.port = free_port()
        return ["/usr/bin/xrootd", "-c", configuration, "-p", str(self.port), *self.arguments]

    def find_port(self):
        return self.port if "initialization completed" in self.output() else None


class Linked(Theirs):
    """Our program through a link named `xrootd`, with the real one's command line and configuration."""

    kind = "ours"

    def command(self):
        return [link("xrootd"), *super().command()[1:]]

    def find_port(self):
        return self.port


_copied = None


def program():
    """Our program, copied to where the servers' user can reach it: a checkout may lie below somebody's home."""
    global _copied
    if _copied is None:
        source = Path(os.environ.get("SCALLA") or REPOSITORY / os.environ.get("CARGO_TARGET_DIR", "target") / "debug/scalla")
        if not source.is_file():
            raise RuntimeError(f"{source} is missing: run `cargo build --package scalla`, or set SCALLA")
        folder = tempfile.mkdtemp(prefix="scalla-bin-", dir="/var/tmp")
        os.chmod(folder, 0o755)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _copied = Path(folder) / "scalla"
        shutil.copy(source, _copied)
        _copied.chmod(0o755)
    return _copied


def link(name):
    """Our program under the name of one of XRootD's."""
    path = program().parent / name
    if not path.is_symlink():
        path.symlink_to(program())
    return path
