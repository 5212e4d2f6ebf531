"""Servers that answer a read with fewer bytes than requested. A short answer is not the end of the
file, and a file that ends before its size is a failure."""

import zlib

import pytest

import hollow
import peers
from tools import run, scalla, xrdfs

CONTENT = b"".join(b"line %d\n" % number for number in range(60_000))
LINES = CONTENT.splitlines(keepends=True)
# The maximum size of an answer.
MOST = 1000
# The size of a file that ends too early.
CUT = 300_000


@pytest.fixture(scope="module", params=[0, 1 << 18], ids=["short", "short-later"])
def short(request):
    """All answers are short, or only those of later reads."""
    with hollow.ShortReads(CONTENT, MOST, whole_until=request.param) as server:
        yield server


@pytest.fixture(scope="module")
def cut():
    with hollow.ShortReads(CONTENT, MOST, end=CUT) as server:
        yield server


def url(server):
    return f"root://{server.host}//f"


READS = [
    ("cat", CONTENT), ("head -n 5", b"".join(LINES[:5])), ("head -n 20000", b"".join(LINES[:20_000])), ("head -n 70000", CONTENT),
    ("head -c 100001", CONTENT[:100_001]), ("head -c 9m", CONTENT), ("tail", b"".join(LINES[-10:])), ("tail -n 3", b"".join(LINES[-3:])),
    ("tail -n 30000", b"".join(LINES[-30_000:])), ("tail -n 70000", CONTENT), ("tail -n +30000", b"".join(LINES[29_999:])),
    ("tail -c 70001", CONTENT[-70_001:]), ("tail -c +70001", CONTENT[70_000:]),
]


@pytest.mark.parametrize("words, expected", READS, ids=[words for words, _ in READS])
def test_a_short_answer_is_not_the_end(short, words, expected):
    assert scalla(*words.split(), url(short)).ok().raw == expected


@pytest.mark.parametrize("more", [[], ["--parallel", "1"], ["-x"], ["--checksum", "adler32:verify"]], ids=" ".join)
def test_a_copy_reads_on_after_a_short_answer(short, tmp_path, more):
    more = [word.replace("verify", f"{zlib.adler32(CONTENT):08x}") for word in more]
    scalla("cp", *more, url(short), tmp_path / "f").ok()
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_xrdcp_reads_on_after_a_short_answer(short, tmp_path):
    run([peers.link("xrdcp"), url(short), tmp_path / "f"]).ok()
    assert (tmp_path / "f").read_bytes() == CONTENT


@pytest.mark.parametrize("more", [[], ["-x"]], ids=" ".join)
def test_a_copy_of_a_file_that_ends_before_its_size_is_a_failure(cut, tmp_path, more):
    scalla("cp", *more, url(cut), tmp_path / "f").fails(1, f"at byte {CUT} of {len(CONTENT)}")
    assert run([peers.link("xrdcp"), url(cut), tmp_path / "f"]).status != 0
    assert list(tmp_path.iterdir()) == []


def test_a_short_answer_is_not_the_end_for_other_programs(short, tmp_path):
    adler32 = f"{zlib.adler32(CONTENT):08x}"
    assert adler32 in scalla("checksum", "--read", "-t", "adler32", url(short)).ok().out
    assert run([peers.link("xrdadler32"), url(short)]).ok().out.startswith(adler32 + " ")
    run([peers.link("xrdcrc32c"), url(short)]).ok()
    program = peers.link("xrdfs")
    assert xrdfs(short, "cat", "/f", program=program).ok().raw == CONTENT
    assert xrdfs(short, "tail", "-c", "70001", "/f", program=program).ok().raw == CONTENT[-70_001:]
    xrdfs(short, "cat", "-o", tmp_path / "out", "/f", program=program).ok()
    assert (tmp_path / "out").read_bytes() == CONTENT


@pytest.mark.parametrize("words", ["cat", "head -n 70000", "head -c 400000", "tail -n 3", "tail -c 100000", "tail -n +5", "checksum -t md5 --read"])
def test_a_file_that_ends_before_its_size_is_a_failure(cut, words):
    result = scalla(*words.split(), url(cut)).fails(1, "ended at byte")
    assert result.raw in CONTENT[:CUT]


def test_the_beginning_of_a_file_that_ends_early_can_be_read(cut):
    assert scalla("head", "-c", str(CUT), url(cut)).ok().raw == CONTENT[:CUT]


def test_a_file_that_ends_early_is_a_failure_for_other_programs(cut, tmp_path):
    assert run([peers.link("xrdadler32"), url(cut)]).status != 0
    assert run([peers.link("xrdcrc32c"), url(cut)]).status != 0
    program = peers.link("xrdfs")
    assert xrdfs(cut, "tail", "-c", "500000", "/f", program=program).status != 0
    assert xrdfs(cut, "cat", "-o", tmp_path / "out", "/f", program=program).status != 0
    assert not (tmp_path / "out").exists()
