"""The output of `xrdfs` with our server and with the real one on the same tree, line by line.

Standard output, standard error and exit status are compared. Only inevitable differences between
two servers are masked."""

import re

import pytest

from command_lines import CONFIG_KEYS, DIALOGUE, LISTINGS, LOCATES, SEQUENCES, STATS, grow, masked
from tools import data, pattern, refused_checksum, xrdfs


def compare(twins, *words, sort=False):
    """Runs one command on both; `@` stands for the directory. Returns the masked text."""
    words = [word.replace("@", twins.path) for word in words]
    texts = [masked(xrdfs(area.server, *words)) for area in twins.areas]
    if sort:
        texts = ["\n".join(sorted(text.splitlines())) for text in texts]
    assert texts[0] == texts[1], f"xrdfs {' '.join(words)}"
    return texts[0]


@pytest.fixture
def grown(twins):
    """The same tree in both."""
    with grow(*twins.areas):
        yield twins


@pytest.mark.parametrize("words", LISTINGS, ids=" ".join)
def test_ls(grown, words):
    compare(grown, "ls", *words, sort=True)


@pytest.mark.parametrize("words", STATS, ids=lambda words: " ".join(words)[:40])
def test_stat(grown, words):
    compare(grown, "stat", *words)


@pytest.mark.parametrize("path", ["@", "@/ten", "@/nope", "/"])
def test_statvfs(grown, path):
    compare(grown, "statvfs", path)


@pytest.mark.parametrize("words", LOCATES, ids=" ".join)
def test_locate(grown, words):
    compare(grown, "locate", *words)


@pytest.mark.parametrize("option", ["-m", "-h"])
def test_locate_by_name(grown, option):
    """Each server finds the names of hosts by itself."""
    for area in grown.areas:
        assert re.fullmatch(r"\S+:\d+ Server ReadWrite \n", xrdfs(area.server, "locate", option, f"{grown.path}/ten").ok().out)


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequence(grown, name):
    """All commands run, so that one difference does not hide the next."""
    differences = []
    for line in SEQUENCES[name]:
        try:
            compare(grown, *line.split(), sort=line.count("@") > 1 or line.endswith("list"))
        except AssertionError as difference:
            differences.append(str(difference))
    assert not differences, "\n\n".join(differences)


def test_refused_checksums(grown):
    for number in range(4):
        grown.mkdir(f"folder{number}")
    for name in ("nope", "folder"):
        paths = [f"{grown.path}/{name}{number}" for number in range(4)]
        first, second = [re.sub(rf"{name}\d", name, masked(refused_checksum(area.server, *paths))) for area in grown.areas]
        assert first == second


@pytest.mark.parametrize("key", CONFIG_KEYS)
def test_query_config(grown, key):
    compare(grown, "query", "config", key)


def test_query_config_of_several_keys(grown):
    """The real server answers the first line only; ours may answer all, and must answer the first."""
    answers = [xrdfs(area.server, "query", "config", "bind_max", "readv_iov_max", "nonsense").ok().out.split() for area in grown.areas]
    assert answers[1][:1] == ["15"]
    assert answers[0] in (answers[1], ["15", "1024", "nonsense"])


def test_interactive(grown):
    """The same session, typed: prompts, relative paths, the working directory, the end."""
    lines = [line.replace("@", grown.path) for line in DIALOGUE]
    texts = [masked(xrdfs(area.server, input="\n".join(lines).encode() + b"\n")) for area in grown.areas]
    sides = [sorted(text.splitlines()) for text in texts]
    assert sides[0] == sides[1]
    assert "Goodbye" in texts[0] and texts[0].endswith("--- 0"), texts[0]


def test_cat_to_a_file(grown, tmp_path):
    for number, area in enumerate(grown.areas):
        xrdfs(area.server, "cat", "-o", tmp_path / f"out{number}", f"{grown.path}/ten").ok()
        assert (tmp_path / f"out{number}").read_bytes() == pattern(10_000)


def test_cat_of_a_large_file(twins):
    twins.put("large", data(9_000_001))
    for area in twins.areas:
        assert xrdfs(area.server, "cat", f"{twins.path}/large").ok().raw == data(9_000_001)
