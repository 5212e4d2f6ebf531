"""The commands of docs/quick-start.md run in order and print the output that the document shows.

`/data`, `/srv` and `myhost` are replaced by directories and the address of the test."""

import re
import signal
import subprocess
import threading

import pytest

import peers

# Built and installed before the test.
LEFT_OUT = "1. Build"


def sections():
    text = (peers.REPOSITORY / "docs/quick-start.md").read_text()
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)[1:]
    return [(title, re.findall(r"^```(\w*)\n(.*?)^```$", body, re.MULTILINE | re.DOTALL)) for title, body in zip(parts[::2], parts[1::2])]


class Reader:
    """Follows the document."""

    def __init__(self, directory):
        self.directory, self.servers = directory, []
        # The clients of XRootD are the real ones.
        self.environment = peers.environment(PATH=f"/usr/bin:/bin:{peers.program().parent}", HOME=str(directory), XDG_STATE_HOME=str(directory / "state"), SHELL="/bin/bash",
                                             PYTHONPATH="/usr/lib/python3/dist-packages")
        self.host = None

    def here(self, text):
        text = re.sub(r"(?<![\w.])/(data|srv)\b", rf"{self.directory}/\1", text)
        return text if self.host is None else text.replace("root://myhost:1094//", f"root://{self.host}//").replace("myhost", self.host)

    def run(self, command, shown):
        command = self.here(command.split("   #")[0].strip())
        if command.startswith("scalla serve"):
            return self.serve(command, shown)
        done = subprocess.run(["/bin/bash", "-c", command], cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == (1 if "bad.cfg" in command and "check" in command else 0), f"{command}\n{done.stdout}{done.stderr}"
        if shown:
            assert done.stdout.splitlines() == [self.here(line) for line in shown], command

    def serve(self, command, shown):
        command = re.sub(r" --port \d+", "", command)
        server = subprocess.Popen([*command.split(), "--port", "0"], cwd=self.directory, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.servers.append(server)
        first = server.stdout.readline()
        port = re.match(r"scalla v\S+ listening on \[::\]:(\d+), ", first).group(1)
        lines = [first] + [server.stdout.readline() for _ in shown[1:]]
        masked = [re.sub(r"v\d\S+|root://[^/]*", "…", line.rstrip()).replace(port, "1094") for line in lines]
        assert masked[:len(shown)] == [re.sub(r"v\d\S+|root://[^/]*", "…", self.here(line)) for line in shown]
        if self.host is None:
            self.host = f"localhost:{port}"
        threading.Thread(target=server.stdout.read, daemon=True).start()

    def end(self):
        for server in self.servers:
            server.send_signal(signal.SIGTERM)
            assert server.wait(timeout=60) == 0


@pytest.fixture
def reader(tmp_path):
    reader = Reader(tmp_path)
    yield reader
    for server in reader.servers:
        if server.poll() is None:
            server.kill()


def test_every_command_of_the_quick_start_works(reader, ours):
    for title, blocks in sections():
        if title == LEFT_OUT:
            continue
        for language, block in blocks:
            lines = block.splitlines()
            if language == "python":
                (reader.directory / "read.py").write_text(reader.here(block) + "assert status.ok and len(data) == 1024\n")
                reader.run("/usr/bin/python3 read.py", [])
            elif lines[0].startswith("# "):
                (reader.directory / lines[0][2:]).write_text(reader.here(block))
            elif lines[0].startswith("$ "):
                commands = [index for index, line in enumerate(lines) if line.startswith("$ ")]
                for index, end in zip(commands, commands[1:] + [len(lines)]):
                    reader.run(lines[index][2:], lines[index + 1:end])
            else:
                for line in lines:
                    reader.run(line, [])
    reader.end()
