"""Servers for the tests: ours and the real xrootd.

They serve trees of the same shape, as the same user, in their own process groups, and write only
below one temporary directory."""

import atexit
import collections
import ctypes
import fcntl
import functools
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
import weakref
from pathlib import Path

import refusal

REPOSITORY = Path(__file__).resolve().parents[2]
# Factor for timeouts on machines that are slow or suspended at times.
SLOWNESS = float(os.environ.get("SCALLA_INTEROP_SLOWNESS", "1"))
START_SECONDS = 30 * SLOWNESS
STOP_SECONDS = 40 * SLOWNESS

# Maximum time by which one reading of the clock reduces a timeout.
STRETCH_SECONDS = 5

# Settings of both servers beyond the served tree. Each is a deviation from the defaults that some
# test needs. The defaults themselves are tested by servers without settings.
SETTINGS = """\
xrootd.chksum max 3 adler32 crc32 crc32c md5 zcrc32
ofs.ckslib zcrc32 libXrdCksCalczcrc32.so
ofs.persist manual hold 20
ofs.chkpnt enable maxsz 1m
"""


# Where the real programs are installed. Another place than that of Debian's packages, such as one of
# `scripts/peers six`, replaces 5.5.3 by another version.
REAL_PROGRAMS = Path(os.environ.get("SCALLA_PEERS") or "/usr") / "bin"


def real(name):
    """Returns the path of a real program."""
    return str(REAL_PROGRAMS / name)


@functools.cache
def real_release():
    """Returns the first number of the version of the real programs, 5 or 6."""
    said = subprocess.run([real("xrootd"), "-v"], capture_output=True, text=True, timeout=60)
    return int(re.search(r"v(\d+)\.", said.stdout + said.stderr).group(1))


class Patience:
    """A timeout. If the test itself was not scheduled for a while, only the beginning of that time
    counts: the machine was suspended or busy, and the awaited process had no more time than the
    test."""

    def __init__(self, seconds):
        self.left = seconds
        self.looked = time.monotonic()

    def over(self):
        now = time.monotonic()
        self.left -= min(now - self.looked, STRETCH_SECONDS)
        self.looked = now
        return self.left <= 0


def unprivileged():
    """Returns (uid, gid) of servers: `nobody` if the tests run as root, otherwise those of this
    process."""
    if os.geteuid() == 0:
        entry = pwd.getpwnam("nobody")
        return entry.pw_uid, entry.pw_gid
    return os.geteuid(), os.getegid()


def give(path):
    """Changes the owner of a file or directory to the servers' user."""
    if os.geteuid() == 0:
        os.chown(path, *unprivileged())
    return path


def place(path, content):
    """Creates a file directly on the disk that belongs to the servers' user."""
    path.write_bytes(content)
    path.chmod(0o644)
    return give(path)


def process_status(pid, field):
    """Returns a number of /proc/PID/status."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise KeyError(field)


def _die_with_parent():
    # A killed test run must not leave servers running. 1 is PR_SET_PDEATHSIG.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


# Ports for programs, outside of the range from which the kernel assigns ports, so that none is lost
# while its program is down. A locked file per port reserves it for this process; locks end with it.
# A process that needs very many releases the oldest.
_PORT_LOCKS = Path("/var/tmp/scalla-ports")
_PORTS_KEPT = 400
_kept_ports = collections.deque()


def _ports_of_programs():
    """Returns ports outside of the kernel's range, from the larger side of it."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    return max(range(10_000, low), range(high + 1, 65_536), key=len)


def _lock_port(port):
    """Returns the locked file of a port, or None if another process has it."""
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
    """Returns a free port that stays reserved, for a program that cannot report the port the kernel
    assigned, or that is restarted."""
    for port in random.sample(_ports_of_programs(), 1000):
        lock = _lock_port(port)
        if lock is not None:
            _kept_ports.append(lock)
            if len(_kept_ports) > _PORTS_KEPT:
                os.close(_kept_ports.popleft())
            return port
    raise RuntimeError("of 1000 ports none is free")


def environment(**more):
    """Returns an environment without settings of the person who runs the tests, and with short
    timeouts."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XRD", "PYTHON"))}
    kept.update(LC_ALL="C.UTF-8", TZ="UTC", XRD_CONNECTIONWINDOW="20", XRD_CONNECTIONRETRY="1", XRD_REQUESTTIMEOUT="120",
                XRD_STREAMTIMEOUT="120", XRD_TIMEOUTRESOLUTION="1")
    # Real servers find the program for third-party copies there.
    kept["PATH"] = f"{REAL_PROGRAMS}:{kept.get('PATH', os.defpath)}"
    kept.update(more)
    # `None` removes a variable.
    return {name: value for name, value in kept.items() if value is not None}


# All servers that exist, for the report about a failure.
_existing = weakref.WeakSet()


def describe_all():
    """Returns a pair of title and text for each server that was started and not removed: whether
    it still runs, and the end of its log."""
    started = [server for server in _existing if server.process is not None and server.log.is_file()]
    return [(f"{server.kind} at port {server.port}: {server.state()}",
             "\n".join(server.log.read_text(errors="replace").splitlines()[-20:])) for server in started]


class Server:
    """One running server. `tree` is served as `/`."""

    kind = None

    def __init__(self, settings=SETTINGS, export="/", tree=None, limits=None, as_user=True, arguments=(), variables=None):
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
        # Variables of its environment.
        self.variables = variables or {}
        self.process = None
        self.port = None
        _existing.add(self)

    def configuration(self):
        """Returns the lines that both programs read."""
        return f"all.adminpath {self.work}/admin\nall.pidpath {self.work}/run\n{self.settings}"

    def command(self):
        raise NotImplementedError

    def find_port(self):
        raise NotImplementedError

    def start(self):
        """Starts the server and returns when its port is open."""
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
                                            start_new_session=True, preexec_fn=prepare, env=environment(**self.variables), **user)
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
        """Returns the output since its last start."""
        with open(self.log, "rb") as log:
            log.seek(self.log_start)
            return log.read().decode(errors="replace")

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def state(self):
        """Returns a word for people: that it runs, or how it ended."""
        status = self.process.poll()
        if status is None:
            return "runs"
        return f"ended by signal {-status}" if status < 0 else f"ended with status {status}"

    def kill(self, number=signal.SIGKILL):
        """Kills its whole process group, like a crash."""
        if self.process is not None:
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                pass
            self.process.wait()
            self.process = None

    def stop(self):
        """Stops it and returns its exit status."""
        self.process.terminate()
        status = self.process.wait(STOP_SECONDS)
        self.process = None
        return status

    def restart(self):
        """Kills it like a crash and starts it again on the same tree and, if possible, the same
        port."""
        self.kill()
        return self.start()

    def remove(self):
        """Stops it and removes its files."""
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
        """Returns the URL of an absolute path: `root://host:port//path`."""
        return f"root://{self.host}/{path}"

    def memory(self):
        """Returns the resident bytes of the process."""
        return process_status(self.process.pid, "VmRSS") * 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


class Ours(Server):
    """`scalla serve TREE`, started like a new user would, with a configuration file for the
    settings of the tests."""

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
    """Ours, with the system calls of the data path refused by the kernel."""

    def __init__(self, **how):
        super().__init__(limits=refusal.refuse, **how)


class Theirs(Server):
    """The real xrootd on the same kind of tree."""

    kind = "theirs"

    def command(self):
        configuration = self.work / "xrootd.cfg"
        # Names of clients are not resolved, because that takes seconds without a name server.
        configuration.write_text(f"xrd.network nodnr\nall.export {self.export}\noss.localroot {self.tree}\n{self.configuration()}")
        if self.port is None:
            self.port = free_port()
        return [real("xrootd"), "-c", configuration, "-p", str(self.port), *self.arguments]

    def find_port(self):
        # Its parts report their own before. Only the last line, with one of its ports, says that all ports are open.
        return self.port if re.search(r":\d+ initialization completed", self.output()) else None


def refused_start(server):
    """Returns the output of a server that must not start, and removes the server."""
    try:
        server.start()
    except RuntimeError as refusal:
        return str(refusal)
    finally:
        server.remove()
    raise AssertionError(f"{server.kind} started with {server.settings}")


class Linked(Theirs):
    """Our program through a link named `xrootd`, with the real program's command line and
    configuration."""

    kind = "ours"

    def command(self):
        return [link("xrootd"), *super().command()[1:]]

    def find_port(self):
        return self.port


_copied = None


def program():
    """Our program, copied to a place that the servers' user can read: a checkout may be below a
    home directory."""
    global _copied
    if _copied is None:
        source = Path(os.environ.get("SCALLA") or REPOSITORY / os.environ.get("CARGO_TARGET_DIR", "target") / "debug/scalla")
        if not source.is_file():
            raise RuntimeError(f"{source} is missing: run `cargo build --package scalla`, or set SCALLA")
        directory = tempfile.mkdtemp(prefix="scalla-bin-", dir="/var/tmp")
        os.chmod(directory, 0o755)
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        _copied = Path(directory) / "scalla"
        shutil.copy(source, _copied)
        _copied.chmod(0o755)
    return _copied


def link(name):
    """Our program under the name of one of XRootD's."""
    path = program().parent / name
    if not path.is_symlink():
        path.symlink_to(program())
    return path
