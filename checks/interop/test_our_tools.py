"""Our `xrdmapc`, `xrdadler32`, `xrdcrc32c` and the real ones, with the same command lines: output
and exit status.

`xrdprep` is not among the installed programs; its effect is checked on the servers."""

import os

import pytest

import peers
import terminals
import tools
from codes import ErrorCode

PATIENCE = dict(XRD_CONNECTIONWINDOW="5", XRD_CONNECTIONRETRY="1")


def both(name, *words, input=b"", **more):
    return tools.both(name, *words, input=input, **PATIENCE, **more)


def same(name, *words, **more):
    theirs, ours = both(name, *words, **more)
    assert (ours.status, ours.out, ours.err) == (theirs.status, theirs.out, theirs.err.replace("\0", "")), f"{name} {words}"
    return ours


# xrdmapc

@pytest.fixture
def cluster(mapped):
    return mapped.complete()


@pytest.mark.parametrize("words", ["", "/all", "--verify /all", "--verify /deep", "/deep", "--verify /nope", "/nope", "--refresh /all", "--list m", "-lm /deep",
                                   "--list s", "-l all --verify /deep", "relative", "--verify relative", "--verify /" + "x" * 300, "-v"])
def test_map(cluster, words):
    options = [word for word in words.split() if not word.startswith("/") and word != "relative"]
    done = same("xrdmapc", *options, cluster.man.host, *words.split()[len(options):])
    assert done.status == 0 and cluster.man.host in done.out


def test_map_with_a_lost_server(cluster):
    cluster.s3.kill()
    try:
        # A real manager that misses a server may delay a query, which both give up after 30 s, with
        # any setting. Whether it delays only one of two queries does not depend on the programs.
        theirs, ours = both("xrdmapc", "--verify", cluster.man.host, "/all", XRD_REQUESTTIMEOUT="600")
        assert "[connect error]" in ours.out
        if ("[op expired]" in theirs.out) == ("[op expired]" in ours.out):
            assert (ours.status, ours.out, ours.err) == (theirs.status, theirs.out, theirs.err.replace("\0", ""))
    finally:
        cluster.s3.start()


def test_map_below_a_server(server):
    same("xrdmapc", server.host)
    same("xrdmapc", "--verify", server.host, "/nope")


@pytest.mark.parametrize("words", ["localhost:1", "--quiet localhost:1", "-x", "--list", "localhost", "localhost:x"])
def test_map_of_nothing(words):
    same("xrdmapc", *words.split())


def test_map_of_a_host_without_address():
    # Which of two texts the resolver gives depends on the name server of the moment.
    texts = {f"xrdmapc: Unable to validate initial node; {text}\n" for text in ["Name or service not known", "Temporary failure in name resolution"]}
    theirs, ours = both("xrdmapc", "nohost.invalid:1")
    assert theirs.err in texts and ours.err in texts
    assert (ours.status, ours.out) == (theirs.status, theirs.out)


@pytest.mark.parametrize("words", ["", "--list z localhost:1", "--help"])
def test_usage_of_map(words):
    theirs, ours = both("xrdmapc", *words.split())
    assert (ours.status, ours.out, ours.err.splitlines()[:1]) == (theirs.status, theirs.out, theirs.err.splitlines()[:1])


def test_map_as_json(cluster):
    done = tools.run([peers.link("xrdmapc"), "--format", "json", "--verify", cluster.man.host, "/deep"]).ok()
    assert done.out.count('"hasFile":true') == 1 and done.out.count('"hasFile":false') == 2


# xrdadler32, xrdcrc32c

@pytest.fixture
def files(tmp_path):
    for name, content in (("small", b"hello"), ("empty", b""), ("large", tools.data(3_000_001))):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize("words", ["small", "empty", "large", "nofile", "folder", "small large", "-x", "--help", "-", ""])
def test_adler32(files, words):
    same("xrdadler32", *words.split(), input=b"typed", cwd=files)


@pytest.mark.parametrize("path", ["file", "nope", "folder", "file?x=y"])
def test_adler32_at_a_server(area, path):
    if path == "folder" and area.server.kind == "theirs":
        pytest.skip("a real server may never answer, see tools.refused_checksum")
    area.put("file", tools.data(100_000))
    area.mkdir("folder")
    same("xrdadler32", area.url(path))
    same("xrdadler32", area / path, XROOTD_VMP=f"{area.server.host}:/")
    same("xrdadler32", f"/mapped/{path}", XROOTD_VMP=f"{area.server.host}:/mapped={area.path}")


def test_adler32_is_stored_with_the_file(files):
    """Ours trusts values stored by the real one and vice versa, but not for a changed file."""
    names = [peers.real("xrdadler32"), peers.link("xrdadler32")]
    for first, second in (names, names[::-1]):
        path = files / "small"
        os.utime(path, (tools.AGED, tools.AGED))
        if "user.XrdCks.adler32" in os.listxattr(path):
            os.removexattr(path, "user.XrdCks.adler32")
        assert tools.run([first, path]).ok().out.startswith("062c0215 ")
        kept = bytearray(os.getxattr(path, "user.XrdCks.adler32"))
        kept[35] ^= 0xff
        os.setxattr(path, "user.XrdCks.adler32", bytes(kept))
        assert tools.run([second, path]).ok().out.startswith("062c02ea ")
        os.utime(path, (tools.AGED + 1, tools.AGED + 1))
        assert tools.run([second, path]).ok().out.startswith("062c0215 ")


@pytest.mark.parametrize("words", ["small", "-s small", "-n small", "-x small", "-d small", "-d large", "-sn small", "-nsx large", "nofile", "folder", "small -s",
                                   "empty", "-x empty", "-", "-s -", "small large"])
def test_crc32c(files, words):
    same("xrdcrc32c", *words.split(), input=b"typed", cwd=files)


@pytest.mark.parametrize("words", ["-q small", "-h", "--help"])
def test_usage_of_crc32c(files, words):
    theirs, ours = both("xrdcrc32c", *words.split(), cwd=files)
    assert (ours.status, ours.out, ours.err.splitlines()[:3]) == (theirs.status, theirs.out, theirs.err.splitlines()[:3])


@pytest.mark.parametrize("options", ["", "-s", "-n", "-nsx", "-d"])
def test_crc32c_of_standard_input_without_a_path(files, options):
    """As XRootD 6; 5.5.3 prints its usage instead."""
    without = tools.run([peers.link("xrdcrc32c"), *options.split()], input=b"typed", cwd=files).ok()
    named = tools.run([peers.real("xrdcrc32c"), *options.split(), "-"], input=b"typed", cwd=files).ok()
    assert without.out == named.out and not without.err
    with terminals.Terminal([peers.link("xrdcrc32c")], cwd=files) as person:
        status, shown = person.end()
        assert status == 1 and "File path has not been specified." in shown


def test_crc32c_at_a_server(area, files):
    area.put("file", (files / "large").read_bytes())
    program = peers.link("xrdcrc32c")
    assert tools.run([program, "-s", area.url("file")]).ok().out == tools.run([program, "-s", files / "large"]).ok().out
    tools.run([program, area.url("nope")]).fails(3, ErrorCode.NOT_FOUND.shown)


# xrdprep

def test_prepare(area, tmp_path):
    program = peers.link("xrdprep")
    area.put("a", b"a")
    area.put("b", b"b")
    handle = tools.run([program, "-s", "-p", "2", area.server.host, area / "a", area / "b"]).ok().out.strip()
    assert handle
    (tmp_path / "list").write_text(f"{area / 'a'}\n\n{area / 'b'}\n")
    assert tools.run([program, "prepare", "-S", "-w", "-f", tmp_path / "list", area.server.host]).ok().out.strip() not in ("", handle)
    tools.run([program, "-E", area.server.host, area / "a"]).ok()
    tools.run([program, "query", area.server.host, "nonsense"]).fails(1, f"xrdprep: [ERROR] Server responded with an error: {ErrorCode.ARG_INVALID.shown}")
    tools.run([program, "cancel", area.server.host, "nonsense"]).fails(1, f"xrdprep: [ERROR] Server responded with an error: {ErrorCode.ARG_INVALID.shown}")
    tools.run([program, area.server.host, "relative"]).fails(1, ErrorCode.NOT_AUTHORIZED.shown)


@pytest.mark.parametrize("words,text", [("", "Host not specified."), ("h", "No paths specified."), ("query h", "Request handle not specified."),
                                        ("-p 4 h /a", "'4' is not 0 to 3."), ("-q", "Invalid option, '-q'."), ("-s localhost:1 /a", "[FATAL] Connection error")])
def test_wrong_use_of_prepare(words, text):
    tools.run([peers.link("xrdprep"), *words.split()], **PATIENCE).fails(1, f"xrdprep: {text}")
