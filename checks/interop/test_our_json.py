"""Output as lines of JSON: each line has a kind. Failures, also of wrong command lines, have a code, a
number and a host. The table in docs/client.md lists all keys."""

import json
import re

import pytest

import peers
import tools


def lines(*words, status=0):
    done = tools.scalla(*words)
    assert done.status == status and not done.err, f"{words}\n{done}"
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.fixture
def documented():
    """The keys of each kind and command, as the document has them."""
    text = (peers.REPOSITORY / "docs/client.md").read_text().partition("## Lines of JSON")[2].partition("\n## ")[0]
    return set(re.findall(r"`([a-z_]+)`", text))


def test_items_are_tagged_and_documented(area_on, ours, documented, tmp_path):
    area = area_on(ours)
    area.put("a", b"hello")
    area.put("deep/b", b"b")
    at = area.url
    tools.scalla("xattr", "set", at("a"), "n=v").ok()
    commands = [("ls", at("")), ("ls", "-l", at("")), ("stat", "--checksum=adler32", at("a")), ("find", at("")), ("tree", at("")), ("du", at("")), ("space", at("")),
                ("locate", at("a")), ("checksum", at("a")), ("query", "server", at("a")), ("query", "checksums", at("a")), ("query", "stats", at("a")),
                ("query", "config", at("a")), ("xattr", "list", at("a")), ("xattr", "get", at("a"), "n"), ("prepare", "stage", at("a")),
                ("cp", at("a"), tmp_path / "a"), ("cp", "--checksum", "adler32:print", at("a"), tmp_path / "b"), ("sync", "-n", at(""), tmp_path / "c"), ("sync", at(""), tmp_path / "c")]
    for command in commands:
        told = lines(*command, "--json")
        for line in told:
            assert line["kind"] in ("item", "file", "step", "sum"), f"{command}: {line}"
            assert line.keys() <= documented, f"{command}: {line.keys() - documented} are not in docs/client.md"
        assert told, command


@pytest.mark.parametrize("command, expected", [
    (("ls", "@/nope"), {"code": "NotFound", "errno": 2, "url": "@/nope"}),
    (("cp", "@/nope", "here"), {"code": "NotFound", "errno": 2, "source": "@/nope"}),
    (("cp", "/etc/hostname", "@/a"), {"code": "ItExists", "errno": 17, "target": "@/a"}),
    (("cp", "/nonexistent/file", "@/b"), {"code": "NotFound", "errno": 2}),
])
def test_failures_have_code_number_and_places(area_on, ours, documented, tmp_path, command, expected):
    area = area_on(ours)
    area.put("a", b"hello")
    command = [word.replace("@/", area.url("")) for word in command]
    told = lines(*[word if word != "here" else tmp_path / word for word in command], "--json", status=1)
    (line,) = [line for line in told if line["kind"] == "error"]
    for key, value in expected.items():
        value = value.replace("@/", area.url("")) if isinstance(value, str) else value
        assert line[key] == value, f"{key}: {line}"
    assert line.keys() <= documented and line["error"]


def test_a_server_that_is_not_there_is_named():
    (line,) = lines("stat", "root://localhost:1//a", "--json", status=1)
    assert (line["kind"], line["code"], line["host"]) == ("error", "Unreachable", "localhost:1")


@pytest.mark.parametrize("words", [("ls", "--nonsense", "--json"), ("cp", "--json"), ("ls", "/local/path", "--json"), ("dance", "--json")])
def test_wrong_command_lines_are_answered_in_json(words):
    (line,) = lines(*words, status=2)
    assert (line["kind"], line["code"]) == ("error", "Usage") and "\n" not in line["error"]


def test_values_of_the_configuration_are_taken_apart(ours):
    told = {line["key"]: line["values"] for line in lines("query", "config", ours.url("/"), "chksum", "bind_max", "fattr", "--json")}
    assert "adler32" in told["chksum"] and told["bind_max"] == [15] and len(told["fattr"]) == 2


def test_counts_agree(area_on, ours, tmp_path):
    """A file and a directory that the server cannot read are two failures, in the sum as well. A single
    file has no sum."""
    area = area_on(ours)
    area.put("set/good", b"good")
    area.put("set/closed-file", b"closed")
    area.mkdir("set/closed-directory")
    closed = [area.local / "set/closed-file", area.local / "set/closed-directory"]
    for path in closed:
        path.chmod(0o000)
    try:
        told = lines("cp", "-r", area.url("set"), tmp_path / "one", "--json", status=1)
        assert sorted(line["kind"] for line in told) == ["error", "error", "file", "sum"]
        assert (told[-1]["kind"], told[-1]["copied"], told[-1]["failed"]) == ("sum", 1, 2)
        said = tools.scalla("cp", "-r", area.url("set"), tmp_path / "two").fails(1)
        assert said.err.count("scalla: error:") == 2 and "1 file, 4 B in " in said.err and ", 2 failed" in said.err, said
        alone = tools.scalla("cp", area.url("set/closed-file"), tmp_path / "three").fails(1)
        assert len(alone.err.splitlines()) == 1 and "failed" not in alone.err, alone
    finally:
        for path in closed:
            path.chmod(0o755)
