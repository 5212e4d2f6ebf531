//! The journal of unfinished files, so that none of them counts as complete after a restart.
//!
//! It consists of text lines, each a JSON object. The first line contains the format and its
//! version. A `pending` line contains the full record of one file and replaces an earlier one of
//! the same number; a `done` line ends it. A truncated last line is ignored, because no client
//! received a reply that depends on it.

use crate::errno;
use crate::journal::{Journal, JournalDirectory};
use crate::proof::Proof;
use crate::rights::RecordedUser;
use base::LogicalPath;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use storage::StorageUser;

/// Name of the journal in its directory.
const NAME: &str = "pending";
/// Format in the first line.
const FORMAT: &str = "scalla-persist";
const VERSION: u32 = 2;
/// Oldest version that is read. Its records contain no identity.
const VERSION_MIN: u32 = 1;
/// Number of lines after which the journal is rewritten, if most of its records have ended.
const LINES_MAX: usize = 20_000;

/// Maximum number of a record. Later records need ascending numbers, so a damaged line must not set
/// a larger one.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// The record of an unfinished file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UnfinishedRecord {
    pub(crate) number: u64,
    pub(crate) path: LogicalPath,
    /// The second possible path during a rename.
    pub(crate) also: Option<LogicalPath>,
    /// Permission bits of the complete file.
    pub(crate) mode: u32,
    pub(crate) user: String,
    pub(crate) pid: u32,
    pub(crate) host: String,
    /// The identity of the file; `None` until it exists, and in records of version 1.
    pub(crate) proof: Option<Proof>,
    /// The name of the file beside it whose place it takes when it is complete. It is a name and not a path, so that
    /// both are always in the same directory.
    pub(crate) replaces: Option<Vec<u8>>,
    /// The account that creates the file; `None` for the server itself.
    pub(crate) account: Option<Arc<StorageUser>>,
}

impl UnfinishedRecord {
    /// Returns the path whose place the file takes when it is complete.
    pub(crate) fn target(&self) -> io::Result<Option<LogicalPath>> {
        let Some(name) = &self.replaces else { return Ok(None) };
        let target = self.path.parent().and_then(|above| above.join(name).ok());
        target.map(Some).ok_or_else(|| io::Error::from_raw_os_error(errno::NAME_TOO_LONG))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "lowercase")]
enum JournalLine {
    Head {
        format: String,
        version: u32,
    },
    Pending {
        number: u64,
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        also: Option<String>,
        mode: u32,
        user: String,
        pid: u32,
        host: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proof: Option<Box<Proof>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replaces: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        account: Option<RecordedUser>,
    },
    Done {
        number: u64,
    },
}

/// The open journal.
pub(crate) struct UnfinishedJournal {
    directory: Arc<dyn JournalDirectory>,
    journal: Option<Box<dyn Journal>>,
    /// Active records, for rewriting the journal.
    live: BTreeMap<u64, UnfinishedRecord>,
    lines: usize,
    /// Number of lines between two syncs; 0 leaves syncing to the operating system.
    sync_every: u32,
    unsynced: u32,
    /// Number of lines written, and number of lines that survive a power failure.
    appended: u64,
    synced: u64,
    /// An append failed midway, so that the next line must be preceded by a line feed.
    torn: bool,
}

impl UnfinishedJournal {
    /// Reads the journal of an earlier run. Nothing is written before
    /// [`UnfinishedJournal::rewrite`].
    pub(crate) fn load(directory: Arc<dyn JournalDirectory>, sync_every: u32) -> io::Result<Self> {
        let mut log = Self {
            directory,
            journal: None,
            live: BTreeMap::new(),
            lines: 0,
            sync_every,
            unsynced: 0,
            appended: 0,
            synced: 0,
            torn: false,
        };
        if log.directory.names()?.iter().any(|name| name == NAME) {
            let content = log.directory.read(NAME)?;
            log.parse(&content)?;
        }
        Ok(log)
    }

    fn parse(&mut self, content: &[u8]) -> io::Result<()> {
        for (at, raw) in content.split(|&b| b == b'\n').enumerate() {
            let line = match serde_json::from_slice::<JournalLine>(raw) {
                Ok(line) => line,
                Err(_) if raw.is_empty() => continue,
                Err(error) => {
                    tracing::warn!(line = at + 1, %error, "cannot parse a line of the journal of unfinished files; it is ignored");
                    continue;
                }
            };
            match line {
                JournalLine::Head { format, version }
                    if format == FORMAT && (VERSION_MIN..=VERSION).contains(&version) => {}
                JournalLine::Head { format, version } => {
                    let text = format!(
                        "the journal of unfinished files has the unknown format {format} {version}; run the release that wrote it"
                    );
                    return Err(io::Error::other(text));
                }
                JournalLine::Pending { number, .. } if number > NUMBER_MAX => {
                    tracing::warn!(
                        line = at + 1,
                        number,
                        "a line of the journal of unfinished files has an invalid number; it is ignored"
                    );
                }
                JournalLine::Pending {
                    number,
                    path,
                    also,
                    mode,
                    user,
                    pid,
                    host,
                    proof,
                    replaces,
                    account,
                } => {
                    let account = account.and_then(RecordedUser::into_user);
                    let (also, proof) = (also.as_deref().and_then(unescape), proof.map(|proof| *proof));
                    let replaces = replaces.as_deref().map(name_of);
                    if let Some(path) = unescape(&path) {
                        let record = UnfinishedRecord {
                            number,
                            path,
                            also,
                            mode,
                            user,
                            pid,
                            host,
                            proof,
                            replaces,
                            account,
                        };
                        self.live.insert(number, record);
                    }
                }
                JournalLine::Done { number } => {
                    self.live.remove(&number);
                }
            }
        }
        Ok(())
    }

    /// Reports whether a record is active.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.live.contains_key(&number)
    }

    /// Returns the active records.
    pub(crate) fn records(&self) -> impl Iterator<Item = &UnfinishedRecord> {
        self.live.values()
    }

    /// Rewrites the journal with the active records that `keep` selects, or removes it if there are
    /// none.
    pub(crate) fn rewrite(&mut self, keep: impl Fn(&UnfinishedRecord) -> bool) -> io::Result<()> {
        self.live.retain(|_, record| keep(record));
        self.journal = None;
        if self.live.is_empty() {
            return self.directory.remove(NAME);
        }
        self.write_anew()
    }

    fn write_anew(&mut self) -> io::Result<()> {
        let mut content = text(&JournalLine::Head { format: FORMAT.into(), version: VERSION })?;
        for record in self.live.values() {
            content.extend(text(&pending(record))?);
        }
        self.journal = Some(self.directory.replace(NAME, &content)?);
        self.lines = self.live.len() + 1;
        (self.unsynced, self.torn) = (0, false);
        // A replaced journal has reached stable storage.
        self.appended += 1;
        self.synced = self.appended;
        Ok(())
    }

    /// Writes the record of an unfinished file. After the return, a restarted server will know it.
    pub(crate) fn pending(&mut self, record: &UnfinishedRecord) -> io::Result<()> {
        let before = self.live.insert(record.number, record.clone());
        let written = self.append(&pending(record));
        if written.is_err() {
            match before {
                Some(before) => self.live.insert(record.number, before),
                None => self.live.remove(&record.number),
            };
        }
        written
    }

    /// Ends the record of a file that is complete or removed. Returns the number of the line, if
    /// one was written.
    ///
    /// If the line is lost, the mark of the file decides; but a file that was copied since would be
    /// refused, see [`UnfinishedJournal::sync_through`].
    pub(crate) fn end_record(&mut self, number: u64) -> Option<u64> {
        self.live.remove(&number)?; // without one there is no line in the journal
        if let Err(error) = self.append(&JournalLine::Done { number }) {
            tracing::warn!(%error, "cannot write to the journal of unfinished files; after a restart an ended record may reappear");
            return None;
        }
        Some(self.appended)
    }

    /// Waits until a line has reached stable storage, unless syncing is left to the operating
    /// system. The sync covers the lines of other callers that wait for the lock.
    pub(crate) fn sync_through(&mut self, line: u64) -> io::Result<()> {
        if self.sync_every == 0 || self.synced >= line {
            return Ok(());
        }
        self.sync()
    }

    fn sync(&mut self) -> io::Result<()> {
        if let Some(journal) = &mut self.journal {
            journal.sync()?;
        }
        self.synced = self.appended;
        self.unsynced = 0;
        Ok(())
    }

    fn append(&mut self, line: &JournalLine) -> io::Result<()> {
        if self.journal.is_none() || (self.lines > LINES_MAX && self.lines > 4 * self.live.len()) {
            return self.write_anew(); // includes the new line
        }
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let mut bytes = text(line)?;
        if self.torn {
            bytes.insert(0, b'\n');
        }
        self.torn = true;
        journal.append(&bytes)?;
        self.torn = false;
        self.lines += 1;
        self.unsynced += 1;
        self.appended += 1;
        let is_due = self.sync_every > 0 && self.unsynced >= self.sync_every;
        if is_due && matches!(line, JournalLine::Pending { .. }) { self.sync() } else { Ok(()) }
    }
}

fn pending(record: &UnfinishedRecord) -> JournalLine {
    JournalLine::Pending {
        number: record.number,
        path: escape(&record.path),
        also: record.also.as_ref().map(escape),
        mode: record.mode,
        user: record.user.clone(),
        pid: record.pid,
        host: record.host.clone(),
        proof: record.proof.clone().map(Box::new),
        replaces: record.replaces.as_deref().map(escape_bytes),
        account: record.account.as_ref().map(RecordedUser::from),
    }
}

fn text(line: &JournalLine) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(text)
}

/// Returns a path as text, with `%XX` for `%` and for bytes that are not printable ASCII.
pub(crate) fn escape(path: &LogicalPath) -> String {
    escape_bytes(path.as_bytes())
}

fn escape_bytes(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if (0x20..0x7f).contains(&byte) && byte != b'%' {
            text.push(char::from(byte));
        } else {
            // Writing into a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// Parses an escaped path; `None` if the text is not one.
fn unescape(text: &str) -> Option<LogicalPath> {
    LogicalPath::parse(&unescape_bytes(text)?).ok()
}

/// Parses the escaped name of a file that is replaced. A record whose name is damaged must not become
/// that of an ordinary file, so its name is empty, which no file has.
fn name_of(text: &str) -> Vec<u8> {
    let bytes = unescape_bytes(text).unwrap_or_default();
    bytes.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec()
}

fn unescape_bytes(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = after.get(2..)?;
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::sync::Mutex;

    #[derive(Clone, Default)]
    struct Shelf(Arc<Mutex<HashMap<String, Vec<u8>>>>);

    impl JournalDirectory for Shelf {
        fn names(&self) -> io::Result<Vec<String>> {
            Ok(self.0.lock().unwrap().keys().cloned().collect())
        }
        fn read(&self, name: &str) -> io::Result<Vec<u8>> {
            Ok(self.0.lock().unwrap().get(name).cloned().unwrap_or_default())
        }
        fn create(&self, name: &str) -> io::Result<Box<dyn Journal>> {
            self.replace(name, b"")
        }
        fn replace(&self, name: &str, content: &[u8]) -> io::Result<Box<dyn Journal>> {
            self.0.lock().unwrap().insert(name.to_owned(), content.to_vec());
            Ok(Box::new(Pen(self.clone(), name.to_owned())))
        }
        fn remove(&self, name: &str) -> io::Result<()> {
            self.0.lock().unwrap().remove(name);
            Ok(())
        }
    }

    struct Pen(Shelf, String);
    impl Journal for Pen {
        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.0.0.lock().unwrap().get_mut(&self.1).unwrap().extend_from_slice(bytes);
            Ok(())
        }
        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn record(number: u64, path: &[u8]) -> UnfinishedRecord {
        UnfinishedRecord {
            number,
            path: LogicalPath::parse(path).unwrap(),
            also: None,
            mode: 0o640,
            user: "alice".into(),
            pid: 7,
            host: "h\"\\".into(),
            proof: None,
            replaces: None,
            account: None,
        }
    }

    fn reload(shelf: &Shelf) -> Vec<UnfinishedRecord> {
        UnfinishedJournal::load(Arc::new(shelf.clone()), 1).unwrap().records().cloned().collect()
    }

    #[test]
    fn records_survive_a_restart_with_a_truncated_journal() {
        let shelf = Shelf::default();
        let mut log = UnfinishedJournal::load(Arc::new(shelf.clone()), 1).unwrap();
        let account = StorageUser::new(7, 8, [9, 10]).map(Arc::new);
        let odd = UnfinishedRecord { account, ..record(2, b"/a b%\xff\n\"c") };
        log.pending(&record(1, b"/one")).unwrap();
        log.pending(&odd).unwrap();
        log.end_record(1);
        let moved = UnfinishedRecord { also: Some(LogicalPath::parse(b"/new").unwrap()), ..odd };
        log.pending(&moved).unwrap();
        assert_eq!(reload(&shelf), [moved]);
        let whole = shelf.read(NAME).unwrap();
        let last = whole[..whole.len() - 1].iter().rposition(|&b| b == b'\n').unwrap();
        for end in 0..whole.len() {
            shelf.0.lock().unwrap().insert(NAME.into(), whole[..end].to_vec());
            let numbers: Vec<_> = reload(&shelf).iter().map(|record| record.number).collect();
            assert!(numbers.len() <= 2, "{end}");
            if end > last {
                assert_eq!(numbers, [2], "{end}");
            }
        }
    }

    #[test]
    fn records_of_the_first_version_are_read() {
        let shelf = Shelf::default();
        let journal = br#"{"line":"head","format":"scalla-persist","version":1}
{"line":"pending","number":4,"path":"/f","mode":420,"user":"alice","pid":7,"host":"h"}
"#;
        shelf.0.lock().unwrap().insert(NAME.into(), journal.to_vec());
        let records = reload(&shelf);
        assert_eq!(records.len(), 1);
        assert_eq!((records[0].number, records[0].mode, &records[0].proof), (4, 0o644, &None));
    }

    #[test]
    fn an_unknown_version_is_an_error() {
        let shelf = Shelf::default();
        let head = br#"{"line":"head","format":"scalla-persist","version":3}"#;
        shelf.0.lock().unwrap().insert(NAME.into(), head.to_vec());
        assert!(UnfinishedJournal::load(Arc::new(shelf), 1).is_err());
    }

    #[test]
    fn the_journal_is_rewritten_before_it_grows_too_large() {
        let shelf = Shelf::default();
        let mut log = UnfinishedJournal::load(Arc::new(shelf.clone()), 0).unwrap();
        for number in 0..LINES_MAX as u64 {
            log.pending(&record(number, b"/x")).unwrap();
            log.end_record(number);
        }
        log.pending(&record(LINES_MAX as u64, b"/last")).unwrap();
        let lines = shelf.read(NAME).unwrap().split(|&b| b == b'\n').count();
        assert!(lines < LINES_MAX + 10, "{lines}");
        assert_eq!(reload(&shelf).len(), 1);
    }
}
