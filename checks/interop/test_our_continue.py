"""`scalla cp --continue`: the part of an earlier copy is completed if it is known to be part of the
source.

The result is the source, byte by byte, or the copy fails."""

import json
import os
import subprocess

import peers
import pytest
from between import Withholding
from codes import ShellCode
from tools import XRDCP, data, run, scalla, wait_until

MIB = 1024 * 1024
SIZE = 16 * MIB


def copied(result):
    """Returns the bytes that were transferred."""
    return json.loads(result.ok().out.splitlines()[0])["copied"]


def killed_upload(area, source, between, state):
    """Runs an upload of which one write in the middle never arrives and all others do; then its
    client is killed."""
    command = [peers.program(), "cp", "--continue", source, between.url(area / "file")]
    path = area.local / "file"
    with subprocess.Popen([str(word) for word in command], env=peers.environment(XDG_STATE_HOME=state)) as client:
        wait_until(lambda: between.withheld.is_set() and path.exists() and path.stat().st_size == SIZE
              and os.stat(path).st_blocks * 512 >= SIZE - 2 * MIB)
        client.kill()
    assert area.get("file") != source.read_bytes(), "it has its full size and a hole"


@pytest.mark.parametrize("noted", [True, False], ids=["with-its-note", "without"])
def test_a_hole_in_a_file_of_full_size(area, local, tmp_path, noted):
    source = local(size=SIZE)
    with Withholding(area.server, 4 * MIB) as between:
        killed_upload(area, source, between, tmp_path / "state")
        state = tmp_path / ("state" if noted else "other")
        assert copied(scalla("cp", "--continue", "--json", source, between.url(area / "file"), XDG_STATE_HOME=state)) >= 2 * MIB
    assert area.get("file") == source.read_bytes()
    assert list(state.glob("**/uploads/*")) == [], "a copy that is whole leaves no note"


def test_the_source_of_an_upload_has_changed(area, local, tmp_path):
    """Same size, same ends: the part is not one of the new source."""
    source = local(size=SIZE)
    with Withholding(area.server, 4 * MIB) as between:
        killed_upload(area, source, between, tmp_path / "state")
        content = bytearray(source.read_bytes())
        content[2 * MIB: 3 * MIB] = data(MIB, 77)
        source.write_bytes(content)
        scalla("cp", "--continue", source, between.url(area / "file"), XDG_STATE_HOME=tmp_path / "state").fails(1, "cannot be continued")
    assert area.get("file") != bytes(content), "it stays as it is"


@pytest.mark.parametrize("way", ["down", "up"])
def test_another_file_of_the_same_size_and_ends(area, local, way):
    source = local(size=SIZE)
    content = source.read_bytes()
    other = content[: 8 * MIB] + data(MIB, 99) + content[9 * MIB:]
    assert len(other) == SIZE
    if way == "up":
        area.put("file", other)
        scalla("cp", "--continue", source, area.url("file")).fails(1, "cannot be continued", "not those of the source")
        assert area.get("file") == other
    else:
        area.put("file", content)
        source.write_bytes(other)
        scalla("cp", "--continue", area.url("file"), source).fails(1, "cannot be continued", "not those of the source")
        assert source.read_bytes() == other


def test_an_interrupted_download_continues_after_its_part(area, local, tmp_path):
    """Unless the source is another one by then."""
    content = data(SIZE)
    area.put("file", content)
    out = tmp_path / "out"

    def interrupted():
        command = [peers.program(), "cp", "--continue", "--rate", "8m", area.url("file"), out]
        with subprocess.Popen([str(word) for word in command], env=peers.environment()) as client:
            wait_until(lambda: (tmp_path / ".out.part").exists() and (tmp_path / ".out.part").stat().st_size >= 3 * MIB)
            # A second one does not write to the same part.
            scalla("cp", "--continue", area.url("file"), out).fails(1, "another process")
            client.kill()
        assert sorted(os.listdir(tmp_path)) == [".out.part", ".out.part.note"]
        return (tmp_path / ".out.part").stat().st_size

    has = interrupted()
    assert copied(scalla("cp", "--continue", "--json", area.url("file"), out)) == SIZE - has
    assert out.read_bytes() == content and os.listdir(tmp_path) == ["out"]
    out.unlink()
    interrupted()
    # Same size, equal ends of the part.
    changed = content[: 5 * MIB // 2] + data(1000, 5) + content[5 * MIB // 2 + 1000:]
    area.put("file", changed)
    os.utime(area.local / "file", (1, 1))
    scalla("cp", "--continue", area.url("file"), out).fails(1, "cannot be continued", "not those of the source")
    assert not out.exists()


def test_parts_left_by_the_real_program_and_by_ours(area, local, tmp_path):
    """The real program continues after the size of the file with the final name, and fails without
    one. Ours compares and completes the part it left; it does not know our parts."""
    content = data(SIZE)
    area.put("file", content)
    out = tmp_path / "out"
    out.write_bytes(content[: 5 * MIB + 3])
    assert copied(scalla("cp", "--continue", "--json", area.url("file"), out)) == SIZE - 5 * MIB - 3
    assert out.read_bytes() == content
    out.unlink()
    (tmp_path / ".out.part").write_bytes(content[: 5 * MIB + 3])
    run([XRDCP, "--nopbar", "--continue", area.url("file"), out]).fails(ShellCode.SERVER_ERROR, "no such file or directory")
    out.write_bytes(content[: 5 * MIB + 3])
    run([XRDCP, "--nopbar", "--continue", area.url("file"), out]).ok()
    assert out.read_bytes() == content and (tmp_path / ".out.part").exists()
    # Complete now: nothing is copied, and the part is unchanged.
    assert copied(scalla("cp", "--continue", "--json", area.url("file"), out)) == 0
