//! Tests of the health of nodes and its effects: load, space, lists of nodes, draining, operations
//! on all servers, missing pings.

use super::site::{Client, Node, PATIENCE, Site, until};
use super::{ITEM_EXISTS, NOT_FOUND};
use base::LogicalPath;
use client::xroot::FileHandle;
use client::xroot::codes::QueryType;
use client::xroot::flags::{MkdirOptions, OpenOptions, StatOptions, StatWants};
use client::xroot::request::{Chmod, Mkdir, Mv, Query, Request, Rm, Rmdir, Stat, Truncate};
use cluster::Weights;
use config::{ForwardWay, Forwarding, OperationCommand};
use server::cluster::{HealthSettings, ListFile, LoadSampling, NodeRole, Settings, SpaceLimits};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;
use storage::faulty::{FaultRule, FaultyCall, Gate, InjectedFault};
use storage::{Faulty, Pool};

const NO_SPACE: u32 = 3009;

/// Encodes the old and the new name with a blank between them.
fn mv(names: &str) -> Request<'_> {
    Request::Mv(Mv { arg1len: 0, args: names.as_bytes() })
}

fn forwards(settings: &mut Settings) {
    let way = ForwardWay::TwoWay;
    settings.forwarding = Forwarding { chmod: way, mkdir: way, mv: way, rm: way, rmdir: way, trunc: way };
}

#[test]
fn names_change_on_all_servers_of_the_tree() {
    let site = Site::new();
    let manager = site.node_with("manager", NodeRole::Manager, &[], forwards);
    let supervisor = site.node("supervisor", NodeRole::Supervisor, &[&manager]);
    let near = site.server("near", &[&manager]);
    let far = site.server("far", &[&supervisor]);
    supervisor.has_children(1);
    manager.has_children(2);
    let servers = [&near, &far];
    let everywhere = |what: &str, is_so: &dyn Fn(&Node) -> bool| {
        until(what, || servers.iter().all(|server| is_so(server)));
    };
    let mut client = manager.client();

    let make = Mkdir { options: MkdirOptions::MKPATH, mode: 0o750, path: b"/a/b" };
    client.call(&Request::Mkdir(make)).unwrap();
    everywhere("the directory is made", &|server| server.has("/a/b"));
    assert_eq!(client.hops, 0, "nobody was sent anywhere");
    for server in servers {
        server.put("/a/b/f", "content");
    }
    client
        .call(&Request::Truncate(Truncate { fhandle: FileHandle::default(), offset: 3, path: b"/a/b/f" }))
        .unwrap();
    everywhere("it is cut", &|server| server.data.join("a/b/f").metadata().unwrap().len() == 3);
    client.call(&Request::Chmod(Chmod { mode: 0o600, path: b"/a/b/f" })).unwrap();
    let mode = |server: &Node| server.data.join("a/b/f").metadata().unwrap().permissions().mode() & 0o777;
    everywhere("its mode is set", &|server| mode(server) == 0o600);

    // After the rename the new name is known immediately, and the old one nowhere.
    assert_eq!(client.read("/a/b/f").unwrap(), "con");
    client.call(&mv("/a/b/f /a/b/g")).unwrap();
    everywhere("it has the new name", &|server| server.has("/a/b/g") && !server.has("/a/b/f"));
    assert_eq!(client.read("/a/b/g").unwrap(), "con");
    near.put("/a/other", "other");
    let refused = client.call(&mv("/a/other /a/b/g")).unwrap_err();
    assert_eq!(refused.0, ITEM_EXISTS, "{refused:?}");
    assert!(near.has("/a/other"), "a name that is there is not overwritten");

    client.call(&Request::Rm(Rm { path: b"/a/b/g" })).unwrap();
    everywhere("it is removed", &|server| !server.has("/a/b/g"));
    assert_eq!(client.read("/a/b/g").unwrap_err().0, NOT_FOUND);
    client.call(&Request::Rmdir(Rmdir { path: b"/a/b" })).unwrap();
    everywhere("the directory is removed", &|server| !server.has("/a/b"));
}

#[test]
fn a_program_of_the_site_carries_out_operations() {
    let site = Site::new();
    let manager = site.node_with("manager", NodeRole::Manager, &[], forwards);
    let said = site.directory().join("said");
    let script = format!("echo \"$@\" >> {}", said.display());
    let server = site.node_with("server", NodeRole::Server, &[&manager], |settings| {
        let program = ["sh", "-c", &script, "xeq"].map(str::to_owned).to_vec();
        settings.programs = vec![OperationCommand { operations: vec!["rm"], program }];
        settings.local_root = "/the/root".into();
        let (from, to, layout) = ("/f".to_owned(), "/d".to_owned(), config::NameLayout::Prefix);
        settings.name_rules = vec![config::NameRule { from, to, layout }];
    });
    manager.has_children(1);
    server.put("/f", "");
    let mut client = manager.client();
    client.call(&Request::Rm(Rm { path: b"/f" })).unwrap();
    until("the program was called", || {
        std::fs::read_to_string(&said).is_ok_and(|text| text == "rm /the/root/d\n")
    });
    assert!(server.has("/f"), "it is the program's to remove");
}

fn space(least_mb: u64, enough_mb: u64) -> HealthSettings {
    let rules = SpaceLimits {
        recalculate: Duration::from_millis(50),
        least_percent: 0,
        least_bytes: least_mb << 20,
        enough_percent: 0,
        enough_bytes: enough_mb << 20,
    };
    HealthSettings { space: Some((rules, vec![LogicalPath::root()])), ..HealthSettings::default() }
}

#[test]
fn a_server_without_space_gets_no_new_files() {
    let site = Site::new();
    let manager = site.manager("manager");
    let server = |name: &str, least_mb: u64| {
        site.node_with(name, NodeRole::Server, &[&manager], |settings| {
            settings.health = space(least_mb, least_mb)
        })
    };
    let roomy = server("roomy", 0);
    let full = server("full", 1 << 30);
    manager.has_children(2);
    let mut client = manager.client();
    for number in 0..4 {
        assert_eq!(client.create(&format!("/new/{number}")).unwrap(), roomy.port());
    }
    full.put("/old", "old");
    assert_eq!(client.read("/old").unwrap(), "old", "what it has is read there all the same");
    drop(roomy);
    manager.until("it is lost for good", |engine| engine.node().members().unwrap().online().len() == 1);
    // The lost server may have had the file, so the client must wait. A manager that has only the
    // full server reports that there is no space.
    let alone = site.manager("alone");
    let _full = site.node_with("full2", NodeRole::Server, &[&alone], |settings| {
        settings.health = space(1 << 30, 1 << 30);
    });
    alone.has_children(1);
    assert_eq!(alone.client().create("/new/x").unwrap_err().0, NO_SPACE);
}

#[test]
fn space_is_added_up_over_the_tree() {
    let site = Site::new();
    let manager = site.manager("manager");
    let supervisor = site.node("supervisor", NodeRole::Supervisor, &[&manager]);
    // These servers report the figures of the test harness: 1000 MB, of which 500 are free.
    let _near = site.server("near", &[&manager]);
    let _far: Vec<Node> = ["far1", "far2"].map(|name| site.server(name, &[&supervisor])).into();
    supervisor.has_children(2);
    manager.has_children(2);
    manager.until("the supervisor told", |engine| {
        engine.space_for(b"/x").is_some_and(|space| space.all.total_mb == 3000)
    });
    let mut client = manager.client();
    let text = client
        .call(&Request::Query(Query {
            infotype: QueryType::SPACE,
            fhandle: FileHandle::default(),
            args: b"/x",
        }))
        .unwrap();
    let mb = |mb: u64| mb << 20;
    let expected = format!(
        "oss.cgroup=all&oss.space={}&oss.free={}&oss.maxf={}&oss.used={}&oss.quota=-1",
        mb(3000),
        mb(1500),
        mb(500),
        mb(1500)
    );
    assert_eq!(text, expected);
    let vfs = Request::Stat(Stat {
        options: StatOptions::VFS,
        wants: StatWants::NONE,
        fhandle: FileHandle::default(),
        path: b"/x",
    });
    assert_eq!(
        client.call(&vfs).unwrap(),
        "2 500 50 0 0 0",
        "writable nodes, the best of them, and none that stage"
    );
}

#[test]
fn clients_go_to_the_less_busy_server() {
    let site = Site::new();
    let manager = site.node_with("manager", NodeRole::Manager, &[], |settings| {
        settings.policy.weights = Weights { cpu: 100, ..Weights::default() };
        settings.policy.fuzz = 10;
    });
    let load = site.directory().join("load");
    std::fs::write(&load, "0 90 0 0 0\n").unwrap();
    let script = format!("while cat {}; do sleep 0.05; done", load.display());
    let busy = site.node_with("busy", NodeRole::Server, &[&manager], |settings| {
        let command = ["sh", "-c", &script].map(str::to_owned).to_vec();
        let interval = Duration::from_secs(180);
        settings.health.load = Some(LoadSampling::Program { command, interval });
        settings.health.fuzz = 10;
    });
    let idle = site.server("idle", &[&manager]);
    busy.put("/f", "1");
    idle.put("/f", "1");
    manager.has_children(2);
    let cpu = |engine: &server::cluster::ClusterEngine| {
        let members = engine.node().members().unwrap().members();
        members.map(|(_, member)| member.load.cpu).max().unwrap()
    };
    manager.until("the load is known", move |engine| cpu(engine) == 90);
    let mut client = manager.client();
    client.locate("/f").unwrap();
    for _ in 0..6 {
        client.read("/f").unwrap();
        assert_eq!(client.at, idle.port());
    }
    std::fs::write(&load, "0 5 0 0 0\n").unwrap();
    manager.until("it is not busy any more", move |engine| cpu(engine) == 5);
    let mut seen = Vec::new();
    for _ in 0..8 {
        client.read("/f").unwrap();
        seen.push(client.at);
    }
    assert!(seen.contains(&busy.port()), "within the fuzz both take turns");
}

#[test]
fn the_list_of_nodes_that_may_not_join_is_read_again() {
    let site = Site::new();
    let path = site.directory().join("cms.blacklist");
    let list = ListFile { path: path.clone(), white: false, check: Duration::from_millis(20) };
    let manager =
        site.node_with("manager", NodeRole::Manager, &[], |settings| settings.health.list = Some(list));
    let other = site.manager("other");
    let server = site.server("server", &[&manager]);
    server.put("/f", "1");
    manager.has_children(1);
    assert_eq!(manager.client().read("/f").unwrap(), "1");
    let line = format!("127.0.0.* redirect 127.0.0.1:{}\n", other.cluster_address().port());
    std::fs::write(site.directory().join("new"), line).unwrap();
    std::fs::rename(site.directory().join("new"), &path).unwrap();
    manager.until("it is sent away", |engine| engine.node().members().unwrap().used().is_empty());
    other.has_children(1);
    assert_eq!(other.client().read("/f").unwrap(), "1");
}

#[test]
fn clients_of_a_draining_server_go_elsewhere_if_there_is_an_elsewhere() {
    let site = Site::new();
    let manager = site.manager("manager");
    let [leaving, staying] = ["leaving", "staying"].map(|name| site.server(name, &[&manager]));
    leaving.put("/both", "1");
    staying.put("/both", "1");
    leaving.put("/only", "only");
    manager.has_children(2);
    let mut client = manager.client();
    client.locate("/both").unwrap();
    leaving.running.cluster().unwrap().drain(true);
    let drains = |engine: &server::cluster::ClusterEngine| {
        let members = engine.node().members().unwrap().members();
        members.filter(|(_, member)| member.condition.drains_itself).count()
    };
    manager.until("the manager knows", move |engine| drains(engine) == 1);
    for number in 0..4 {
        client.read("/both").unwrap();
        assert_eq!(client.at, staying.port());
        assert_eq!(client.create(&format!("/made/{number}")).unwrap(), staying.port());
    }
    assert_eq!(client.read("/only").unwrap(), "only");
    assert_eq!(client.at, leaving.port(), "nobody else has it");
    leaving.running.cluster().unwrap().drain(false);
    manager.until("it is back", move |engine| drains(engine) == 0);
    let mut seen = Vec::new();
    for _ in 0..4 {
        client.read("/both").unwrap();
        seen.push(client.at);
    }
    assert!(seen.contains(&leaving.port()));
}

#[test]
fn a_file_created_behind_the_manager_is_found_immediately() {
    let site = Site::new();
    let manager = site.manager("manager");
    let [a, b] = ["a", "b"].map(|name| site.server(name, &[&manager]));
    manager.has_children(2);
    let mut client = manager.client();
    assert_eq!(client.size("/f").unwrap_err().0, NOT_FOUND);
    let mut direct = Client::at(a.port());
    direct.create("/f").unwrap();
    until("the manager was told", || client.size("/f").is_ok());
    assert_eq!(client.at, a.port());
    direct.call(&mv("/f /g")).unwrap();
    until("the new name is known", || client.size("/g").is_ok());
    until("the old one is not", || client.size("/f").is_err());
    direct.call(&Request::Rm(Rm { path: b"/g" })).unwrap();
    until("it is gone", || client.size("/g").is_err());
    Client::at(b.port()).create("/g").unwrap();
    until("another has it", || client.size("/g").is_ok());
    assert_eq!(client.at, b.port());
}

/// Connects a node that logs in and then sends nothing. Returns all bytes it receives until the
/// connection ends.
fn mute(manager: &Node, login: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(manager.cluster_address()).unwrap();
    socket.write_all(login).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut heard = Vec::new();
    socket.read_to_end(&mut heard).unwrap();
    heard
}

#[test]
fn a_silent_node_is_pinged_and_then_lost() {
    let site = Site::new();
    let manager = site.node_with("manager", NodeRole::Manager, &[], |settings| {
        settings.parent.as_mut().unwrap().ping_own = Duration::from_millis(50);
    });
    let login = cluster::tree::NodeMessage::Login(Box::new(cluster::tree::LoginMessage {
        version: 3,
        mode: cluster::tree::Mode::SERVER,
        id: "s-mute@here test".to_owned(),
        extensions: cluster::tree::Extensions::ALL,
        ..Default::default()
    }));
    let mut bytes = Vec::new();
    cluster::tree::encode(&login, cluster::tree::Extensions::ALL, &mut bytes).unwrap();
    let heard = mute(&manager, &bytes);
    // The reply, then pings: code 17 without payload.
    let length = 8 + usize::from(u16::from_be_bytes([heard[6], heard[7]]));
    let pings: Vec<u8> = heard[length..].chunks(8).map(|frame| frame[4]).collect();
    // The number of pings before the loss is tested in the tree machine, on virtual time, because
    // here the test machine may stand still for longer than the whole exchange.
    assert!(pings.iter().all(|code| *code == 17), "{pings:?}");
    manager.until("it is lost, its place kept", |engine| {
        let members = engine.node().members().unwrap();
        members.online().is_empty() && members.used().len() == 1
    });
}

#[test]
fn a_silent_parent_is_left() {
    let site = Site::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let manager = site.manager("manager");
    let mut reply = Vec::new();
    let extensions = cluster::tree::Extensions::ALL;
    let message = cluster::tree::NodeMessage::Reply(cluster::tree::ParentReply {
        id: "m-mute@here test".to_owned(),
        extensions,
        ..Default::default()
    });
    cluster::tree::encode(&message, extensions, &mut reply).unwrap();
    let server = site.node_with("server", NodeRole::Server, &[&manager], |settings| {
        settings.children[0].managers.push(cluster::tree::Address::new("127.0.0.1", port));
        settings.children[0].ping_own = Duration::from_millis(50);
    });
    let (mut socket, _) = listener.accept().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut head = [0; 8];
    socket.read_exact(&mut head).unwrap();
    socket.write_all(&reply).unwrap();
    // The server receives nothing more and closes the connection. The other manager, which pings,
    // is kept.
    socket.read_to_end(&mut Vec::new()).unwrap();
    server.until("it tries again or has the other", |engine| engine.node().memberships()[0].is_attached());
}

#[test]
fn an_open_at_a_draining_server_finds_another_copy_or_comes_back() {
    let site = Site::new();
    let manager = site.manager("manager");
    let [leaving, staying] = ["leaving", "staying"].map(|name| site.server(name, &[&manager]));
    for (server, content) in [(&leaving, "leaving"), (&staying, "staying")] {
        server.put("/both", content);
    }
    leaving.put("/only", "only");
    manager.has_children(2);
    let open = |target| Client::at(leaving.port()).run(|session| session.open(target, OpenOptions::READ, 0));
    let (mut session, file) = open("/both").unwrap();
    leaving.running.cluster().unwrap().drain(true);
    manager.until("the manager knows", |engine| {
        engine.node().members().unwrap().members().any(|(_, member)| member.condition.drains_itself)
    });
    let mut direct = Client::at(leaving.port());
    assert_eq!(direct.read("/both").unwrap(), "staying");
    assert_eq!((direct.at, direct.hops), (staying.port(), 2), "by way of the manager");
    assert_eq!(direct.read("/only").unwrap(), "only");
    assert_eq!((direct.at, direct.hops), (leaving.port(), 2), "it was sent round once");
    assert_eq!(session.read(file, 0, 100).unwrap(), b"leaving", "what was open stays open");
    leaving.running.cluster().unwrap().drain(false);
    until("it takes clients again", || {
        let mut direct = Client::at(leaving.port());
        direct.read("/both").unwrap();
        direct.at == leaving.port()
    });
}

#[test]
fn a_disk_that_hangs_delays_only_the_files_it_may_have() {
    let site = Site::new();
    let manager = site.node_with("manager", NodeRole::Manager, &[], |settings| {
        settings.resolve.silence = Duration::from_millis(100);
        // The limit is longer than the wait of a client before its retry, because a path that no
        // client requests is not counted as unanswered.
        settings.resolve.mute = Duration::from_secs(4);
        settings.policy.waits.lookup = Duration::from_secs(1);
    });
    let gate = Gate::new();
    let directory = LogicalPath::parse(b"/hung").unwrap();
    let ill = site.server_over("ill", &[&manager], |posix| {
        let faulty = Faulty::new(posix).with_pool(&directory, Pool::new("hung", 1));
        let calls = [FaultyCall::Stat, FaultyCall::Open, FaultyCall::List];
        faulty.rules().add(FaultRule::new(&calls, InjectedFault::Hang(gate.clone())).below(&directory));
        Arc::new(faulty)
    });
    let well = site.server("well", &[&manager]);
    manager.has_children(2);
    ill.put("/fine/f", "on its other disk");
    ill.put("/hung/f", "on the disk that hangs");
    well.put("/hung/g", "elsewhere");
    let mut client = manager.client();
    // The first round runs before the hang is detected, the second one afterwards.
    for round in 0..2 {
        assert_eq!(client.read("/fine/f").unwrap(), "on its other disk");
        assert_eq!(client.read("/hung/g").unwrap(), "elsewhere");
        assert_eq!(client.size(&format!("/fine/nowhere{round}")).unwrap_err().0, NOT_FOUND);
        assert_eq!(client.create(&format!("/hung/new{round}")).unwrap(), well.port());
    }
    gate.open();
    until("what hung is found", || client.read("/hung/f").is_ok_and(|text| text.ends_with("hangs")));
}
