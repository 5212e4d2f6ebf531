"""A real browser without a screen, driven over pipes by the protocol of its developer tools."""

import base64
import itertools
import json
import os
import select
import signal
import subprocess
import tempfile
from pathlib import Path

import peers
import tools

PROGRAM = peers.real("chromium-headless-shell")
SECONDS = 30 * peers.SLOWNESS
# The descriptors on which it reads commands and writes answers.
COMMANDS, ANSWERS = 3, 4
# Notices of faults of a page.
FAULTS = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Network.loadingFailed")


class Browser:
    """A browser with one page, of this size in pixels."""

    def __init__(self, width=1280, height=900):
        self.profile = tempfile.TemporaryDirectory(prefix="scalla-browser-")
        self.numbers = itertools.count(1)
        self.received = b""
        self.notices = []
        self.session = None
        commands, self.commands = os.pipe()
        self.answers, answers = os.pipe()

        def prepare():
            # By way of higher numbers, because the pipes can have those that are wanted.
            for end, high in ((commands, 98), (answers, 99)):
                os.dup2(end, high)
            for high, wanted in ((98, COMMANDS), (99, ANSWERS)):
                os.dup2(high, wanted)
                os.close(high)

        command = [PROGRAM, "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   f"--user-data-dir={self.profile.name}"]
        self.process = subprocess.Popen(command, preexec_fn=prepare, close_fds=False, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(commands), os.close(answers)
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.resize(width, height)

    def ask(self, method, **parameters):
        """Gives a command and returns its result."""
        message = {"id": next(self.numbers), "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") != message["id"]:
                self.notices.append(found)
                continue
            assert "error" not in found, (method, found)
            return found["result"]

    def _next(self):
        while b"\0" not in self.received:
            assert select.select([self.answers], [], [], SECONDS)[0], "the browser does not answer"
            more = os.read(self.answers, 1 << 16)
            assert more, f"the browser has ended: {self.process.wait()}"
            self.received += more
        message, self.received = self.received.split(b"\0", 1)
        return json.loads(message)

    def resize(self, width, height):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def prefer(self, scheme):
        """Prefers a color scheme: `light` or `dark`."""
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url):
        self.ask("Page.navigate", url=url)

    def run(self, expression):
        """Returns the value of a JavaScript expression, or that of its promise."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def text(self):
        """Returns what can be seen of the page."""
        return self.run("document.body.innerText")

    def faults(self):
        """Returns the faults of pages since the start, and the addresses that they have asked for."""
        self.run("0")
        faults = [notice for notice in self.notices if notice.get("method") in FAULTS]
        requests = [notice for notice in self.notices if notice.get("method") == "Network.requestWillBeSent"]
        return faults, {notice["params"]["request"]["url"] for notice in requests}

    def nodes(self):
        """Returns what a reader of screens finds: roles and names."""
        found = self.ask("Accessibility.getFullAXTree")["nodes"]
        return [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in found if not node["ignored"]]

    def picture(self, name):
        """Stores a picture of the whole page in the directory SCALLA_PICTURES, if there is one."""
        directory = os.environ.get("SCALLA_PICTURES")
        if directory:
            size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            data = self.ask("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
            Path(directory, f"{name}.png").write_bytes(base64.b64decode(data))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        group = self.process.pid
        os.killpg(group, signal.SIGKILL)
        self.process.wait()
        # The others of its processes write to the profile until they have ended.
        tools.wait_until(lambda: not _exists(group))
        os.close(self.commands), os.close(self.answers)
        self.profile.cleanup()


def _exists(group):
    """Reports whether a group has processes that have not ended."""
    states = subprocess.run(["ps", "-o", "pgid=,state=", "-A"], capture_output=True, text=True, check=True).stdout
    return any(pgid == str(group) and state != "Z" for pgid, state in map(str.split, states.splitlines()))
