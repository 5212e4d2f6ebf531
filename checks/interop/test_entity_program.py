"""Identities by a program of the site (`sec.entityprogram`): the real client and ours at our server."""

import os
import pwd
import tempfile
from pathlib import Path

import pytest

import grid
import peers
from tools import XRDFS, run, scalla, wait_until

CONTENT = b"content"

MAP = """\
case "$ENTITY_NAME" in
*"Alice Example") echo name=alice; echo groups=staff; echo vorg=lab ;;
USER) echo "name=$ENTITY_PROTOCOL-$1"; echo groups=visitors ;;
*) echo "no account for $ENTITY_NAME"; exit 1 ;;
esac
"""

RULES = "g staff /staff a\ng visitors /visitors rl\nu unix-lab /own a\n"


@pytest.fixture
def directory():
    # The user of the servers cannot read the directories of pytest.
    with tempfile.TemporaryDirectory(prefix="scalla-entity-", dir="/var/tmp") as path:
        os.chmod(path, 0o755)
        (Path(path) / "map").write_text(MAP.replace("USER", pwd.getpwuid(os.geteuid()).pw_name))
        (Path(path) / "rules").write_text(RULES)
        yield Path(path)


def settings(directory, protocols):
    return peers.SETTINGS + (f"{protocols}\nsec.entityprogram /bin/sh {directory}/map lab\n"
                             f"ofs.authorize\nacc.authdb {directory}/rules\nxrootd.log login\n")


def files(server):
    for name in ("staff", "visitors", "own"):
        (server.tree / name).mkdir()
        peers.give(server.tree / name)
        peers.place(server.tree / name / "f", CONTENT)


def may_read(server, name, real, **environment):
    """Both answers must be the same."""
    url = f"root://localhost:{server.port}/"
    if real:
        return run([XRDFS, url, "cat", f"/{name}/f"], **environment).raw == CONTENT
    return scalla("cat", f"{url}/{name}/f", **environment).raw == CONTENT


@pytest.mark.parametrize("real", [True, False])
def test_groups_and_names_of_the_program_decide(serve, directory, real):
    server = serve(settings=settings(directory, "xrootd.seclib default\nsec.protocol unix"))
    files(server)
    for name, allowed in (("visitors", True), ("own", True), ("staff", False)):
        assert may_read(server, name, real, XrdSecPROTOCOL="unix") is allowed, (name, server.output())
    wait_until(lambda: "login as unix-lab by unix" in server.output())


def test_subjects_of_certificates_are_mapped(serve, directory):
    with grid.new_site() as site:
        gsi = site.settings("-crl:0", "-gmapopt:nomap,usedn")
        server = serve(settings=settings(directory, gsi))
        files(server)
        proxy = site.proxy("plain")
        for real in (True, False):
            for name, allowed in (("staff", True), ("visitors", False), ("own", False)):
                assert may_read(server, name, real, **site.client(proxy)) is allowed, (name, real, server.output())
        wait_until(lambda: "login as alice by gsi" in server.output())
        other = site.proxy("other", of=site.issue("other", "/O=Grid/CN=Other"))
        for real in (True, False):
            assert not may_read(server, "visitors", real, **site.client(other))
        wait_until(lambda: "no account for /O=Grid/CN=Other" in server.output())
