"""Short names of servers: `SCALLA_SERVER`, the file of named servers, hosts without a scheme; and
help with examples."""

import peers
import pytest
import terminals
import tools
from codes import Exit
from tools import scalla


def test_hosts_written_alone(area):
    area.put("f", b"content")
    host, path = area.server.host, area.url("").split("//", 2)[2].strip("/")
    for place in (f"{host}/{path}", f"{host}//{path}"):
        assert scalla("ls", "-1", place).ok().out == "f\n"
    assert path in scalla("ls", "-1", host).ok().out.split()
    # A word could be anything.
    scalla("ls", "data").fails(Exit.USAGE, "names no server", "SCALLA_SERVER")


def test_a_default_server(area, tmp_path):
    area.put("f", b"content")
    host, path = area.server.host, area.url("").split("//", 2)[2].strip("/")
    for server in (host, f"root://{host}", f"root://{host}//"):
        assert scalla("cat", f"/{path}/f", SCALLA_SERVER=server).ok().raw == b"content"
    assert scalla("ls", "-1", SCALLA_SERVER=f"root://{host}//{path}").ok().out == "f\n"
    assert scalla("cat", "f", SCALLA_SERVER=f"root://{host}//{path}").ok().raw == b"content"
    # Copies interpret paths as local ones.
    scalla("cp", f"/{path}/f", tmp_path / "x", SCALLA_SERVER=host).fails(1, "no such file")
    scalla("ls", "/", SCALLA_SERVER="gopher://x").fails(Exit.USAGE, "SCALLA_SERVER")


def test_named_servers(area, tmp_path):
    area.put("set/f", b"content")
    home = dict(XDG_CONFIG_HOME=str(tmp_path))
    (tmp_path / "scalla").mkdir()
    (tmp_path / "scalla/servers").write_text(f"# mine\nsite1 = {area.url('')}\nhost = {area.server.host}\n")
    path = area.url("").split("//", 2)[2].strip("/")
    for place in ("site1:set/f", f"site1:/{path}/set/f", f"host:/{path}/set/f"):
        assert scalla("cat", place, **home).ok().raw == b"content"
        scalla("cp", "-f", place, tmp_path / "copy", **home).ok()
        assert (tmp_path / "copy").read_bytes() == b"content"
    scalla("cp", tmp_path / "copy", "site1:new", **home).ok()
    assert area.get("new") == b"content"
    assert scalla("ls", "-1", "site1:", **home).ok().out == "new\nset\n"
    assert scalla("cat", "set/f", SCALLA_SERVER="site1", **home).ok().raw == b"content"
    assert area.server.host in scalla("map", "site1", **home).all
    # A port is not a path, and other names are unchanged.
    scalla("cp", tmp_path / "copy", "site1:1094", **home).fails(Exit.USAGE, "looks like a server")
    (tmp_path / "scalla/servers").write_text(f"root = {area.url('')}\nsite1 = {area.url('')}\n")
    result = scalla("cat", "site1:set/f", **home).ok()
    assert result.raw == b"content" and "servers:1: `root` is no name" in result.err


@pytest.mark.parametrize("columns", [45, 80, 120])
@pytest.mark.parametrize("words", [[], ["cp"], ["sync"], ["rm"], ["serve"], ["config", "check"]], ids=" ".join)
def test_help_wraps_and_has_examples(words, columns):
    with terminals.Terminal([peers.program(), *words, "--help"], columns=columns) as person:
        status, text = person.end()
    assert status == 0 and "Examples:" in text
    described = text[:text.index("Examples:")]
    # Words are not split; only words longer than a row exceed it.
    assert all(len(row) <= columns or " " not in row.strip() for row in described.splitlines() if not row.startswith("Usage:")), text


def test_manual_pages_are_complete(tmp_path):
    scalla("man", tmp_path).ok()
    page = (tmp_path / "scalla-sync.1").read_text()
    for text in ("EXAMPLES", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO", "[\\-\\-max\\-delete N]", "SOURCE TARGET"):
        assert text in page, text
    done = tools.run(["sh", "-c", "command -v groff >/dev/null || exit 0; groff -Kutf8 -man -Tutf8 -ww -z scalla-*.1"], cwd=tmp_path)
    assert done.status == 0 and not done.err, done
