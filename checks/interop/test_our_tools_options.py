"""Each option of `xrdcp` and `xrdfs` in each accepted form. Ours and the real program get the same
command lines on the same server; output, exit status and the resulting files are compared."""

import pytest

import peers
import tools
from codes import ShellCode
from test_our_xrdcp import compare, sides  # noqa: F401 (a fixture)
from test_our_xrdfs import Pair, differences, pair  # noqa: F401 (a fixture)

XRDCP = {
    "forms of options": [
        "-fN small @/a", "-Nf small @/a", "-f -N -s small @/a", "small @/a -f", "small -f @/a", "--force --nopbar small @/a", "--forc small @/a", "--nopb -f small @/a",
        "-S3 -f small @/a", "--streams=3 -f small @/a", "--streams 3 -f small @/a", "-y2 -f @/a b", "--cksum=adler32:print -f small @/a", "-Cadler32:print -f small @/a",
        "-d0 -f small @/a", "--debug=0 -f small @/a", "-sf small @/a", "-fs small @/a", "-vf small @/a", "--par 2 -f small @/a",
        "--parallel=2 -f small @/a", "-t1 -f small @/a", "--retry=1 -f small @/a", "-X10m -f small @/a", "--xrate=1g -f small @/a", "-T first -f small @/a"],
    "switches": [
        "-A -f small @/a", "--allow-http -f small @/a", "-F -f small @/a", "-Z -f small @/a", "--dynamic-src -f @/a b", "-E -f small @/a", "--tlsnodata -f small @/a",
        "--tlsmetalink -f small @/a", "--notlsok -f small @/a", "-p small @/deep/er/a", "--path small @/deep/er/a", "-P small @/p", "--posc -f small @/p",
        "--rm-bad-cksum -f small @/a", "--zip-mtln-cksum -f small @/a", "--xattr -f small @/a", "-v small @/v", "--verbose -f small @/v", "--silent -f small @/v"],
    "values": [
        "--retry 0 -f small @/a", "--retry 3 --retry-policy force -f small @/a", "--xrate-threshold 10k -f small @/a", "--xrate-threshold 1m -f @/a b", "--sources 3 -f @/a b",
        "-x -f @/a b", "--cksum md5 -f small @/a", "--cksum crc32c -f @/a b", "--cksum adler32:062c0215 -f small @/a", "--cksum adler32:zzzzzzzz -f small @/a", "--cksum md5:abc -f small @/a",
        "--cksum ADLER32 -f small @/a", "--cksum adler32 --cksum md5:print -f small @/a", "-DICPChunkSize 1024 -f large @/l", "-DICPParallelChunks 1 -f large @/l",
        "-DSNetworkStack IPv4 -f small @/a", "-DICpRetry 2 -f small @/a", "-ODoss.asize=5 -f small @/a", "-OSa=1&b=2 -f @/a b", "-OD -f small @/a"],
    "places": [
        "file://HERE/small @/u1", "file://localhostHERE/small @/u2", "@/there file://HERE/d1", "@/there file://localhostHERE/d2", "@/there? d3", "@/there?a=b d4",
        "@//there d5", "@/set/ d6", "small @/x?oss.asize=5", "./small @/u3", "into/../small @/u4", "@/there into/", "@/there into/deep/file", "@/there -", "- @/t?a=b",
        "small small2 @/", "small .", "@/there .", "nowhere/small @/u5", "-r into @/", "-r @/set ."],
}


def run(sides, lines):
    """Those with HERE in them name the directory of each side."""
    for side in sides:
        plain = side.run
        side.run = lambda line, input=None, plain=plain, side=side: plain(line.replace("HERE", str(side.local)), input)
    compare(sides, lines)


@pytest.mark.parametrize("name", XRDCP)
def test_xrdcp(sides, name):  # noqa: F811
    run(sides, XRDCP[name])


def test_a_tree_below_the_root_of_a_server(serve, tmp_path):
    """`root://HOST//` is a directory: the source is created below it."""
    server = serve()
    (tmp_path / "set/deep").mkdir(parents=True)
    (tmp_path / "set/one").write_bytes(b"one")
    (tmp_path / "set/deep/two").write_bytes(b"two")
    program = peers.link("xrdcp")
    for source in ("set", "set/"):
        tools.run([program, "-f", "-r", source, f"root://{server.host}//"], cwd=tmp_path).ok()
        assert (server.tree / "set/deep/two").read_bytes() == b"two"
    tools.run([program, "-r", "set", f"root://{server.host}//"], cwd=tmp_path).fails(ShellCode.SERVER_ERROR, "Unable to create /set/one; file exists")


XRDFS = {
    "ls": ["ls -l -D @", "ls -D @", "ls -u -l @/ten", "ls -R -u @/dir", "ls -l -R -u @/dir", "ls -C -u @/dir", "ls -D -l -R @/dir", "ls -Z @/dir", "ls @/dir/", "ls @/with*", "ls -l @/dir/program"],
    "locate": ["locate -n -r @/ten", "locate -d -r @/ten", "locate -h @/ten", "locate -m @/ten", "locate -m -d @/ten", "locate -i -p @/ten", "locate @/ten -r", "locate *@/ten"],
    "stat": ["stat -q IsReadable @/ten", "stat -q IsWritable|IsDir @/ten", "stat -q XBitSet&IsReadable @/dir/program", "stat -q POSCPending @/ten", "stat -q Other @/ten", "stat -q Offline @/ten",
             "stat @/closed", "stat @/dir/größe"],
    "mkdir": ["mkdir -p -mrwx------ @/q/r", "stat @/q/r", "mkdir -mrwxrwxrwx @/w", "stat @/w", "mkdir -m rwx------ @/v", "mkdir -pmrwx------ @/u/v"],
    "query": ["query config bind_max chksum", "query config role tpc sitename", "query config", "query checksum @/ten?cks.type=crc32c", "query checksum @/ten?cks.type=zcrc32",
              "query stats", "query xattr @/with", "query space @/dir", "query opaque", "query opaquefile", "query prepare x @/ten"],
    "tail and cat": ["tail -c 1 @/dir/sub/text", "tail -c1 @/dir/sub/text", "tail @/dir/sub/text -c 5", "cat @/dir/sub/text @/nope", "cat @/nope @/dir/program", "cat", "tail"],
    "xattr": ["xattr @/ten set k=v", "xattr @/ten get k", "xattr @/ten list", "xattr @/ten del k", "xattr @/ten get k", "xattr @/dir set k=v", "xattr @/dir list", "xattr @/ten set k", "xattr @/ten set k="],
    "prepare": ["prepare -s -p 0 @/ten", "prepare -s -p 3 @/ten @/nothing", "prepare -f -s @/ten", "prepare -c @/ten", "prepare -w @/ten", "prepare -e @/nope", "prepare -a x", "prepare -p 1 @/ten"],
    "the rest": ["truncate @/ten 5", "truncate @/ten 5 6", "statvfs @/dir", "spaceinfo @/dir", "chmod @/ten rwx------", "chmod @/dir/program r--r--r--", "mv @/ten @/dir", "mv @/nothing @/n/m", "rm @/dir/sub",
                 "rmdir @/dir/sub", "exit x"],
}


@pytest.mark.parametrize("name", XRDFS)
def test_xrdfs(pair, name):  # noqa: F811
    found = differences(pair, [line.split() for line in XRDFS[name]])
    assert not found, found


def test_query_checksum_of_a_directory(ours, area_on):
    """Only on our server: see `tools.refused_checksum`."""
    pair = Pair(area_on(ours), area_on(ours))
    for area in pair.areas:
        area.mkdir("dir")
    pair.compare("query", "checksum", "@/dir")


@pytest.mark.parametrize("words", ["-h", "--help", "--list", "--list all localhost:1", "-l s localhost:1", "--verify localhost:1", "localhost:1 a b", "--refresh localhost:1",
                                   "root://localhost:1", "localhost:1/"])
def test_xrdmapc(words):
    theirs, ours = tools.both("xrdmapc", *words.split(), XRD_CONNECTIONWINDOW="5", XRD_CONNECTIONRETRY="1")
    first = [result.err.replace("\0", "").splitlines()[:1] for result in (theirs, ours)]
    assert (ours.status, ours.out, first[1]) == (theirs.status, theirs.out, first[0])
