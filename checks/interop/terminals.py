"""A user at a pseudo terminal, who types and waits for output."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import peers
import tools

# Line editors enable bracketed paste when they show a prompt, and disable it when a line is
# complete.
AT_PROMPT, LINE_DONE = b"\x1b[?2004h", b"\x1b[?2004l"
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\r|\x07")


class Terminal:
    """A program with a terminal of its own. All output is kept in `shown`; `before` is the initial
    state of the terminal."""

    def __init__(self, command, cwd=None, columns=200, **environment):
        ours, its = pty.openpty()
        self.before = termios.tcgetattr(ours)
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("4H", 40, columns, 0, 0))

        def own():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            peers._die_with_parent()

        self.process = subprocess.Popen([str(word) for word in command], stdin=its, stdout=its, stderr=its, cwd=cwd, start_new_session=True,
                                        preexec_fn=own, env=peers.environment(TERM="xterm", **environment))
        os.close(its)
        self.file = ours
        self.shown = b""
        self.seen = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.file)

    def type(self, text):
        os.write(self.file, text.encode())

    def until(self, text, seconds=tools.PATIENCE_SECONDS):
        """Waits for bytes and returns the output before them, as a user sees it."""
        text = text.encode() if isinstance(text, str) else text
        deadline = time.monotonic() + seconds
        while text not in self.shown[self.seen:]:
            assert self._read(deadline), f"no {text!r} in:\n{self.shown[self.seen:].decode(errors='replace')}"
        at = self.shown.index(text, self.seen)
        passed, self.seen = self.shown[self.seen:at], at + len(text)
        return ESCAPES.sub(b"", passed).decode(errors="replace")

    def _read(self, deadline):
        if not select.select([self.file], [], [], max(0, deadline - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self.file, 65536)
        except OSError:
            data = b""
        self.shown += data
        return bool(data)

    def prompt(self, expected):
        """Waits for a prompt."""
        self.until(AT_PROMPT)
        self.until(expected)

    def run(self, line):
        """Types a line and returns the output until the next prompt."""
        self.type(line + "\r")
        self.until(LINE_DONE)
        # Some editors end the line before they disable it, some after that.
        return self.until(AT_PROMPT).removeprefix("\n")

    def interrupt(self):
        self.type("\x03")

    def end(self):
        """Waits until the program has ended. Returns its exit status and the remaining output."""
        deadline = time.monotonic() + tools.PATIENCE_SECONDS
        while self._read(deadline):
            pass
        status = self.process.wait(max(1, deadline - time.monotonic()))
        rest, self.seen = self.shown[self.seen:], len(self.shown)
        return (signal.Signals(-status).name if status < 0 else status), ESCAPES.sub(b"", rest).decode(errors="replace")
