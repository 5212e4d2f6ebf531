"""Hints for users who mistyped a location."""

import json

import peers
import terminals
from codes import Exit
from tools import scalla


def shown(*command, status=1, cwd=None, **environment):
    with terminals.Terminal([peers.program(), *command], cwd=cwd, **environment) as person:
        ended, text = person.end()
    assert ended == status, text
    return text


def test_nearest_name_or_missing_directory(area, tmp_path):
    area.put("readme.txt", b"text")
    area.mkdir("set")
    path = area.url("").split("//", 2)[2].rstrip("/")
    assert f"is it /{path}/readme.txt?" in shown("cat", area.url("readm.txt"))
    text = shown("ls", area.url("sett/run7/x"))
    assert f"the directory /{path}/sett is missing; is it /{path}/set?" in text
    text = shown("cp", "-N", area.url("readme.tx"), tmp_path)
    assert f"is it /{path}/readme.txt?" in text and "two slashes" not in text
    # No similar name exists, so there is no hint.
    text = shown("stat", area.url("zzzzzz"))
    assert "is it" not in text and "two slashes" not in text and "kXR_" not in text
    # A program receives only the error.
    assert "is it" not in scalla("cat", area.url("readm.txt")).fails(1, "no such file").err


def test_one_slash_is_named_where_there_is_one(ours):
    one = f"root://{ours.host}/readme"
    scalla("stat", one).fails(1, "two slashes")
    scalla("stat", f"root://{ours.host}//readme-nope").fails(1).err.index("no such file")


def test_codes_stay_for_programs(area):
    assert "kXR_" not in scalla("rm", area.url("nope")).fails(1, "no such file").err
    assert "kXR_NotFound" in scalla("rm", "-v", area.url("nope")).fails(1).err
    answer = json.loads(scalla("stat", "--json", area.url("nope")).fails(1).out)
    assert answer["code"] == "NotFound" and "kXR_NotFound" in answer["error"]


def test_a_server_is_not_a_local_file(area, local, tmp_path):
    source = local()
    place = area.server.host
    for text in [place, f"{place}/x", f"root:/{place}"]:
        scalla("cp", source, text, cwd=tmp_path).fails(Exit.USAGE, f"root://{place}//", f"./{text}")
    assert [path.name for path in tmp_path.iterdir()] == [source.name]
    # An existing file takes precedence, and so does explicit syntax.
    (tmp_path / "old:1").write_bytes(b"")
    scalla("cp", "-f", source, "old:1", cwd=tmp_path).ok()
    scalla("cp", source, "./new:2", cwd=tmp_path).ok()
    assert (tmp_path / "old:1").read_bytes() == (tmp_path / "new:2").read_bytes() == source.read_bytes()


def test_a_server_without_a_path_is_its_root(ours, tmp_path):
    source = tmp_path / "to-the-root"
    source.write_bytes(b"content")
    scalla("cp", source, f"root://{ours.host}").ok()
    assert scalla("cat", f"root://{ours.host}//to-the-root").ok().raw == b"content"
    scalla("rm", f"root://{ours.host}//to-the-root").ok()


def test_numbers_of_the_system_are_not_shown(area, tmp_path):
    text = scalla("cp", tmp_path / "nope", area.url("x")).fails(1, "nope").err
    assert "os error" not in text and "no such file" in text
    assert "os error" not in scalla("cp", "--from", tmp_path / "nope", area.url("x")).fails(1, "nope").err
