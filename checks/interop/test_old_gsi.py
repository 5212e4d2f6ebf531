"""The exchange of gsi of XRootD before 4.9, which does not sign its key agreement. Somebody between the ends
lowers the versions that they announce, so that the real programs use this exchange."""

import struct

import pytest

import peers
from tampering import Tampering
from tools import XRDFS, run, scalla, wait_until

AUTH, VERSION = 3000, 3014
NEW, OLD = 10600, 10300
CONTENT = b"content"

pytestmark = pytest.mark.skipif(peers.real_release() >= 6, reason="XRootD 6 does not have this exchange any longer")


@pytest.fixture(scope="module")
def proxy(site):
    return site.proxy("plain")


def older(server):
    """Lowers the versions of clients and of the server."""
    field = lambda version: struct.pack(">3i", VERSION, 4, version)
    request = lambda code, message: message.replace(field(NEW), field(OLD)) if code == AUTH else message
    reply = lambda _, message: message.replace(b"v:%d," % NEW, b"v:%d," % OLD)
    return Tampering(server, request=request, reply=reply)


def has_signed_agreement(between):
    """Returns whether a client has sent its public key, by which it signs its agreement."""
    return b"BEGIN PUBLIC KEY" in between.seen["up"]


@pytest.mark.parametrize("hosts,allowed", [("localhost*", True), ("127.0.0.1", True), ("*.example.org", False), (None, False)])
def test_real_clients_in_the_old_mode(serve, site, proxy, hosts, allowed):
    compat = f"gsi.compat olddh {hosts}\n" if hosts else ""
    server = serve(settings=peers.SETTINGS + site.settings("-crl:0", "-dlgpxy:request") + compat + "sec.level all pedantic\n")
    peers.place(server.tree / "file", CONTENT)
    with older(server) as between:
        # Page reads cannot pass through `Tampering`.
        listed = run([XRDFS, between.host, "ls", "/"], **site.client(proxy))
        assert (listed.out == "/file\n") is allowed, f"{listed}\n{server.output()}"
        assert not has_signed_agreement(between)
    if not allowed:
        wait_until(lambda: "does not protect the key agreement" in server.output())
    # Clients that sign are not concerned.
    assert run([XRDFS, server.host, "cat", "/file"], **site.client(proxy)).raw == CONTENT


def test_our_client_at_the_real_server_in_the_old_mode(begin, site, proxy):
    server = begin(peers.Theirs(settings=peers.SETTINGS + site.settings("-crl:0") + "sec.level all pedantic\n"))
    peers.place(server.tree / "file", CONTENT)
    with older(server) as between:
        ls = lambda **more: scalla("ls", f"root://{between.host}//", **site.client(proxy, **more))
        assert "file" in ls(SCALLA_GSI_OLD_SERVERS="localhost", SCALLA_GSI_WEAK_DH="1").ok().out
        assert not has_signed_agreement(between) and " login as " in server.output()
        # The group of the real server is a small one.
        ls(SCALLA_GSI_OLD_SERVERS="localhost").fails(1, "SCALLA_GSI_WEAK_DH")
        ls(SCALLA_GSI_WEAK_DH="1").fails(1, "SCALLA_GSI_OLD_SERVERS")
        ls(SCALLA_GSI_OLD_SERVERS="other", SCALLA_GSI_WEAK_DH="1").fails(1, "does not protect the key agreement")
