//! Tests of the lines for programs and pipes. Programs are shell scripts.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

use super::*;
use config::CopyProgram;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

struct FeedPlace(PathBuf);

impl FeedPlace {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("server-feed-{name}-{}", std::process::id()));
        fs::remove_dir_all(&directory).ok();
        fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Makes a pipe, and returns its lines.
    fn lines_of_pipe(&self, name: &str) -> impl FnMut() -> String + use<> {
        drop(prepare_pipe(&self.path(name)).unwrap());
        reader(&self.path(name))
    }
}

/// Returns the lines of a pipe, which does not end.
fn reader(pipe: &Path) -> impl FnMut() -> String + use<> {
    let mut lines = BufReader::new(File::options().read(true).write(true).open(pipe).unwrap());
    move || {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for FeedPlace {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn shell(script: &str) -> ProgramReceiver {
    let arguments = ["-c", script].map(str::to_owned).to_vec();
    ProgramReceiver::new(CopyProgram { path: "/bin/sh".into(), arguments }, "ofs.notify")
}

fn feed(bytes_max: usize, receive: impl FnOnce(&WaitingLines) + Send + 'static) -> LineFeed {
    LineFeed::start("a test", "feed-test", (bytes_max, PIPE_LINE_BYTES_MAX), receive).unwrap()
}

#[test]
fn a_program_is_started_once_and_again_when_it_ends() {
    let place = FeedPlace::new("again");
    let mut line = place.lines_of_pipe("out");
    // It ends after the second line.
    let script =
        format!("exec >{}; echo start; read a; echo $a; read b; echo $b", place.path("out").display());
    let receiver = shell(&script);
    let feed = feed(1 << 16, |lines| receiver.run(lines));
    assert_eq!(line(), "start\n", "it is started without a line");
    assert!(feed.send(b"1\n".to_vec()));
    assert_eq!(line(), "1\n");
    assert!(feed.send(b"2\n".to_vec()));
    assert_eq!((line(), line()), ("2\n".to_owned(), "start\n".to_owned()));
    assert!(feed.send(b"3\n".to_vec()));
    assert_eq!(line(), "3\n");
}

#[test]
fn a_program_that_writes_much_gets_all_lines_before_the_end_of_the_server() {
    let place = FeedPlace::new("talk");
    let (out, begin) = (place.path("out"), place.path("begin"));
    // It reads when the server ends, and then writes more than its pipe takes.
    let script = format!(
        "while ! test -e {}; do sleep 0.01; done; while read a; do echo {}; echo $a >>{}; done",
        begin.display(),
        "x".repeat(200),
        out.display()
    );
    let receiver = shell(&script);
    let feed = feed(1 << 20, |lines| receiver.run(lines));
    for number in 0..1000 {
        assert!(feed.send(format!("{number}\n").into_bytes()));
    }
    fs::write(begin, "").unwrap();
    feed.end();
    assert_eq!(fs::read_to_string(out).unwrap().lines().count(), 1000);
}

#[test]
fn a_program_gets_all_lines_before_the_end_of_the_server() {
    let place = FeedPlace::new("rest");
    let out = place.path("out");
    let receiver = shell(&format!("cat >{}; echo end >>{}", out.display(), out.display()));
    let feed = feed(1 << 20, |lines| receiver.run(lines));
    let expected: String = (0..10_000).map(|n| format!("{n}\n")).collect();
    for number in expected.lines() {
        assert!(feed.send(format!("{number}\n").into_bytes()));
    }
    feed.end();
    assert!(!feed.send(b"late\n".to_vec()));
    assert_eq!(fs::read_to_string(out).unwrap(), expected + "end\n");
}

#[test]
fn a_program_that_reads_nothing_costs_bounded_memory_and_no_time() {
    let receiver = shell("exec sleep 600");
    let feed = feed(100_000, |lines| receiver.run(lines));
    let sent = (0..100_000).filter(|_| feed.send(vec![b'x'; 100])).count();
    // The pipe of the process has some of them.
    assert!((500..5000).contains(&sent), "{sent}");
    assert!(feed.lines.state().bytes <= 100_000);
    assert!(feed.lines.state().lost > 90_000, "the log has the first one at once, and the others later");
    assert!(!feed.send(vec![b'x'; PIPE_LINE_BYTES_MAX + 1]));
}

#[test]
fn a_program_that_cannot_be_started_is_tried_again() {
    let place = FeedPlace::new("missing");
    let mut line = place.lines_of_pipe("out");
    let program = place.path("program");
    let receiver = ProgramReceiver::new(CopyProgram { path: program.clone(), arguments: Vec::new() }, "x");
    let feed = feed(1 << 16, |lines| receiver.run(lines));
    assert!(feed.send(b"first\n".to_vec()));
    let script = format!("#!/bin/sh\nexec cat >{}\n", place.path("out").display());
    let new = place.path("new");
    fs::write(&new, script).unwrap();
    fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::rename(new, program).unwrap();
    assert_eq!(line(), "first\n");
}

#[test]
fn lines_wait_in_a_pipe_without_a_reader_and_then_in_memory() {
    let place = FeedPlace::new("pipe");
    let pipe = place.path("pipe");
    drop(prepare_pipe(&pipe).unwrap());
    let receiver = PipeReceiver::new(pipe.clone(), PipeReaders::Served);
    let feed = feed(1 << 20, |lines| receiver.run(lines));
    // More than a pipe has room for.
    let count = 2000;
    (0..count).for_each(|n| assert!(feed.send(format!("{n:0>99}\n").into_bytes())));
    let mut line = reader(&pipe);
    (0..count).for_each(|n| assert_eq!(line(), format!("{n:0>99}\n")));
}

#[test]
fn a_new_pipe_at_the_path_gets_further_lines() {
    let place = FeedPlace::new("new");
    let pipe = place.path("pipe");
    drop(prepare_pipe(&pipe).unwrap());
    let receiver = PipeReceiver::new(pipe.clone(), PipeReaders::Served);
    let feed = feed(1 << 16, |lines| receiver.run(lines));
    let mut old = reader(&pipe);
    assert!(feed.send(b"1\n".to_vec()));
    assert_eq!(old(), "1\n");
    fs::remove_file(&pipe).unwrap();
    let mut new = place.lines_of_pipe("pipe");
    let (found, is_found) = channel();
    std::thread::spawn(move || found.send(new()));
    // It is noticed with a line, within a second.
    while is_found.try_recv().is_err() {
        feed.send(b"2\n".to_vec());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn only_a_pipe_is_opened() {
    let place = FeedPlace::new("kinds");
    let plain = place.path("plain");
    fs::write(&plain, "text").unwrap();
    std::os::unix::fs::symlink(&plain, place.path("link")).unwrap();
    drop(prepare_pipe(&place.path("pipe")).unwrap());
    std::os::unix::fs::symlink(place.path("pipe"), place.path("link to pipe")).unwrap();
    let result = |name: &str| prepare_pipe(&place.path(name)).map(drop);
    use rustix::io::Errno;
    for name in ["plain", "link", "link to pipe"] {
        assert_eq!(result(name), Err(Errno::INVAL), "{name}");
    }
    assert_eq!(result(""), Err(Errno::INVAL));
    assert_eq!(result("missing/pipe"), Err(Errno::NOENT));
    assert_eq!(result("pipe"), Ok(()));
    let mut text = String::new();
    File::open(plain).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
}

#[test]
fn the_log_gets_the_number_of_lost_lines_once_in_an_interval() {
    let (mut state, now) = (FeedQueue::default(), Instant::now());
    let mut lose = |count: u64, now| {
        state.lost += count;
        state.lost_to_log(now)
    };
    assert_eq!(lose(1, now), Some(1));
    assert_eq!(lose(5, now + LOST_INTERVAL / 2), None);
    assert_eq!(lose(1, now + LOST_INTERVAL), Some(6));
    assert_eq!(lose(1, now + LOST_INTERVAL), None);
}
