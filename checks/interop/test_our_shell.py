"""What people meet who type: completions of shells, manual pages, the map of a cluster, the interactive shells."""

import re

import pytest

import tools

# Completions and manual pages.

COMPLETE = r"""
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
registered=$(complete -p scalla) || exit 3
function=${registered#*-F }; function=${function%% *}
"$function" scalla "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize("words, expected", [
    ("scalla comp", ["completions"]),
    ("scalla cluster s", ["status", "suspend"]),
    ("scalla cp --check", ["--checksum"]),
    ("scalla completions ba", ["bash"]),
])
def test_bash_completes(tmp_path, words, expected):
    script = tmp_path / "scalla.bash"
    script.write_text(tools.scalla("completions", "bash").ok().out)
    done = tools.run(["/bin/bash", "--norc", "-c", COMPLETE, "bash", script, *words.split()]).ok()
    assert (done.out.split(), done.err) == (expected, "")


def test_manual_pages(tmp_path):
    tools.scalla("man", tmp_path / "man").ok().silent()
    names = {page.name for page in (tmp_path / "man").iterdir()}
    listed = re.findall(r"^  (\w[\w-]*)", tools.scalla("--help").ok().out.partition("Commands:")[2].partition("Options:")[0], re.MULTILINE)
    assert "serve" in listed and {f"scalla-{name}.1" for name in listed if name != "help"} | {"scalla.1", "scalla-cluster-status.1"} <= names
    together = tools.scalla("man").ok().out
    for page in (tmp_path / "man").iterdir():
        assert page.read_text() in together
    (tmp_path / "file").write_text("")
    tools.scalla("man", tmp_path / "file").fails(1, f"cannot make {tmp_path}/file")
