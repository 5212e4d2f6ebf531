"""Clients of clusters whose nodes have network namespaces of their own.

They run in the clients' namespace and know all managers by one name, `managers`. A test defines it
with `Network.name_hosts`."""

import hashlib
import subprocess

import clusters
import peers
import tools

# Timeouts of clients, short enough to detect a lost server within seconds.
PATIENCE = dict(XRD_CONNECTIONWINDOW="5", XRD_CONNECTIONRETRY="2", XRD_STREAMTIMEOUT="8", XRD_STREAMERRORWINDOW="0",
                XRD_TIMEOUTRESOLUTION="1", XRD_REQUESTTIMEOUT="60")


# Timeouts for the creation of a file. A manager may let the client wait for 30 s without a reply.
# With a shorter timeout the client would retry during its first request, and might find its own
# file.
MAKING = dict(XRD_STREAMTIMEOUT="60")


def start(cluster, *command, **environment):
    """Starts a client program in the clients' namespace."""
    return subprocess.Popen([*cluster.places.prefix(), *map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, env=peers.environment(**{**PATIENCE, **environment}), text=True)


def xrdcp(cluster, *arguments):
    making = MAKING if "://" in str(arguments[-1]) else {}
    return tools.run([*cluster.places.prefix(), tools.XRDCP, "--nopbar", *arguments], **{**PATIENCE, **making})


def xrdfs(cluster, *words, host="managers:1094"):
    return tools.run([*cluster.places.prefix(), tools.XRDFS, host, *words], **PATIENCE)


def url(area, name, host="managers:1094"):
    return f"root://{host}/{area / name}"


class Steps:
    """A Python client that proceeds on command."""

    def __init__(self, cluster, python=clusters.PYTHONS[0], **environment):
        self.process = start(cluster, python, peers.REPOSITORY / "checks/interop" / "python_steps.py", **environment)

    def begin(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def end(self):
        word, _, text = self.process.stdout.readline().strip().partition(" ")
        return word, text

    def __call__(self, *words):
        self.begin(*words)
        word, text = self.end()
        assert word == "ok", f"{words}: {word} {text}"
        return text

    def fails(self, *words):
        self.begin(*words)
        word, text = self.end()
        assert word == "error", f"{words}: {word} {text}"
        return text

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def server(self, cluster):
        """Returns the node of the open file."""
        address = self("server").rpartition(":")[0].strip("[]").rpartition(":")[2]
        return next(node for node in cluster.servers if node.address == address or node.place.host == address)


def digest(content):
    return hashlib.sha256(content).hexdigest()
