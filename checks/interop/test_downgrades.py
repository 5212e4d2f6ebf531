"""An attacker on the way who weakens the security of a login: our client and our server. Each attempt ends
with an error, or in a login that is not weaker than the configuration of both ends."""

import ssl

import pytest

import keytabs
import peers
import raw
from certificates import new_authority
from tampering import (ABLE_TLS, ALL_TLS, DATA, GOTO_TLS, PROTOCOL, SECREQS, TLS_DATA, WANT_TLS, Tampering, Terminating, offering,
                       requests_without, signing, without_flags)
from tools import pattern, scalla, wait_until

CONTENT = pattern(300_000)
# A part of the content, to be looked for among the bytes on the way.
PART = CONTENT[1000:1032]

UNIX = "xrootd.seclib libXrdSec.so\nxrootd.log login\nsec.protocol unix\n"
NO_TLS = "the server has no TLS, which roots:// requires"
CHANGED_GREETING = "which its greeting did not announce"


@pytest.fixture(scope="module")
def authority():
    with new_authority() as authority:
        yield authority


@pytest.fixture(scope="module")
def other_authority():
    with new_authority() as authority:
        yield authority


@pytest.fixture(scope="module")
def proxy(site):
    return site.proxy("plain")


@pytest.fixture
def attack(serve):
    """Starts a server with these settings, and an attacker in front of it."""
    attackers = []

    def start(settings, kind=Tampering, **how):
        attacker = kind(serve(settings=peers.SETTINGS + settings), **how)
        attackers.append(attacker)
        return attacker.__enter__()

    yield start
    for attacker in attackers:
        attacker.close()


def list_root(between, scheme, authority, path="/", **more):
    return scalla("ls", f"{scheme}://{between.host}/{path}", X509_CERT_DIR=str(authority.directory), **more)


# Flags of TLS

@pytest.mark.parametrize("how", [
    {"reply": without_flags(ALL_TLS)},
    {"reply": without_flags(GOTO_TLS)},
    {"request": requests_without(WANT_TLS)},
    {"request": requests_without(ABLE_TLS | WANT_TLS)},
], ids=["no TLS", "no switch", "not wanted", "not supported"])
@pytest.mark.parametrize("requirements", ["", "xrootd.tls capable all"])
def test_a_url_with_tls_never_ends_in_clear_text(attack, authority, how, requirements):
    between = attack(authority.settings(requirements), **how)
    done = list_root(between, "roots", authority)
    if "request" in how and requirements and how["request"](raw.PROTOCOL, bytes(8) + b"\x07")[8] & ABLE_TLS:
        # The server switches because of its own settings.
        done.ok()
        assert between.codes == [raw.PROTOCOL] and DATA in between.records["up"]
    else:
        done.fails(1, NO_TLS)
        assert between.codes == [raw.PROTOCOL], "nothing but the greeting is sent"


@pytest.mark.parametrize("requirements", ["xrootd.tls login", "xrootd.tls session", "xrootd.tls all"])
def test_a_server_that_demands_tls_serves_nobody_in_clear_text(attack, authority, requirements):
    """`root://` cannot demand encryption, so the server decides, and the attacker only prevents the login."""
    strict = authority.settings(requirements)
    between = attack(strict, reply=without_flags(ALL_TLS))
    done = list_root(between, "root", authority).fails(1, CHANGED_GREETING)
    assert not done.out and not set(between.codes) & {raw.AUTH, raw.OPEN, raw.BIND}
    between = attack(strict, request=requests_without(ABLE_TLS | WANT_TLS))
    list_root(between, "root", authority).fails(1, "requires TLS")


def test_what_the_protocol_allows_in_clear_text(attack, authority, other_authority):
    """Where neither the URL nor the server demands encryption, an attacker can prevent it. The settings of
    the client decide what is sent then: with NOTLSOK a `roots://` URL, too, but never with a secret."""
    capable = authority.settings("xrootd.tls capable all")
    how = {"request": requests_without(ABLE_TLS | WANT_TLS)}
    list_root(attack(capable, **how), "root", authority).ok()
    between = attack(capable, **how)
    list_root(between, "roots", authority, XRD_NOTLSOK="1").ok()
    list_root(between, "roots", authority, "/?authz=Bearer%20secret", XRD_NOTLSOK="1").fails(1)
    assert b"secret" not in between.seen["up"]


@pytest.mark.parametrize("scheme", ["root", "roots"])
def test_data_streams_are_not_sent_in_clear_text(attack, authority, tmp_path, scheme):
    """Without the flag for data streams, or with an attacker who prevents their encryption, data passes
    over encrypted streams only."""
    (tmp_path / "up").write_bytes(CONTENT)
    client = {"X509_CERT_DIR": str(authority.directory), "XRD_SUBSTREAMSPERCHANNEL": "4"}

    def first_only(change):
        """Applies a change to connections that are bound, which expect no login."""
        return lambda code, message: change(code, message) if message[9] == 1 else message

    for how in ({"reply": without_flags(TLS_DATA)}, {"request": first_only(requests_without(ABLE_TLS | WANT_TLS))}):
        between = attack(authority.settings("xrootd.tls login data"), **how)
        url = f"{scheme}://{between.host}//f"
        scalla("cp", tmp_path / "up", url, **client).ok()
        scalla("cp", "--force", url, tmp_path / "down", **client).ok()
        assert (tmp_path / "down").read_bytes() == CONTENT
        assert raw.WRITE not in between.codes and not any(PART in seen for seen in between.seen.values())


@pytest.mark.parametrize("scheme", ["root", "roots"])
def test_an_attacker_with_another_certificate_gets_no_login(attack, other_authority, authority, scheme):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(other_authority.certificate, other_authority.key)
    between = attack(UNIX, Terminating, context=context)
    list_root(between, scheme, authority).fails(1, "invalid peer certificate")
    assert not between.decrypted and wait_until(lambda: between.failures)


# Bytes in clear text around the switch

def test_a_server_reads_nothing_in_clear_text_after_the_switch(attack, authority):
    """The attacker appends a login to the greeting of the client, which the server would process inside
    of the encrypted session."""
    login = raw.request(0, raw.LOGIN, b"\0\0\0\1attacker\0\0\5\0")

    def appended(code, message):
        return message + login if code == raw.PROTOCOL else message

    between = attack(authority.settings("xrootd.tls login\n" + UNIX), request=appended)
    done = list_root(between, "roots", authority)
    assert done.status == 1 and not done.out, done
    assert "attacker" not in between.server.output()


@pytest.mark.parametrize("scheme", ["root", "roots"])
def test_a_client_reads_nothing_in_clear_text_after_the_switch(attack, authority, scheme):
    """The attacker appends a reply to a login to that to the greeting."""
    reply = bytes(4) + b"\0\0\0\x10" + b"s" * 16

    def appended(number, message):
        return message + reply if number == PROTOCOL else message

    between = attack(authority.settings("xrootd.tls login"), reply=appended)
    done = list_root(between, scheme, authority)
    assert done.status == 1 and not done.out, done
    assert between.codes == [raw.PROTOCOL]


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("what", ["clear text", "cut", "changed", "repeated", "dropped"])
def test_changed_records_end_the_connection(attack, authority, way, what):
    """A record with data after the handshake is changed."""
    # Requests can share a record, so a session may have no more of them.
    last = 3
    clear = raw.request(0, raw.STAT, payload=b"/") if way == "up" else bytes(4) + b"\0\0\0\x04clea"
    count = 0

    def change(on, _number, record):
        nonlocal count
        if on != way or record[0] != DATA:
            return record
        count += 1
        if count != last:
            return record
        return {"clear text": clear + record, "cut": record[:-7], "changed": record[:-1] + bytes([record[-1] ^ 1]),
                "repeated": record + record, "dropped": b""}[what]

    between = attack(authority.settings(), record=change)
    done = list_root(between, "roots", authority, XRD_CONNECTIONRETRY="1", XRD_STREAMTIMEOUT="5", XRD_REQUESTTIMEOUT="10")
    # The client may repeat the request over a new connection, which the attacker leaves alone.
    assert done.status == 0 or (done.status in (1, 3) and done.err), done
    assert count >= last
    assert between.server.alive()
    list_root(between, "roots", authority).ok()


# Lists of security protocols

def test_another_list_of_protocols_gives_no_weaker_login(attack, site, proxy):
    gsi = site.client(proxy)
    any_protocol = {name: value for name, value in gsi.items() if name != "XrdSecPROTOCOL"}
    listing = lambda between, environment: scalla("ls", f"root://{between.host}//", **environment)
    between = attack(site.settings(), reply=offering(b"&P=unix"))
    listing(between, gsi).fails(1, "XrdSecPROTOCOL=gsi allows none of the server's protocols (unix)")
    assert raw.AUTH not in between.codes
    listing(between, any_protocol).fails(1, "unix: the server refused it")
    between = attack(site.settings(), reply=offering(b""))
    listing(between, gsi).fails(1, "not authenticated")
    between = attack(site.settings(), reply=offering(b"&P=ztn,0:4096:"))
    listing(between, {**any_protocol, "BEARER_TOKEN": "secret.token.text"}).fails(1, "not authenticated")
    assert b"secret.token.text" not in between.seen["up"]
    assert " login as " not in between.server.output()


def test_the_list_of_the_user_keeps_the_stronger_of_two_protocols(attack, authority, tmp_path):
    """A server that accepts a weak protocol, too, can be made to use it, unless the client forbids it."""
    keytab = keytabs.make(tmp_path / "k", user="alice", group="staff")
    server_side = authority.directory.parent / "both.keytab"
    server_side.write_bytes(keytab.read_bytes())
    server_side.chmod(0o600)
    peers.give(server_side)
    both = f"xrootd.seclib libXrdSec.so\nxrootd.log login\nsec.protocol sss -s {server_side}\nsec.protocol unix\n"
    between = attack(both, reply=offering(b"&P=unix"))
    strict = {"XrdSecSSSKT": str(keytab), "XrdSecPROTOCOL": "sss"}
    scalla("ls", f"root://{between.host}//", **strict).fails(1, "XrdSecPROTOCOL=sss allows none")
    scalla("ls", f"root://{between.host}//?xrd.wantprot=sss", XrdSecSSSKT=str(keytab)).fails(1, "xrd.wantprot=sss allows none")
    assert " login as " not in between.server.output()
    scalla("ls", f"root://{between.host}//", XrdSecSSSKT=str(keytab)).ok()
    wait_until(lambda: " by unix" in between.server.output())


# Signatures of requests

@pytest.mark.parametrize("how", [
    {"reply": signing(b"")},
    {"reply": signing(bytes.fromhex("530000000000"))},
    {"reply": signing(bytes([ord("S"), 0, 0, 0, 2, 1, raw.MKDIR - raw.AUTH, 0]))},
    {"request": requests_without(SECREQS)},
], ids=["removed", "level none", "exception for mkdir", "not asked for"])
def test_requests_without_the_demanded_signature_are_refused(attack, site, proxy, how):
    """The server checks its own level, whatever the client was told."""
    between = attack(site.settings() + "sec.level all standard\n", **how)
    done = scalla("mkdir", f"root://{between.host}//d", **site.client(proxy))
    assert done.status != 0 and "signature not verified" in done.err, done
    assert not (between.server.tree / "d").exists()
    assert raw.SIGVER not in between.codes


def test_more_signatures_than_demanded_do_no_harm(attack, site, proxy):
    between = attack(site.settings() + "sec.level all compatible\n", reply=signing(bytes.fromhex("530000000400")))
    scalla("mkdir", f"root://{between.host}//d", **site.client(proxy)).ok()
    scalla("ls", f"root://{between.host}//d", **site.client(proxy)).ok()
    assert (between.server.tree / "d").is_dir() and between.codes.count(raw.SIGVER) > between.codes.count(raw.MKDIR)


@pytest.mark.parametrize("what", ["path", "dropped signature", "another request", "repeated"])
def test_a_changed_request_has_no_valid_signature(attack, site, proxy, what):
    kept = []

    def change(code, message):
        if code == raw.SIGVER:
            kept.append(message)
            return b"" if what == "dropped signature" else message
        if code != raw.MKDIR:
            return message
        changed = {"path": message.replace(b"/d", b"/e"),
                   "dropped signature": message,
                   "another request": message[:2] + raw.RMDIR.to_bytes(2, "big") + message[4:],
                   "repeated": message + kept[-1] + message}[what]
        assert what == "dropped signature" or changed != message
        return changed

    between = attack(site.settings() + "sec.level all standard\n", request=change)
    (between.server.tree / "victim").mkdir()
    done = scalla("mkdir", f"root://{between.host}//d", XRD_CONNECTIONRETRY="1", **site.client(proxy))
    names = {path.name for path in between.server.tree.iterdir()}
    assert kept
    if what == "repeated":
        # The first one was what the client asked for.
        assert names == {"d", "victim"}
        wait_until(lambda: "signature" in between.server.output())
    else:
        assert done.status != 0 and names == {"victim"}, (done, names)
