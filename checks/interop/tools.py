"""The real command line programs, and data for them."""

import contextlib
import inspect
import random
import signal
import subprocess
import time
from pathlib import Path

import peers

XRDCP = peers.real("xrdcp")
XRDFS = peers.real("xrdfs")
PROGRAMS = [XRDCP, XRDFS, peers.real("xrootd"), peers.real("cmsd"), peers.real("xrdmapc"), peers.real("xrdadler32"), peers.real("xrdcrc32c"), "/usr/bin/setpriv", "/usr/bin/kinit", "/usr/sbin/kadmin.local", "/usr/sbin/krb5kdc",
            "/usr/lib/python3/dist-packages/XRootD/__init__.py"]
PATIENCE_SECONDS = 120 * peers.SLOWNESS
# Time of files whose time is compared: 2023-11-14 22:13:20.
AGED = 1_700_000_000


class Result:
    """Result of a program."""

    def __init__(self, done):
        self.status = done.returncode
        self.raw = done.stdout
        self.out = done.stdout.decode(errors="surrogateescape")
        self.err = done.stderr.decode(errors="surrogateescape")

    @property
    def all(self):
        return self.out + self.err

    def ok(self):
        assert self.status == 0, f"exit status {self.status}\n{self.out}{self.err}"
        return self

    def silent(self):
        assert not self.out and not self.err, f"{self.out}{self.err}"
        return self

    def fails(self, status, *texts):
        assert self.status == status, f"exit status {self.status}, expected {status}\n{self.out}{self.err}"
        for text in texts:
            assert text in self.all, f"{text!r} not in:\n{self.out}{self.err}"
        return self

    def __repr__(self):
        return f"exit status {self.status}\n{self.out}{self.err}"


def _to_its_end(command, input, seconds, **where):
    """Runs a program to its end. One that takes too long is killed after a look at its state."""
    stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
    with subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **where) as process:
        try:
            out, err = process.communicate(input, timeout=seconds)
        except subprocess.TimeoutExpired as late:
            state = _state_of(process.pid)
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"{late}\n{state}\n{out.decode(errors='replace')}{err.decode(errors='replace')}") from late
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(command, process.returncode, out, err)


def _state_of(process):
    """Returns for what each thread of a process waits, and the state of its connections at both ends, so that a
    failure shows which end does not answer."""
    lines = []
    for thread in sorted(Path(f"/proc/{process}/task").glob("*")):
        with contextlib.suppress(OSError):
            lines.append(" ".join((thread / name).read_text().strip() for name in ["comm", "wchan", "syscall"]))
    sockets = subprocess.run(["ss", "-Htnpoi"], capture_output=True, text=True, check=True).stdout.replace("\n\t", " ").splitlines()
    own = [line.split() for line in sockets if f"pid={process}," in line]
    ends = {end for words in own for end in words[3:5]}
    return "\n".join(lines + [" ".join(line.split()) for line in sockets if ends & set(line.split()[3:5])])


def run(command, input=None, cwd=None, seconds=PATIENCE_SECONDS, **environment):
    """Runs a program to its end and fails if that takes longer than `seconds`. A real one is run
    again, at most five times, after a segmentation fault or an abort at its exit or the message
    "Archive not opened."; ours must not fail."""
    for _ in range(6):
        done = _to_its_end([str(word) for word in command], input, seconds, cwd=cwd, env=peers.environment(**environment))
        raced = done.returncode in (-signal.SIGSEGV, -signal.SIGABRT) or b"Archive not opened." in done.stderr + done.stdout
        if not raced or str(command[0]) not in PROGRAMS:
            break
        if command[0] == XRDCP:
            # The target may exist already.
            command = [XRDCP, "--force", *command[1:]]
    return Result(done)


def xrdcp(*arguments, input=None, cwd=None, **environment):
    return run([XRDCP, "--nopbar", *arguments], input=input, cwd=cwd, **environment)


def scalla(*arguments, input=None, cwd=None, **environment):
    """Runs our program."""
    return run([peers.program(), *arguments], input=input, cwd=cwd, **environment)


def both(name, *words, input=None, cwd=None, **environment):
    """Returns the results of the real program of a name and of ours."""
    return [run([program, *words], input=input, cwd=cwd, **environment) for program in (peers.real(name), peers.link(name))]


def xrdfs(server, *words, input=None, cwd=None, program=XRDFS, **environment):
    """Runs one command in batch mode."""
    return run([program, server.host, *words], input=input, cwd=cwd, **environment)


def refused_checksum(server, *paths):
    """Returns the refusal of a checksum. The refusal of the real server may overtake the notice
    that its answer is deferred. Then it is never sent, and its client and any other for the same
    path wait forever (3 to 14 in 1,000 directories; none of thousands of small files). The next
    path is tried then; ours gets one attempt."""
    for path in paths if server.kind == "theirs" else paths[:1]:
        result = xrdfs(server, "query", "checksum", path, XRD_REQUESTTIMEOUT="10", XRD_TIMEOUTRESOLUTION="1")
        if "expired" not in result.all:
            break
    return result


def data(size, seed=1):
    """Returns `size` bytes that do not compress and differ by seed."""
    return random.Random(seed).randbytes(size)


_period = bytes((7 * i + 13 * (i >> 8) + 5) % 256 for i in range(65536))


def pattern(size):
    """Returns the content of the recorded exchanges' files: byte[i] = 7 i + 13 (i >> 8) + 5."""
    return (_period * (size // len(_period) + 1))[:size]


def wait_until(condition, seconds=30):
    """Waits for a change that the server makes asynchronously. Returns the value of the condition."""
    patience = peers.Patience(seconds * peers.SLOWNESS)
    while not (found := condition()):
        if patience.over():
            caller = inspect.stack(context=1)[1]
            condition_text = "".join(caller.code_context or ()).strip()
            raise AssertionError(f"within {seconds} s it did not happen, line {caller.lineno}: {condition_text}")
        time.sleep(0.02)
    return found
