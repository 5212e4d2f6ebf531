"""`scalla.clusterkey`: nodes authenticate each other. Nodes, redirectors and connections without the
key are refused, and the nodes of the cluster are served meanwhile."""

import shutil

import pytest

import clients
import clusters
import cms
import keytabs
import peers
import places
from codes import ErrorCode, ShellCode
from test_cluster_settings import addresses
from tools import data, run, scalla, wait_until, xrdcp, xrdfs

# Each role below another one.
ALL_ROLES = clusters.Plan("""
    top meta
    man manager top
    sup supervisor man
    s1 server sup
    s2 server man
""")
THREE = clusters.Plan("""
    man manager
    s1 server man
    s2 server man
    s3 server man
""")
CHALLENGE = b"&P=sss,0.+13:\0"
REFUSED = "because it does not authenticate (scalla.clusterkey)"
# Connections of a flood.
FLOOD = 300


def keytab(cluster, name, **properties):
    """Adds a key to a key table of the servers' user."""
    path = keytabs.add(cluster.work / f"{name}.keytab", name="cluster", user="cms", group="cms", **properties)
    return peers.give(path)


def another_key(cluster, name):
    """Creates a key table with another key than the common one. Returns a table with both keys."""
    both = cluster.work / f"{name}-both.keytab"
    replace(cluster.work / "common.keytab", both)
    # In a table of its own the key could get the same id.
    keytab(cluster, both.stem)
    common = (cluster.work / "common.keytab").read_bytes().splitlines()
    (other,) = (line for line in both.read_bytes().splitlines() if line not in common)
    peers.place(cluster.work / f"{name}.keytab", other + b"\n").chmod(0o600)
    return both


def replace(source, target):
    """Replaces a key table at once, as an administrator does with `mv`."""
    copy = target.with_suffix(".new")
    shutil.copyfile(source, copy)
    copy.chmod(0o600)
    peers.give(copy).rename(target)


def keyed(plan, names, makers="ours", **how):
    """Returns a cluster, not started, in which these nodes have key tables of their own with one
    common key."""
    cluster = clusters.Cluster(plan, clusters.mixed(plan, rest=makers) if isinstance(makers, str) else makers, **how)
    common = keytab(cluster, "common")
    for name in names:
        replace(common, cluster.work / f"{name}.keytab")
        give_key(cluster, name)
    return cluster


def give_key(cluster, name, more=""):
    cluster.settings += f"if named {name}\nscalla.clusterkey {cluster.work}/{name}.keytab {more}\nfi\n"


def expect_refused(cluster, *names):
    """The cluster counts as formed without these nodes."""
    for name in names:
        cluster[name].parents = []


def served(cluster, server="s1"):
    area = clusters.Area(cluster)
    area.put("file", b"served", server)
    read = clients.xrdfs(cluster, "cat", area / "file") if cluster.places else xrdfs(cluster.top, "cat", area / "file")
    assert read.ok().out == "served"


def reload(node):
    return scalla("admin", "--admin-path", node.cluster.work / "admin", "--instance", node.name, "reload").ok()


def refusals(node):
    return [line for line in node.output().splitlines() if REFUSED in line]


def test_nodes_of_all_roles_authenticate(tmp_path):
    """They form a cluster, and clients read and write through each level."""
    with keyed(ALL_ROLES, [name for name, *_ in ALL_ROLES.nodes]) as cluster:
        (tmp_path / "source").write_bytes(data(100_000))
        area = clusters.Area(cluster)
        for server in ("s1", "s2"):
            area.put(f"at-{server}", server.encode(), server)
            assert xrdfs(cluster.top, "cat", area / f"at-{server}").ok().out == server
        xrdcp(tmp_path / "source", area.url("copy")).ok()
        assert area.get("copy") == data(100_000)
        for node in cluster.of("meta", "manager", "supervisor"):
            assert f"nodes authenticate with the keys of {cluster.work}/{node.name}.keytab" in node.output()
            assert "cms.allow is not set" not in node.output() and not refusals(node)
        for node in cluster.nodes.values():
            assert "accepts this node without authentication" not in node.output()
        state = scalla("admin", "--admin-path", cluster.work / "admin", "--instance", "man", "status").ok().all
        assert f"1 key of {cluster.work}/man.keytab" in state


def test_the_whole_tree_is_visible_with_the_key(tmp_path):
    """`scalla cluster status` visits other nodes with the key table of its environment."""
    with keyed(ALL_ROLES, [name for name, *_ in ALL_ROLES.nodes]) as cluster:
        key = tmp_path / "copy.keytab"
        shutil.copyfile(cluster.work / "common.keytab", key)
        key.chmod(0o600)
        for node in (cluster.top, cluster.sup):
            # Without the key less is known about other nodes, and the reason is shown.
            blind = run(node.scalla_command("status"), HOME=tmp_path).ok()
            assert "asks for credentials, and there is no key table" in blind.err
            seen = run(node.scalla_command("status"), HOME=tmp_path, XrdSecSSSKT=key).ok()
            assert seen.err == ""
            assert all(f":{cluster[name].port} " in seen.out for name in ("s1", "s2")), seen
            assert len(seen.out.splitlines()) > len(blind.out.splitlines())
        other = run(cluster.man.scalla_command("status"), HOME=tmp_path, XrdSecSSSKT=keytabs.make(tmp_path / "other.keytab")).ok()
        assert "nodes must authenticate here" in other.err


def test_nodes_without_the_key_are_refused():
    """Both logs have the reason and the remedy. A node that gets the key joins without a restart."""
    cluster = keyed(THREE, ["man", "s1"])
    another_key(cluster, "s3")
    give_key(cluster, "s3")
    expect_refused(cluster, "s2", "s3")
    with cluster:
        assert cluster.man.children() == {cluster.s1.port}
        wait_until(lambda: len(refusals(cluster.man)) >= 2)
        reasons = "\n".join(refusals(cluster.man))
        assert "it ends the connection when asked for credentials" in reasons
        assert "is not in the key table" in reasons
        assert "give it a copy of the key table" in reasons
        wait_until(lambda: "set scalla.clusterkey here to a copy of its key table" in cluster.s2.output())
        wait_until(lambda: "it refuses: nodes must authenticate here" in cluster.s3.output())
        area = clusters.Area(cluster)
        area.put("hidden", b"not in the cluster", "s2")
        xrdfs(cluster.man, "stat", area / "hidden").fails(ShellCode.SERVER_ERROR, ErrorCode.NOT_FOUND.shown)
        served(cluster)
        replace(cluster.work / "common.keytab", cluster.work / "s3.keytab")
        wait_until(lambda: cluster.man.children() == {cluster.s1.port, cluster.s3.port}, 60)
        served(cluster, "s3")
        # The many attempts are few lines.
        assert len(refusals(cluster.man)) <= 4


def test_nodes_return_to_a_restarted_manager_at_once():
    """It accepts no connection in the second of its start, whose credentials it would refuse."""
    with keyed(clusters.PAIR, ["man", "s1", "s2"]) as cluster:
        for _ in range(3):
            cluster.man.restart()
            cluster.formed()
        assert not refusals(cluster.man)
        served(cluster)


def test_a_parent_without_the_key_is_reported():
    """A node with the key joins it and logs a warning, unless the parent is exempt."""
    cluster = keyed(clusters.PAIR, ["s1"])
    replace(cluster.work / "common.keytab", cluster.work / "s2.keytab")
    give_key(cluster, "s2", "except localhost")
    with cluster:
        warning = f"localhost:{cluster.man.cms_port} accepts this node without authentication"
        assert cluster.s1.output().count(warning) == 1
        assert warning not in cluster.s2.output()
        assert 'demand a key with "scalla.clusterkey FILE"' in cluster.man.output()


@pytest.mark.parametrize("named", [False, True], ids=["by-address", "by-name"])
def test_exempt_hosts_join_without_the_key(named):
    """A server of XRootD, which cannot authenticate, joins because its host is exempt; another node
    without the key does not."""
    network = places.Network()
    makers = dict(man="ours", s1="ours", s2="real", s3="ours")
    cluster = None
    try:
        cluster = keyed(THREE, ["s1"], makers, places=network)
        replace(cluster.work / "common.keytab", cluster.work / "man.keytab")
        network.name_hosts({"managers": [cluster.man.address], "old-node": [cluster.s2.address]})
        exempt = "old-node" if named else f"{cluster.s2.address} 192.0.2.*"
        give_key(cluster, "man", f"except {exempt}")
        expect_refused(cluster, "s3")
        cluster.start()
        assert addresses(cluster) == {cluster.s1.address, cluster.s2.address}
        served(cluster, "s2")
        wait_until(lambda: refusals(cluster.man))
        assert all(f"login from {cluster.s3.address} was refused" in line for line in refusals(cluster.man))
        assert f"join without authentication (scalla.clusterkey except): {exempt.replace(' ', ', ')}" in cluster.man.output()
    finally:
        if cluster:
            cluster.remove()
        network.remove()


@pytest.mark.parametrize("kinds", [(6,), (4, 6)], ids=["IPv6", "both"])
def test_credentials_are_bound_to_addresses_of_each_kind(kinds):
    """The addresses of a connection as both ends see them are the same."""
    with places.Network(kinds) as network:
        cluster = keyed(clusters.PAIR, ["s1", "s2"], places=network)
        replace(cluster.work / "common.keytab", cluster.work / "man.keytab")
        give_key(cluster, "man")
        with cluster:
            assert not refusals(cluster.man)


def test_a_mute_name_server_does_not_keep_nodes_with_the_key_out():
    """The name of an exempt host cannot be looked up. Nodes with the key join in spite of that."""
    network = places.Network()
    cluster = None
    try:
        cluster = keyed(clusters.PAIR, ["s1", "s2"], places=network)
        replace(cluster.work / "common.keytab", cluster.work / "man.keytab")
        network.name_hosts({"managers": [cluster.man.address]})
        give_key(cluster, "man", "except old.example.org")
        with cluster.man.place.mute_name_server():
            cluster.start()
            assert addresses(cluster) == {cluster.s1.address, cluster.s2.address}
    finally:
        if cluster:
            cluster.remove()
        network.remove()


def test_connections_that_wait_for_a_mute_name_server_have_the_deadline_of_a_login():
    """They end although it is not known yet whether their host may join."""
    plan = clusters.Plan("man manager\ns1 server man")
    with places.Network() as network, clusters.Cluster(plan, clusters.mixed(plan, rest="ours"), places=network) as cluster:
        # The look-ups last for longer than the test waits.
        cluster.man.stop()
        names = "".join(f"cms.allow host {name}.example.org\n" for name in "abcdef")
        cluster.settings += f"if named man\n{names}fi\n"
        cluster.write_configuration()
        with cluster.man.place.mute_name_server():
            cluster.man.start()
            wait_until(cluster.man.alive)
            with cms.Link(cluster.man) as link:
                assert until_closed(link) == []


def test_keys_are_exchanged_while_nodes_run():
    """The second key is added at the manager, given to the servers, and the first one removed. No
    step disconnects a node, and the manager is not restarted."""
    with keyed(clusters.PAIR, ["man", "s1", "s2"]) as cluster:
        both, second = another_key(cluster, "second"), cluster.work / "second.keytab"
        process = cluster.man.processes[0].pid

        # Before the manager knows the second key, it refuses it.
        replace(second, cluster.work / "s1.keytab")
        cluster.s1.restart()
        wait_until(lambda: refusals(cluster.man))
        replace(both, cluster.work / "man.keytab")
        assert "2 keys" in reload_state(cluster.man)
        cluster.formed()
        served(cluster)

        replace(second, cluster.work / "man.keytab")
        assert "1 key of" in reload_state(cluster.man)
        assert cluster.man.children() == {cluster.s1.port, cluster.s2.port}
        cluster.s2.restart()
        wait_until(lambda: "it refuses: nodes must authenticate here" in cluster.s2.output())
        replace(second, cluster.work / "s2.keytab")
        cluster.formed()
        served(cluster, "s2")
        assert cluster.man.processes[0].pid == process and cluster.man.alive()

        # A table with an error leaves the earlier keys in force.
        peers.place(cluster.work / "man.keytab", b"nonsense\n").chmod(0o600)
        assert "the earlier keys stay in force" in reload(cluster.man).all
        cluster.s1.restart()
        cluster.formed()


def reload_state(node):
    """Returns the status after a reload."""
    reload(node)
    return scalla("admin", "--admin-path", node.cluster.work / "admin", "--instance", node.name, "status").ok().all


# Strangers: connections to the cluster port without the key.

@pytest.fixture(scope="module")
def running():
    with keyed(clusters.PAIR, ["man", "s1", "s2"]) as cluster:
        yield cluster


@pytest.fixture
def cluster(running):
    yield running.complete()
    assert running.man.alive(), running.man.output()[-3000:]
    assert running.man.children() == {running.s1.port, running.s2.port}
    served(running)


REDIRECTOR = dict(sid=None, mode=cms.MODE_DIRECTOR | cms.MODE_REDIRECT, version=0, port=0, own_port=0, paths=None)
LOGINS = {
    "server": dict(),
    "manager": dict(mode=cms.MODE_MANAGER | cms.MODE_REDIRECT),
    "redirector": REDIRECTOR,
}
# What a stranger sends instead of credentials.
ANSWERS = {
    "nothing valid": cms.frame(cms.XAUTH, b""),
    "unix": cms.frame(cms.XAUTH, b"unix\0root wheel"),
    "a short packet": cms.frame(cms.XAUTH, b"sss\0"),
    "an unknown key": cms.frame(cms.XAUTH, b"sss\0\0\0\x10" + b"0" + bytes(16) + bytes(200)),
    "the longest packet": cms.frame(cms.XAUTH, b"sss\0" + bytes(4092)),
    "a status": cms.status(cms.RESUME, 1094),
    "a second login": cms.frame(cms.LOGIN, cms.login()),
    "a request": cms.frame(cms.SELECT, cms.text("me") + cms.u32(8) + cms.text("/x") + cms.text(None) + cms.text(None), 1),
    "a claim": cms.have("/x", 7),
}


def until_closed(link):
    """Returns the codes of the frames until the end of the connection."""
    codes = []
    try:
        while True:
            codes.append(link.frame().code)
    except cms.Closed:
        return codes


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("login", LOGINS)
def test_strangers_are_refused(cluster, login, answer):
    with cms.Link(cluster.man) as link:
        link.send(cms.frame(cms.LOGIN, cms.login(**LOGINS[login])))
        asked = link.frame()
        assert (asked.code, asked.data) == (cms.XAUTH, CHALLENGE)
        link.send(ANSWERS[answer])
        assert until_closed(link) == [cms.ERROR]


@pytest.mark.parametrize("first", ["status", "credentials", "request"])
def test_nothing_is_processed_before_a_login(cluster, first):
    frames = {"status": ANSWERS["a status"], "credentials": ANSWERS["an unknown key"], "request": ANSWERS["a request"]}
    with cms.Link(cluster.man) as link:
        link.send(frames[first])
        assert until_closed(link) == [cms.ERROR]


def test_strangers_do_not_fill_the_log(cluster):
    """Each kind of nonsense is one line, not one for each connection."""
    nonsense = [cms.header(0, cms.LOGIN, 0, 65535), b"GET / HTTP/1.1\r\n\r\n" * 10, ANSWERS["a status"],
                cms.frame(cms.LOGIN, b"\xff" * 100)]
    before = len(cluster.man.output().splitlines())
    for number in range(200):
        with cms.Link(cluster.man) as link:
            link.send(nonsense[number % len(nonsense)])
            until_closed(link)
    assert len(cluster.man.output().splitlines()) - before <= len(nonsense)


def test_a_login_and_its_status_in_one_segment_do_not_join(cluster):
    """XRootD nodes send their status together with the login."""
    with cms.Link(cluster.man) as link:
        link.send(cms.frame(cms.LOGIN, cms.login()) + cms.status(cms.RESUME, 1094))
        assert until_closed(link) == [cms.XAUTH, cms.ERROR]


def test_intercepted_credentials_are_useless_elsewhere():
    """A foreign parent gets the credentials of a node and uses them at its manager."""
    captured = []

    def intercept(link, _):
        link.send(cms.frame(cms.XAUTH, CHALLENGE))
        captured.append(link.frame())
        link.socket.close()

    with cms.Parent(intercept) as foreign:
        cluster = keyed(clusters.PAIR, ["man", "s1", "s2"])
        cluster.settings += f"if named s1\nall.manager localhost:{foreign.port}\nfi\n"
        with cluster:
            # New ones, made after the first second of the manager.
            seen = len(captured)
            wait_until(lambda: len(captured) > seen + 1)
            credentials = captured[-1]
            assert credentials.code == cms.XAUTH and credentials.data.startswith(b"sss\0")
            for _ in range(2):
                with cms.Link(cluster.man) as link:
                    link.send(cms.frame(cms.LOGIN, cms.login()))
                    assert link.frame().code == cms.XAUTH
                    link.send(cms.frame(cms.XAUTH, credentials.data))
                    assert until_closed(link) == [cms.ERROR]
            assert any("it was made at the address" in line for line in refusals(cluster.man)), refusals(cluster.man)
            served(cluster)


def test_parents_that_ask_for_something_else_get_nothing():
    """Neither another protocol nor a second request is answered."""
    requests = [[b"&P=unix\0"], [b"\0"], [CHALLENGE, CHALLENGE], [b"&P=sss,0.+13:/etc/passwd\0", CHALLENGE]]
    answers = []

    def ask(link, _):
        received = []
        for challenge in requests[len(answers) % len(requests)]:
            link.send(cms.frame(cms.XAUTH, challenge))
            try:
                received.append(link.frame().code)
            except (cms.Closed, OSError):
                received.append("closed")
        answers.append(received)

    with cms.Parent(ask) as foreign:
        cluster = keyed(clusters.PAIR, ["man", "s1", "s2"])
        cluster.settings += f"if named s1\nall.manager localhost:{foreign.port}\nfi\n"
        with cluster:
            wait_until(lambda: len(answers) >= len(requests))
            assert answers[:len(requests)] == [["closed"], ["closed"], [cms.XAUTH, "closed"], [cms.XAUTH, "closed"]]
            served(cluster)


def test_a_flood_of_logins_stays_outside(cluster):
    """Hundreds of connections log in and send no credentials. They take no place of a node, their
    connections end, and the log has one line about them."""
    links = [cms.Link(cluster.man) for _ in range(FLOOD)]
    for number, link in enumerate(links):
        link.send(cms.frame(cms.LOGIN, cms.login(sid=f"s-flood{number}@nowhere nowhere", port=2000 + number)))
    served(cluster)
    cluster.s1.restart()
    cluster.formed()
    for link in links:
        assert until_closed(link) == [cms.XAUTH]
        link.socket.close()
    assert 1 <= len([line for line in refusals(cluster.man) if "it sends no credentials in time" in line]) <= 2
