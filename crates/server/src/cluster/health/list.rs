//! The file of nodes that may not join (`cms.blacklist`), or of the only ones that may
//! (`cms.whitelist`).
//!
//! It is read at the start and when it has changed, so that operators can ban a node without a
//! restart. A line is a host name, an address, or a pattern with one `*`, optionally followed by
//! `redirect host:port …`: the managers to which such a node is redirected. `#` begins a comment.
//! Source: cms protocol 3, section black list file.

use cluster::tree::{Address, Blacklist, BlacklistRule};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

/// A longer file is refused, because it cannot be a list of nodes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The path of the list and its meaning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListFile {
    /// The file.
    pub path: PathBuf,
    /// Set if it lists the nodes that may join, instead of those that may not.
    pub white: bool,
    /// The interval between two checks for a change.
    pub check: Duration,
}

/// The identification of a version of the file: inode, modification time, size.
type Version = Option<(u64, i64, i64, u64)>;

/// The list, with the version that was read last.
#[derive(Debug)]
pub(super) struct List {
    file: ListFile,
    version: Option<Version>,
}

impl List {
    pub(super) fn new(file: ListFile) -> Self {
        Self { file, version: None }
    }

    pub(super) fn check_every(&self) -> Duration {
        self.file.check
    }

    /// Returns the list if it changed since the last call.
    ///
    /// Invalid lines are skipped with a warning. Without a file no node is banned; a missing white
    /// list names no node, so none may join. A file that exists but cannot be read leaves the
    /// previous list in force.
    pub(super) fn read(&mut self) -> Option<Blacklist> {
        let version = match std::fs::metadata(&self.file.path) {
            Ok(status) => Some((status.ino(), status.mtime(), status.mtime_nsec(), status.size())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return self.failed(&error),
        };
        if self.version == Some(version) {
            return None;
        }
        let text = match version {
            None => Vec::new(),
            Some((.., size)) if size > FILE_BYTES_MAX => {
                self.version = Some(version);
                return self.failed(&io::Error::other("it is too long for a list of hosts"));
            }
            Some(_) => match std::fs::read(&self.file.path) {
                Ok(text) => text,
                Err(error) => return self.failed(&error),
            },
        };
        self.version = Some(version);
        let list = parse(&String::from_utf8_lossy(&text), self.file.white, |line, what| {
            tracing::warn!("{}:{line}: {what}; the line is left out", self.file.path.display());
        });
        tracing::info!(file = %self.file.path.display(), entries = list.rules.len(), "the list of nodes was read");
        Some(list)
    }

    fn failed(&self, error: &io::Error) -> Option<Blacklist> {
        tracing::error!(file = %self.file.path.display(), %error, "the list of nodes cannot be read; it stays as it was");
        None
    }
}

/// Parses the rules. `complain` is called with the number of each invalid line and the reason.
fn parse(text: &str, white: bool, mut complain: impl FnMut(usize, &str)) -> Blacklist {
    let mut rules = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(pattern) = words.next() else { continue };
        match rule(pattern, words) {
            Ok(rule) if white && !rule.redirect.is_empty() => {
                complain(number, "a white list cannot have redirects");
            }
            Ok(rule) => rules.push(rule),
            Err(what) => complain(number, what),
        }
    }
    Blacklist { rules, inverted: white }
}

fn rule<'a>(pattern: &str, mut words: impl Iterator<Item = &'a str>) -> Result<BlacklistRule, &'static str> {
    if pattern.matches('*').count() > 1 {
        return Err("a pattern has one `*`");
    }
    let redirect = match words.next() {
        None => Vec::new(),
        Some("redirect") => {
            let hosts = words.map(address).collect::<Option<Vec<_>>>().ok_or("a manager is `host:port`")?;
            if hosts.is_empty() {
                return Err("`redirect` needs managers");
            }
            hosts
        }
        Some(_) => return Err("only `redirect` may follow the host"),
    };
    Ok(BlacklistRule { pattern: pattern.to_owned(), redirect })
}

/// Parses `host:port` or `[address]:port`.
fn address(text: &str) -> Option<Address> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().ok().filter(|port| *port != 0)?;
    (!host.is_empty()).then(|| Address::new(host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Vec<(String, Vec<String>)>, Vec<usize>) {
        let mut bad = Vec::new();
        let list = parse(text, false, |line, _| bad.push(line));
        let show = |rule: BlacklistRule| {
            let hosts = rule.redirect.iter().map(|to| format!("{}|{}", to.host(), to.port())).collect();
            (rule.pattern, hosts)
        };
        (list.rules.into_iter().map(show).collect(), bad)
    }

    #[test]
    fn lines_of_the_file() {
        let text =
            "# nodes we do not want\n\nbad.site  # broken\n*.old.site redirect new:1213 [::1]:99\n10.1.*\n";
        let expected = [("bad.site", vec![]), ("*.old.site", vec!["new|1213", "::1|99"]), ("10.1.*", vec![])];
        let expected = expected
            .map(|(host, to)| (host.to_owned(), to.into_iter().map(str::to_owned).collect::<Vec<_>>()));
        assert_eq!(parsed(text), (expected.to_vec(), vec![]));
        let bad = "a*b*c\nhost elsewhere\nhost redirect\nhost redirect new\nhost redirect new:0\nhost redirect :1\nfine";
        assert_eq!(parsed(bad), (vec![("fine".to_owned(), vec![])], vec![1, 2, 3, 4, 5, 6]));
    }

    #[test]
    fn it_is_read_again_when_it_changed() {
        let directory = std::env::temp_dir().join(format!("scalla-list-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("cms.blacklist");
        let file = ListFile { path: path.clone(), white: false, check: Duration::from_secs(60) };
        let mut list = List::new(file);
        assert_eq!(list.read(), Some(Blacklist::default()), "no file bans nobody");
        assert_eq!(list.read(), None);
        std::fs::write(&path, "bad\n").unwrap();
        assert_eq!(list.read().map(|list| list.rules.len()), Some(1));
        assert_eq!(list.read(), None);
        // The file is replaced by one of the same length, as editors do.
        std::fs::write(directory.join("new"), "wor\n").unwrap();
        std::fs::rename(directory.join("new"), &path).unwrap();
        assert_eq!(
            list.read().and_then(|list| Some(list.rules.first()?.pattern.clone())),
            Some("wor".into())
        );
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(list.read(), None, "what cannot be read changes nothing");
        std::fs::remove_dir(&path).unwrap();
        assert_eq!(list.read(), Some(Blacklist::default()));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
