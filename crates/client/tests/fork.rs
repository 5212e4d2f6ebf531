//! Use of inherited clients and files after `fork`.
//!
//! The child must continue over its own connections and send nothing over those of its parent. The
//! process that forks is a new instance of this test program: `daemon` forks, ends the parent, and
//! continues in the child.

#![allow(clippy::unwrap_used)]

mod support;

use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};

use client::xroot::RequestCode;
use client::{Credentials, OpenWith, Settings, Url, blocking};
use fork::Fork;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use support::{Asked, Fake, SERVER, ok, opened, stat_text};

const URL: &str = "SCALLA_TEST_FORK_URL";
/// Number of worker processes, similar to `multiprocessing`.
const WORKERS: usize = 4;
/// Number of reads of each process.
const READS: u64 = 200;

/// Opens and reads a file, forks, and does the same in the child.
fn fork_and_go_on(url: &str) {
    let url = Url::parse(url).unwrap();
    let client = blocking::BlockingClient::with(Settings::default(), Credentials::none(), "test");
    let file = client.open(&url, &OpenWith::read()).unwrap();
    assert_eq!(file.read(0, 4).unwrap(), "data");
    let parent = std::process::id();
    nix::unistd::daemon(true, true).unwrap();
    let read = file.read(0, 4).unwrap();
    let size = client.file_system(&url).stat("/child").unwrap().size;
    println!("\nchild {} read {read:?} of {size}", std::process::id() != parent);
    file.close().unwrap();
    // Dropping the inherited values must have no effect at the server either.
    drop((file, client));
    std::process::exit(0);
}

/// Reads at offsets of its own; the content depends on the offset.
fn work(file: &blocking::BlockingFile, worker: u64) -> bool {
    (0..READS).all(|read| {
        let place = worker * READS + read;
        file.read(place, 8).is_ok_and(|data| data == place.to_be_bytes()[..])
    })
}

/// Starts workers that read from the same file at once, one of them with a worker of its own, and
/// reads in parallel.
fn fork_workers(url: &str) {
    let url = Url::parse(url).unwrap();
    let client = blocking::BlockingClient::with(Settings::default(), Credentials::none(), "test");
    let file = client.open(&url, &OpenWith::read()).unwrap();
    assert!(work(&file, 0));
    let end = |well: bool| -> ! {
        // Inherited values are dropped too, as at the end of a program.
        std::process::exit(i32::from(!well));
    };
    let spawn = |worker: u64| match fork::fork().unwrap() {
        Fork::Parent(child) => Pid::from_raw(child),
        Fork::Child => {
            let mut well = work(&file, worker);
            if worker == 1 {
                well &= match fork::fork().unwrap() {
                    Fork::Parent(child) => ended_well(Pid::from_raw(child)),
                    Fork::Child => end(work(&file, WORKERS as u64 + 1)),
                };
            }
            well &= work(&file, worker) && client.file_system(&url).stat("/file").is_ok();
            end(well && file.close().is_ok())
        }
    };
    let children: Vec<Pid> = (1..=WORKERS as u64).map(spawn).collect();
    assert!(work(&file, 0));
    assert!(children.into_iter().all(ended_well));
    assert!(work(&file, 0));
    file.close().unwrap();
    println!("\nall workers ended well");
}

fn ended_well(child: Pid) -> bool {
    matches!(waitpid(child, None), Ok(WaitStatus::Exited(_, 0)))
}

/// Starts a server for `/file`, which runs until the sender is dropped. Returns its URL and the
/// received requests.
fn serve() -> (Url, Arc<Mutex<Vec<Asked>>>, tokio::sync::oneshot::Sender<()>) {
    let (tell, told) = mpsc::channel();
    let (until, end) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let server = Fake::start(SERVER, |asked| match asked.code() {
                RequestCode::OPEN => opened(asked, asked.connection as u8 + 1, 4),
                RequestCode::READ if asked.header.body[12..16] == 8u32.to_be_bytes() => {
                    ok(asked, &asked.header.body[4..12])
                }
                RequestCode::READ => ok(asked, b"data"),
                RequestCode::STAT => ok(asked, &stat_text(9)),
                _ => ok(asked, b""),
            })
            .await;
            tell.send((server.url("/file"), server.asked.clone())).unwrap();
            let _ = end.await;
        });
    });
    let (url, asked) = told.recv().unwrap();
    (url, asked, until)
}

/// Starts one of these tests as a program that forks, and returns the output of all its processes.
fn forking(name: &str, url: &Url) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]);
    // The output ends when the children have ended too.
    let output = command.env(URL, url.to_string()).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn workers_and_their_parent_read_in_parallel() {
    if let Ok(url) = std::env::var(URL) {
        return fork_workers(&url);
    }
    let (url, asked, until) = serve();
    let text = forking("workers_and_their_parent_read_in_parallel", &url);
    assert!(text.contains("all workers ended well"), "{text}");
    let asked = asked.lock().unwrap();
    let of = |connection: u32| asked.iter().filter(move |asked| asked.connection == connection);
    let count = |connection, code| of(connection).filter(|asked| asked.code() == code).count();
    // Parent, workers, and the worker of a worker: each opens once and uses its own handle.
    for connection in 0..WORKERS as u32 + 2 {
        assert_eq!(count(connection, RequestCode::OPEN), 1, "{connection}");
        let handle = connection as u8 + 1;
        let mut reads = of(connection).filter(|asked| asked.code() == RequestCode::READ);
        assert!(reads.all(|asked| asked.header.body[0] == handle), "{connection}");
    }
    assert_eq!(count(0, RequestCode::READ), 3 * READS as usize);
    assert_eq!(asked.iter().map(|asked| asked.connection).max(), Some(WORKERS as u32 + 1));
    let reads = asked.iter().filter(|asked| asked.code() == RequestCode::READ).count();
    assert_eq!(reads, (3 + 2 * WORKERS + 1) * READS as usize);
    let closes = asked.iter().filter(|asked| asked.code() == RequestCode::CLOSE).count();
    assert_eq!(closes, 1 + WORKERS);
    drop(until);
}

#[test]
fn a_child_uses_connections_of_its_own() {
    if let Ok(url) = std::env::var(URL) {
        return fork_and_go_on(&url);
    }
    let (url, asked, until) = serve();
    let text = forking("a_child_uses_connections_of_its_own", &url);
    assert!(text.contains("child true read b\"data\" of 9"), "{text}");
    let asked = asked.lock().unwrap();
    let of = |connection: u32| -> Vec<RequestCode> {
        asked.iter().filter(|asked| asked.connection == connection).map(|asked| asked.code()).collect()
    };
    assert_eq!(of(0), [RequestCode::OPEN, RequestCode::READ]);
    let theirs: Vec<RequestCode> = (1..4).flat_map(of).collect();
    assert_eq!(theirs, [RequestCode::OPEN, RequestCode::READ, RequestCode::STAT, RequestCode::CLOSE]);
    let handle = |code, connection| {
        let found = asked.iter().find(|asked| asked.code() == code && asked.connection == connection);
        found.unwrap().header.body[0]
    };
    // The requests use the handle of the own open.
    assert_eq!((handle(RequestCode::READ, 0), handle(RequestCode::READ, 1)), (1, 2));
    drop(until);
}
