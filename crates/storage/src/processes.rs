//! Processes of this machine, as `/proc` shows them.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

fn directory_of(number: i32) -> PathBuf {
    Path::new("/proc").join(number.to_string())
}

/// Returns the numbers of all processes; empty without `/proc`.
pub fn process_numbers() -> Vec<i32> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the user number of a process; `None` if it has ended.
pub fn process_owner(number: i32) -> Option<u32> {
    fs::metadata(directory_of(number)).ok().map(|status| status.uid())
}

/// Returns the environment of a process, at most this number of bytes. A zero byte ends each variable.
pub fn process_environment(number: i32, most: u64) -> Option<Vec<u8>> {
    let mut environment = Vec::new();
    let file = fs::File::open(directory_of(number).join("environ")).ok()?;
    file.take(most).read_to_end(&mut environment).ok()?;
    Some(environment)
}

/// Reports whether the process group of a process is that of the leader of its session.
pub fn is_in_group_of_session(number: i32) -> Option<bool> {
    let status = fs::read(directory_of(number).join("stat")).ok()?;
    // The name of the program may contain blanks and brackets. Behind it: state, parent, group, session.
    let end = status.iter().rposition(|&byte| byte == b')')?;
    let mut words = std::str::from_utf8(status.get(end + 1..)?).ok()?.split_ascii_whitespace().skip(2);
    Some(words.next()? == words.next()?)
}
