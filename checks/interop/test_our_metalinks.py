"""Metalinks as sources of `scalla cp`: locations that fail in the middle, names resolved at a
redirector, limits of length and time.

Also `xrdfs cat` and `tail` of metalinks, compared with the real program."""

import os

import pytest

import peers
import tools
from between import Between
from codes import ErrorCode, ShellCode
from tools import data, scalla

MIB = 1 << 20
SHORT = dict(XRD_CONNECTIONWINDOW="4", XRD_CONNECTIONRETRY="1", XRD_STREAMTIMEOUT="4", XRD_STREAMERRORWINDOW="4")
PIECES = dict(XRD_CPCHUNKSIZE="65536", XRD_CPPARALLELCHUNKS="2")


def metalink(*urls, glfn=None, size=None, hashes=()):
    size = "" if size is None else f"<size>{size}</size>"
    glfn = "" if glfn is None else f'<glfn name="{glfn}"/>'
    hashes = "".join(f'<hash type="{kind}">{value}</hash>' for kind, value in hashes)
    urls = "".join(f'<url priority="{index + 1}">{url}</url>' for index, url in enumerate(urls))
    return f'<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="named">{size}{glfn}{hashes}{urls}</file></metalink>'.encode()


@pytest.fixture
def copies(ours, theirs, area_on):
    """The same file on our server and the real one."""
    areas = [area_on(server) for server in (theirs, ours)]
    content = data(24 * MIB + 5)
    for area in areas:
        area.put("file", content)
    return areas, content


@pytest.mark.parametrize("cut", [100_000, 9 * MIB], ids=["early", "in the middle"])
@pytest.mark.parametrize("to", ["here", "server"])
def test_a_place_that_fails_in_the_middle(copies, tmp_path, cut, to):
    """The next one continues at the same position, and no data is read twice."""
    (first, second), content = copies
    with Between(first.server, cut_down=cut) as dying, Between(second.server) as next_:
        (tmp_path / "two.meta4").write_bytes(metalink(dying.url(first / "file"), next_.url(second / "file"), size=len(content)))
        target = tmp_path / "out" if to == "here" else second.url("copy")
        scalla("cp", tmp_path / "two.meta4", target, **SHORT, **PIECES).ok()
        assert (tmp_path / "out" if to == "here" else second.local / "copy").read_bytes() == content
        assert dying.passed["down"] >= cut
        assert next_.passed["down"] < len(content) * 1.01 - cut + 2 * MIB


def test_a_place_that_falls_silent_in_the_middle(copies, tmp_path):
    (first, second), content = copies
    with Between(first.server, mute_down=5 * MIB) as mute:
        (tmp_path / "two.meta4").write_bytes(metalink(mute.url(first / "file"), second.url("file")))
        scalla("cp", tmp_path / "two.meta4", tmp_path / "out", **SHORT, **PIECES).ok()
    assert (tmp_path / "out").read_bytes() == content


def test_all_places_fail(copies, tmp_path):
    """The last failure is reported, and no file is left."""
    (first, second), content = copies
    with Between(first.server, cut_down=MIB) as one, Between(second.server, cut_down=2 * MIB) as two:
        (tmp_path / "two.meta4").write_bytes(metalink(one.url(first / "file"), two.url(second / "file")))
        scalla("cp", tmp_path / "two.meta4", tmp_path / "out", **SHORT, **PIECES).fails(1, "two.meta4", two.host)
    assert os.listdir(tmp_path) == ["two.meta4"]


def test_a_place_with_another_file_takes_no_part(copies, tmp_path):
    """A location with another size is skipped, even in the middle; with the same size, the checksum
    decides."""
    (first, second), content = copies
    second.put("other", b"other")
    with Between(first.server, cut_down=MIB) as dying:
        places = dying.url(first / "file"), second.url("other"), second.url("file")
        (tmp_path / "three.meta4").write_bytes(metalink(*places))
        scalla("cp", tmp_path / "three.meta4", tmp_path / "out", **SHORT, **PIECES).ok()
    assert (tmp_path / "out").read_bytes() == content
    (tmp_path / "lies.meta4").write_bytes(metalink(second.url("file"), hashes=[("md5", "0" * 32)]))
    scalla("cp", tmp_path / "lies.meta4", tmp_path / "bad").fails(1, "md5", "damaged")
    assert not (tmp_path / "bad").exists()


def test_global_names_are_looked_for_at_the_redirector(copies, tmp_path):
    """`XRD_GLFNREDIRECTOR` names it; its position is after all others."""
    (first, second), content = copies
    for area in (first, second):
        area.put("names.meta4", metalink(area.url("nope"), glfn=second / "file"))
        scalla("cp", area.url("names.meta4"), tmp_path / "out").fails(1, "names.meta4")
        for redirector in (second.server.host, f"root://{second.server.host}/"):
            scalla("cp", area.url("names.meta4"), tmp_path / "out", XRD_GLFNREDIRECTOR=redirector).ok()
            assert (tmp_path / "out").read_bytes() == content
            (tmp_path / "out").unlink()
    # The real program uses each host once.
    real = tools.run([peers.real("xrdcp"), "-N", first.url("names.meta4"), tmp_path / "real"], XRD_GLFNREDIRECTOR=f"127.0.0.1:{second.server.port}")
    assert real.ok() and (tmp_path / "real").read_bytes() == content


def test_environment_variables(area, tmp_path):
    area.put("file", b"the file")
    text = metalink(area.url("file"), size=8)
    area.put("a.meta4", text)
    (tmp_path / "local.meta4").write_bytes(text)
    for source in (area.url("a.meta4"), tmp_path / "local.meta4"):
        for variables, expected in (({}, b"the file"), ({"XRD_LOCALMETALINKFILE": "1"}, b"the file"), ({"XRD_METALINKPROCESSING": "0"}, text)):
            out = tmp_path / "out"
            # The real program does the same.
            for program in ([peers.program(), "cp"], [peers.real("xrdcp"), "-N"]):
                tools.run([*program, source, out], **variables).ok()
                assert out.read_bytes() == expected, (source, variables, program)
                out.unlink()


def test_limits(area, tmp_path):
    """The length and the number of locations are limited."""
    area.put("file", b"the file")
    good = metalink(area.url("file"))
    area.put("most.meta4", good.replace(b"</file>", b"</file>" + b" " * (MIB - len(good))))
    area.put("more.meta4", good.replace(b"</file>", b"</file>" + b" " * (MIB - len(good) + 1)))
    area.put("places.meta4", metalink(*[area.url("file")] * 1000))
    area.put("toomany.meta4", metalink(*[area.url("file")] * 1001))
    area.put("bomb.meta4", b'<!DOCTYPE m [<!ENTITY a "aaaa">]>' + good)
    for name in ("most", "places"):
        scalla("cp", area.url(f"{name}.meta4"), tmp_path / name).ok()
        assert (tmp_path / name).read_bytes() == b"the file"
    for name, why in (("more", "too large"), ("toomany", "more than 1000"), ("bomb", "no metalink")):
        scalla("cp", area.url(f"{name}.meta4"), tmp_path / name).fails(1, f"{name}.meta4", why)
        assert not (tmp_path / name).exists()


def test_a_metalink_that_does_not_arrive_times_out(area, tmp_path):
    """`XRD_MAXMETALINKWAIT`: seconds for the metalink itself."""
    area.put("a.meta4", metalink(area.url("file")))
    with Between(area.server, mute_down=100) as mute:
        url = mute.url(area / "a.meta4")
        scalla("cp", url, tmp_path / "out", XRD_MAXMETALINKWAIT="2").fails(1, "a.meta4", "no answer within")
    assert os.listdir(tmp_path) == []


QUESTIONS = ["cat @/good.meta4", "cat @/nothing.meta4", "cat @/nope.meta4", "cat @/text.meta4", "cat @/none.meta4", "tail @/good.meta4", "tail -c 3 @/good.meta4",
             "tail @/nothing.meta4", "tail @/text.meta4", "tail @/none.meta4", "tail @/nope.meta4", "cat @/old.metalink", "stat @/missing.meta4"]


@pytest.mark.parametrize("processing", ["1", "0"], ids=["processed", "as they are"])
def test_xrdfs(area, processing):
    """`cat` and `tail` show the file that a metalink names, as the real program does; all other
    commands apply to the metalink."""
    area.put("file", b"the file")
    good = metalink(area.url("file"), size=8)
    for name, text in (("good.meta4", good), ("old.metalink", good), ("nothing.meta4", metalink(area.url("no"), area.url("neither"))), ("text.meta4", b"text"), ("none.meta4", metalink())):
        area.put(name, text)
    for question in QUESTIONS:
        words = question.replace("@", area.path).split()
        theirs, ours = (tools.xrdfs(area.server, *words, program=program, XRD_METALINKPROCESSING=processing) for program in (tools.XRDFS, peers.link("xrdfs")))
        shown = [(result.status, result.raw, result.err.replace("\0", "").split()) for result in (theirs, ours)]
        assert shown[0] == shown[1], question
    if processing == "1":
        assert tools.xrdfs(area.server, "cat", area / "good.meta4", program=peers.link("xrdfs")).raw == b"the file"
        # The real program believes a wrong size.
        area.put("short.meta4", metalink(area.url("file"), size=4))
        tools.xrdfs(area.server, "cat", area / "short.meta4", program=peers.link("xrdfs")).fails(ShellCode.SERVER_ERROR, ErrorCode.NO_REPLICAS.shown)


def test_xrdfs_cat_reads_as_copies_do(copies, tmp_path):
    """After a location that fails in the middle the next one is used, and the checksums are
    verified; a wrong file is not kept."""
    (first, second), content = copies
    cat = lambda *words: tools.run([peers.link("xrdfs"), second.server.host, "cat", *words], **SHORT, **PIECES)
    with Between(first.server, cut_down=9 * MIB) as dying:
        second.put("two.meta4", metalink(dying.url(first / "file"), second.url("file"), size=len(content)))
        assert cat(second / "two.meta4").ok().raw == content
    with Between(first.server, cut_down=9 * MIB) as dying:
        second.put("two.meta4", metalink(dying.url(first / "file"), second.url("file"), size=len(content)))
        assert "Progress: " in cat("-o", tmp_path / "sub/out", second / "two.meta4").ok().err
    assert (tmp_path / "sub/out").read_bytes() == content
    second.put("wrong.meta4", metalink(second.url("file"), hashes=[("adler-32", "12345678")]))
    cat(second / "wrong.meta4").fails(ShellCode.PROTOCOL, "CheckSum error")
    cat("-o", tmp_path / "bad", second / "wrong.meta4").fails(ShellCode.PROTOCOL, "CheckSum error")
    cat("-o", tmp_path / "sub/out", second / "two.meta4").fails(ShellCode.SERVER_ERROR, "file exists")
    assert os.listdir(tmp_path) == ["sub"] and os.listdir(tmp_path / "sub") == ["out"]
