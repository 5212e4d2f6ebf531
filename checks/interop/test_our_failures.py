"""Failed requests in the log of our server.

A failure that an administrator can fix is a warning, at most one per minute and cause."""

import json
import re

from tools import data, scalla, wait_until

MIB = 1024 * 1024


def warnings(server):
    return re.findall(r"warning: storage: (.*)", server.output())


def test_a_full_disk(serve, small_disk, local):
    server = serve(tree=small_disk)
    source = local(size=3 * MIB)
    for number in range(12):
        scalla("cp", "--in-place", source, server.url(f"/f{number}"))
    wait_until(lambda: warnings(server))
    found = warnings(server)
    assert len(found) == 1 and re.match(r"no space left: .*: .*/f\d+; no space left on device", found[0]), found


def test_a_directory_that_the_server_may_not_write(serve, local):
    server = serve()
    closed = server.tree / "closed"
    closed.mkdir(mode=0o700)
    source = local()
    for number in range(5):
        scalla("cp", source, server.url(f"/closed/f{number}")).fails(1)
    wait_until(lambda: warnings(server))
    found = warnings(server)
    assert len(found) == 1 and found[0].startswith("the server lacks the permission: "), found


def test_every_failure_at_debug(serve):
    server = serve(arguments=["-v"])
    scalla("stat", server.url("/nix\x1b[2J")).fails(1)
    wait_until(lambda: "/nix" in server.output())
    line = next(line for line in server.output().splitlines() if "/nix" in line)
    # Client, operation, reason; text of users is escaped.
    assert re.search(r" xroot: \S+: .*/nix\\x1b\[2J; no such file or directory", line), line


def test_failures_of_users_are_not_warnings(serve):
    server = serve()
    for _ in range(5):
        scalla("stat", server.url("/nix")).fails(1)
    assert not warnings(server) and "/nix" not in server.output()


def test_no_upload_is_begun_at_a_server_without_space_for_it(serve, small_disk, tmp_path):
    """A file larger than the free space is not begun; a smaller one is copied.

    One at a time: one that fails holds space until it ends, and the small one may be on its way beside it."""
    server = serve(tree=small_disk)
    (tmp_path / "set").mkdir()
    for number in range(20):
        (tmp_path / f"set/large{number:02}").write_bytes(data(3 * MIB))
    (tmp_path / "set/small").write_bytes(b"small")
    done = scalla("cp", "-r", "--parallel", "1", "--json", tmp_path / "set", server.url("/set")).fails(1)
    lines = [json.loads(line) for line in done.out.splitlines()]
    failed = [line for line in lines if line["kind"] == "error"]
    begun = [line for line in failed if "is not begun" not in line["error"]]
    # There is room for two; the third finds no space, and no other of this size is begun.
    assert (len(failed), len(begun)) == (18, 1) and {line["code"] for line in failed} == {"NoSpace"}, done
    assert (server.tree / "set/small").read_bytes() == b"small"
    told = scalla("cp", "-r", "--parallel", "2", tmp_path / "set", server.url("/other")).fails(1)
    assert re.search(r"(1\d|20) more failed alike: no space at", told.err) and len(told.err.splitlines()) <= 4, told
