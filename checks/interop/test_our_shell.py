"""What people meet who type: completions of shells, manual pages, the map of a cluster, the interactive shells."""

import json
import re

import pytest

import clusters
import hollow
import peers
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


# The map of a cluster.

PLAN = clusters.Plan("""
    man manager
    sup supervisor man
    s1 server sup
    s2 server man
    s3 server man
""")


@pytest.fixture(scope="module", params=["real", "ours"])
def running(request):
    with clusters.Cluster(PLAN, request.param) as cluster:
        for node in cluster.servers:
            peers.place(node.tree / "all", b"all")
        peers.place(cluster.s1.tree / "deep", b"deep")
        yield cluster


@pytest.fixture
def cluster(running):
    return running.complete()


def drawn(cluster, text):
    """The lines of a tree below its first one: depth, node, role and what is said of it."""
    found = []
    for line in text.splitlines()[1:-1]:
        branch, address, role, state = re.fullmatch(r"([ │├└─]*)(\S+)\s+(supervisor|manager|server) *(.*)", line).groups()
        found.append((len(branch) // 3, cluster.name_of(address.rpartition(":")[2]), role, state))
    return found


def test_map(cluster):
    done = tools.scalla("map", cluster.man.host).ok()
    assert done.out.startswith(cluster.man.host) and done.out.endswith("2 managers, 3 servers\n") and not done.err
    assert sorted(drawn(cluster, done.out)) == [(1, "s2", "server", ""), (1, "s3", "server", ""), (1, "sup", "supervisor", ""), (2, "s1", "server", "")]
    assert re.match(r"\S+ +manager", done.out)


def test_map_of_a_file(cluster):
    done = tools.scalla("map", f"root://{cluster.man.host}", "--path", "/deep", "--verify").ok()
    states = {name: state for _, name, _, state in drawn(cluster, done.out)}
    assert states["s1"] == "has it" and states["s2"] == states["s3"] == "" and "/deep is on 1 server\n" in done.out
    done = tools.scalla("map", cluster.man.host, "-p", "/all", "--list", "s").ok()
    assert sorted(cluster.named(done.out)) == ["s1", "s2", "s3"] and done.out.count("has it") == 3 and len(done.out.splitlines()) == 3
    done = tools.scalla("map", cluster.man.host, "--path", "/nope", "--verify").fails(1, "/nope is on 0 servers")


def test_map_as_json(cluster):
    tree = json.loads(tools.scalla("map", cluster.man.host, "--path", "/deep", "--verify", "--json", "--versions").ok().out)
    assert (tree["role"], tree["reachable"], "error" in tree) == ("manager", True, False)
    below = {cluster.name_of(node["address"].rpartition(":")[2]): node for node in tree["below"]}
    assert set(below) == {"sup", "s2", "s3"} and (below["s2"]["role"], below["s2"]["has"]) == ("server", False)
    assert [node["has"] for node in below["sup"]["below"]] == [True]
    managers = json.loads(tools.scalla("map", cluster.man.host, "--list", "m", "--json").ok().out)
    assert [node["role"] for node in managers["below"]] == ["supervisor"]


def test_map_of_a_single_server(server, area):
    area.put("file")
    done = tools.scalla("map", server.host, "--path", area / "file", "--verify").ok()
    assert re.fullmatch(rf"{server.host} +server +has it\n0 managers, 1 server; {area.path}/file is on 1 server\n", done.out)
    tools.scalla("map", server.host, "--path", area / "nope").fails(1, "is on 0 servers")


def test_map_tells_who_does_not_answer_and_why():
    """A manager that is there names a server that is gone and a manager that never answers; all of it is told in time."""
    port, holder = hollow.closed_port()
    with holder, hollow.Manager() as top, hollow.Manager(hollow.IS_SUPERVISOR) as mute:
        mute.below = None
        with hollow.silent() as silent:
            silent_port = silent.getsockname()[1]
            top.below = f"Sw[::127.0.0.1]:{port} Mr[::127.0.0.1]:{silent_port} {mute.named('Mr')}"
            done = tools.scalla("map", top.host, "--timeout", "2").fails(1, "3 in trouble")
            tree = json.loads(tools.scalla("map", top.host, "--timeout", "2", "--json").fails(1).out)
    lines = {line.split()[1]: line for line in done.out.splitlines()[1:-1]}
    assert re.search("server +does not answer: no connection .*refused", lines[f"127.0.0.1:{port}"])
    assert "does not answer: no answer within 2 s" in lines[f"127.0.0.1:{silent_port}"]
    assert re.search("supervisor +cannot tell: .*not here", lines[mute.host])
    assert sorted(node["reachable"] for node in tree["below"]) == [False, False, True] and all(node["error"] for node in tree["below"])


def test_map_of_managers_in_a_circle():
    with hollow.Manager() as top, hollow.Manager(hollow.IS_SUPERVISOR) as low:
        top.below, low.below = f"{low.named('Mr')}", f"{top.named('Mr')} {low.named('Mr')}"
        done = tools.scalla("map", top.host, "--versions").ok()
    assert done.out.count("again, see above") == 2 and done.out.count("v0-hollow") == 4 and done.out.endswith("2 managers, 0 servers\n")


def test_map_of_nothing():
    tools.scalla("map").fails(2, "name the cluster")
    tools.scalla("map", "gopher://x").fails(2, "gopher")
    tools.scalla("map", "localhost:1", "--path", "relative").fails(2, "does not begin with /")
    tools.scalla("map", "localhost:1", "--timeout", "3").fails(1, "does not answer", "1 in trouble")
