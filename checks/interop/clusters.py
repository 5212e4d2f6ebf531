"""Clusters for the tests: managers, supervisors, servers and meta managers.

Each node is a real pair of xrootd and cmsd or one process of ours, with one configuration file for
all of them. A `Plan` defines the nodes and their parents. A `Cluster` runs it with a maker (`real`
or `ours`) for each node. Nothing waits by sleeping: a cluster is formed when each parent lists its
children."""

import itertools
import math
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import peers
import raw
import tools

CMSD = peers.real("cmsd")
XROOTD = peers.real("xrootd")
XRDMAPC = peers.real("xrdmapc")
# Interpreters of the newest Python client and of the distribution's client.
PYTHONS = [sys.executable, "/usr/bin/python3"]
# An option of kXR_locate: include nodes that the client cannot reach.
ALL_NETS = 4
# Covers several polls of real daemons, which take 10 to 12 s, and retries after 9 s.
FORM_SECONDS = 90 * peers.SLOWNESS
# Time in seconds for which a real manager, which lets clients wait for 1 s, is queried for the same
# name.
NEW_PROBE_SECONDS = 10

# Waits of a real manager, shortened to the minimum of its parser. Tests of the waits themselves
# override them.
TIMING = """\
cms.delay startup 1 servers 1 lookup 1 qdl 1 suspend 1 service 1
cms.conwait 1
cms.ping 3
cms.space min 1m 2m
"""

SETTINGS = """\
xrd.network nodnr
xrootd.chksum max 2 adler32 crc32c
ofs.persist manual hold 20
"""


class Plan:
    """The shape of a cluster: lines of `name role parent…`, parents first. Roles: meta, manager,
    supervisor, server. A parent `a>b` is a node that is configured with `a` and redirected by it to
    `b`."""

    def __init__(self, text):
        self.nodes = [(name, role, parents) for name, role, *parents in map(str.split, text.strip().splitlines())]

    def names(self, *roles):
        return [name for name, role, _ in self.nodes if role in roles]


# One manager with two servers.
PAIR = Plan("""
    man manager
    s1 server man
    s2 server man
""")
# Mixes of managers and servers, each of one kind.
SIDES = {
    "real": dict(rest="real"),
    "ours": dict(rest="ours"),
    "our-servers-under-real": dict(managers="real", servers="ours"),
    "real-servers-under-ours": dict(managers="ours", servers="real"),
}
# Mixes of a manager, supervisors and servers: all of one kind, or one level of another.
LEVELS = {
    "real": dict(rest="real"),
    "ours": dict(rest="ours"),
    "by-command-line": dict(rest="plain"),
    "our-supervisors": dict(supervisors="ours", rest="real"),
    "real-supervisors": dict(supervisors="real", rest="ours"),
    "our-manager": dict(man="ours", rest="real"),
    "real-manager": dict(man="real", rest="ours"),
}


class NodeEnded(AssertionError):
    """A program has ended by itself."""


class Node:
    """One node: its role, maker, processes and files. `host` and `port` are those of its redirector
    or data server, like those of a `peers.Server`."""

    def __init__(self, cluster, name, role, maker, parents, place=None):
        self.cluster, self.name, self.role, self.maker, self.place = cluster, name, role, maker, place
        self.told_of = [parent.partition(">")[0] for parent in parents]
        self.parents = [parent.rpartition(">")[2] for parent in parents]
        self.kind = maker
        self.processes = []
        self.address = place.address if place else "localhost"
        # Parents are named in the configuration of all nodes, and a restarted node must find its
        # port free. Ports are therefore chosen in advance. In a network of its own a parent uses
        # the standard ports, and a server uses any.
        inner = role != "server"
        self.port = peers.free_port() if not place else 1094 if inner else None
        self.cms_port = (1213 if place else peers.free_port()) if inner else None
        self.tree = None
        if not inner:
            self.tree = cluster.trees.get(name)
            if self.tree is None:
                self.tree = cluster.work / name
                self.tree.mkdir()
                self.tree.chmod(0o755)
                peers.give(self.tree)
        self.log = cluster.work / f"{name}.log"

    @property
    def host(self):
        return f"{self.address}:{self.port}"

    @property
    def bare_address(self):
        """Returns an address for sockets of this process."""
        return self.place.addresses[0] if self.place else self.address

    def url(self, path):
        return f"root://{self.host}/{path}"

    def connect(self, **how):
        """Opens a bare client connection to its data port."""
        return raw.Connection(self, **how)

    @property
    def is_parent(self):
        return self.role != "server"

    # Processes.

    def launch(self, command, log, **more):
        """Starts a program as the servers' user, in its own process group and in its namespace, if
        it has one. Returns a function that returns the output since then."""
        prefix = self.place.prefix() if self.place else []
        if os.geteuid() == 0:
            uid, gid = peers.unprivileged()
            prefix = [*prefix, "/usr/bin/setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--pdeathsig=KILL", "--"]
        with open(log, "ab") as out:
            mark = out.tell()
            process = subprocess.Popen([*prefix, *map(str, command)], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                       cwd=self.cluster.work, start_new_session=True, preexec_fn=peers._die_with_parent,
                                       env=peers.environment(**more))
        self.processes.append(process)

        def said():
            with open(log, "rb") as written:
                written.seek(mark)
                return written.read().decode(errors="replace")

        return said

    def start(self):
        """Starts the node. Returns when its ports are open."""
        raise NotImplementedError

    def alive(self):
        return bool(self.processes) and all(process.poll() is None for process in self.processes)

    def kill(self, number=signal.SIGKILL):
        """Kills the node, like a crash of the machine."""
        for process in reversed(self.processes):
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                pass
        for process in self.processes:
            process.wait()
        self.processes = []

    def signal(self, number):
        """Sends a signal. A stop has taken effect when this returns."""
        for process in self.processes:
            os.killpg(process.pid, number)
        for process in self.processes if number == signal.SIGSTOP else ():
            state = Path(f"/proc/{process.pid}/stat")
            self.await_(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", "stop")

    def stop(self):
        """Stops the node as an administrator does."""
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(peers.STOP_SECONDS)
        self.processes = []

    def restart(self):
        """Kills the node and starts it again with the same ports."""
        self.kill()
        return self.start()

    def memory(self):
        """Returns the resident bytes of all its processes."""
        return sum(peers.process_status(process.pid, "VmRSS") * 1024 for process in self.processes)

    def output(self):
        return "\n".join(path.read_text(errors="replace") for path in self.logs() if path.is_file())

    def logs(self):
        return [self.log]

    def await_(self, condition, what, seconds=peers.START_SECONDS):
        patience = peers.Patience(seconds)
        while True:
            found = condition()
            if found:
                return found
            if not self.alive():
                raise NodeEnded(f"{self.name} ({self.maker}) ended:\n{self.output()[-3000:]}")
            assert not patience.over(), f"{self.name} ({self.maker}): no {what}:\n{self.output()[-3000:]}"
            time.sleep(0.02)

    def answers(self, port):
        try:
            with self.cluster.socket(self.bare_address, port):
                return True
        except OSError:
            return False

    # State of the node.

    def locate(self, path, options=0):
        """Returns the words of its answer to kXR_locate, or None for a wait or a missing file."""
        try:
            with self.connect(timeout=20) as connection:
                stream = connection.start(raw.LOCATE, struct.pack(">H14x", options), path.encode())
                frame = connection.answer()
                if frame.status == raw.WAITRESP:
                    frame = connection.answer()
                assert frame.stream == stream
                return frame.body.rstrip(b"\0").decode().split() if frame.status == raw.OK else None
        except (OSError, raw.Closed):
            return None

    def scalla(self, *words):
        """Runs `scalla cluster …` for this node, which is one of ours, on its host."""
        return tools.run(self.scalla_command(*words))

    def begin_scalla(self, *words):
        """Starts the same command as a process that runs beside the test."""
        return subprocess.Popen([*map(str, self.scalla_command(*words))], stdout=subprocess.PIPE, text=True, env=peers.environment())

    def scalla_command(self, *words):
        prefix = self.place.prefix() if self.place else []
        which = ["--admin-path", self.cluster.work / "admin", "--instance", self.name]
        return [*prefix, peers.program(), "cluster", *which, *words]

    def children(self):
        """Returns the ports of the nodes to which it can redirect clients now."""
        return self.listed("*", ALL_NETS)

    def listed(self, path, options=0):
        """Returns the ports of the nodes that have a path, according to this node."""
        words = [word for word in self.locate(path, options) or [] if word[:1] in "MS"]
        ports = {int(word.rpartition(":")[2]) for word in words if not word.endswith("]")}
        # A real supervisor omits the port of a node that reconnected; redirects contain it.
        bare = [word for word in words if word.endswith("]")]
        unlisted = {node.port for node in self.cluster.nodes.values() if self.name in node.parents and node.alive()} - ports
        return ports | unlisted if len(bare) >= len(unlisted) else ports


class Real(Node):
    """Debian's cmsd and xrootd with the same configuration and instance name."""

    def logs(self):
        return [self.cluster.work / f"{self.name}.cmsd.log", self.log]

    def start(self):
        """Starts both daemons; up to three times if one of them ends meanwhile, as a service manager does."""
        for attempt in reversed(range(3)):
            try:
                self.start_cmsd()
                self.start_xrootd()
                return self
            except NodeEnded:
                self.kill()
                if not attempt:
                    raise

    def arguments(self):
        return ["-c", self.cluster.configuration, "-n", self.name]

    def start_cmsd(self):
        """Starts cmsd first, because an xrootd without a cmsd retries only after 10 s."""
        shutil.rmtree(self.cluster.work / "admin" / self.name / ".olb", ignore_errors=True)
        said = self.launch([CMSD, *self.arguments()], self.logs()[0])
        self.await_(lambda: "initialization completed" in said().rpartition("------ cmsd")[2], "cmsd")
        if self.is_parent:
            self.await_(lambda: self.answers(self.cms_port), "cms port")

    def start_xrootd(self):
        port = ["-p", str(self.port)] if self.port else []
        said = self.launch([XROOTD, *self.arguments(), *port], self.log)
        found = self.await_(lambda: re.search(r"xrootd \S+:(\d+) initialization completed", said()), "xrootd")
        self.port = int(found.group(1))


class Ours(Node):
    """One process of ours, under the name `xrootd`, with the same configuration."""

    def command(self):
        port = ["-p", str(self.port)] if self.port else []
        return [peers.link("xrootd"), "-c", self.cluster.configuration, "-n", self.name, *port]

    def start(self):
        said = self.launch(self.command(), self.log)
        find = re.compile(r"(?:listening on \S*?|xrootd \S+):(\d+)[ ,]")
        if self.is_parent:
            self.await_(lambda: self.answers(self.port) and self.answers(self.cms_port), "open ports")
        else:
            found = self.await_(lambda: find.search(said()), "port")
            self.port = int(found.group(1))
        return self


class Plain(Ours):
    """Ours without a configuration file, with the command line of a new user."""

    def command(self):
        flags = ["--port", str(self.port or 0), "--instance", self.name, "--admin-path", self.cluster.work / "admin"]
        if self.is_parent:
            flags += ["--cluster-port", str(self.cms_port)]
        for parent in (self.cluster[name] for name in self.told_of):
            flags += ["--meta" if parent.role == "meta" else "--manager", f"{parent.address}:{parent.cms_port}"]
        # The tests also run on small disks.
        what = ["serve", self.tree, "--min-free", "1m"] if self.role == "server" else [self.role]
        return [peers.program(), *what, *flags]


MAKERS = {"real": Real, "ours": Ours, "plain": Plain}


class Cluster:
    """All nodes of a plan. `makers` has a maker for each node, or one for all. `kinds` has the
    address families of nodes whose place differs from the network. `sites` has the sites of
    managers."""

    kind = "cluster"

    def __init__(self, plan, makers, settings="", timing=TIMING, places=None, trees=None, kinds=None, sites=None):
        self.plan = plan
        self.work = Path(tempfile.mkdtemp(prefix="scalla-cluster-", dir="/var/tmp"))
        self.work.chmod(0o755)
        for name in ("admin", "run"):
            (self.work / name).mkdir()
            peers.give(self.work / name)
        peers.give(self.work)
        self.configuration = self.work / "cluster.cfg"
        self.places = places
        self.trees = trees or {}
        kinds = kinds or {}
        self.sites = sites or {}
        self.nodes = {}
        for name, role, parents in plan.nodes:
            maker = makers if isinstance(makers, str) else makers[name]
            self.nodes[name] = MAKERS[maker](self, name, role, maker, parents, places.make(name, kinds.get(name)) if places else None)
        self.settings = settings
        self.timing = timing

    def __getitem__(self, name):
        return self.nodes[name]

    def __getattr__(self, name):
        try:
            return self.__dict__["nodes"][name]
        except KeyError:
            raise AttributeError(name) from None

    def of(self, *roles):
        return [node for node in self.nodes.values() if node.role in roles]

    @property
    def servers(self):
        return self.of("server")

    @property
    def top(self):
        """Returns the node to which clients connect."""
        return next(iter(self.nodes.values()))

    def socket(self, address, port, timeout=5, source=None):
        """Opens a TCP connection from the clients' place, or from the loopback address `source`."""
        if self.places:
            found = self.places.bare_socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
            found.settimeout(timeout)
            found.connect((address, port))
            return found
        return socket.create_connection((address, port), timeout, source and (source, 0))

    def write_configuration(self):
        """Writes one file for all nodes and both programs."""
        lines = [f"all.adminpath {self.work}/admin", f"all.pidpath {self.work}/run", "all.export /", SETTINGS, self.timing]
        for node in self.nodes.values():
            lines.append(f"if named {node.name}")
            lines.append(f"all.role {'meta manager' if node.role == 'meta' else node.role}")
            lines += self.managers(node)
            if node.role == "server":
                lines += [f"oss.localroot {node.tree}", "xrd.port any"]
            elif node.role == "supervisor":
                lines += [f"xrd.port {node.port}", f"cms.superport {node.cms_port}"]
            else:
                lines += ["fi", f"if exec xrootd && named {node.name}", f"xrd.port {node.port}"]
                lines += ["fi", f"if exec cmsd && named {node.name}", f"xrd.port {node.cms_port}"]
            lines.append("fi")
        self.configuration.write_text("\n".join([*lines, self.settings, ""]))

    def managers(self, node):
        """Returns the `all.manager` lines of a node: its own port if it is a manager, and its
        parents."""
        lines = []
        if node.role == "meta":
            lines += [f"all.manager meta {twin.address}:{twin.cms_port}" for twin in self.twins(node)]
        elif node.role == "manager":
            lines += [f"all.manager {twin.address}:{twin.cms_port}" for twin in self.twins(node)]
        for name in node.told_of:
            parent = self.nodes[name]
            kind = "meta " if parent.role == "meta" else ""
            site = f"@{self.sites[name]}" if name in self.sites else ""
            what = "all.subcluster" if (node.role, parent.role) == ("manager", "manager") else f"all.manager {kind}".strip()
            lines.append(f"{what} {parent.address}:{parent.cms_port}{site}")
        return lines

    def twins(self, node):
        """Returns a manager and the managers of its site that share its children, in the order of
        the plan."""
        shared = {parent for other in self.nodes.values() if node.name in other.parents for parent in other.parents
                  if self.sites.get(parent) == self.sites.get(node.name)}
        return [other for other in self.of(node.role) if other is node or other.name in shared]

    def start(self, between=None):
        """Starts all nodes, parents first. `between` is called when the first node is up."""
        try:
            self.write_configuration()
            for node in self.nodes.values():
                node.start()
                if between and node is self.top:
                    between()
            return self.formed()
        except BaseException:
            self.remove()
            raise

    def formed(self, seconds=FORM_SECONDS):
        """Waits until each running parent lists its running children."""
        patience = peers.Patience(seconds)
        for parent in self.nodes.values():
            if not (parent.is_parent and parent.alive()):
                continue
            expected = {node.port for node in self.nodes.values() if parent.name in node.parents and node.alive()}
            while not expected <= (children := parent.children()):
                assert not patience.over(), \
                    f"{parent.name} ({parent.maker}) lists {children}, not {expected}\n{parent.output()[-3000:]}"
                time.sleep(0.05)
        return self

    def complete(self):
        """Returns the same cluster with all nodes running and known to their parents. An earlier
        test may have failed midway."""
        for node in self.nodes.values():
            if not node.alive():
                node.kill()
                node.start()
        return self.formed()

    def answering(self, seconds=FORM_SECONDS):
        """Waits until each server answers queries for an unknown file, at each manager.

        A real manager does not query a server again whose connection was lost before the answer,
        even after a reconnect. For hours it reports that only the others have the file. It is
        therefore given another name from time to time. Ours must find the one name."""
        patience = peers.Patience(seconds)
        area = Area(self)
        for parent in self.of("manager", "supervisor"):
            expected = {node.port for node in self.servers if parent.name in node.parents}
            for number in itertools.count():
                name = area.put(f"probe-{parent.name}-{number}", b"probe", *(node.name for node in self.servers))
                same = peers.Patience(NEW_PROBE_SECONDS if parent.maker == "real" else math.inf)
                while not expected <= (found := parent.listed(name, ALL_NETS)) and not same.over():
                    assert not patience.over(), \
                        f"{parent.name} ({parent.maker}) finds what all have at {found}, not {expected}\n{parent.output()[-3000:]}"
                    time.sleep(0.2)
                if expected <= found:
                    break
        area.remove()
        return self

    def remove(self):
        for node in self.nodes.values():
            node.kill()
        shutil.rmtree(self.work, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.remove()

    def name_of(self, port):
        """Returns the name of the node with a data port."""
        return next((node.name for node in self.nodes.values() if node.port == int(port)), None)

    def named(self, text):
        """Returns the names of the nodes whose addresses are in a text, in the order of the text."""
        found = (self.name_of(port) for port in re.findall(r"[\w.\]]:(\d+)\b", text))
        return [name for name in found if name]


class Area:
    """A new directory of a test. `path` is its name for clients. It exists on a server once a file
    is put there."""

    _numbers = itertools.count(1)

    def __init__(self, cluster):
        self.cluster = cluster
        self.path = f"/area-{os.getpid()}-{next(Area._numbers)}"

    def __truediv__(self, name):
        return f"{self.path}/{name}"

    def url(self, name):
        return self.cluster.top.url(self / name)

    def local(self, server, name=""):
        return self.cluster[server].tree / self.path[1:] / name

    def put(self, name, data, *servers):
        """Creates a file directly on servers. Returns its path for clients."""
        for server in servers:
            self.directory(server)
            peers.place(self.local(server, name), data)
        return self / name

    def directory(self, *servers):
        for server in servers:
            local = self.local(server)
            if not local.is_dir():
                local.mkdir(mode=0o755)
                peers.give(local)
        return self.path

    def remove(self):
        for node in self.cluster.servers:
            shutil.rmtree(self.local(node.name), ignore_errors=True)

    def holders(self, name):
        """Returns the servers with a name on their disks."""
        return [node.name for node in self.cluster.servers if os.path.lexists(self.local(node.name, name))]

    def get(self, name):
        """Returns the content of the only copy of a file."""
        holders = self.holders(name)
        assert len(holders) == 1, f"{name} is on {holders}"
        return self.local(holders[0], name).read_bytes()


def mixed(plan, **makers):
    """Returns a maker for each node: `mixed(FLAT, man="ours", servers="real")`. `servers` may have
    one letter per server: `ror`."""
    chosen = {}
    for name, role, _ in plan.nodes:
        chosen[name] = makers.get(name) or makers.get(role + "s") or makers["rest"]
    return chosen


def parameters(name, plan, mixes, plan_in=False):
    """Returns the parameters of a cluster fixture, makers alone or with their plan. The tests of
    each mix run on one worker."""
    only = os.environ.get("SCALLA_INTEROP_ONLY", "")
    found = []
    for mix, makers in mixes.items():
        chosen = mixed(plan, **makers)
        ours = set(chosen.values()) - {"real"}
        if only == "theirs" and ours or only == "ours" and not ours:
            continue
        found.append(pytest.param((plan, chosen) if plan_in else chosen, id=f"{name}-{mix}", marks=pytest.mark.xdist_group(f"{name}-{mix}")))
    return found


def opened(node, path, options=raw.O_READ):
    """Returns the answer of a node to one open: the port of a redirect, an error code, "wait" or
    "open"."""
    with raw.Connection(node) as connection:
        stream = connection.start(raw.OPEN, struct.pack(">HH", 0o644, options), path.encode())
        frame = connection.answer()
        while frame.status == raw.WAITRESP:
            frame = connection.answer()
        assert frame.stream == stream
        if frame.status == raw.REDIRECT:
            return "redirect", struct.unpack(">i", frame.body[:4])[0]
        if frame.status == raw.ERROR:
            return "error", struct.unpack(">i", frame.body[:4])[0]
        return {raw.WAIT: "wait", raw.OK: "open"}[frame.status], 0


def redirected(connection, stream, path, deferred=True):
    """Returns the port of the redirect of an open, after any waits."""
    while True:
        frame = connection.answer()
        if frame.status == raw.WAITRESP:
            assert deferred, "a deferred answer to a client that knows none"
            continue
        assert frame.stream == stream
        if frame.status == raw.WAIT:
            time.sleep(struct.unpack(">i", frame.body[:4])[0])
            stream = connection.start(raw.OPEN, struct.pack(">HH", 0, raw.O_READ), path.encode())
            continue
        assert frame.status == raw.REDIRECT, frame
        return struct.unpack(">i", frame.body[:4])[0]
