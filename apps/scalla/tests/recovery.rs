//! Tests of recovery after `kill -9` with an unfinished upload and an uncommitted checkpoint: on a
//! tree that is not mounted at the next start, with another admin directory, and with files that
//! were replaced meanwhile.

#![allow(clippy::unwrap_used)] // a test fails where it is

mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use support::codes::request::{CHECKPOINT, CLOSE};
use support::codes::status::{ERROR, OK, WAIT};
use support::{Client, Scratch, Server, names, run};

/// Option bits of kXR_open.
const NEW: u16 = 0x0008;
const READ: u16 = 0x0010;
const UPDATE: u16 = 0x0020;
const PERSIST: u16 = 0x1000;
/// kXR_poscpend in the flags of a stat.
const PENDING: u32 = 64;

const BEFORE: &[u8] = b"as it was before the checkpoint";

fn server(scratch: &Scratch, admin: &str) -> Server {
    let config = format!(
        "all.export /\noss.localroot {}\nofs.persist manual hold 1h\nofs.chkpnt enable {}\n",
        scratch.text("data"),
        scratch.text("checkpoints")
    );
    Server::configured(scratch, admin, &config)
}

fn handle((status, data): (u16, Vec<u8>)) -> [u8; 4] {
    assert_eq!(status, OK, "{}", String::from_utf8_lossy(&data));
    data[..4].try_into().unwrap()
}

fn body(handle: [u8; 4]) -> [u8; 16] {
    let mut body = [0; 16];
    body[..4].copy_from_slice(&handle);
    body
}

/// Starts a server and kills it with an incomplete upload of `/in/upload` and an uncommitted
/// checkpoint of `/in/edited`.
fn killed_in_the_middle(scratch: &Scratch) {
    scratch.write("data/in/edited", BEFORE);
    scratch.write("data/in/other", b"whole");
    let server = server(scratch, "admin");
    let mut client = server.client();
    let upload = handle(client.try_open("/in/upload", NEW | UPDATE | PERSIST));
    client.write(upload, 0, b"first half, ");
    let edited = handle(client.try_open("/in/edited", UPDATE));
    assert_eq!(client.ask(CHECKPOINT, body(edited), b"").0, OK);
    client.write(edited, 3, b"OVERWRITTEN, AND LONGER THAN IT WAS BEFORE");
    drop(server); // kills it
    assert_ne!(fs::read(scratch.path("data/in/edited")).unwrap(), BEFORE);
}

fn checkpoints(scratch: &Scratch) -> Vec<String> {
    fn collect(directory: &Path, into: &mut Vec<String>) {
        for name in names(directory) {
            let path = directory.join(&name);
            if path.is_dir() { collect(&path, into) } else { into.push(name) }
        }
    }
    let mut all = Vec::new();
    collect(&scratch.path("checkpoints"), &mut all);
    all.retain(|name| name.contains(".checkpoint"));
    all
}

fn is_pending(client: &mut Client, path: &str) -> bool {
    let (status, words) = client.stat(path);
    let words = String::from_utf8_lossy(&words).into_owned();
    assert_eq!(status, OK, "{words}");
    words.split_whitespace().nth(2).unwrap().parse::<u32>().unwrap() & PENDING != 0
}

/// Checks that the file has its content from before the checkpoint, and that the creator of the
/// upload can finish it.
fn is_recovered(scratch: &Scratch) {
    let server = server(scratch, "admin");
    assert_eq!(fs::read(scratch.path("data/in/edited")).unwrap(), BEFORE);
    assert_eq!(checkpoints(scratch), Vec::<String>::new());
    let mut client = server.client();
    assert!(is_pending(&mut client, "/in/upload"));
    assert_eq!(client.try_open("/in/upload", READ).0, WAIT);
    let upload = handle(client.try_open("/in/upload", UPDATE | PERSIST));
    client.write(upload, 12, b"second half");
    assert_eq!(client.ask(CLOSE, body(upload), b"").0, OK);
    assert!(!is_pending(&mut client, "/in/upload"));
    handle(client.try_open("/in/upload", READ));
    assert_eq!(fs::read(scratch.path("data/in/upload")).unwrap(), b"first half, second half");
}

#[test]
fn a_start_without_the_tree_forgets_nothing() {
    for empty in ["", "in"] {
        let scratch = Scratch::new("unmounted");
        killed_in_the_middle(&scratch);
        fs::rename(scratch.path("data"), scratch.path("elsewhere")).unwrap();
        fs::create_dir_all(scratch.path("data").join(empty)).unwrap();
        let server = server(&scratch, "admin");
        let mut client = server.client();
        // Neither the unfinished file nor the one with a checkpoint is created again here.
        for name in ["/in/upload", "/in/edited"] {
            let (status, text) = client.try_open(name, NEW | UPDATE | PERSIST);
            assert_eq!(status, ERROR, "{name}: {}", String::from_utf8_lossy(&text));
        }
        handle(client.try_open("/new", NEW | UPDATE));
        let said = server.ended();
        for what in ["an unfinished file is missing", "the file of an uncommitted checkpoint"] {
            let line = said.iter().find(|line| line.contains(what));
            assert!(line.is_some_and(|line| line.contains("mount its file")), "{}", said.join("\n"));
        }
        assert_eq!(checkpoints(&scratch).len(), 1);
        fs::remove_dir_all(scratch.path("data")).unwrap();
        fs::rename(scratch.path("elsewhere"), scratch.path("data")).unwrap();
        is_recovered(&scratch);
    }
}

fn admin(scratch: &Scratch, arguments: &[&str]) -> String {
    let path = scratch.text("admin");
    let all = [&["admin", "--admin-path", &path], arguments].concat();
    let output = run("scalla", scratch, &all);
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

/// Replaces the tree by a copy with modes but without attributes.
fn move_by_copy(scratch: &Scratch) {
    let done = Command::new("cp")
        .args(["-r", "--preserve=mode,timestamps", "data", "copy"])
        .current_dir(scratch.path(""))
        .status();
    assert!(done.unwrap().success());
    fs::remove_dir_all(scratch.path("data")).unwrap();
    fs::rename(scratch.path("copy"), scratch.path("data")).unwrap();
}

#[test]
fn an_unfinished_file_that_was_moved_by_a_copy_is_not_served_until_it_is_cleared() {
    let scratch = Scratch::new("copied");
    killed_in_the_middle(&scratch);
    move_by_copy(&scratch);
    let server = server(&scratch, "admin");
    let mut client = server.client();
    assert_eq!(client.try_open("/in/upload", READ).0, WAIT);
    assert_eq!(admin(&scratch, &["unfinished", "list"]), "none\n");
    assert_eq!(admin(&scratch, &["unfinished", "list", "/in"]), "marked, no record  /in/upload\n");
    let refused = admin(&scratch, &["unfinished", "clear", "/in/upload"]);
    assert!(refused.contains("another server may be writing it"), "{refused}");
    assert_eq!(client.try_open("/in/upload", READ).0, WAIT);
    assert_eq!(
        admin(&scratch, &["unfinished", "clear", "--force", "/in/upload"]),
        "path   /in/upload\nstate  whole\n"
    );
    handle(client.try_open("/in/upload", READ));
    let refused = admin(&scratch, &["unfinished", "clear", "/in/upload"]);
    assert!(refused.contains("it is not unfinished"), "{refused}");
    // The file of the checkpoint may be partly changed.
    for options in [READ, UPDATE] {
        assert_eq!(client.try_open("/in/edited", options).0, ERROR);
    }
    let listed = admin(&scratch, &["checkpoint", "list"]);
    assert_eq!(listed, "1.checkpoint may be of another file  /in/edited\n");
    let refused = admin(&scratch, &["checkpoint", "apply", "/in/edited"]);
    assert!(refused.contains("nothing proves") && refused.contains("written back"), "{refused}");
    assert_ne!(fs::read(scratch.path("data/in/edited")).unwrap(), BEFORE);
    let applied = admin(&scratch, &["checkpoint", "apply", "--force", "/in/edited"]);
    assert!(applied.contains("as it was before the checkpoint"), "{applied}");
    assert_eq!(fs::read(scratch.path("data/in/edited")).unwrap(), BEFORE);
    handle(client.try_open("/in/edited", UPDATE));
    assert_eq!(admin(&scratch, &["checkpoint", "list"]), "none\n");
}

/// A copy without modes also loses the mark. Names are printed in a form that orders accept.
#[test]
fn an_unfinished_file_whose_mark_a_copy_lost_is_not_served_until_it_is_cleared() {
    let scratch = Scratch::new("unmarked");
    let name = b"/in/odd \xff\n\\ name";
    {
        scratch.write("data/in/other", b"whole");
        let server = server(&scratch, "admin");
        let mut client = server.client();
        let upload = handle(client.try_open(name, NEW | UPDATE | PERSIST));
        client.write(upload, 0, b"first half, ");
        drop(server); // kills it
    }
    let odd = scratch.path("data").join(OsStr::from_bytes(&name[1..]));
    move_by_copy(&scratch);
    fs::set_permissions(&odd, fs::Permissions::from_mode(0o644)).unwrap();
    let server = server(&scratch, "admin");
    let mut client = server.client();
    let (status, text) = client.try_open(name, READ);
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(status == ERROR && text.contains("clear '/in/odd \\xff\\n\\\\ name'"), "{text}");
    handle(client.try_open("/in/other", READ));
    let listed = admin(&scratch, &["unfinished", "list"]);
    let printed = listed.trim_end().split_once("  ").unwrap().1;
    assert_eq!(printed, "/in/odd \\xff\\n\\\\ name");
    let cleared = admin(&scratch, &["unfinished", "clear", printed]);
    assert!(cleared.contains("whole"), "{cleared}");
    handle(client.try_open(name, READ));
}

#[test]
fn the_record_of_a_file_that_is_not_there_can_be_ended() {
    let scratch = Scratch::new("ended");
    killed_in_the_middle(&scratch);
    move_by_copy(&scratch);
    fs::remove_file(scratch.path("data/in/upload")).unwrap();
    let server = server(&scratch, "admin");
    let mut client = server.client();
    let (status, text) = client.try_open("/in/upload", NEW | UPDATE | PERSIST);
    assert_eq!(status, ERROR);
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("run: scalla admin unfinished clear /in/upload"), "{text}");
    let listed = admin(&scratch, &["unfinished", "list"]);
    assert_eq!(listed, "not there: / is another directory  /in/upload\n");
    let cleared = admin(&scratch, &["unfinished", "clear", "/in/upload"]);
    assert!(cleared.contains("its record was ended"), "{cleared}");
    handle(client.try_open("/in/upload", NEW | UPDATE | PERSIST));
    let said = server.ended();
    let journal = scratch.text("admin");
    let line = said.iter().find(|line| line.contains("an unfinished file is missing"));
    assert!(line.is_some_and(|line| line.contains(&journal)), "{}", said.join("\n"));
}

#[test]
fn a_server_with_another_admin_directory_serves_no_unfinished_file() {
    let scratch = Scratch::new("admin");
    killed_in_the_middle(&scratch);
    {
        let other = server(&scratch, "another");
        let mut client = other.client();
        assert!(is_pending(&mut client, "/in/upload"));
        assert_eq!(client.try_open("/in/upload", READ).0, WAIT);
        assert_eq!(client.try_open("/in/upload", UPDATE).0, ERROR);
        handle(client.try_open("/in/other", READ));
    }
    assert_eq!(fs::read(scratch.path("data/in/upload")).unwrap(), b"first half, ");
    is_recovered(&scratch);
}

#[test]
fn files_that_were_replaced_meanwhile_are_left_alone() {
    let scratch = Scratch::new("replaced");
    killed_in_the_middle(&scratch);
    for name in ["upload", "edited"] {
        scratch.write("data/in/new", b"put here by an operator while the server was down");
        fs::rename(scratch.path("data/in/new"), scratch.path(&format!("data/in/{name}"))).unwrap();
    }
    let server = server(&scratch, "admin");
    let mut client = server.client();
    for name in ["upload", "edited"] {
        assert!(!is_pending(&mut client, &format!("/in/{name}")));
        handle(client.try_open(format!("/in/{name}"), READ));
        let content = fs::read(scratch.path(&format!("data/in/{name}"))).unwrap();
        assert_eq!(content, b"put here by an operator while the server was down");
    }
    let kept = checkpoints(&scratch);
    assert!(kept.len() == 1 && kept[0].ends_with(".checkpoint.replaced"), "{kept:?}");
    assert!(server.ended().iter().any(|line| line.contains(&kept[0])));
}
