//! Tests of `scalla serve`: its output, the configurations and requests that it rejects, and other
//! servers on the same host.

mod support;

use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use support::{Background, Scratch, Server, is_root, program, run, status, stderr, stdout};

#[test]
fn it_serves_a_directory_and_says_how_to_use_it() {
    let scratch = Scratch::new("serve");
    scratch.write("data/set/x.txt", "five\n");
    scratch.write("data/readme", "");
    let mut server = Server::serve(&scratch, &[]);
    let port = server.port;
    server.line(|line| line.ends_with(&format!(":{port}//readme .")));
    let (code, text) = server.client().stat("/set/x.txt");
    assert_eq!(code, 0);
    assert!(String::from_utf8_lossy(&text).contains(" 5 "), "{text:?}");
}

#[test]
fn a_missing_directory_is_named() {
    let scratch = Scratch::new("missing");
    let output = run("scalla", &scratch, &["serve", "/no/such/directory", "--port", "0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/no/such/directory"), "{}", stderr(&output));
    let file = scratch.write("file", "");
    let output = run("scalla", &scratch, &["serve", file.to_str().unwrap(), "--port", "0"]);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!(
        "scalla: error: cannot serve {}: not a directory; name the directory that contains it\n",
        file.display()
    );
    assert_eq!(stderr(&output), expected);
}

#[test]
fn the_log_and_the_parent_say_what_was_started() {
    let scratch = Scratch::new("started");
    let [data, admin, log] = ["data", "admin", "x.log"].map(|name| scratch.text(name));
    let config = scratch.write("x.cfg", format!("oss.localroot {data}\nall.export /set r/o\n"));
    let config = config.to_str().unwrap();
    scratch.write("data/set/x", "");
    let options = ["--port", "0", "--admin-path", &admin, "--log", &log, "--background"];
    let output = run("scalla", &scratch, &[&["serve", "--config", config][..], &options].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let status = status(&scratch.path("admin"));
    let (pid, port) = (status["pid"].as_u64().unwrap(), status["port"].as_u64().unwrap());
    let server = Background(u32::try_from(pid).unwrap());
    let expected = format!("running as pid {pid}, port {port}; log {log}; stop it with: kill {pid}\n");
    assert_eq!(stdout(&output), expected);
    // The server is found although its admin directory is not the default one.
    let list = stdout(&run("scalla", &scratch, &["admin", "list"]));
    assert!(
        list.lines().any(|line| line.trim_start().starts_with(&format!("{pid} ")) && line.ends_with(&admin)),
        "{list}"
    );
    let refused = stderr(&run("scalla", &scratch, &["admin", "status"]));
    assert!(refused.contains(&format!("\n  --admin-path {admin}   (pid {pid}, port {port})")), "{refused}");
    // An error found during a reload is logged too.
    scratch.write(
        "x.cfg",
        format!("oss.localroot {data}\nall.export /set r/o\nall.sitename a\nxrootd.fsoverload stall 60\n"),
    );
    run("scalla", &scratch, &["admin", "reload", "--admin-path", &admin]);
    server.signal(Signal::TERM);
    server.wait();
    let text = scratch.read("x.log");
    let line = |part: &str| text.lines().any(|line| line.contains(part));
    let start = format!(
        ":{port}, serving {data} as /set (read-only); configuration {config}; admin directory {admin}"
    );
    assert!(line(&start), "{text}");
    assert!(line(&format!("{config}:4:1: warning: xrootd.fsoverload")), "{text}");
}

#[test]
fn a_taken_port_is_named_with_who_has_it() {
    let (first, second) = (Scratch::new("port"), Scratch::new("port"));
    let server = Server::serve(&first, &[]);
    let output = run(
        "scalla",
        &second,
        &[
            "serve",
            &second.text("data"),
            "--port",
            &server.port.to_string(),
            "--admin-path",
            &second.text("admin"),
        ],
    );
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    let expected = format!("port {} is in use by scalla (pid {})", server.port, server.pid());
    assert!(text.contains(&expected), "{text}");
}

#[test]
fn one_admin_directory_has_one_server_and_a_crash_leaves_it_free() {
    let scratch = Scratch::new("admin");
    let first = Server::serve(&scratch, &[]);
    let arguments = ["serve", &scratch.text("data"), "--port", "0", "--admin-path", &scratch.text("admin")];
    let output = run("scalla", &scratch, &arguments);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("pid {}, port {}", first.pid(), first.port);
    assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
    drop(first); // SIGKILL: the socket stays behind
    assert!(scratch.path("admin/.scalla/xrootd.sock").exists());
    let second = Server::serve(&scratch, &[]);
    assert_eq!(status(&scratch.path("admin"))["port"], second.port);
}

#[test]
fn the_admin_socket_is_for_its_owner_alone() {
    let scratch = Scratch::new("mode");
    let _server = Server::serve(&scratch, &[]);
    let mode = |name: &str| fs::metadata(scratch.path(name)).unwrap().mode() & 0o777;
    assert_eq!(mode("admin/.scalla/xrootd.sock"), 0o600);
    assert_eq!(mode("admin/.scalla"), 0o700);
    assert_eq!(mode("admin"), 0o700);
}

#[test]
fn an_admin_directory_with_a_very_long_name_works() {
    let scratch = Scratch::new("long");
    let long = scratch.path(&["x".repeat(80), "y".repeat(80)].join("/"));
    let mut command = program("scalla", &scratch);
    command.args(["serve", &scratch.text("data"), "--port", "0", "--admin-path", long.to_str().unwrap()]);
    let server = Server::start(&mut command);
    assert_eq!(status(&long)["port"], server.port);
}

#[test]
fn without_an_admin_path_the_server_is_found_by_its_user() {
    let scratch = Scratch::new("found");
    let mut command = program("scalla", &scratch);
    let server = Server::start(command.args(["serve", &scratch.text("data"), "--port", "0"]));
    let output = run("scalla", &scratch, &["admin", "status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(status["port"], server.port);
}

#[test]
fn a_read_only_directory_takes_no_changes() {
    let scratch = Scratch::new("readonly");
    let server = Server::serve(&scratch, &["--read-only"]);
    let mut client = server.client();
    let (code, data) = client.ask(3008, [0; 16], b"/new"); // kXR_mkdir
    assert_eq!(code, 4003);
    assert_eq!(u32::from_be_bytes(data[..4].try_into().unwrap()), 3025);
    assert!(!scratch.path("data/new").exists());
}

#[test]
fn every_error_of_a_file_is_shown_and_stops_the_start() {
    let scratch = Scratch::new("errors");
    let file = scratch.write("x.cfg", "all.export /data\nxrd.port nonsense\nxrd.prot 1094\nxrootd.tls all\n");
    let output = run("scalla", &scratch, &["serve", "--config", file.to_str().unwrap(), "--port", "0"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    for expected in ["x.cfg:2:", "x.cfg:3:", "xrd.port", "x.cfg:4:", "xrootd.tls"] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
}

#[test]
fn links_lead_to_the_program() {
    let scratch = Scratch::new("links");
    let output = run("scalla", &scratch, &["links", &scratch.text("data")]);
    assert!(output.status.success(), "{}", stderr(&output));
    let link = scratch.path("data/xrootd");
    assert_eq!(fs::canonicalize(&link).unwrap(), fs::canonicalize(env!("CARGO_BIN_EXE_scalla")).unwrap());
    let output = std::process::Command::new(&link).arg("-v").output().unwrap();
    assert_eq!(stderr(&output), format!("{}\n", server::VERSION));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn root_may_become_another_user() {
    if !is_root() {
        return; // only root can
    }
    let scratch = Scratch::new("user");
    fs::set_permissions(scratch.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(scratch.path("data"), Some(65534), Some(65534)).unwrap();
    let admin = scratch.path("admin");
    fs::create_dir(&admin).unwrap();
    std::os::unix::fs::chown(&admin, Some(65534), Some(65534)).unwrap();
    let server = Server::serve(&scratch, &["--user", "nobody"]);
    let proc = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let field = |name: &str| proc.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert_eq!(field("Uid:"), "Uid:\t65534\t65534\t65534\t65534");
    assert_eq!(field("Gid:"), "Gid:\t65534\t65534\t65534\t65534");
    assert!(!field("Groups:").split_whitespace().any(|group| group == "0"), "{}", field("Groups:"));
    let (code, _) = server.client().ask(3008, [0; 16], b"/made");
    assert_eq!(code, 0);
    assert_eq!(fs::metadata(scratch.path("data/made")).unwrap().uid(), 65534);
}

#[test]
fn what_root_left_behind_goes_to_the_user() {
    if !is_root() {
        return; // only root can
    }
    let scratch = Scratch::new("heir");
    fs::set_permissions(scratch.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(scratch.path("data"), Some(65534), Some(65534)).unwrap();
    let serve = |more: &[&str]| {
        let mut command = program("scalla", &scratch);
        command.args(["serve", &scratch.text("data"), "--port", "0"]).args(more);
        Server::start(&mut command)
    };
    // A server of root was killed: its directories and its lock remain, and only root may access
    // them.
    let server = serve(&[]);
    fs::set_permissions(scratch.path("state/scalla"), fs::Permissions::from_mode(0o700)).unwrap();
    drop(server);
    let left = fs::read_dir(scratch.path("state/scalla")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::metadata(left.join(".scalla/xrootd.lock")).unwrap().uid(), 0, "the drop above is a kill");
    let outside = scratch.write("outside", String::new());
    std::os::unix::fs::symlink(&outside, left.join("link")).unwrap();

    let server = serve(&["--user", "nobody"]);
    assert_eq!(server.client().ask(3008, [0; 16], b"/made").0, 0);
    for name in ["", ".scalla", ".scalla/xrootd.lock"] {
        assert_eq!(fs::metadata(left.join(name)).unwrap().uid(), 65534, "{name}");
    }
    assert_eq!(fs::metadata(&outside).unwrap().uid(), 0, "links are not followed");
}

#[test]
fn a_server_with_keys_dumps_no_core() {
    let scratch = Scratch::new("core");
    fs::set_permissions(scratch.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let keytab = scratch.write("keytab", "0 u:anybody g:anygroup n:k N:1 k:00\n");
    fs::set_permissions(&keytab, fs::Permissions::from_mode(0o600)).unwrap();
    let mut more = Vec::new();
    if is_root() {
        // The change of the user must not undo it.
        fs::create_dir(scratch.path("admin")).unwrap();
        for name in ["data", "admin", "keytab"] {
            std::os::unix::fs::chown(scratch.path(name), Some(65534), Some(65534)).unwrap();
        }
        more = vec!["--user", "nobody"];
    }
    let security = format!("xrootd.seclib default\nsec.protocol sss -s {}\n", keytab.display());
    let config = scratch.write("x.cfg", security);
    more.extend(["--config", config.to_str().unwrap()]);
    let server = Server::serve(&scratch, &more);
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
    let soft_and_hard: Vec<&str> = core.split_whitespace().take(2).collect();
    assert_eq!(soft_and_hard, ["0", "0"]);
}

#[test]
fn unknown_users_are_refused() {
    let scratch = Scratch::new("nouser");
    let output =
        run("scalla", &scratch, &["serve", &scratch.text("data"), "--port", "0", "--user", "no-such-user"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no user `no-such-user`"), "{}", stderr(&output));
}

#[test]
fn configurations_are_checked_and_shown() {
    let scratch = Scratch::new("config");
    let good =
        scratch.write("good.cfg", format!("oss.localroot {}\nall.export / r/o\n", scratch.text("data")));
    let bad = scratch.write("bad.cfg", "all.export /nope\nxrd.timeout hail never\nxrootd.chsum adler32\n");
    let good_path = good.to_str().unwrap();
    let output = run("scalla", &scratch, &["config", "check", good_path]);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    let output = run("scalla", &scratch, &["config", "check", good_path, bad.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(
        text.contains("bad.cfg:2:") && text.contains("bad.cfg:3:") && text.contains("xrootd.chksum"),
        "{text}"
    );
    let output = run("scalla", &scratch, &["config", "check", "--json", bad.to_str().unwrap()]);
    let lines = stdout(&output);
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert!(first["origin"]["line"].is_u64() && first["severity"].is_string(), "{first}");
    let output = run("scalla", &scratch, &["config", "show", "--config", good_path]);
    let text = stdout(&output);
    assert!(
        text.lines().any(|line| line.starts_with("oss.localroot ") && line.contains("good.cfg:1:")),
        "{text}"
    );
    assert!(text.lines().any(|line| line.starts_with("xrd.port ") && line.ends_with("# default")), "{text}");
    // The admin directory is the one that a server would use.
    let admin = text.lines().find(|line| line.starts_with("all.adminpath ")).unwrap();
    let server =
        Server::start(program("scalla", &scratch).args(["serve", "--config", good_path, "--port", "0"]));
    let list = stdout(&run("scalla", &scratch, &["admin", "list"]));
    let own = list.lines().find(|line| line.trim_start().starts_with(&format!("{} ", server.pid()))).unwrap();
    let directory = own.rsplit("  ").next().unwrap();
    assert!(admin.split_whitespace().any(|word| word == directory), "{admin} {directory}");
    let shown = |options: &[&str]| {
        run("scalla", &scratch, &[&["config", "show", "--config", good_path], options].concat())
    };
    let changed = stdout(&shown(&["--changed"]));
    let names: Vec<_> = changed.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["all.export", "oss.localroot"]);
    assert_eq!(stdout(&shown(&["--directive", "xrd.port"])).lines().count(), 1);
    let unknown = shown(&["--directive", "xrd.prot"]);
    assert!(
        unknown.status.code() == Some(1) && stderr(&unknown).contains("`xrd.prot`"),
        "{}",
        stderr(&unknown)
    );
}
