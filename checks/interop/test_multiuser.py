"""Acting as the user: each operation has the rights of the account of its client.

The server runs as `nobody` with two capabilities. It sees accounts of its own in /etc/passwd and
/etc/group, in a mount namespace of its own. The real clients log in by sss with a key of each user.
The raw clients log in by unix, which names the user without a proof."""

import os
import shlex
import stat
import struct
import subprocess
import zlib

import pytest

import keytabs
import peers
import raw
from codes import ErrorCode
from raw import Connection, Failed
from tools import data, scalla, wait_until, xrdcp, xrdfs

TEAM = 7100
# name: user id, group id
USERS = {"alice": (7001, 7001), "bob": (7002, 7002), "carol": (7003, 7003), "low": (120, 7004), "lowgroup": (7005, 120), "toor": (0, 7006)}
MEMBERS = "alice,bob"
# The answers to a client that may not write an unfinished file.
BUSY = (ErrorCode.FILE_LOCKED, ErrorCode.IN_PROGRESS)
SETTINGS = "ofs.osslib ++ libXrdMultiuser.so\n"
SECURITY = "xrootd.seclib libXrdSec.so\nsec.protocol sss -s {keytab}\nsec.protocol unix\n"


def _may_mount():
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not _may_mount(), reason="needs root and mount namespaces")


class MultiUser(peers.Ours):
    """Our server with accounts of its own, started by root for the user `nobody`."""

    def __init__(self, settings="", security=SECURITY, how="--user nobody", **more):
        super().__init__(settings="", as_user=False, **more)
        # A table with the keys of all users for the server, and one key for each user.
        self.keys = self.work / "keys"
        self.keys.mkdir(mode=0o755)
        server_keys = self.work / "server.keytab"
        for name in [*USERS, "ghost"]:
            keytabs.add(server_keys, name=f"of-{name}", user=name, group="nogroup")
        for line in server_keys.read_text().splitlines():
            client = self.keys / next(word[2:] for word in line.split() if word.startswith("u:"))
            client.write_text(f"{line}\n")
            client.chmod(0o600)
        server_keys.chmod(0o600)
        peers.give(server_keys)
        self.settings = peers.SETTINGS + "ofs.persist manual hold 60\n" + SETTINGS + security.format(keytab=server_keys) + settings
        self.how = how
        self.accounts()
        self.tree.chmod(0o755)
        for name, mode, owner in [("open", 0o1777, (0, 0)), ("team", 0o2770, (7001, TEAM)), ("home", 0o755, (0, 0))]:
            self.directory(self.tree / name, mode, owner)
        for name in ("alice", "bob"):
            self.directory(self.tree / "home" / name, 0o700, USERS[name])

    @staticmethod
    def directory(path, mode, owner):
        path.mkdir()
        os.chown(path, *owner)
        path.chmod(mode)

    def accounts(self):
        passwd = "".join(f"{name}:x:{uid}:{gid}::/:/bin/false\n" for name, (uid, gid) in USERS.items())
        group = f"team:x:{TEAM}:{MEMBERS}\nroot:x:0:alice\n" + "".join(f"{name}:x:{gid}:\n" for name, (_, gid) in USERS.items())
        for file, own in [("passwd", passwd), ("group", group)]:
            (self.work / file).write_text(open(f"/etc/{file}").read() + own)

    def command(self):
        command = shlex.join(map(str, super().command()))
        mounts = " && ".join(f"mount --bind {self.work}/{file} /etc/{file}" for file in ("passwd", "group"))
        if self.how.startswith("--user"):
            command += f" {self.how}"
        else:
            command = f"{self.how} {command}"
        return ["unshare", "-m", "sh", "-c", f"{mounts} && exec {command}"]

    def key(self, user):
        """Returns the environment of a client of this user."""
        return {"XrdSecPROTOCOL": "sss", "XrdSecSSSKT": str(self.keys / user)}

    def status(self, field):
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith(f"{field}:"):
                return line.split()[1:]
        raise KeyError(field)


@pytest.fixture
def multiuser(begin):
    return lambda **how: begin(MultiUser(**how))


@pytest.fixture
def site(multiuser):
    return multiuser()


def place_private(server, user, content):
    """Creates /home/USER/file, which only that user may read."""
    path = server.tree / "home" / user / "file"
    path.write_bytes(content)
    os.chown(path, *USERS[user])
    path.chmod(0o600)


def owner(path):
    status = os.lstat(path)
    return status.st_uid, status.st_gid


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def code(call, *arguments, **options):
    """Returns the error code of a call."""
    with pytest.raises(Failed) as failed:
        call(*arguments, **options)
    return failed.value.code


def names(result):
    return [line.rsplit("/", 1)[-1] for line in result.ok().out.splitlines()]


def test_real_clients_act_as_their_users(site, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(data(300_000))
    alice, bob = site.key("alice"), site.key("bob")
    xrdcp(source, site.url("/home/alice/file"), **alice).ok()
    xrdfs(site, "mkdir", "/home/alice/directory", **alice).ok()
    home = site.tree / "home/alice"
    assert owner(home / "file") == USERS["alice"]
    assert owner(home / "directory") == USERS["alice"]
    xrdcp(site.url("/home/alice/file"), tmp_path / "copy", **alice).ok()
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    assert sorted(names(xrdfs(site, "ls", "/home/alice", **alice))) == ["directory", "file"]
    # Another user reaches nothing in a private directory, whether it exists or not.
    for words in [
        ("ls", "/home/alice"), ("stat", "/home/alice/file"), ("stat", "/home/alice/none"), ("rm", "/home/alice/file"),
        ("rmdir", "/home/alice/directory"), ("mv", "/home/alice/file", "/open/stolen"), ("mkdir", "/home/alice/more"),
        ("chmod", "/home/alice/file", "rw-rw-rw-"), ("truncate", "/home/alice/file", "0"),
        ("query", "checksum", "/home/alice/file"), ("xattr", "/home/alice/file", "list"), ("locate", "/home/alice/file"),
    ]:
        result = xrdfs(site, *words, **bob)
        assert result.status != 0 and "ermission denied" in result.all, (words, result)
    assert xrdcp(site.url("/home/alice/file"), tmp_path / "stolen", **bob).status != 0
    assert xrdcp(source, site.url("/home/alice/new"), **bob).status != 0
    assert xrdcp("--force", source, site.url("/home/alice/file"), **bob).status != 0
    assert sorted(os.listdir(home)) == ["directory", "file"]
    assert (home / "file").read_bytes() == source.read_bytes()


def test_our_clients_act_as_their_users(site, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(data(100_000))
    alice, bob = site.key("alice"), site.key("bob")
    scalla("cp", source, site.url("/home/alice/file"), **alice).ok()
    assert owner(site.tree / "home/alice/file") == USERS["alice"]
    scalla("ls", site.url("/home/alice"), **alice).ok()
    for words in [("ls", site.url("/home/alice")), ("rm", site.url("/home/alice/file")), ("cp", site.url("/home/alice/file"), tmp_path / "x")]:
        result = scalla(*words, **bob)
        assert result.status != 0 and "ermission denied" in result.all, (words, result)
    scalla("rm", site.url("/home/alice/file"), **alice).ok()
    assert not os.listdir(site.tree / "home/alice")


def test_supplementary_groups_give_access(site):
    with Connection(site, user="alice") as alice, Connection(site, user="bob") as bob, Connection(site, user="carol") as carol:
        handle = alice.open("/team/file", raw.O_NEW | raw.O_UPDT, mode=0o660)
        alice.write(handle, 0, b"of the team")
        alice.close(handle)
        # The directory gives its group to new files.
        assert owner(site.tree / "team/file") == (7001, TEAM)
        handle = bob.open("/team/file")
        assert bob.read(handle, 0, 100) == b"of the team"
        assert code(carol.open, "/team/file") == ErrorCode.NOT_AUTHORIZED
        assert code(carol.stat, "/team/file") == ErrorCode.NOT_AUTHORIZED
        # The group of the superuser is omitted, although alice is in it.
        roots = site.tree / "roots"
        roots.write_bytes(b"root")
        roots.chmod(0o640)
        assert code(alice.open, "/roots") == ErrorCode.NOT_AUTHORIZED


def test_accounts_that_are_refused(site):
    for user, why in [("ghost", "not that of an account"), ("low", "below the lowest"), ("lowgroup", "below the lowest"), ("toor", "superuser"), ("root", "superuser")]:
        with Connection(site, user=user) as client:
            for _ in range(2):
                with pytest.raises(Failed) as failed:
                    client.stat("/open")
                assert failed.value.code == ErrorCode.NOT_AUTHORIZED and why in str(failed.value), (user, failed.value)
            assert code(client.create, f"/open/{user}") == ErrorCode.NOT_AUTHORIZED
            assert code(client.open, "/open/none") == ErrorCode.NOT_AUTHORIZED
    assert not os.listdir(site.tree / "open")
    assert xrdfs(site, "ls", "/open", **site.key("ghost")).status != 0
    # Names of a wrong account do not affect others.
    with Connection(site, user="alice") as alice:
        alice.close(alice.create("/open/alice"))
    assert owner(site.tree / "open/alice") == USERS["alice"]


def test_the_lowest_ids_are_configured(multiuser):
    server = multiuser(settings="multiuser.minuid 100\nmultiuser.mingid 100\n")
    for user in ("low", "lowgroup"):
        with Connection(server, user=user) as client:
            client.close(client.create(f"/open/{user}"))
        assert owner(server.tree / "open" / user) == USERS[user]
    with Connection(server, user="root") as client:
        assert code(client.stat, "/open") == ErrorCode.NOT_AUTHORIZED


def test_nothing_is_shared_between_users(site):
    """What one user has opened, listed and computed is in memory, and is not given to another one."""
    secret = site.tree / "home/alice/secret"
    secret.write_bytes(data(50_000))
    os.chown(secret, *USERS["alice"])
    secret.chmod(0o600)
    readable = site.tree / "open/readable"
    readable.write_bytes(b"public name, private content")
    os.chown(readable, *USERS["alice"])
    readable.chmod(0o600)
    with Connection(site, user="alice") as alice, Connection(site, user="bob") as bob:
        for path in ("/home/alice/secret", "/open/readable"):
            for _ in range(3):
                handle = alice.open(path)
                assert alice.read(handle, 0, 5)
                alice.stat(path)
                assert alice.ask(raw.QUERY, struct.pack(">H14x", 3), path.encode()).startswith(b"adler32 ")
                alice.ask(raw.DIRLIST, bytes(15) + b"\x02", path.rsplit("/", 1)[0].encode())
            assert code(bob.open, path) == ErrorCode.NOT_AUTHORIZED
            assert bob.error(raw.QUERY, struct.pack(">H14x", 3), path.encode()) == ErrorCode.NOT_AUTHORIZED
        assert code(bob.stat, "/home/alice/secret") == ErrorCode.NOT_AUTHORIZED
        assert bob.error(raw.DIRLIST, bytes(16), b"/home/alice") == ErrorCode.NOT_AUTHORIZED
        # The status of a file shows the rights of the client that asks.
        assert int(alice.stat("/open/readable")[2]) & 16
        assert not int(bob.stat("/open/readable")[2]) & 16


def test_the_checksum_of_a_file_that_users_may_only_read_is_computed_once(site):
    content = data(4_000_000)
    file = site.tree / "open/file"
    file.write_bytes(content)
    os.chown(file, *USERS["alice"])
    file.chmod(0o640)
    os.chown(file, USERS["alice"][0], TEAM)
    query = (raw.QUERY, struct.pack(">H14x", 3), b"/open/file")

    def read():
        counters = dict(line.split(": ") for line in open(f"/proc/{site.process.pid}/io").read().splitlines())
        return int(counters["rchar"])

    expected = f"adler32 {zlib.adler32(content):08x}".encode()
    with Connection(site, user="bob") as bob, Connection(site, user="carol") as carol:
        assert bob.ask(*query).rstrip(b"\0") == expected
        assert not os.listxattr(file)
        before = read()
        for _ in range(3):
            assert bob.ask(*query).rstrip(b"\0") == expected
        assert read() - before < len(content)
        # What is in memory is not given to those who may not read the file.
        assert carol.error(*query) == ErrorCode.NOT_AUTHORIZED
        # A change made past the server is noticed.
        file.write_bytes(content + b"more")
        assert bob.ask(*query).rstrip(b"\0") == f"adler32 {zlib.adler32(content + b'more'):08x}".encode()


def test_modes_and_umask(multiuser):
    server = multiuser(settings="multiuser.umask 0027\n")
    with Connection(server, user="alice") as alice:
        alice.close(alice.open("/open/file", raw.O_NEW | raw.O_UPDT, mode=0o664))
        alice.ask(raw.MKDIR, struct.pack(">B13xH", 0, 0o700), b"/open/private")
        alice.ask(raw.MKDIR, struct.pack(">B13xH", 0, 0o775), b"/open/shared")
        alice.close(alice.create("/open/made/on/the/way"))
        alice.ask(raw.CHMOD, struct.pack(">14xH", 0o600), b"/open/file")
    tree = server.tree / "open"
    assert mode(tree / "private") == 0o750 and mode(tree / "shared") == 0o750 and mode(tree / "made/on") == 0o750
    assert mode(tree / "file") == 0o600 and mode(tree / "made/on/the/way") == 0o640
    assert {owner(tree / name) for name in ("private", "made", "made/on/the/way")} == {USERS["alice"]}


def test_attributes_and_checkpoints_of_a_user(site):
    with Connection(site, user="alice") as alice, Connection(site, user="bob") as bob:
        handle = alice.create("/open/file")
        alice.write(handle, 0, b"before")
        alice.checkpoint(handle, 0)
        alice.checkpointed_write(handle, 0, b"during")
        assert alice.read(handle, 0, 6) == b"during"
        # The server is killed with an active checkpoint. The file belongs to the user, so the
        # changes are undone with the user's rights.
        site.restart()
        assert (site.tree / "open/file").read_bytes() == b"before"
    xrdfs(site, "xattr", "/open/file", "set", "color=red", **site.key("alice")).ok()
    assert "red" in xrdfs(site, "xattr", "/open/file", "get", "color", **site.key("bob")).ok().out
    assert xrdfs(site, "xattr", "/open/file", "set", "color=blue", **site.key("bob")).status != 0
    assert os.getxattr(site.tree / "open/file", "user.U.color") == b"red"


def begin(server, user, path, content=b"hello"):
    connection = Connection(server, user=user)
    handle = connection.create(path, raw.O_POSC)
    connection.write(handle, 0, content)
    return connection, handle


def test_an_unfinished_file_is_resumed_by_its_user_only(site):
    path = "/open/file"
    connection, _ = begin(site, "alice", path)
    with connection:
        # A crash: the record of the file names its account.
        site.restart()
        file = site.tree / "open/file"
        assert owner(file) == USERS["alice"] and file.read_bytes() == b"hello"
        with Connection(site, user="bob") as bob:
            assert code(bob.open, path, raw.O_UPDT | raw.O_POSC) in BUSY
            assert code(bob.open, path, raw.O_UPDT) in BUSY
        with Connection(site, user="alice") as again:
            handle = again.open(path, raw.O_UPDT | raw.O_POSC)
            again.write(handle, 5, b" world")
            again.close(handle)
        assert file.read_bytes() == b"hello world"
        assert not mode(file) & 0o1000 and owner(file) == USERS["alice"]


def test_an_unfinished_file_in_a_private_directory(multiuser):
    """The server finds it after a crash, hides it from others, and removes it in time."""
    server = multiuser(settings="ofs.persist manual hold 3\n")
    file = server.tree / "home/alice/file"
    connection, _ = begin(server, "alice", "/home/alice/file")
    with connection:
        with Connection(server, user="bob") as bob:
            for options in (raw.O_READ, raw.O_UPDT, raw.O_UPDT | raw.O_POSC):
                assert code(bob.open, "/home/alice/file", options) == ErrorCode.NOT_AUTHORIZED
            assert code(bob.create, "/home/alice/file") == ErrorCode.NOT_AUTHORIZED
        server.restart()
        assert file.exists()
        wait_until(lambda: not file.exists())


def test_the_process_keeps_its_identity(site):
    """Neither the process nor any of its threads has the ids of a user, or other capabilities."""
    nobody, nogroup = (str(number) for number in peers.unprivileged())
    with Connection(site, user="alice") as alice, Connection(site, user="bob") as bob:
        for client, user in ((alice, "alice"), (bob, "bob")):
            for number in range(50):
                client.close(client.create(f"/open/{user}-{number}"))
                client.stat(f"/open/{user}-{number}")
    switching = f"{(1 << 7) | (1 << 6):016x}"
    for task in os.listdir(f"/proc/{site.process.pid}/task"):
        status = dict(line.split(":", 1) for line in open(f"/proc/{site.process.pid}/task/{task}/status").read().splitlines())
        assert status["Uid"].split() == [nobody] * 4, (task, status["Uid"])
        assert status["Gid"].split() == [nogroup] * 4, (task, status["Gid"])
        assert not {str(TEAM), "7001", "7002"} & set(status["Groups"].split())
        assert status["CapEff"].strip() == status["CapPrm"].strip() == switching, status["CapEff"]
        assert int(status["CapAmb"], 16) == int(status["CapInh"], 16) == 0
    for user in ("alice", "bob"):
        assert {owner(site.tree / "open" / f"{user}-{number}") for number in range(50)} == {USERS[user]}


def test_clients_without_a_login_have_the_rights_of_the_server(multiuser):
    server = multiuser(security="")
    with Connection(server, user="alice") as client:
        client.close(client.create("/open/file"))
        assert owner(server.tree / "open/file") == peers.unprivileged()
        assert code(client.stat, "/home/alice/file") == ErrorCode.NOT_AUTHORIZED
        assert code(client.stat, "/team/file") == ErrorCode.NOT_AUTHORIZED


def test_two_users_at_once(site):
    """Their operations are interleaved in the same pool."""
    with Connection(site, user="alice") as alice, Connection(site, user="bob") as bob:
        clients = {"alice": alice, "bob": bob}
        for number in range(30):
            started = []
            for name, client in clients.items():
                body = struct.pack(">HH", 0o600, raw.O_NEW | raw.O_UPDT)
                started.append((client, client.start(raw.OPEN, body, f"/open/{name}-{number}".encode())))
            handles = [client.result(stream)[:4] for client, stream in started]
            for (client, _), handle in zip(started, handles):
                client.write(handle, 0, b"data")
                client.close(handle)
            assert code(alice.open, f"/open/bob-{number}") == ErrorCode.NOT_AUTHORIZED
            assert code(bob.open, f"/open/alice-{number}") == ErrorCode.NOT_AUTHORIZED
    for name in clients:
        assert {owner(site.tree / "open" / f"{name}-{number}") for number in range(30)} == {USERS[name]}


def refusal(**how):
    """Returns the output of a server that does not start."""
    with pytest.raises(RuntimeError) as refused, MultiUser(**how):
        pass
    return str(refused.value)


def test_a_start_without_capabilities_is_refused():
    nobody = "setpriv --reuid nobody --regid nogroup --clear-groups --"
    assert "CAP_SETUID and CAP_SETGID are missing" in refusal(how=nobody)
    assert "runs as the superuser" in refusal(how="env")
    assert "spaces belong to the server's user" in refusal(settings="oss.space public /var/tmp\n")
    assert "rights of the server instead of the user's" in refusal(settings="ofs.tpc pgm /bin/true\n")


def test_a_start_with_ambient_capabilities(multiuser):
    """As a unit of systemd with User= and AmbientCapabilities= starts it."""
    both = "+setuid,+setgid,+dac_override"
    server = multiuser(how=f"setpriv --reuid nobody --regid nogroup --clear-groups --inh-caps {both} --ambient-caps {both} --")
    assert int(server.status("CapEff")[0], 16) == 0xC0
    with Connection(server, user="alice") as alice, Connection(server, user="bob") as bob:
        alice.close(alice.create("/home/alice/file"))
        assert code(bob.stat, "/home/alice/file") == ErrorCode.NOT_AUTHORIZED
    assert owner(server.tree / "home/alice/file") == USERS["alice"]


def test_a_granted_file_is_read_with_the_rights_of_its_user(multiuser):
    """The destination of a third-party copy logs in under another name, even that of no account."""
    server = multiuser(settings="ofs.tpc ttl 60 60\n")
    content = data(20_000)
    place_private(server, "alice", content)
    offer, collect = "?tpc.key=k1&tpc.dst=127.0.0.1&tpc.stage=copy", "?tpc.key=k1&tpc.org=alice.1234@127.0.0.1&tpc.stage=copy"
    with Connection(server, user="alice") as alice, Connection(server, user="bob") as bob, Connection(server, user="ghost") as destination:
        # A user cannot grant what it may not read.
        assert code(bob.open, "/home/alice/file" + offer) == ErrorCode.NOT_AUTHORIZED
        alice.open("/home/alice/file" + offer)
        handle = destination.open("/home/alice/file" + collect)
        assert destination.read(handle, 0, 100_000) == content
        # The grant is for one open, and for nothing else.
        assert code(destination.open, "/home/alice/file") == ErrorCode.NOT_AUTHORIZED


def test_a_third_party_copy_is_written_as_its_user(multiuser, serve):
    source = serve(settings=peers.SETTINGS + "ofs.tpc ttl 60 60\n")
    content = data(200_000)
    peers.place(source.tree / "file", content)
    target = multiuser(settings="ofs.tpc ttl 60 60\n")

    def copy(user, destination):
        words = [f"root://127.0.0.1:{source.port}//file", f"root://127.0.0.1:{target.port}/{destination}"]
        return xrdcp("-N", "--tpc", "only", *words, **target.key(user))

    copy("alice", "/home/alice/copy").ok()
    copied = target.tree / "home/alice/copy"
    assert copied.read_bytes() == content and owner(copied) == USERS["alice"]
    assert copy("alice", "/home/bob/copy").status != 0
    assert not os.listdir(target.tree / "home/bob")
