"""Members of ZIP archives by `scalla cp` and `scalla ls`, on our server and the real one.

They are read and added, and the archive is checked after an addition is interrupted."""

import io
import os
import signal
import subprocess
import zipfile
import zlib

import pytest

import peers
import tools
from codes import ShellCode
from tools import data, scalla, xrdcp

MEMBER = b"a line of a member\n" * 5_000
LARGE = data(3_000_001)
WAYS = dict(stored=zipfile.ZIP_STORED, deflated=zipfile.ZIP_DEFLATED)
# Each chunk takes a while, so that events can occur in the middle.
SLOWLY = ["--rate", "1m"]
PIECES = dict(XRD_CPCHUNKSIZE="65536", XRD_CPPARALLELCHUNKS="1")


def archive(how=zipfile.ZIP_STORED, members=(("member", MEMBER), ("dir/large", LARGE), ("empty", b""))):
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", how) as made:
        for name, content in members:
            made.writestr(name, content)
    return written.getvalue()


def members(path):
    with zipfile.ZipFile(path) as made:
        assert made.testzip() is None
        return {member.filename: made.read(member) for member in made.infolist()}


@pytest.mark.parametrize("way", WAYS)
def test_members_are_read(area, tmp_path, way):
    area.put("a.zip", archive(WAYS[way]))
    url = area.url("a.zip")
    for name, content in (("member", MEMBER), ("dir/large", LARGE), ("empty", b"")):
        scalla("cp", "--zip", name, url, tmp_path / "out").ok().silent()
        scalla("cp", f"{url}?xrdcl.unzip={name}", tmp_path / "cgi").ok()
        assert (tmp_path / "out").read_bytes() == (tmp_path / "cgi").read_bytes() == content
        assert scalla("cp", "--zip", name, url, "-").ok().raw == content
        (tmp_path / "out").unlink()
        (tmp_path / "cgi").unlink()
    scalla("cp", "--zip", "dir/large", "--checksum", "adler32", "--streams", "2", url, area.url("new/large")).ok()
    assert area.get("new/large") == LARGE
    # In a directory it gets the last part of its name.
    scalla("cp", "--zip", "dir/large", url, tmp_path).ok()
    assert (tmp_path / "large").read_bytes() == LARGE
    listed = scalla("ls", "--zip", url).ok().out.split()
    assert {"member", "dir/large", "empty"} <= set(listed)


def test_missing_members_and_invalid_archives(area, tmp_path):
    area.put("a.zip", archive())
    area.put("text", b"text")
    area.put("damaged.zip", archive().replace(b"a line", b"A line", 1))
    area.put("cut.zip", archive()[:-30])
    out = tmp_path / "out"
    scalla("cp", "--zip", "nope", area.url("a.zip"), out).fails(1, area.url("a.zip"), "nope")
    scalla("cp", "--zip", "member", area.url("text"), out).fails(1, area.url("text"))
    scalla("cp", "--zip", "member", area.url("cut.zip"), out).fails(1, area.url("cut.zip"))
    scalla("cp", "--zip", "member", area.url("none.zip"), out).fails(1, "no such file")
    scalla("cp", "--zip", "member", area.url("damaged.zip"), out).fails(1, "damaged")
    scalla("ls", "--zip", area.url("text")).fails(1, area.url("text"))
    assert os.listdir(tmp_path) == []


def test_members_are_added(area, local, tmp_path):
    """To an existing archive and to a new one; the real program reads them."""
    area.put("a.zip", archive(zipfile.ZIP_DEFLATED))
    before = members(area.local / "a.zip")
    source, empty = local("source", 3_000_001), local("nothing", 0)
    for file in (source, empty):
        scalla("cp", "--zip-append", file, area.url("a.zip")).ok().silent()
        scalla("cp", "--zip-append", file, area.url("new/b.zip")).ok()
    added = {"source": source.read_bytes(), "nothing": b""}
    assert members(area.local / "a.zip") == {**before, **added} and members(area.local / "new/b.zip") == added
    xrdcp("-z", "source", area.url("a.zip"), tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    content = area.get("a.zip")
    scalla("cp", "--zip-append", source, area.url("a.zip")).fails(1, "source")
    scalla("cp", "--zip-append", tmp_path / "no such file", area.url("a.zip")).fails(1, "no such file")
    assert area.get("a.zip") == content


def test_an_archive_of_this_machine_is_not_added_to(local, tmp_path):
    """No checkpoint could restore it. The real program waits forever."""
    before = archive()
    (tmp_path / "a.zip").write_bytes(before)
    source = local("source", 1000)
    scalla("cp", "--zip-append", source, tmp_path / "a.zip").fails(1, "at a server")
    ours = tools.run([peers.link("xrdcp"), "-N", "--zip-append", source, tmp_path / "a.zip"])
    ours.fails(ShellCode.CLIENT_ERROR, "at a server")
    assert (tmp_path / "a.zip").read_bytes() == before


def adding(area, source, name, program="scalla"):
    """Adds slowly, and returns when part of the data is in the archive."""
    size = (area.local / name).stat().st_size
    command = {"scalla": [peers.program(), "cp", *SLOWLY, "--zip-append"], "xrdcp": [peers.link("xrdcp"), "-N", "-X", "1m", "--zip-append"]}[program]
    process = subprocess.Popen([str(word) for word in [*command, source, area.url(name)]], env=peers.environment(**PIECES),
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    tools.wait_until(lambda: process.poll() is not None or (area.local / name).stat().st_size > size + 65536)
    assert process.poll() is None, process.stderr.read()
    return process


@pytest.mark.parametrize("program", ["scalla", "xrdcp"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name)
def test_an_interrupted_addition_leaves_the_archive_unchanged(area, local, program, number):
    """The server restores it when its client is lost; an interrupted client requests it."""
    before = archive()
    area.put("a.zip", before)
    process = adding(area, local("source", 20_000_000), "a.zip", program)
    process.send_signal(number)
    process.communicate(timeout=tools.PATIENCE_SECONDS)
    tools.wait_until(lambda: area.get("a.zip") == before, seconds=60)
    # A further addition succeeds.
    small = local("small", 1000)
    tools.wait_until(lambda: scalla("cp", "--zip-append", small, area.url("a.zip")).status == 0, seconds=60)
    assert members(area.local / "a.zip")["small"] == small.read_bytes()


def test_an_addition_whose_server_dies_leaves_the_archive_unchanged(launch, area_on, local):
    area = area_on(launch(settings="ofs.chkpnt enable maxsz 1m\n"))
    before = archive()
    area.put("a.zip", before)
    process = adding(area, local("source", 20_000_000), "a.zip")
    area.server.kill()
    process.kill()
    process.communicate()
    area.server.start()
    # The real server restores it when the file is next opened for writing, ours when it starts.
    small = local("small", 1000)
    tools.wait_until(lambda: scalla("cp", "--zip-append", small, area.url("a.zip")).status == 0, seconds=60)
    found = members(area.local / "a.zip")
    assert found.pop("small") == small.read_bytes() and "source" not in found
    assert found == members(io.BytesIO(before))


def test_a_directory_larger_than_a_checkpoint(area, local):
    """The overwritten part is larger than the server's limit: the addition is refused, and the
    archive is restored (by the real server when the client has disconnected)."""
    many = archive(members=[(f"{number:06}-{'x' * 90}", b"") for number in range(9_000)])
    assert len(many) - many.index(b"PK\x01\x02") > 1 << 20
    area.put("a.zip", many)
    refused = scalla("cp", "--zip-append", local("source", 2_000_000), area.url("a.zip"))
    refused.fails(1, area.url("a.zip"), "checkpoint")
    tools.wait_until(lambda: area.get("a.zip") == many)
    ours = tools.run([peers.link("xrdcp"), "-N", "--zip-append", local("other", 1000), area.url("a.zip")])
    assert ours.status == ShellCode.SERVER_ERROR
    tools.wait_until(lambda: area.get("a.zip") == many)


def test_a_server_without_checkpoints_refuses(launch, area_on, local):
    area = area_on(launch(settings="ofs.chkpnt disable\n"))
    before = archive()
    area.put("a.zip", before)
    scalla("cp", "--zip-append", local("source", 1000), area.url("a.zip")).fails(1, "checkpoint")
    assert area.get("a.zip") == before


def described(area, **sums):
    hashes = "".join(f'<hash type="{kind}">{value}</hash>' for kind, value in sums.items())
    text = f'<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="a.zip">{hashes}<url>{area.url("a.zip")}</url></file></metalink>'
    area.put("a.meta4", text.encode())


def test_checksums_of_a_metalink_apply_to_the_member_with_the_option(area, tmp_path):
    """`--zip-mtln-cksum`, `XRD_ZIPMTLNCKSUM`: otherwise they are those of the archive, and do not
    apply to a member."""
    content = b"the member"
    assert zlib.adler32(content) >> 28, "the real program compares zeros in front"
    area.put("a.zip", archive(members=[("member", content)]))
    good, bad = f"{zlib.adler32(content):08x}", f"{zlib.adler32(area.get('a.zip')):08x}"
    out, url = tmp_path / "out", area.url("a.meta4")

    def result(program, *options):
        out.unlink(missing_ok=True)
        done = tools.run([program, "-N", *options, "-z", "member", url, out])
        return done.status, done.err.replace("\0", "").strip(), out.exists() and out.read_bytes()

    for told, value in ((good, content), (bad, False)):
        described(area, adler32=told)
        scalla("cp", "--zip", "member", url, out).ok()
        out.unlink()
        mine = scalla("cp", "--zip", "member", url, out, XRD_ZIPMTLNCKSUM="1")
        assert (mine.status == 0) == (told == good) and (out.exists() and out.read_bytes()) == value, mine
        for options in (["--cksum", "adler32"], ["--cksum", "adler32:source"], ["--cksum", "adler32:print"], ["--cksum", "auto:print"], ["--cksum", "md5"]):
            theirs, ours = (result(program, "--zip-mtln-cksum", *options) for program in (peers.real("xrdcp"), peers.link("xrdcp")))
            if told == bad and options[1] != "md5":
                # The real program verifies only if requested, and keeps the file.
                assert ours == (53, "Run: [ERROR] CheckSum error", False), options
            else:
                assert ours[:2] == theirs[:2], options
