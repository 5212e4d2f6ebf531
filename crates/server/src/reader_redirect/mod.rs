//! Redirection of readers away from a data server that is drained or suspended.
//!
//! A client that opens a file for reading is redirected to the node where clients begin. It finds
//! another copy there, or is redirected here again because there is none; then it stays. A client
//! that reads an open file is redirected in the middle of it, once another copy is known.
//!
//! No transfer is interrupted: writers, readers of the only copy, and clients that accept no
//! redirect of a read continue here until they are done (decision 028). This is used only where
//! clients begin at nodes of our own, which know that a draining server still serves files without
//! another copy.

mod copy_search;

use auth::SystemRng;
use base::{Cgi, ErrorKind, Identity, LogicalPath, Rng as _};
use cluster::tree::Address;
use copy_search::{FoundCopy, MARK};
use logical::is_third_party_copy;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use vfs::{Answer, Caller, FileSystem, OpenFile, Operation, RedirectAnswer, ReplyTo, Started};

/// A client that returns within this time found no other copy.
const BACK: Duration = Duration::from_secs(60);
/// Maximum number of remembered redirected clients. When it is exceeded, all are evicted, and may
/// be redirected once more.
const AWAY_MAX: usize = 65_536;
/// The time for which the result of a search for another copy is cached.
const BELIEVED: Duration = Duration::from_secs(30);
/// Maximum number of files in the cache of other copies. When it is exceeded, all are evicted and
/// searched again.
const FILES_MAX: usize = 65_536;

/// A function that searches another copy of a file, beginning at a node. It blocks.
type FindCopy = dyn Fn(&Address, &LogicalPath, &str) -> Option<FoundCopy> + Send + Sync;

/// The switch for redirection, and the node where clients begin.
pub(crate) struct ReaderRedirect {
    /// Set if clients that open a file are redirected.
    opening: AtomicBool,
    /// Set if clients that read a file are redirected. It is read before each read, without the
    /// lock.
    reading: AtomicBool,
    state: Mutex<ReaderRedirectState>,
    ask: Box<FindCopy>,
    mark: String,
}

#[derive(Default)]
struct ReaderRedirectState {
    door: Option<Address>,
    /// Clients that were redirected, by a hash of the client and the path.
    away: HashMap<u64, Instant>,
    hasher: RandomState,
    files: HashMap<LogicalPath, CopySearch>,
    /// Files whose other copies are to be searched, and whether a thread does it.
    questions: VecDeque<LogicalPath>,
    asking: bool,
}

/// The cache entry for other copies of a file.
enum CopySearch {
    /// A search is in progress.
    Asked,
    /// The result of the search, until it is stale.
    Known { found: Option<FoundCopy>, until: Instant },
}

impl Default for ReaderRedirect {
    fn default() -> Self {
        Self::asking(Box::new(copy_search::find))
    }
}

impl ReaderRedirect {
    fn asking(ask: Box<FindCopy>) -> Self {
        let mut secret = [0; 16];
        SystemRng.fill(&mut secret);
        let mark = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let (opening, reading) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { opening, reading, state: Mutex::default(), ask, mark }
    }

    /// Switches redirection on or off. Opens are redirected while the server is drained, reads also
    /// while it is suspended.
    ///
    /// Without a `door` no client is redirected: the manager sends no new clients, and those that
    /// are here stay.
    pub(crate) fn set(&self, draining: bool, suspended: bool, door: Option<Address>) {
        let mut state = self.state();
        self.opening.store(draining && door.is_some(), Ordering::Relaxed);
        self.reading.store((draining || suspended) && door.is_some(), Ordering::Relaxed);
        if state.door != door || !(draining || suspended) {
            state.away.clear();
            state.files.clear();
            state.questions.clear();
        }
        state.door = door;
    }

    fn state(&self) -> MutexGuard<'_, ReaderRedirectState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the destination of a client that opens a file; `None` if it was redirected there
    /// before.
    fn away(&self, who: &Identity, path: &LogicalPath) -> Option<RedirectAnswer> {
        let mut state = self.state();
        let key = state.key(who, path);
        if state.away.remove(&key).is_some_and(|left| left.elapsed() < BACK) {
            state.came_back(path);
            return None;
        }
        state.leave(key)
    }

    /// Returns the destination of a client that reads a file of `size` bytes; `None` while no other
    /// copy is known.
    fn elsewhere(self: &Arc<Self>, who: &Identity, path: &LogicalPath, size: u64) -> Option<RedirectAnswer> {
        let mut state = self.state();
        match state.files.get(path) {
            Some(CopySearch::Known { found, until }) if *until > Instant::now() => {
                let found = found.as_ref().filter(|found| found.size == size)?;
                let at = found.direct.then(|| found.at.clone());
                let key = state.key(who, path);
                let door = state.leave(key)?;
                Some(match at {
                    Some((host, port)) => {
                        RedirectAnswer { host: host.into(), port: port.into(), cgi: String::new() }
                    }
                    None => door,
                })
            }
            Some(CopySearch::Asked) => None,
            _ => {
                self.question(state, path);
                None
            }
        }
    }

    /// Queues a search for another copy.
    fn question(self: &Arc<Self>, mut state: MutexGuard<'_, ReaderRedirectState>, path: &LogicalPath) {
        state.learn(path.clone(), CopySearch::Asked);
        state.questions.push_back(path.clone());
        if state.asking {
            return;
        }
        let me = Arc::downgrade(self);
        let started = std::thread::Builder::new().name("scout".into()).spawn(move || Self::questions(&me));
        match started {
            Ok(_) => state.asking = true,
            Err(error) => {
                tracing::warn!("no thread to ask for other copies of files: {error}");
                state.questions.clear();
                state.files.remove(path);
            }
        }
    }

    /// Searches for one file after the other until the queue is empty.
    fn questions(me: &Weak<Self>) {
        while let Some(me) = me.upgrade() {
            let mut state = me.state();
            let (Some(path), Some(door)) = (state.questions.pop_front(), state.door.clone()) else {
                state.asking = false;
                return;
            };
            drop(state);
            let found = (me.ask)(&door, &path, &me.mark);
            tracing::debug!("another copy of {}: {found:?}", path.shown());
            let until = Instant::now() + BELIEVED;
            let mut state = me.state();
            // A client that returned meanwhile has already set a newer result.
            if matches!(state.files.get(&path), Some(CopySearch::Asked)) {
                state.learn(path, CopySearch::Known { found, until });
            }
        }
    }
}

impl ReaderRedirectState {
    fn key(&self, who: &Identity, path: &LogicalPath) -> u64 {
        self.hasher.hash_one((who.user(), who.pid, who.host(), path))
    }

    fn leave(&mut self, key: u64) -> Option<RedirectAnswer> {
        let door = self.door.clone()?;
        if self.away.len() >= AWAY_MAX {
            self.away.clear();
        }
        self.away.insert(key, Instant::now());
        let host = door.written_host().into();
        Some(RedirectAnswer { host, port: door.port().into(), cgi: String::new() })
    }

    /// Handles a client that was redirected here again. If another copy was found, the door does
    /// not lead all clients there, so later clients are redirected to that server directly.
    /// Otherwise, or if that was tried, readers of this file are not redirected for a while.
    fn came_back(&mut self, path: &LogicalPath) {
        if let Some(CopySearch::Known { found: Some(found), .. }) = self.files.get_mut(path)
            && !found.direct
        {
            found.direct = true;
            return;
        }
        self.learn(path.clone(), CopySearch::Known { found: None, until: Instant::now() + BACK });
    }

    fn learn(&mut self, path: LogicalPath, copy: CopySearch) {
        if self.files.len() >= FILES_MAX {
            self.files.clear();
            self.questions.clear();
        }
        self.files.insert(path, copy);
    }
}

/// A file system whose readers can be redirected.
pub(crate) struct ReaderRedirectFileSystem {
    behind: Arc<dyn FileSystem>,
    reader_redirect: Arc<ReaderRedirect>,
}

impl ReaderRedirectFileSystem {
    pub(crate) fn before(
        behind: Arc<dyn FileSystem>,
        reader_redirect: Arc<ReaderRedirect>,
    ) -> Arc<dyn FileSystem> {
        Arc::new(Self { behind, reader_redirect })
    }

    /// Reports whether this is a search of this server that has returned to it.
    fn is_own_question(&self, cgi: &Cgi) -> bool {
        cgi.get(MARK) == Some(self.reader_redirect.mark.as_bytes())
    }
}

impl FileSystem for ReaderRedirectFileSystem {
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        match &operation {
            Operation::Open(target, request) if self.reader_redirect.opening.load(Ordering::Relaxed) => {
                // The other end of a copy expects to be contacted here.
                if !(request.write || request.new || request.delete || is_third_party_copy(&target.cgi))
                    && let Some(redirect) =
                        self.reader_redirect.away(&caller.identity, &target.path.without_slash())
                {
                    return Started::Done(Answer::Redirect(redirect));
                }
            }
            Operation::Stat(target)
                if self.reader_redirect.reading.load(Ordering::Relaxed)
                    && self.is_own_question(&target.cgi) =>
            {
                let text = "only the server that asks has it";
                return Started::Done(Answer::error(ErrorKind::NotFound, text));
            }
            _ => {}
        }
        self.behind.start(caller, operation, reply)
    }

    fn read_redirect(&self, caller: &Caller, file: &dyn OpenFile) -> Option<RedirectAnswer> {
        if !self.reader_redirect.reading.load(Ordering::Relaxed)
            || file.is_writable()
            || file.needs_this_server()
        {
            return None;
        }
        self.reader_redirect.elsewhere(&caller.identity, file.path(), file.size_now()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::LoginNames;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// The test supplies the results of searches.
    fn reader_redirect() -> (Arc<ReaderRedirect>, Receiver<String>, Sender<Option<FoundCopy>>) {
        let ((say, asked), (answer, answers)) = (channel(), channel());
        let (say, answers) = (Mutex::new(say), Mutex::new(answers));
        let ask = move |door: &Address, path: &LogicalPath, _: &str| {
            say.lock().unwrap().send(format!("{door} {}", path.text())).unwrap();
            answers.lock().unwrap().recv().unwrap()
        };
        (Arc::new(ReaderRedirect::asking(Box::new(ask))), asked, answer)
    }

    fn who(pid: u32) -> Identity {
        Identity::new(&LoginNames { user: "u", host: "h", ..LoginNames::default() }, pid, None, "host")
    }

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap()
    }

    /// Waits until the queue of searches is empty.
    fn settled(reader_redirect: &ReaderRedirect) {
        while reader_redirect.state().asking {
            std::thread::yield_now();
        }
    }

    #[test]
    fn readers_move_when_another_copy_of_the_same_size_is_known() {
        let (reader_redirect, asked, answer) = reader_redirect();
        let door = Address::new("::1", 1094);
        reader_redirect.set(true, false, Some(door.clone()));
        let found = |size, direct| Some(FoundCopy { size, at: ("there".to_owned(), 7), direct });
        let files = [
            (path("/both"), found(10, false)),
            (path("/other"), found(11, false)),
            (path("/only"), None),
            (path("/far"), found(10, true)),
        ];
        for (file, found) in &files {
            assert_eq!(reader_redirect.elsewhere(&who(1), file, 10), None, "it is not known yet");
            assert_eq!(asked.recv().unwrap(), format!("{door} {}", file.text()));
            assert_eq!(reader_redirect.elsewhere(&who(1), file, 10), None, "it is asked once");
            answer.send(found.clone()).unwrap();
            settled(&reader_redirect);
        }
        let to = RedirectAnswer { host: "[::1]".into(), port: 1094, cgi: String::new() };
        assert_eq!(reader_redirect.elsewhere(&who(1), &files[0].0, 10), Some(to));
        assert_eq!(reader_redirect.elsewhere(&who(1), &files[1].0, 10), None, "another size is another file");
        assert_eq!(reader_redirect.elsewhere(&who(1), &files[2].0, 10), None);
        let to = reader_redirect.elsewhere(&who(1), &files[3].0, 10).map(|to| (to.host, to.port));
        assert_eq!(to, Some(("there".into(), 7)));
        assert!(asked.try_recv().is_err());
        reader_redirect.set(false, false, Some(door));
        assert!(reader_redirect.state().files.is_empty());
    }

    #[test]
    fn a_client_that_is_redirected_here_again_stays() {
        let (reader_redirect, _asked, answer) = reader_redirect();
        reader_redirect.set(false, true, Some(Address::new("m", 1094)));
        let file = path("/f");
        reader_redirect.elsewhere(&who(1), &file, 10);
        answer.send(Some(FoundCopy { size: 10, at: ("there".to_owned(), 7), direct: false })).unwrap();
        settled(&reader_redirect);
        let sent = |reader_redirect: &Arc<ReaderRedirect>| {
            reader_redirect.elsewhere(&who(1), &file, 10).map(|to| to.host)
        };
        assert_eq!(sent(&reader_redirect).as_deref(), Some("m"));
        assert_eq!(reader_redirect.away(&who(1), &file), None, "it is back: the door leads here, too");
        assert_eq!(sent(&reader_redirect).as_deref(), Some("there"), "so it goes to that server itself");
        assert_eq!(reader_redirect.away(&who(1), &file), None, "it is back again");
        assert_eq!(reader_redirect.elsewhere(&who(1), &file, 10), None, "and stays");
        assert_eq!(reader_redirect.elsewhere(&who(2), &file, 10), None, "as would others");
    }

    #[test]
    fn without_a_door_no_client_is_redirected() {
        let (reader_redirect, asked, _answer) = reader_redirect();
        reader_redirect.set(true, true, None);
        assert!(
            !reader_redirect.opening.load(Ordering::Relaxed)
                && !reader_redirect.reading.load(Ordering::Relaxed)
        );
        assert!(asked.try_recv().is_err());
    }
}
