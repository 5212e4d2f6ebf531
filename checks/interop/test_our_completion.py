"""Completion in bash, zsh and fish: a Tab completes commands, options, servers used before and
paths at servers, also for `xrdcp` and `xrdfs`."""

import os
import shutil

import pytest

import peers
import terminals
import tools

SHELLS = {
    "bash": ["bash", "--noprofile", "--norc", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
BEGIN = {
    "bash": "PS1='at> '; source <(scalla completions bash)",
    "zsh": "PS1='at> '; autoload -Uz compinit; compinit -u -D; source <(scalla completions zsh)",
    "fish": "function fish_prompt; echo -n 'at> '; end; scalla completions fish | source",
}


@pytest.fixture(params=SHELLS)
def shell(request):
    """A shell that completes our programs."""
    assert shutil.which(request.param), f"{request.param} is missing: run `make peers`"
    return request.param


class Person(terminals.Terminal):
    def __init__(self, shell, home, **environment):
        for link in ("xrdcp", "xrdfs"):
            peers.link(link)
        path = f"{peers.program().parent}:{os.environ['PATH']}"
        super().__init__(SHELLS[shell], cwd=home, PATH=path, HOME=str(home), XDG_STATE_HOME=str(home), XDG_CONFIG_HOME=str(home), **environment)
        self.type("echo ready\r")
        self.until("ready")
        self.until("ready")
        self.type(BEGIN[shell] + "; echo be''gun\r")
        self.until("begun")

    def completed(self, typed, expected):
        """Types the beginning of a line and a Tab, and has the shell print the completed line."""
        self.type(typed + "\t")
        self.type("\x01echo = \r")
        self.until(f"= {expected}\r\n", seconds=20 * peers.SLOWNESS)
        # The rest of the echo must not count for the next line.
        self.type("echo do''ne\r")
        self.until("done\r\n", seconds=20 * peers.SLOWNESS)


def test_commands_options_and_values(shell, tmp_path):
    with Person(shell, tmp_path) as person:
        for typed, expected in (("scalla versi", "scalla version"), ("scalla config che", "scalla config check"), ("scalla cp --preserv", "scalla cp --preserve"),
                                ("scalla cp --checksum adl", "scalla cp --checksum adler32"), ("xrdcp --recurs", "xrdcp --recursive")):
            person.completed(typed, expected)


def test_paths_at_servers(shell, tmp_path, ours, area_on):
    area = area_on(ours)
    area.put("wanted-file", b"")
    area.put("deep/inner-file", b"")
    with Person(shell, tmp_path) as person:
        for before, typed, path in (("scalla ls ", area.url("want"), area.url("wanted-file")), ("scalla cp ", area.url("deep/inn"), area.url("deep/inner-file")),
                                    ("scalla ls ", area.url("de"), area.url("deep/")), ("xrdcp -f ", area.url("want"), area.url("wanted-file")),
                                    (f"xrdfs {ours.host} ls ", area / "want", area / "wanted-file"), (f"xrdfs {ours.host} ", "spacei", "spaceinfo")):
            person.completed(before + typed, before + path)


def test_servers_that_were_named_before(shell, tmp_path, ours):
    (tmp_path / "scalla").mkdir()
    (tmp_path / "scalla/servers").write_text(f"mysite = root://{ours.host}//\n")
    (tmp_path / "scalla/history").write_text("ls root://kept.example.org:2094//set\n")
    with Person(shell, tmp_path) as person:
        person.completed("scalla ls mysi", "scalla ls mysite:")
        person.completed("scalla ls root://kep", "scalla ls root://kept.example.org:2094//")
        person.type("echo root://typed.example.org:3094//x\r")
        person.completed("scalla ls root://typ", "scalla ls root://typed.example.org:3094//")


@pytest.mark.parametrize("typed", ["scalla ls '{}/with bl", "scalla ls {}/with"])
def test_bash_keeps_to_the_quotation(ours, area_on, tmp_path, typed):
    area = area_on(ours)
    area.put("with blank", b"")
    with Person("bash", tmp_path) as person:
        person.completed(typed.format(area.url("").rstrip("/")), "scalla ls " + area.url("with blank"))


def test_a_server_that_is_not_there_costs_a_moment_and_no_noise(tmp_path):
    done = tools.scalla("complete", "zsh", "--", "scalla", "ls", "root://localhost:1//a").ok()
    assert not done.out and not done.err
