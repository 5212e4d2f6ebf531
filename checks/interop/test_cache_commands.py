"""Commands of clients about files in a disk cache: the answers beside those of the real server, and who may use them."""

import pytest

import peers
import raw
from codes import ErrorCode
from origins import CONTENT, SIZE, Freezing
from test_cache import Cache, place
from test_cache_print import SETTINGS
from tools import data, run, wait_until, xrdcp, xrdfs

DONE = b"\0"
# With the answers of XRootD 6. Servers of version 5 do not know the command.
WORDS = (
    ("cache cached /f", DONE),
    ("cache cached /none", 3035),
    ("cache cached /d", 3035),
    ("cache evict /d", ErrorCode.IT_EXISTS),
    ("cache evict /../f", ErrorCode.NOT_AUTHORIZED),
    ("cache evict /d/g extra", ErrorCode.NOT_FOUND),
    ("cache  evict  /d/g", DONE),
    ("cache evict /d/g", ErrorCode.NOT_FOUND),
    ("cache fevict /none", ErrorCode.NOT_FOUND),
    ("cache evict f", ErrorCode.ARG_INVALID),
    ("cache evict", ErrorCode.ARG_INVALID),
    ("cache frob /f", ErrorCode.ARG_INVALID),
    ("cache", ErrorCode.ARG_MISSING),
    ("cache evict /f", DONE),
    ("cache cached /f", 3035),
)
PATHS = (
    ("/xrdpfc_command/remove_file/ /f", ErrorCode.FS_ERROR),
    ("/xrdpfc_command/remove_file/ /none", ErrorCode.NOT_FOUND),
    ("/xrdpfc_command/remove_file/-s 1/d/g", ErrorCode.ARG_INVALID),
    ("/xrdpfc_command/create_file/-s 1m/made", ErrorCode.UNSUPPORTED),
    ("/xrdpfc_command/frob/ /f", ErrorCode.UNSUPPORTED),
)


def authorized(origin, settings="", rules="u * / a\n", **how):
    """A cache with rules. Everybody may do everything by default."""
    cache = Cache(origin, **how)
    peers.place(cache.work / "rules", rules.encode())
    cache.settings += f"ofs.authorize\nacc.authdb {cache.work / 'rules'}\n{settings}"
    return cache


def answer(connection, words):
    """The answer to kXR_set, or its error."""
    try:
        return connection.ask(raw.SET, payload=words.encode())
    except raw.Failed as failed:
        return failed.code


def fill(server, tmp_path, *names):
    """Reads files through a cache until it has them."""
    for name in names:
        xrdcp("-f", server.url(name), tmp_path / "copy").ok()
        complete = ["state complete", str(server.tree / f"{name[1:]}.cinfo")]
        wait_until(lambda: complete[0] in run([peers.real("xrdpfc_print"), complete[1]]).out, 60)


def cached(server):
    return sorted(str(path.relative_to(server.tree))[:-6] for path in server.tree.rglob("*.cinfo"))


@pytest.fixture
def origin():
    with peers.Theirs() as server:
        place(server, "f", data(700_000))
        place(server, "d/g", data(7_000))
        yield server


def test_answers_to_words_are_those_of_the_real_server(origin, tmp_path):
    with authorized(origin.host) as ours:
        fill(ours, tmp_path, "/f", "/d/g")
        connection = raw.Connection(ours)
        assert [(words, answer(connection, words)) for words, _ in WORDS] == list(WORDS)
        assert cached(ours) == []
        wait_until(lambda: ours.output().count("removed from the cache by a client") >= 2)
        removals = [line for line in ours.output().splitlines() if "removed from the cache by a client" in line]
        assert len(removals) == 2 and "/d/g" in removals[0] and "/f" in removals[1] and "tester" in removals[1], removals
    if peers.real_release() < 6:
        return
    with peers.Theirs(settings=peers.SETTINGS + SETTINGS.format(port=origin.port)) as theirs:
        fill(theirs, tmp_path, "/f", "/d/g")
        connection = raw.Connection(theirs)
        assert [(words, answer(connection, words)) for words, _ in WORDS] == list(WORDS)


def test_a_removal_by_a_path_is_one_beside_the_real_server(origin, tmp_path):
    """The real server sends one error for all of them. Ours tells what happened."""
    with authorized(origin.host, "pfc.allow_xrdpfc_command\n") as ours:
        fill(ours, tmp_path, "/f", "/d/g")
        connection = raw.Connection(ours)
        for path, code in PATHS:
            assert (path, connection.error(raw.OPEN, bytes(4), path.encode())) == (path, code)
        assert cached(ours) == ["d/g"]
        handle = connection.open("/d/g")
        assert connection.error(raw.OPEN, bytes(4), b"/xrdpfc_command/remove_file/ /d/g") == ErrorCode.CONFLICT
        connection.close(handle)
    settings = peers.SETTINGS + SETTINGS.format(port=origin.port) + "pfc.allow_xrdpfc_command\n"
    with peers.Theirs(settings=settings) as theirs:
        fill(theirs, tmp_path, "/f", "/d/g")
        wait_until(lambda: "f" not in cached(theirs) or raw.Connection(theirs).error(
            raw.OPEN, bytes(4), b"/xrdpfc_command/remove_file/ /f") != ErrorCode.FS_ERROR, 60)
        assert cached(theirs) == ["d/g"]


def test_without_the_directive_a_path_is_a_path(origin):
    with Cache(origin.host) as ours:
        connection = raw.Connection(ours)
        assert connection.error(raw.OPEN, bytes(4), b"/xrdpfc_command/remove_file/ /f") == ErrorCode.NOT_FOUND


def test_a_server_without_a_cache_has_no_such_command(origin):
    connection = raw.Connection(origin)
    with peers.Ours() as ours:
        for words in ("cache evict /f", "cache"):
            expected = ErrorCode.ARG_INVALID
            assert (answer(raw.Connection(ours), words), answer(connection, words)) == (expected, expected)


def test_our_xrdfs_removes_a_file_and_open_ones_on_demand(tmp_path):
    with Freezing() as source, authorized(source.host) as ours:
        fill(ours, tmp_path, "/f")
        connection = raw.Connection(ours)
        handle = connection.open("/f")
        program = peers.link("xrdfs")
        assert "[3032]" in xrdfs(ours, "cache", "evict", "/f", program=program).all
        assert cached(ours) == ["f"]
        xrdfs(ours, "cache", "fevict", "/f", program=program).ok()
        assert cached(ours) == []
        before = source.counts[raw.READ]
        assert connection.read(handle, 5, 1000) == CONTENT[5:1005]
        assert connection.read(handle, SIZE - 10, 100) == CONTENT[-10:]
        connection.close(handle)
        fill(ours, tmp_path, "/f")
        assert source.counts[raw.READ] > before


RULES = """\
u * /d a /read lr /nodelete a-d /none -
"""


def test_only_clients_that_may_remove_a_file_remove_it_from_the_cache(tmp_path):
    """Neither the words nor a path lead around the rules, the exports, and the origin's name space."""
    export = "/d\nall.export /read\nall.export /nodelete\nall.export /none\nall.export /readonly r/o"
    with Freezing() as source, authorized(source.host, "pfc.allow_xrdpfc_command\n", RULES, export=export) as ours:
        check_rights(ours, tmp_path)


def test_without_an_authorization_nobody_removes_a_cached_file(tmp_path):
    """An origin that refuses all removals is not asked, so the proxy would let everybody empty its cache."""
    with peers.Ours(arguments=["--read-only"]) as source, Cache(source.host, "pfc.allow_xrdpfc_command\n") as ours:
        place(source, "d/f", CONTENT)
        fill(ours, tmp_path, "/d/f")
        connection = raw.Connection(ours)
        for name in ("/d/f", "/d/none", "/d"):
            for command in ("evict", "fevict"):
                assert (name, answer(connection, f"cache {command} {name}")) == (name, ErrorCode.NOT_AUTHORIZED)
            path = f"/xrdpfc_command/remove_file/ {name}".encode()
            assert (name, connection.error(raw.OPEN, bytes(4), path)) == (name, ErrorCode.NOT_AUTHORIZED)
        assert answer(connection, "cache cached /d/f") == DONE
        shown = xrdfs(ours, "cache", "evict", "/d/f", program=peers.link("xrdfs")).all
        assert "ofs.authorize" in shown and "scalla cache evict" in shown
        assert cached(ours) == ["d/f"]


def check_rights(ours, tmp_path):
    names = ("/d/f", "/read/f", "/nodelete/f")
    fill(ours, tmp_path, *names)
    stored = cached(ours)
    connection = raw.Connection(ours)
    for name in ("/read/f", "/nodelete/f", "/none/f", "/d/../read/f"):
        refused = ErrorCode.NOT_AUTHORIZED
        assert (name, answer(connection, f"cache evict {name}")) == (name, refused)
        assert (name, answer(connection, f"cache fevict {name}")) == (name, refused)
        path = f"/xrdpfc_command/remove_file/ {name}".encode()
        assert (name, connection.error(raw.OPEN, bytes(4), path)) == (name, refused)
    # Not exported, and exported for reading.
    for name, code in (("/other/f", ErrorCode.NOT_AUTHORIZED), ("/readonly/f", ErrorCode.NOT_AUTHORIZED)):
        assert (name, answer(connection, f"cache evict {name}")) == (name, code)
    assert answer(connection, "cache cached /read/f") == DONE
    assert answer(connection, "cache cached /none/f") == ErrorCode.NOT_AUTHORIZED
    assert cached(ours) == stored
    assert answer(connection, "cache evict /d/f") == DONE
    assert connection.error(raw.OPEN, bytes(4), b"/xrdpfc_command/remove_file/ /d/f") == ErrorCode.NOT_FOUND
    assert cached(ours) == ["nodelete/f", "read/f"]


def test_an_export_for_reading_keeps_its_cached_files(tmp_path):
    with Freezing() as source, authorized(source.host, export="/d r/o") as ours:
        fill(ours, tmp_path, "/d/f")
        connection = raw.Connection(ours)
        assert answer(connection, "cache evict /d/f") == ErrorCode.FS_READ_ONLY
        assert answer(connection, "cache evict /e/f") == ErrorCode.NOT_AUTHORIZED
        assert answer(connection, "cache cached /d/f") == DONE
        assert cached(ours) == ["d/f"]


def test_files_of_hosts_that_clients_name_are_removed_by_their_paths(tmp_path):
    permits = "pss.permit localhost\npss.permit 127.0.0.1\n"
    with Freezing() as source, authorized("=", permits, export="/root:/") as ours:
        name = f"/root:/{source.host}//d/f"
        fill_name = f"root:/{source.host}/d/f"
        xrdcp("-f", ours.url(name), tmp_path / "copy").ok()
        wait_until(lambda: cached(ours) == [fill_name], 60)
        connection = raw.Connection(ours)
        assert answer(connection, "cache evict /root:/elsewhere.example.org:1094//d/f") in (ErrorCode.NOT_FOUND, ErrorCode.NOT_AUTHORIZED)
        assert answer(connection, f"cache evict {name}") == DONE
        assert cached(ours) == []
