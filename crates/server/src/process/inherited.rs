//! Descriptors that the process has inherited.

use std::fs;

/// Descriptors that a process has by convention: input, output, errors.
const STANDARD_MAX: i32 = 2;

/// Closes all inherited descriptors except for the first three, because one that root has opened could give
/// the user of the server access to a file. It must be called before the process opens any itself.
pub fn close_inherited() {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let numbers: Vec<i32> = entries.flatten().filter_map(number).collect();
    for number in numbers.into_iter().filter(|number| *number > STANDARD_MAX) {
        // The one of the listing itself is closed already.
        nix::unistd::close(number).ok();
    }
}
