"""Our client against the real server with authentication by `sss`, `unix` and `host`, and with
signed requests."""

import os
import pwd
import re

import pytest

import keytabs
import peers
from tools import both, data, run, scalla, wait_until, XRDFS

SECURITY = "xrootd.seclib libXrdSec.so\n"


@pytest.fixture
def secured(tmp_path):
    """Starts real servers with security: `secured("sec.protocol unix")`. `{keytab}` is the path of
    the key table of the server."""
    started = []

    def start(lines, keytab=None):
        server = peers.Theirs(settings="")
        started.append(server)
        place = server.work / "sss.keytab"
        if keytab is not None:
            place.write_bytes(keytab.read_bytes())
            place.chmod(0o600)
            peers.give(place)
        server.settings = SECURITY + lines.format(keytab=place) + "\n"
        return server.start()

    yield start
    for server in started:
        server.remove()


def users(server, count=1):
    """Returns the names of the users that have logged in."""
    def found():
        names = re.findall(r"login as (\S+)", server.output())
        return names if len(names) >= count else None
    return wait_until(found)


def use(server, environment, source):
    """Writes a file, reads it and lists its directory."""
    scalla("cp", source, server.url("/copied"), **environment).ok()
    assert (server.tree / "copied").read_bytes() == source.read_bytes()
    assert scalla("cat", server.url("/copied"), **environment).ok().raw == source.read_bytes()
    assert "copied" in scalla("ls", server.url("/"), **environment).ok().out


# Identities

def test_shared_key(secured, tmp_path, source):
    keytab = keytabs.make(tmp_path / "k", user="alice", group="staff")
    server = secured("sec.protocol sss -s {keytab}\nsec.protbind * only sss", keytab)
    use(server, dict(XrdSecSSSKT=str(keytab)), source)
    assert set(users(server)) == {"alice"}


@pytest.mark.parametrize("length", [4, 32, 56, 64, 72, 128])
def test_length_of_the_key(secured, tmp_path, length):
    keytab = keytabs.make(tmp_path / "k", length=length)
    server = secured("sec.protocol sss -s {keytab}\nsec.protbind * only sss", keytab)
    scalla("ls", server.url("/"), XrdSecSSSKT=str(keytab)).ok()


def test_user_of_the_url_with_a_key_for_any_user(secured, tmp_path):
    keytab = keytabs.make(tmp_path / "k", user="anybody", group="anygroup")
    server = secured("sec.protocol sss -s {keytab}\nsec.protbind * only sss", keytab)
    environment = dict(XrdSecSSSKT=str(keytab))
    scalla("ls", server.url("/"), **environment).ok()
    assert users(server) == ["nobody"]
    scalla("ls", server.url("/").replace("root://", "root://carol@"), **environment).ok()
    assert users(server, 2) == ["nobody", "carol"]


def test_asserted_user(secured, source):
    server = secured("sec.protocol unix\nsec.protbind * only unix")
    use(server, {}, source)
    assert set(users(server)) == {pwd.getpwuid(os.geteuid()).pw_name}


def test_host_suffices(secured, source):
    server = secured("sec.protocol host\nsec.protbind * host")
    use(server, {}, source)


# Key tables

def test_places_of_the_key_table(secured, tmp_path):
    """The URL precedes the environment, which precedes the suggestion of the server, which precedes
    the home directory."""
    right = keytabs.make(tmp_path / "right")
    wrong = keytabs.make(tmp_path / "wrong")
    home = tmp_path / "home"
    (home / ".xrd").mkdir(parents=True)
    at_home = home / ".xrd/sss.keytab"
    server = secured(f"sec.protocol sss -s {{keytab}} -c {right}\nsec.protbind * only sss", right)
    at_home.write_bytes(wrong.read_bytes())
    at_home.chmod(0o600)
    scalla("ls", server.url("/"), HOME=str(home)).ok()
    scalla("ls", server.url("/"), HOME=str(home), XrdSecSSSKT=str(wrong)).fails(1, "sss: the server refused it")
    scalla("ls", server.url(f"/?xrd.sss={right}"), HOME=str(home), XrdSecSSSKT=str(wrong)).ok()
    right.unlink()
    scalla("ls", server.url("/"), HOME=str(home)).fails(1, "sss: the server refused it")


@pytest.mark.parametrize("order", ["A1 B A2", "A2 B A1", "A1 B A3 C", "C A2 B A3", "B A3 A2 C A1", "A3 B A2", "A2 A4", "A4 A2", "X A2", "A2 X"])
def test_choice_of_the_key(secured, tmp_path, order):
    """Both clients choose the same of several keys. Each key is for another user at the server."""
    keys = {"A1": ("k1", 0), "A2": ("k1", 4_000_000_000), "A3": ("k1", 3_900_000_000), "A4": ("k1", 4_000_000_000), "B": ("k2", 0), "C": ("k0", 3_800_000_000), "X": ("k9", 1_000_000_000)}

    def line(name, user):
        number, secret = list(keys).index(name) + 1, name.encode().hex() * 8
        return f"0 u:{user} g:g n:{keys[name][0]} N:{number} c:1 e:{keys[name][1]} f:0 k:{secret}"

    def write(path, lines):
        path.write_text("\n".join(lines))
        path.chmod(0o600)
        return path

    served = write(tmp_path / "served", [line(name, "user-" + name) for name in keys])
    server = secured("sec.protocol sss -s {keytab}\nsec.protbind * only sss", served)
    mine = write(tmp_path / "mine", [line(name, "me") for name in order.split()])
    scalla("ls", server.url("/"), XrdSecSSSKT=str(mine)).ok()
    run([XRDFS, server.host, "ls", "/"], XrdSecSSSKT=str(mine)).ok()
    ours, theirs = users(server, 2)
    assert ours == theirs


def test_two_keys_while_they_are_replaced(secured, tmp_path):
    """Clients with the old and with the new table log in at a server that has both keys."""
    old = keytabs.make(tmp_path / "old", user="alice")
    both = tmp_path / "both"
    both.write_bytes(old.read_bytes())
    both.chmod(0o600)
    keytabs.add(both, user="alice")
    server = secured("sec.protocol sss -s {keytab}\nsec.protbind * only sss", both)
    for keytab in (old, both):
        scalla("ls", server.url("/"), XrdSecSSSKT=str(keytab)).ok()


# Failures

def test_wrong_key(secured, tmp_path):
    keytab, other = keytabs.make(tmp_path / "k"), keytabs.make(tmp_path / "other")
    server = secured("sec.protocol sss -s {keytab}\nsec.protbind * only sss", keytab)
    done = scalla("ls", server.url("/"), XrdSecSSSKT=str(other)).fails(1, "not authenticated: sss: the server refused it")
    assert keytabs.secret(other) not in done.all


def test_expired_key(secured, tmp_path):
    keytab = keytabs.make(tmp_path / "k")
    server = secured("sec.protocol sss -s {keytab}\nsec.protbind * only sss", keytab)
    keytab.write_text(keytab.read_text().replace(" e:0 ", " e:1000000000 "))
    scalla("ls", server.url("/"), XrdSecSSSKT=str(keytab)).fails(1, "expired, the last one", "get a new key table")


def test_no_key_table(secured, tmp_path):
    keytab = keytabs.make(tmp_path / "k")
    server = secured("sec.protocol sss -s {keytab}\nsec.protbind * only sss", keytab)
    scalla("ls", server.url("/"), HOME=str(tmp_path)).fails(1, "there is no key table", "XrdSecSSSKT")
    missing = str(tmp_path / "missing")
    scalla("ls", server.url("/"), XrdSecSSSKT=missing, HOME=str(tmp_path)).fails(1, f"XrdSecSSSKT names {missing}, which does not exist")
    scalla("ls", server.url(f"/?xrd.sss={missing}"), XrdSecSSSKT=str(keytab)).fails(1, "there is no key table " + missing)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o700])
def test_key_table_that_others_can_use(secured, tmp_path, mode):
    keytab = keytabs.make(tmp_path / "k")
    server = secured("sec.protocol sss -s {keytab}\nsec.protbind * only sss", keytab)
    keytab.chmod(mode)
    scalla("ls", server.url("/"), XrdSecSSSKT=str(keytab)).fails(1, f"{mode:04o}", f"chmod 600 {keytab}")
    group = keytab.rename(keytab.with_suffix(".grp"))
    done = scalla("ls", server.url("/"), XrdSecSSSKT=str(group))
    assert done.status == (0 if mode == 0o640 else 1), done


def test_malformed_key_table(secured, tmp_path):
    keytab = keytabs.make(tmp_path / "k")
    server = secured("sec.protocol sss -s {keytab}\nsec.protbind * only sss", keytab)
    secret = keytabs.secret(keytab)
    keytab.write_text(f"{keytab.read_text()}\n0 u:a N:x k:{secret}\n")
    done = scalla("ls", server.url("/"), XrdSecSSSKT=str(keytab)).fails(1, f"{keytab}:2: the id of the key (N:) is not a number")
    assert secret not in done.all


# The choice of the protocol

def test_next_protocol(secured, tmp_path, source):
    """Missing credentials and a refusal lead to the next protocol, unless the user excludes it."""
    keytab, other = keytabs.make(tmp_path / "k", user="alice"), keytabs.make(tmp_path / "other")
    server = secured("sec.protocol sss -s {keytab}\nsec.protocol unix\nsec.protbind * only sss unix", keytab)
    me = pwd.getpwuid(os.geteuid()).pw_name
    scalla("ls", server.url("/"), HOME=str(tmp_path)).ok()
    scalla("ls", server.url("/"), XrdSecSSSKT=str(other)).ok()
    scalla("ls", server.url("/"), XrdSecSSSKT=str(keytab)).ok()
    scalla("ls", server.url("/"), XrdSecSSSKT=str(keytab), XrdSecPROTOCOL="unix").ok()
    assert users(server, 4) == [me, me, "alice", me]
    scalla("ls", server.url("/"), XrdSecSSSKT=str(other), XrdSecPROTOCOL="sss").fails(1, "sss: the server refused it")
    none = scalla("ls", server.url("/"), XrdSecPROTOCOL="gsi")
    none.fails(1, "XrdSecPROTOCOL=gsi allows none of the server's protocols (sss, unix)")
    scalla("ls", server.url("/?xrd.wantprot=unix"), XrdSecPROTOCOL="gsi").ok()


def test_failure_of_the_real_programs_names(secured, tmp_path):
    """`xrdfs` and `xrdcp` end with the status of the real ones."""
    keytab, other = keytabs.make(tmp_path / "k"), keytabs.make(tmp_path / "other")
    server = secured("sec.protocol sss -s {keytab}\nsec.protbind * only sss", keytab)
    for program, words in (("xrdfs", [server.host, "ls", "/"]), ("xrdcp", [server.url("/nix"), str(tmp_path / "target")])):
        theirs, ours = both(program, *words, XrdSecSSSKT=str(other))
        assert ours.status == theirs.status, (theirs, ours)
        assert "Auth failed" in ours.all and "Auth failed" in theirs.all, (theirs, ours)


# Signed requests

@pytest.mark.parametrize("level", ["compatible", "standard", "intense", "pedantic"])
@pytest.mark.parametrize("protocol", ["sss", "unix"])
def test_signed_requests(secured, tmp_path, source, level, protocol):
    """The server checks every request that the level names; without a session key only if it is
    forced."""
    keytab = keytabs.make(tmp_path / "k", user="alice")
    server = secured(f"sec.protocol sss -s {{keytab}}\nsec.protocol unix\nsec.protbind * only {protocol}\nsec.level all {level} force", keytab)
    environment = dict(XrdSecSSSKT=str(keytab))
    use(server, environment, source)
    scalla("mkdir", server.url("/new"), **environment).ok()
    scalla("mv", server.url("/copied"), server.url("/new/moved"), **environment).ok()
    scalla("stat", server.url("/new/moved"), **environment).ok()
    target = tmp_path / "target"
    scalla("cp", server.url("/new/moved"), target, XRD_SUBSTREAMSPERCHANNEL="3", **environment).ok()
    assert target.read_bytes() == source.read_bytes()
    scalla("rm", server.url("/new/moved"), **environment).ok()


def test_signed_writes_of_a_large_file(secured, tmp_path):
    keytab = keytabs.make(tmp_path / "k", user="alice")
    server = secured("sec.protocol sss -s {keytab}\nsec.protbind * only sss\nsec.level all pedantic force", keytab)
    source = tmp_path / "large"
    source.write_bytes(data(40_000_000))
    environment = dict(XrdSecSSSKT=str(keytab), XRD_SUBSTREAMSPERCHANNEL="2")
    use(server, environment, source)
