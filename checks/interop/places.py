"""Network namespaces for nodes with different addresses or a network that can be cut.

There is one namespace for each node, and one with the bridge between them, where the clients run.
Each has IPv4 addresses, IPv6 addresses, or both."""

import ctypes
import itertools
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

NAMESPACES = Path("/run/netns")
_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_numbers = itertools.count(1)
# Prefix and prefix length of the addresses of each family.
_NETS = {4: ("10.213.0.", 24), 6: ("fd00:213::", 64)}
# Runs a program with a host name of its own and the network's host table; no name server is ever
# used.
_DRESS = 'mount --bind "$1/hosts" /etc/hosts && mount --bind "$1/resolv.conf" /etc/resolv.conf && hostname "$2" && shift 2 && exec "$@"'


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr.strip()} (the cluster tests need root)"


def _enter(handle):
    if _LIBC.setns(handle, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "a network namespace cannot be entered")


def _give_addresses(namespace, device, number, kinds):
    for kind in kinds:
        start, length = _NETS[kind]
        # No duplicate is possible, so the address is usable immediately.
        ip("-n", namespace, "address", "add", f"{start}{number}/{length}", "dev", device, *(["nodad"] if kind == 6 else []))


class Network:
    """A bridge in a namespace of its own. `make` adds a namespace for a node. `kinds` are the
    address families: 4, 6."""

    def __init__(self, kinds=(4,)):
        self.kinds = kinds
        self.number = next(_numbers)
        self.name = f"scalla-{os.getpid()}-{self.number}"
        self.made = []
        _remove_left_over()
        self.directory = Path(tempfile.mkdtemp(prefix="scalla-network-", dir="/var/tmp"))
        self.directory.chmod(0o755)
        (self.directory / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        self.name_hosts({})
        ip("netns", "add", self.name)
        ip("-n", self.name, "link", "set", "lo", "up")
        ip("-n", self.name, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.name, "link", "set", "bridge", "up")
        _give_addresses(self.name, "bridge", 1, kinds)

    def make(self, name, kinds=None):
        place = Place(self, name, len(self.made) + 2, kinds or self.kinds)
        self.made.append(place)
        self.name_hosts({})
        return place

    def name_hosts(self, more):
        """Writes the host table: each place, and the addresses of each further name."""
        lines = ["127.0.0.1 localhost", "::1 localhost"] if 6 in self.kinds else ["127.0.0.1 localhost"]
        lines += [f"{_NETS[kind][0]}1 client" for kind in self.kinds]
        lines += [f"{address} {place.host}" for place in self.made for address in place.addresses]
        lines += [f"{address} {name}" for name, addresses in more.items() for address in addresses]
        (self.directory / "hosts").write_text("\n".join([*lines, ""]))

    def prefix(self, name=None, host="client"):
        """Returns the prefix of a command line that runs in a namespace, by default the clients'."""
        return ["ip", "netns", "exec", name or self.name, "unshare", "--uts", "--", "/bin/sh", "-c", _DRESS, "sh",
                str(self.directory), host]

    def bare_socket(self, family=socket.AF_INET, kind=socket.SOCK_STREAM, protocol=0):
        """Returns an unconnected socket in the clients' namespace, for this process."""
        with open("/proc/thread-self/ns/net") as home, open(NAMESPACES / self.name) as there:
            _enter(there.fileno())
            try:
                return socket.socket(family, kind, protocol)
            finally:
                _enter(home.fileno())

    def remove(self):
        for place in self.made:
            place.remove()
        ip("netns", "delete", self.name)
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


class Place:
    """A namespace with an address of each family, 10.213.0.N and fd00:213::N, connected to the
    bridge by a cable that can be cut. `addresses` has them bare; `address` is the form before a
    port: the only one, or a name for both."""

    def __init__(self, network, host, number, kinds=(4,)):
        self.network, self.host, self.number = network, host, number
        self.name = name = f"{network.name}-{number}"
        self.addresses = [f"{_NETS[kind][0]}{number}" for kind in kinds]
        self.address = host if len(kinds) > 1 else f"[{self.addresses[0]}]" if kinds == (6,) else self.addresses[0]
        self.cable = f"cable{number}"
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", network.name, "link", "add", self.cable, "type", "veth", "peer", "name", "net", "netns", name)
        _give_addresses(name, "net", number, kinds)
        ip("-n", name, "link", "set", "net", "up")
        ip("-n", network.name, "link", "set", self.cable, "up")
        self.heal()

    def mute_name_server(self):
        """Returns the socket of a name server in this namespace that never answers. It works for
        programs whose `resolv.conf` is that of the network."""
        with open("/proc/thread-self/ns/net") as home, open(NAMESPACES / self.name) as there:
            _enter(there.fileno())
            try:
                server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            finally:
                _enter(home.fileno())
        server.bind(("127.0.0.1", 53))
        return server

    def prefix(self):
        """Returns the prefix of a command line that runs in it."""
        return self.network.prefix(self.name, self.host)

    def cut(self):
        """Drops all packets from now on, without any notification."""
        ip("-n", self.network.name, "link", "set", self.cable, "nomaster")

    def heal(self):
        ip("-n", self.network.name, "link", "set", self.cable, "master", "bridge")

    def remove(self):
        ip("netns", "delete", self.name)


def _remove_left_over():
    """Removes namespaces of killed test runs."""
    for path in NAMESPACES.glob("scalla-*"):
        owner = path.name.split("-")[1]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            subprocess.run(["ip", "netns", "delete", path.name], capture_output=True)
