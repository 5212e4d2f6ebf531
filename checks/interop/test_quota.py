"""A quota of the disk that the user of a client has used up.

Few kernels that run tests have quotas of users, so the kernel refuses writes beyond 1 MiB of a file with the
error of a quota."""

import pytest

import raw
import refusal
from codes import ErrorCode, ShellCode
from test_multiuser import USERS, MultiUser, owner, pytestmark
from tools import data, scalla, wait_until, xrdcp

__all__ = ["pytestmark"]

MIB = 1 << 20


@pytest.fixture
def site(begin):
    return begin(MultiUser(limits=refusal.over_quota(MIB)))


def test_writes_of_a_user_over_quota(site):
    """The error is that of quotas, what was written before remains, and the session goes on."""
    content = data(2 * MIB)
    with raw.Connection(site, user="alice") as connection:
        handle = connection.create("/home/alice/file")
        connection.write(handle, 0, content[:MIB])
        for _ in range(2):
            with pytest.raises(raw.Failed) as failed:
                connection.write(handle, MIB, content[MIB:])
            assert failed.value.code == ErrorCode.OVER_QUOTA and "quota" in failed.value.text
        # Room elsewhere is used.
        connection.write(handle, 0, content[:10])
        assert connection.read(handle, 0, 2 * MIB) == content[:MIB]
        connection.sync(handle)
        connection.close(handle)
        connection.ping()
    path = site.tree / "home/alice/file"
    assert path.read_bytes() == content[:MIB] and owner(path) == USERS["alice"]


def test_vectors_over_quota(site):
    """A failed vector write ends the connection; what was written before remains."""
    with raw.Connection(site, user="alice") as connection:
        handle = connection.create("/home/alice/file")
        connection.write(handle, 0, b"first")
        element = lambda offset: raw.struct.pack(">4siq", handle, 4, offset)
        with pytest.raises(raw.Failed) as failed:
            connection.ask(raw.WRITEV, b"", element(100) + element(2 * MIB) + b"goodover", length=32)
        assert failed.value.code == ErrorCode.OVER_QUOTA
    content = (site.tree / "home/alice/file").read_bytes()
    assert content[:5] == b"first" and len(content) in (5, 104)


def test_copies_of_a_user_over_quota(site, tmp_path):
    """A file that persists on close leaves nothing, and our client names the quota."""
    large = tmp_path / "large"
    large.write_bytes(data(3 * MIB))
    home = site.tree / "home/alice"
    alice = site.key("alice")
    xrdcp(large, site.url("/home/alice/file"), **alice).fails(ShellCode.SERVER_ERROR, ErrorCode.OVER_QUOTA.shown)
    assert xrdcp("--posc", large, site.url("/home/alice/posc"), **alice).status == ShellCode.SERVER_ERROR
    wait_until(lambda: not (home / "posc").exists())
    scalla("cp", large, site.url("/home/alice/ours"), **alice).fails(1, "quota")
    small = tmp_path / "small"
    small.write_bytes(data(MIB // 2))
    scalla("cp", small, site.url("/home/alice/small"), **alice).ok()
    assert (home / "small").read_bytes() == small.read_bytes() and owner(home / "small") == USERS["alice"]


def test_without_accounts(serve, tmp_path):
    """The server's own user over quota, with the real client."""
    server = serve(limits=refusal.over_quota(MIB))
    (tmp_path / "large").write_bytes(data(3 * MIB))
    xrdcp(tmp_path / "large", server.url("/file")).fails(ShellCode.SERVER_ERROR, ErrorCode.OVER_QUOTA.shown)
