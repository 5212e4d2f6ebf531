//! Tests of clusters of real processes: started from command lines or from one configuration file,
//! status queries and orders, and errors in configurations.

mod support;

use rustix::process::Signal;
use serde_json::Value;
use server::admin::{AdminRequest, ask};
use std::net::TcpListener;
use std::time::{Duration, Instant};
use support::codes::request;
use support::codes::status::{ATTN, ERROR, REDIRECT, WAIT, WAITRESP};
use support::{Client, PATIENCE, Scratch, Server, names, program, run, stderr, stdout};

/// Returns the cluster status of the node with this admin directory.
fn cluster(scratch: &Scratch, name: &str) -> Value {
    let socket = scratch.path(name).join(".scalla/xrootd.sock");
    ask(&socket, &AdminRequest::ClusterStatus {}).unwrap_or_default()
}

/// Waits until the status of the node fulfils a condition, and returns the status.
fn wait_for(scratch: &Scratch, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let status = cluster(scratch, name);
        if wanted(&status) {
            return status;
        }
        assert!(Instant::now() < until, "{name} stays {status:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn children(status: &Value) -> Vec<(String, String)> {
    let children = status["children"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    children.iter().map(|child| (text(&child["address"]), text(&child["state"]))).collect()
}

/// Returns the condition that `count` children serve.
fn serve(count: usize) -> impl Fn(&Value) -> bool {
    move |status| {
        children(status).iter().filter(|(_, state)| state == "serving").count() == count
            && status["state"] == "serving"
    }
}

/// Returns the port to which a redirector sends a client for a path, or `None` if it reports that
/// no server has it.
fn sent_to(port: u16, path: &str) -> Option<u16> {
    answered(port, path, |client| client.stat(path)).ok()
}

/// Returns the port to which a redirector sends a client that creates a file, or the number and
/// text of the error.
fn made_at(port: u16, path: &str) -> Result<u16, (u32, String)> {
    let mut body = [0; 16];
    body[2..4].copy_from_slice(&(0x0008u16 | 0x0020).to_be_bytes()); // kXR_new, kXR_open_updt
    answered(port, path, |client| client.ask(3010, body, path.as_bytes())) // kXR_open
}

/// Returns the reply of a redirector to a request about a path.
fn answered(
    port: u16,
    path: &str,
    ask: impl Fn(&mut Client) -> (u16, Vec<u8>),
) -> Result<u16, (u32, String)> {
    let mut client = Client::login(port);
    let until = Instant::now() + PATIENCE;
    loop {
        let (mut status, mut data) = ask(&mut client);
        if status == WAITRESP {
            let (attn, later) = client.reply();
            assert_eq!(attn, ATTN);
            // After the action and the padding, a complete reply follows.
            status = u16::from_be_bytes([later[10], later[11]]);
            data = later[16..].to_vec();
        }
        match status {
            REDIRECT => return Ok(u16::from_be_bytes([data[2], data[3]])),
            ERROR => {
                let text = String::from_utf8_lossy(&data[4..]).trim_end_matches('\0').to_owned();
                return Err((u32::from_be_bytes([data[0], data[1], data[2], data[3]]), text));
            }
            WAIT => std::thread::sleep(Duration::from_millis(200)),
            other => panic!("{other}: {}", String::from_utf8_lossy(&data)),
        }
        assert!(Instant::now() < until, "{path} is waited for for ever");
    }
}

fn manager(scratch: &Scratch) -> (Server, String) {
    let mut command = program("scalla", scratch);
    command.args(["manager", "--port", "0", "--cluster-port", "0", "--admin-path", &scratch.text("m")]);
    let server = Server::start(&mut command);
    let status = cluster(scratch, "m");
    let port = status["cluster_address"].as_str().and_then(|address| address.rsplit(':').next());
    let Some(port) = port else { panic!("{status:#}") };
    (server, format!("localhost:{port}"))
}

fn server(scratch: &Scratch, name: &str, manager: &str) -> Server {
    server_with(scratch, name, manager, &[])
}

fn server_with(scratch: &Scratch, name: &str, manager: &str, more: &[&str]) -> Server {
    scratch.write(&format!("{name}-data/only-{name}"), name);
    let mut command = program("scalla", scratch);
    let data = scratch.text(&format!("{name}-data"));
    command.args(["serve", &data, "--port", "0", "--manager", manager, "--admin-path", &scratch.text(name)]);
    Server::start(command.args(more))
}

/// Runs `scalla cluster …` for the node with this admin directory.
fn order(scratch: &Scratch, name: &str, words: &[&str]) -> String {
    let output = run("scalla", scratch, &[&["cluster", "--admin-path", &scratch.text(name)], words].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

#[test]
fn command_lines_make_a_cluster_that_can_be_seen_from_any_node() {
    let scratch = Scratch::new("cluster");
    let (root, address) = manager(&scratch);
    let (a, b) = (server(&scratch, "a", &address), server(&scratch, "b", &address));
    let seen = wait_for(&scratch, "m", serve(2));
    assert_eq!(seen["role"], "manager");
    assert_eq!(sent_to(root.port, "/only-a"), Some(a.port));
    assert_eq!(sent_to(root.port, "/only-b"), Some(b.port));
    assert_eq!(sent_to(root.port, "/nobody-has-it"), None);

    let tree = |name: &str| -> Value {
        serde_json::from_str(&order(&scratch, name, &["status", "--json"])).unwrap_or_default()
    };
    let (from_root, from_leaf) = (tree("m"), tree("a"));
    assert_eq!(from_root["id"], from_leaf["id"], "the same root");
    assert_eq!(children(&from_leaf).len(), 2);
    assert_eq!(from_leaf["missing"], Value::Array(Vec::new()));
    let version = from_leaf["children"][0]["version"].as_str().unwrap_or_default();
    assert!(version.starts_with("scalla v"), "{version}");
    assert!(from_root["cache"]["misses"].as_u64() >= Some(3), "{from_root:#}");
    let drawn = order(&scratch, "b", &["status"]);
    assert!(drawn.contains("├─ server ") && drawn.contains("└─ server "), "{drawn}");
    assert!(order(&scratch, "b", &["status", "--here"]).contains("below localhost:"), "only itself");
}

#[test]
fn a_server_says_how_much_must_be_free_for_new_files() {
    let scratch = Scratch::new("room");
    let (root, address) = manager(&scratch);
    // More than any disk has.
    let mut a = server_with(&scratch, "a", &address, &["--min-free", "1000t"]);
    let said = a.said(|line| line.contains("too little space is free"));
    for word in ["minimum_mb=1048576000", "enough_mb=1153433600", "cms.space", "--min-free"] {
        assert!(said.contains(word), "{word} in {said}");
    }
    wait_for(&scratch, "m", serve(1));
    assert_eq!(made_at(root.port, "/new"), Err((3009, "No server has enough free space.".to_owned())));
    assert_eq!(sent_to(root.port, "/only-a"), Some(a.port), "what it has is read");
    let drawn = order(&scratch, "m", &["status"]);
    assert!(drawn.contains("(full, needs 1000 TB)"), "{drawn}");
    let b = server_with(&scratch, "b", &address, &["--min-free", "1"]);
    wait_for(&scratch, "m", serve(2));
    for number in 0..4 {
        assert_eq!(made_at(root.port, &format!("/other{number}")), Ok(b.port));
    }
}

#[test]
fn who_gets_no_files_from_a_manager_needs_no_space_for_them() {
    let scratch = Scratch::new("alone");
    let refused = |words: &[&str]| {
        let output = run("scalla", &scratch, &[words, &["--min-free", "1g", "--port", "0"]].concat());
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        stderr(&output)
    };
    let said = refused(&["serve", &scratch.text("data"), "--admin-path", &scratch.text("adm")]);
    assert!(said.contains("--min-free: no manager places files on this server"), "{said}");
    assert!(said.contains("--manager HOST"), "{said}");
    let text = format!("all.adminpath {}\nall.role manager\nall.manager localhost:1\n", scratch.text("adm"));
    let file = scratch.write("x.cfg", text).display().to_string();
    let said = refused(&["serve", "--config", &file]);
    assert!(said.contains("--min-free: a manager has no files of its own"), "{said}");
}

#[test]
fn orders_hold_for_children_and_over_restarts() {
    let scratch = Scratch::new("orders");
    let (root, address) = manager(&scratch);
    let a = server(&scratch, "a", &address);
    // Both servers have one more file.
    scratch.write("a-data/both", "x");
    scratch.write("b-data/both", "x");
    let mut b = server(&scratch, "b", &address);
    wait_for(&scratch, "m", serve(2));
    let child = |port: u16| {
        let suffix = format!(":{port}");
        move |status: &Value| children(status).into_iter().find(|(address, _)| address.ends_with(&suffix))
    };
    let is = |port: u16, wanted: &'static str| {
        move |status: &Value| child(port)(status).is_some_and(|(_, state)| state == wanted)
    };
    let Some((name, _)) = child(a.port)(&cluster(&scratch, "m")) else { panic!("a is no child") };
    let said = order(&scratch, "m", &["drain", &name]);
    assert_eq!(said, format!("draining {name}\n"), "the word of the order is that of the table");
    wait_for(&scratch, "m", is(a.port, "draining"));
    for _ in 0..4 {
        assert_eq!(sent_to(root.port, "/both"), Some(b.port));
    }
    assert_eq!(order(&scratch, "m", &["undrain", &name]), format!("serving {name}\n"));
    wait_for(&scratch, "m", serve(2));

    assert_eq!(order(&scratch, "b", &["suspend"]), "suspended this node\n");
    wait_for(&scratch, "m", is(b.port, "suspended"));
    assert_eq!(sent_to(root.port, "/both"), Some(a.port));
    b.signal(Signal::TERM);
    b.wait();
    drop(b);
    let b = server(&scratch, "b", &address);
    wait_for(&scratch, "m", is(b.port, "suspended"));
    order(&scratch, "b", &["resume", "self"]);
    let now = wait_for(&scratch, "m", serve(2));
    assert_eq!(children(&now).len(), 2, "it is the same node, though its port is another: {now:#}");

    let output = run("scalla", &scratch, &["cluster", "--admin-path", &scratch.text("m"), "drain", "nobody"]);
    assert!(!output.status.success() && stderr(&output).contains("nobody is no node"), "{}", stderr(&output));
}

#[test]
fn nodes_are_called_by_slot_and_name_and_their_lists_are_shown() {
    let scratch = Scratch::new("names");
    let (_root, address) = manager(&scratch);
    let file = scratch.write("complete.cfg", "scalla.inventory complete\n").display().to_string();
    let _a = server_with(&scratch, "a", &address, &["--instance", "disk1", "--config", &file]);
    let is_complete = |status: &Value| status["children"][0]["inventory"] == "complete";
    let seen = wait_for(&scratch, "m", is_complete);
    let child = &seen["children"][0];
    assert_eq!((child["name"].as_str(), child["slot"].as_u64()), (Some("disk1"), Some(0)));
    let Some(place) = child["address"].as_str() else { panic!("{child:#}") };
    let _b = server(&scratch, "b", &address);
    let seen =
        wait_for(&scratch, "m", |status| serve(2)(status) && status["children"][1]["inventory"] == "listed");
    assert_eq!(seen["children"][1]["name"], Value::Null);

    let table = order(&scratch, "m", &["status"]);
    let words = |line: usize| table.lines().nth(line).map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(words(0).as_deref().unwrap_or_default()[..3], ["NODE", "SLOT", "NAME"]);
    let shown = words(3).unwrap_or_default();
    assert!(shown.contains(&place) && shown.contains(&"disk1"), "{table}");
    assert!(shown.contains(&"complete,") && shown.contains(&"names"), "{table}");
    assert!(!table.contains("scalla v"), "{table}");
    let wide = order(&scratch, "m", &["status", "--wide"]);
    let id = child["id"].as_str().unwrap_or_default();
    assert!(wide.contains("scalla v") && wide.contains(id) && wide.contains("w /"), "{wide}");

    for name in ["disk1", "0", "#0"] {
        assert_eq!(order(&scratch, "m", &["drain", name]), format!("draining {place}\n"));
        assert_eq!(order(&scratch, "m", &["undrain", name]), format!("serving {place}\n"));
    }
    assert_eq!(order(&scratch, "a/disk1", &["drain", "disk1"]), "draining disk1\n");
}

#[test]
fn a_manager_waits_until_nothing_is_open_at_a_child() {
    let scratch = Scratch::new("wait");
    let (_root, address) = manager(&scratch);
    let a = server(&scratch, "a", &address);
    let seen = wait_for(&scratch, "m", serve(1));
    let Some(name) = seen["children"][0]["address"].as_str() else { panic!("{seen:#}") };
    let mut client = Client::login(a.port);
    let (reading, writing) = (client.open("/only-a"), client.create("/new"));
    let drain = |words: &[&str]| {
        let own = scratch.text("m");
        run(
            "scalla",
            &scratch,
            &[&["cluster", "--admin-path", &own, "drain", name, "--wait"], words].concat(),
        )
    };
    let waited = drain(&["0"]);
    assert_eq!(waited.status.code(), Some(1));
    assert_eq!(stdout(&waited), format!("draining {name}: 2 files open (1 for writing), 1 client\n"));
    assert_eq!(stderr(&waited).matches("continues to drain").count(), 1, "{}", stderr(&waited));
    let table = order(&scratch, "m", &["status"]);
    assert!(table.contains(" draining (2 files open (1 for writing), 1 client) "), "{table}");
    for handle in [reading, writing] {
        let mut body = [0; 16];
        body[..4].copy_from_slice(&handle);
        assert_eq!(client.ask(request::CLOSE, body, b"").0, 0);
    }
    let waited = drain(&[]);
    assert!(waited.status.success(), "{}", stderr(&waited));
    assert_eq!(stdout(&waited), format!("drained {name}\n"));
    assert!(order(&scratch, "m", &["status"]).contains(" drained "));
    // The server itself reports the same.
    assert_eq!(order(&scratch, "a", &["drain", "--wait"]), "drained this node\n");
}

/// Returns a port that is free at the moment.
fn free_port() -> u16 {
    TcpListener::bind("[::]:0").and_then(|listener| listener.local_addr()).map_or(0, |address| address.port())
}

#[test]
fn one_file_for_all_nodes_with_parts_for_both_programs() {
    let scratch = Scratch::new("file");
    let port = free_port();
    let text = format!(
        "all.adminpath {adm}\nall.pidpath {adm}\nall.manager localhost:{port}%man\nall.export /\n\
         all.role server\nall.role manager if named man\nif named a\noss.localroot {a}\nelse if named b\n\
         oss.localroot {b}\nfi\nif exec cmsd\nxrd.port {port}\ncms.delay servers 2 lookup 2\nelse\nxrd.port any\nfi\n",
        adm = scratch.text("adm"),
        a = scratch.text("a-data"),
        b = scratch.text("b-data"),
    );
    let file = scratch.write("x.cfg", text).display().to_string();
    scratch.write("a-data/only-a", "a");
    scratch.write("b-data/only-b", "b");
    let start = |name: &str| Server::start(program("xrootd", &scratch).args(["-c", &file, "-n", name]));
    // Nodes wait for their manager.
    let (a, root) = (start("a"), start("man"));
    wait_for(&scratch, "adm/man", |status| children(status).len() == 1 && status["state"] == "too few nodes");
    let b = start("b");
    wait_for(&scratch, "adm/man", serve(2));
    assert_eq!(sent_to(root.port, "/only-a"), Some(a.port));
    assert_eq!(sent_to(root.port, "/only-b"), Some(b.port));
    let shown = stdout(&run("scalla", &scratch, &["config", "show", "--config", &file, "--instance", "man"]));
    assert!(shown.contains("all.role manager"), "{shown}");
    assert!(shown.contains("cms.delay servers 2 "), "{shown}");
    let ids = ["a", "b", "man"].map(|name| scratch.read(&format!("adm/{name}/.cluster/id")));
    assert!(ids.iter().all(|id| !id.is_empty()) && ids[0] != ids[1], "{ids:?}");
}

#[test]
fn what_is_wrong_is_said_before_anybody_is_served() {
    let scratch = Scratch::new("wrong");
    let refused = |text: &str, more: &[&str]| {
        let text = format!("all.adminpath {}\nxrd.port any\n{text}", scratch.text("adm"));
        let file = scratch.write("x.cfg", text).display().to_string();
        let output = run("xrootd", &scratch, &[&["-c", &file], more].concat());
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        stderr(&output)
    };
    let said = refused("all.role manager\nall.manager elsewhere.invalid:1213\n", &[]);
    assert!(said.contains("x.cfg:4:1") && said.contains("is none of the managers"), "{said}");
    let said = refused("all.manager redirector\n", &[]);
    assert!(said.contains("x.cfg:3:13: error: all.manager: manager port not specified"), "{said}");
    let said = refused("all.role proxy server\n", &[]);
    assert!(said.contains("x.cfg:3:1: error: the proxy has no origin; set pss.origin"), "{said}");
    let said = refused("all.role manager\ncms.seclib libXrdSec.so\n", &[]);
    assert!(said.contains("restricts access or demands encryption"), "{said}");
    let taken = TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let said = refused(&format!("all.role manager\nall.manager localhost:{port}\n"), &[]);
    assert!(said.contains(&format!("port {port} is in use")), "{said}");
    let said = refused("all.manager localhost:1\nall.export /x local\noss.localroot /\n", &[]);
    assert!(said.contains("every export is local"), "{said}");
    assert_eq!(names(scratch.path("adm/.scalla")), [""; 0], "nothing is left");
    let output = run("scalla", &scratch, &["supervisor"]);
    assert!(stderr(&output).contains("--manager"), "{}", stderr(&output));
}

#[test]
fn a_server_says_what_keeps_it_from_its_manager() {
    let scratch = Scratch::new("sought");
    let port = free_port();
    let mut command = program("scalla", &scratch);
    let data = scratch.text("data");
    let manager = format!("localhost:{port}");
    command.args(["serve", &data, "--port", "0", "--manager", &manager, "--admin-path", &scratch.text("a")]);
    let mut a = Server::start(&mut command);
    let said = a.line(|line| line.contains("does not take this node in"));
    assert!(said.contains(&manager) && said.contains("nothing listens there"), "{said}");
    let shown = order(&scratch, "a", &["status"]);
    assert!(shown.contains(&format!("looks for {manager}: nothing listens there")), "{shown}");
    let mut command = program("scalla", &scratch);
    let (port, admin) = (port.to_string(), scratch.text("m"));
    let root = Server::start(command.args([
        "manager",
        "--port",
        "0",
        "--cluster-port",
        &port,
        "--admin-path",
        &admin,
    ]));
    a.line(|line| line.contains(&format!("has a place below {manager}")));
    assert!(!order(&scratch, "a", &["status", "--here"]).contains("looks for"));

    // The port for clients differs from the one for nodes.
    let mut b = server(&scratch, "b", &format!("localhost:{}", root.port));
    let said = b.line(|line| line.contains("does not take this node in"));
    assert!(said.contains("is that its cluster port?"), "{said}");
    let mut c = server(&scratch, "c", "nowhere.invalid");
    let said = c.line(|line| line.contains("does not take this node in"));
    assert!(said.contains("nowhere.invalid:1213") && said.contains("its name cannot be looked up"), "{said}");
    for server in [a, b, c] {
        let said = server.ended();
        let lines = said.iter().filter(|line| line.contains("does not take this node in")).count();
        assert_eq!(lines, 1, "{said:#?}");
    }
}

#[test]
fn a_copied_admin_directory_is_told_and_no_flood() {
    let scratch = Scratch::new("twins");
    let (mut root, address) = manager(&scratch);
    let a = server(&scratch, "a", &address);
    wait_for(&scratch, "m", serve(1));
    scratch.write("b/.cluster/id", scratch.read("a/.cluster/id"));
    let mut b = server(&scratch, "b", &address);
    let said = root.line(|line| line.contains("another node with its id"));
    assert!(said.contains("remove .cluster/id"), "{said}");
    let said = b.line(|line| line.contains("does not take this node in"));
    assert!(said.contains("closes the connection immediately; its log may have the reason"), "{said}");
    assert_eq!(children(&cluster(&scratch, "m")).len(), 1);
    let said = b.ended();
    assert!(said.iter().all(|line| !line.contains("has a place")), "it had none: {said:#?}");
    drop(a);
    let said = root.ended();
    let lines = said.iter().filter(|line| line.contains("another node with its id")).count();
    assert_eq!(lines, 1, "{said:#?}");
}

#[test]
fn who_asks_where_nothing_runs_is_told_what_to_do() {
    let scratch = Scratch::new("nobody");
    let refused = |words: &[&str]| {
        let output = run("scalla", &scratch, &[&["cluster", "status"], words].concat());
        assert_eq!(output.status.code(), Some(1));
        stderr(&output)
    };
    let said = refused(&[]);
    // Servers of other tests may run, but their admin directories are not the default one of this
    // user.
    assert!(
        said.contains("no server of this user runs here; start one: scalla serve DIR")
            || said.contains("--admin-path /"),
        "{said}"
    );
    let said = refused(&["--admin-path", &scratch.text("nothing")]);
    assert!(said.contains("which does not exist"), "{said}");
    let mut command = program("scalla", &scratch);
    let admin = scratch.text("adm");
    command.args([
        "manager",
        "--port",
        "0",
        "--cluster-port",
        "0",
        "--admin-path",
        &admin,
        "--instance",
        "inst",
    ]);
    let _server = Server::start(&mut command);
    let said = refused(&["--admin-path", &admin]);
    assert!(said.contains("there are --instance inst"), "{said}");
}

#[test]
fn a_server_alone_has_no_cluster() {
    let scratch = Scratch::new("alone");
    let _server = Server::serve(&scratch, &[]);
    let output = run("scalla", &scratch, &["cluster", "--admin-path", &scratch.text("admin"), "status"]);
    assert!(!output.status.success() && stderr(&output).contains("stands alone"), "{}", stderr(&output));
}
