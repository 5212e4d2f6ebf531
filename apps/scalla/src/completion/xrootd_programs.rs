//! Completion of the command lines of `xrdcp` and `xrdfs`, which differ from those of `scalla`.

use super::{Completion, CompletionCandidate, local_paths};
use crate::{xrdcp, xrdfs};

/// Types of `xrdcp --cksum`.
const CHECKSUMS: [&str; 6] = ["adler32", "crc32", "crc32c", "md5", "zcrc32", "auto"];

fn plain(words: impl IntoIterator<Item = impl Into<String>>, partial: &str) -> Vec<CompletionCandidate> {
    let all = words.into_iter().map(|word| CompletionCandidate::new(word.into(), String::new()));
    all.filter(|candidate| candidate.word.starts_with(partial)).collect()
}

/// Returns the candidates after the words of `xrdcp`.
pub(super) fn xrdcp(completion: &Completion, before: &[&str], partial: &str) -> Vec<CompletionCandidate> {
    match before.last().copied() {
        Some("-C" | "--cksum") => return plain(CHECKSUMS, partial),
        Some("-T" | "--tpc") => return plain(["first", "only", "delegate"], partial),
        Some("--retry-policy") => return plain(["force", "continue"], partial),
        Some("-I" | "--infiles") => return local_paths(partial, false),
        _ => {}
    }
    if partial.starts_with('-') {
        return plain(xrdcp::option_words(), partial);
    }
    completion.copy_places(partial)
}

/// Returns the candidates after the words of `xrdfs`: a host, a command, then its options and paths
/// at that host.
pub(super) fn xrdfs(completion: &Completion, before: &[&str], partial: &str) -> Vec<CompletionCandidate> {
    let words: Vec<&str> = before.iter().copied().filter(|word| *word != "--no-cwd").collect();
    match words.as_slice() {
        [] if partial.starts_with('-') => plain(["--no-cwd"], partial),
        [] => plain(completion.hosts.iter().cloned(), partial),
        [_] => {
            let commands = xrdfs::commands();
            let all =
                commands.map(|(name, about)| CompletionCandidate::new(name.to_owned(), about.to_owned()));
            all.filter(|candidate| candidate.word.starts_with(partial)).collect()
        }
        [_, "query"] => plain(xrdfs::QUERIES, partial),
        [_, "xattr", _] => plain(["set", "get", "del", "list"], partial),
        [_, "cache"] => plain(["evict", "fevict"], partial),
        [host, ..] if partial.starts_with('/') => {
            let host = host.split_once("://").map_or(*host, |(_, host)| host).trim_end_matches('/');
            let begin = format!("root://{host}/");
            let mut found = completion.remote_paths(&format!("{begin}{partial}"), false);
            for candidate in &mut found {
                candidate.word = candidate.word.trim_start_matches(&begin).to_owned();
            }
            found
        }
        _ => Vec::new(),
    }
}
