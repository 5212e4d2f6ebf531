//! Tests of the privileges that a server keeps when it switches from root to its user.

#![allow(clippy::unwrap_used)] // a test fails where it is

mod support;

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::Command;
use support::{Scratch, Server, is_root, program};

/// User and group of the servers.
const NOBODY: u32 = 65534;

/// Sets of capabilities of a thread, as in `/proc/PID/status`.
const SETS: [&str; 5] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];

/// `CAP_SETUID` and `CAP_SETGID`.
const OF_USER_SWITCH: u64 = 1 << 7 | 1 << 6;

/// Reports whether the tests can run, which need root.
fn can_run() -> bool {
    if !is_root() {
        eprintln!("skipped: only root can start a server for another user");
    }
    is_root()
}

/// Starts a server with a command before it, and returns its description of its privileges.
fn start(scratch: &Scratch, before: &[&str], options: &[&str], lines: &str) -> (Server, String) {
    fs::create_dir_all(scratch.path("admin")).unwrap();
    for name in ["data", "admin"] {
        chown(scratch.path(name), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let config = scratch.write("site.cfg", lines);
    let mut command = program(before.first().unwrap_or(&"scalla"), scratch);
    if let Some((first, rest)) = before.split_first() {
        command = Command::new(first);
        command.args(rest).arg(env!("CARGO_BIN_EXE_scalla")).env("HOME", scratch.path(""));
        command.current_dir(scratch.path(""));
    }
    let (data, admin) = (scratch.text("data"), scratch.text("admin"));
    command.args([
        "serve",
        &data,
        "--port",
        "0",
        "--admin-path",
        &admin,
        "--config",
        config.to_str().unwrap(),
    ]);
    let mut server = Server::start(command.args(options));
    let described = server.said(|line| line.contains("privileges: "));
    (server, described)
}

/// Starts a server as root, which switches to `nobody`.
fn serve(scratch: &Scratch, lines: &str) -> (Server, String) {
    start(scratch, &[], &["--user", "nobody"], lines)
}

fn fields(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

/// Returns the fields of each thread of a process.
fn threads(pid: u32) -> Vec<BTreeMap<String, String>> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    // A thread of a pool can end meanwhile.
    let status = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok());
    let found: Vec<_> = status.map(|text| fields(&text)).collect();
    assert!(found.len() > 1, "{found:?}");
    found
}

/// Asserts sets of capabilities of all threads, and `no_new_privs`. Sets without an entry are empty.
fn expect(server: &Server, sets: &[(&str, u64)], no_new_privs: &str) {
    for thread in threads(server.pid()) {
        let name = &thread["Name"];
        for set in SETS {
            let expected = sets.iter().find(|(known, _)| *known == set).map_or(0, |(_, value)| *value);
            assert_eq!(u64::from_str_radix(&thread[set], 16), Ok(expected), "{name}: {set}");
        }
        assert_eq!(thread["NoNewPrivs"], no_new_privs, "{name}");
        // Real, effective and saved ids, and that for file systems.
        for ids in ["Uid", "Gid"] {
            assert!(thread[ids].split_whitespace().all(|id| id == "65534"), "{name}: {ids} {}", thread[ids]);
        }
        assert!(
            thread["Groups"].split_whitespace().all(|group| group != "0"),
            "{name}: {}",
            thread["Groups"]
        );
    }
}

/// Returns the bounding set of this process.
fn own_bounding_set() -> u64 {
    let own = fields(&fs::read_to_string("/proc/self/status").unwrap());
    u64::from_str_radix(&own["CapBnd"], 16).unwrap()
}

#[test]
fn no_thread_keeps_privileges_of_root() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new("privileges");
    let (server, described) = serve(&scratch, "");
    expect(&server, &[], "1");
    assert!(described.ends_with("executes gain none (no_new_privs)"), "{described}");
}

/// As a service manager grants them for a port below 1024.
#[test]
fn no_thread_keeps_granted_capabilities() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new("privileges-ambient");
    let granted = ["--inh-caps", "+net_bind_service", "--ambient-caps", "+net_bind_service"];
    let before =
        [&["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"], &granted[..]].concat();
    for options in [&[][..], &["--user", "nobody"]] {
        let (server, described) = start(&scratch, &before, options, "");
        // Only a process with CAP_SETPCAP can reduce it.
        expect(&server, &[("CapBnd", own_bounding_set())], "1");
        assert!(described.contains("the bounding set of capabilities is not empty"), "{described}");
    }
}

#[test]
fn a_start_without_the_right_to_reduce_the_bounding_set_succeeds() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new("privileges-bounding");
    let before = ["setpriv", "--bounding-set", "-setpcap"];
    let (server, described) = start(&scratch, &before, &["--user", "nobody"], "");
    expect(&server, &[("CapBnd", own_bounding_set() & !(1 << 8))], "1");
    assert!(described.contains("the bounding set of capabilities is not empty"), "{described}");
}

#[test]
fn acting_for_users_keeps_two_capabilities() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new("privileges-users");
    let keytab =
        scratch.write("keytab", format!("0 u:tester g:users n:site N:7 c:1 e:0 k:{}\n", "a7".repeat(32)));
    fs::set_permissions(&keytab, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    chown(&keytab, Some(NOBODY), Some(NOBODY)).unwrap();
    let lines = format!(
        "ofs.osslib ++ libXrdMultiuser.so\nxrootd.seclib default\nsec.protocol sss -s {}\n",
        keytab.display()
    );
    let (server, _) = serve(&scratch, &lines);
    expect(&server, &[("CapPrm", OF_USER_SWITCH), ("CapEff", OF_USER_SWITCH)], "1");
}

#[test]
fn programs_of_the_configuration_keep_the_privileges_of_their_files() {
    if !can_run() {
        return;
    }
    let example = |directive: &config::Directive| match directive.names[0] {
        // The example of this one has no program.
        "ofs.tpc" => "ofs.tpc pgm /bin/true\n".to_owned(),
        // The program of the example is that of a site.
        "ofs.notify" => "ofs.notify closew |/bin/cat\n".to_owned(),
        // Nobody is mapped without authentication.
        "sec.entityprogram" => {
            "xrootd.seclib default\nsec.protocol unix\nsec.entityprogram /bin/true\n".to_owned()
        }
        name => format!("{name} {}\n", directive.example),
    };
    let lines: Vec<_> = config::every_directive().filter(|one| one.names_program()).map(example).collect();
    assert!(lines.len() > 2, "{lines:?}");
    for line in lines {
        let scratch = Scratch::new("privileges-program");
        let (server, described) = serve(&scratch, &line);
        expect(&server, &[("CapBnd", own_bounding_set())], "0");
        assert!(described.contains("because the configuration names programs"), "{line}: {described}");
    }
}

/// As with `NoNewPrivileges=yes` of a service manager.
#[test]
fn programs_gain_nothing_if_the_service_manager_forbids_it() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new("privileges-forbidden");
    let before = ["setpriv", "--no-new-privs"];
    let (server, described) = start(&scratch, &before, &["--user", "nobody"], "ofs.tpc pgm /bin/true\n");
    expect(&server, &[], "1");
    assert!(described.ends_with("executes gain none (no_new_privs)"), "{described}");
}

/// Reports whether the user of the server could open a file for these accesses.
fn is_accessible(found: &Metadata, (reads, writes): (bool, bool)) -> bool {
    let shift = match (found.uid(), found.gid()) {
        (NOBODY, _) => 6,
        (_, NOBODY) => 3,
        _ => 0,
    };
    let has = |bit: u32| found.mode() >> shift & bit != 0;
    (!reads || has(4)) && (!writes || has(2))
}

/// Returns whether a descriptor reads and writes.
fn access(pid: u32, descriptor: &Path) -> (bool, bool) {
    let number = descriptor.file_name().unwrap().to_str().unwrap();
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).unwrap_or_default();
    let flags = u32::from_str_radix(fields(&text).get("flags").map_or("0", String::as_str), 8).unwrap();
    match flags & 3 {
        _ if flags & only_names() != 0 => (false, false),
        0 => (true, false),
        1 => (false, true),
        _ => (true, true),
    }
}

/// The flag of descriptors that only name a file.
fn only_names() -> u32 {
    rustix::fs::OFlags::PATH.bits()
}

#[test]
fn descriptors_that_the_start_inherited_are_closed() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new("privileges-inherited");
    let file = scratch.write("private", "");
    let opens = "exec 7>>\"$0\" 8</dev/zero; exec \"$@\"";
    let before = ["sh", "-c", opens, file.to_str().unwrap()];
    let (server, _) = start(&scratch, &before, &["--user", "nobody"], "");
    for entry in fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap() {
        let target = fs::read_link(entry.unwrap().path()).unwrap_or_default();
        assert!(target != file && target != Path::new("/dev/zero"), "{}", target.display());
    }
}

#[test]
fn descriptors_from_before_the_switch_are_those_of_the_user() {
    if !can_run() {
        return;
    }
    let scratch = Scratch::new("privileges-files");
    let (server, _) = serve(&scratch, "");
    let mut seen = 0;
    for entry in fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap() {
        let entry = entry.unwrap();
        // A descriptor of the start stays open; others may be closed at this moment.
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        // Through the link, so that files without a name count too.
        let Ok(found) = fs::metadata(entry.path()) else { continue };
        // The first three are inherited. Sockets, pipes and events have no path.
        let is_inherited = ["0", "1", "2"].iter().any(|number| entry.file_name() == *number);
        if target.is_absolute() && !is_inherited {
            let (reads, writes) = access(server.pid(), &entry.path());
            assert!(is_accessible(&found, (reads, writes)), "{} {reads} {writes}", target.display());
            seen += 1;
        }
    }
    assert!(seen > 1, "the admin directory and the export are open");
}
