"""`xrdpfc_print`, ours and the real one, on the files of a real cache."""

import json

import pytest

import peers
from tools import data, run, wait_until, xrdcp

REAL = peers.real("xrdpfc_print")
SETTINGS = """\
ofs.osslib libXrdPss.so
pss.cachelib libXrdPfc.so
pss.origin localhost:{port}
pfc.blocksize 4k
pfc.ram 1g
pfc.diskusage 0.98 0.99
"""
FILES = {"one": 1, "below/block": 4096, "below/deep/lines": 700_000}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """The directory of a cache that was filled by the real server."""
    with peers.Theirs() as origin:
        for name, size in FILES.items():
            (origin.tree / name).parent.mkdir(parents=True, exist_ok=True)
            peers.place(origin.tree / name, data(size))
        with peers.Theirs(settings=peers.SETTINGS + SETTINGS.format(port=origin.port)) as proxy:
            for name, size in FILES.items():
                copy = tmp_path_factory.mktemp("copies") / "copy"
                xrdcp(proxy.url(f"/{name}"), copy).ok()
                assert copy.read_bytes() == data(size)
            states = [proxy.tree / f"{name}.cinfo" for name in FILES]
            wait_until(lambda: all("state complete" in run([REAL, state]).out for state in states), 60)
            proxy.kill()
            yield proxy


def both(*words):
    """The output of both programs."""
    theirs, ours = run([REAL, *words]).ok(), run([peers.link("xrdpfc_print"), *words]).ok()
    return theirs.out, ours.out


@pytest.mark.parametrize("options", ["", "-v", "-u MB", "-unit B -verbose", "-j", "-json -indent 2 -v"])
@pytest.mark.parametrize("name", FILES)
def test_the_output_is_that_of_the_real_program(cache, name, options):
    theirs, ours = both(*options.split(), cache.tree / f"{name}.cinfo")
    assert ours == theirs
    assert name in ours


def test_a_directory_stands_for_all_state_files_below_it(cache):
    theirs, ours = both("-j", cache.tree)
    # The real program has the order of the directory.
    assert sorted(ours.splitlines()) == sorted(theirs.splitlines())
    files = [json.loads(line)["file"] for line in ours.splitlines()]
    assert files == [f"{cache.tree}/{name}.cinfo" for name in ("one", "below/block", "below/deep/lines")]
    assert run([peers.link("xrdpfc_print"), cache.tree / "below"]).ok().out.count("\n\nFILE: ") == 1


def test_logical_paths_are_below_the_local_root(cache, tmp_path):
    (tmp_path / "cache.cfg").write_text(f"all.export /\noss.localroot {cache.tree}\n")
    named = run([peers.link("xrdpfc_print"), "-c", tmp_path / "cache.cfg", "root://below/block.cinfo"]).ok()
    direct = run([peers.link("xrdpfc_print"), cache.tree / "below/block.cinfo"]).ok()
    assert named.out == direct.out
    refused = run([peers.link("xrdpfc_print"), "root://below/block.cinfo"])
    assert refused.status == 1 and "set the configuration of the cache by -config" in refused.err


def test_what_cannot_be_read_is_named_and_the_rest_is_printed(cache, tmp_path):
    whole = (cache.tree / "one.cinfo").read_bytes()
    cases = {
        "damaged": (bytes([*whole[:60], whole[60] ^ 1, *whole[61:]]), "the file is damaged"),
        "short": (whole[:50], "the file ends too early"),
        "empty": (b"", "the file ends too early"),
        "newer": (b"\x05" + whole[1:], "version 5 is not supported"),
    }
    for name, (content, _) in cases.items():
        (tmp_path / f"{name}.cinfo").write_bytes(content)
    paths = [tmp_path / f"{name}.cinfo" for name in cases]
    result = run([peers.link("xrdpfc_print"), *paths, tmp_path / "none.cinfo", cache.tree / "one", cache.tree / "one.cinfo"])
    assert result.status == 1
    for path, (_, reason) in zip(paths, cases.values()):
        assert any(str(path) in line and reason in line for line in result.err.splitlines()), result.err
    assert "none.cinfo: No such file or directory\n" in result.err
    assert "one: the name does not end with .cinfo" in result.err
    assert result.out.startswith(f"FILE: {cache.tree}/one.cinfo\n") and "state complete" in result.out


@pytest.mark.parametrize("words", [[], ["-u", "GB", "x"], ["-z", "x"], ["-i", "x", "x"], ["-i", "100000000000", "x"], ["-u"]])
def test_invalid_command_lines(words):
    result = run([peers.link("xrdpfc_print"), *words])
    assert result.status == 1 and not result.out
    assert result.err.startswith("xrdpfc_print: ") and "Usage: xrdpfc_print" in result.err
