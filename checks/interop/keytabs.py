"""Key tables of the protocol `sss`, made by the real `xrdsssadmin`."""

import re
import subprocess

import peers
from tools import PATIENCE_SECONDS

XRDSSSADMIN = peers.real("xrdsssadmin")


def add(path, name="key", user="nobody", group="nogroup", length=32):
    """Adds a key to a table, which is created if it does not exist."""
    command = [XRDSSSADMIN, "-k", name, "-u", user, "-g", group, "-l", str(length), "add", str(path)]
    done = subprocess.run(command, input="y\n", capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done
    return path


def make(path, **properties):
    """Creates a table with one key."""
    return add(path, **properties)


def secret(path):
    """Returns the last key of a table, as its digits."""
    return re.findall(r" k:([0-9a-f]+)", path.read_text())[-1]
