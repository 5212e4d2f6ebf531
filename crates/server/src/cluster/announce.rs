//! What becomes of names on this server, told to its parents: each change as it is now, not as it was when it happened.
//!
//! Parents remember "nobody has it" for hours and a wrong "it is here" only until the next open fails. So whoever made a
//! name says so at once, but that one is gone is said only after a look, and not if somebody made it again meanwhile.

use base::LogicalPath;
use logical::{Events, Logical, Presence};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use storage::Backend;

/// Counters of changes; paths share them by hash.
const TURNS: usize = 256;
/// So often a path is looked at that changes under the eyes; those who change it tell of it themselves.
const LOOKS_MAX: u32 = 3;
/// Names below a renamed directory that are told one by one; with more, all that is known of this server is void.
pub(crate) const MOVED_MAX: usize = 1000;
/// Names of a directory that are read at once.
const NAMES_AT_ONCE: usize = 512;

/// What parents are to hear.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// The path is here; when `pending`, not yet whole.
    Have {
        /// The path.
        path: LogicalPath,
        /// It is being written by the one who makes it.
        pending: bool,
    },
    /// The path is not here.
    Gone {
        /// The path.
        path: LogicalPath,
    },
    /// So much changed that nothing parents know of this server's files holds.
    Reset,
}

/// Hears of changes and says what parents should know. `say` may be called by any thread, must not block, and is called
/// in the order in which it is true.
pub(crate) struct Announcer<S> {
    logical: Weak<Logical>,
    backend: Arc<dyn Backend>,
    turns: Vec<Mutex<u64>>,
    hasher: RandomState,
    say: S,
    this: Weak<Self>,
}

impl<S: Fn(News) + Send + Sync + 'static> Announcer<S> {
    /// Listens to `logical`, whose files lie in `backend`.
    pub(crate) fn listen(logical: &Arc<Logical>, backend: &Arc<dyn Backend>, say: S) -> Arc<Self> {
        let announcer = Arc::new_cyclic(|this| Self {
            logical: Arc::downgrade(logical),
            backend: backend.clone(),
            turns: (0..TURNS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            say,
            this: this.clone(),
        });
        logical.set_events(announcer.clone());
        announcer
    }

    fn turn(&self, path: &LogicalPath) -> Option<MutexGuard<'_, u64>> {
        let index = self.hasher.hash_one(path) as usize % TURNS;
        self.turns.get(index).map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks whether the path is here and says so. Never blocks.
    fn check(&self, path: &LogicalPath, looks: u32) {
        let (Some(logical), Some(this)) = (self.logical.upgrade(), self.this.upgrade()) else { return };
        let Some(turn) = self.turn(path).map(|turn| *turn) else { return };
        let later = path.clone();
        let found = logical.look(path, move |presence| this.found(&later, turn, presence, looks));
        if let Some(presence) = found {
            self.found(path, turn, presence, looks);
        }
    }

    fn found(&self, path: &LogicalPath, seen: u64, presence: Presence, looks: u32) {
        let Some(mut turn) = self.turn(path) else { return };
        if *turn != seen {
            // Somebody made it, or another path of this counter, since the look began.
            drop(turn);
            if looks < LOOKS_MAX {
                self.check(path, looks + 1);
            }
            return;
        }
        match presence {
            Presence::Here { pending } => {
                *turn += 1;
                (self.say)(News::Have { path: path.clone(), pending });
            }
            Presence::NotHere => (self.say)(News::Gone { path: path.clone() }),
            Presence::Unknown => {}
        }
    }

    /// Names below `to` that were below `from` until now.
    fn tell_moved(&self, from: &LogicalPath, to: &LogicalPath) {
        let mut directories = vec![to.clone()];
        let mut told = Vec::new();
        while let Some(directory) = directories.pop() {
            let Ok(mut stream) = self.backend.list(&directory) else { continue };
            while let Ok(names) = stream.next(NAMES_AT_ONCE)
                && !names.is_empty()
            {
                for name in names {
                    let Ok(path) = directory.join(&name.name) else { continue };
                    if stream.stat(&name.name).is_ok_and(|metadata| metadata.mode & 0o170_000 == 0o040_000) {
                        directories.push(path.clone());
                    }
                    told.push(path);
                }
                if told.len() > MOVED_MAX {
                    (self.say)(News::Reset);
                    return;
                }
            }
        }
        for new in told {
            let rest = new.as_bytes().get(to.as_bytes().len()..).unwrap_or_default();
            if let Ok(old) = LogicalPath::parse(&[from.as_bytes(), rest].concat()) {
                self.check(&old, 0);
            }
            self.check(&new, 0);
        }
    }
}

impl<S: Fn(News) + Send + Sync + 'static> Events for Announcer<S> {
    fn made(&self, path: &LogicalPath, pending: bool) {
        if let Some(mut turn) = self.turn(path) {
            *turn += 1;
            (self.say)(News::Have { path: path.clone(), pending });
        }
    }

    fn gone(&self, path: &LogicalPath) {
        self.check(path, 0);
    }

    fn moved(&self, from: &LogicalPath, to: &LogicalPath) {
        let Some(this) = self.this.upgrade() else { return };
        let (old, new) = (from.without_slash(), to.without_slash());
        let job = move || this.tell_moved(&old, &new);
        if self.backend.pool(to).run(Box::new(job)).is_err() {
            (self.say)(News::Reset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::{SystemClock, SystemUsers};
    use std::path::PathBuf;
    use std::sync::mpsc::{Receiver, channel};
    use storage::faulty::{Call, Fault, Faulty, Gate, Rule};
    use storage::posix::{Config, Posix};

    struct Stage {
        root: PathBuf,
        faulty: Arc<storage::faulty::Rules>,
        announcer: Arc<dyn Events>,
        news: Receiver<News>,
        _logical: Arc<Logical>,
    }

    impl Stage {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("scalla-announce-{}-{name}", std::process::id()));
            std::fs::create_dir_all(root.join("journal")).unwrap();
            let posix = Posix::new(&Config::new(&root)).unwrap();
            let faulty = Faulty::new(Arc::new(posix));
            let rules = faulty.rules().clone();
            let backend: Arc<dyn Backend> = Arc::new(faulty);
            let export = logical::config::Export::new(LogicalPath::root());
            let config = logical::Config::new(vec![export], root.join("journal"));
            let logical = Logical::new(logical::Parts {
                journals: logical::Journals::on_disk(&config),
                config,
                backend: backend.clone(),
                clock: Arc::new(SystemClock::new()),
                users: Arc::new(SystemUsers::new()),
                locator: None,
            });
            let logical = logical.unwrap();
            let (sender, news) = channel();
            let announcer = Announcer::listen(&logical, &backend, move |news| {
                let _ = sender.send(news);
            });
            Self { root, faulty: rules, announcer, news, _logical: logical }
        }

        fn next(&self) -> String {
            match self.news.recv().unwrap() {
                News::Have { path, pending: true } => format!("?{path}"),
                News::Have { path, pending: false } => format!("+{path}"),
                News::Gone { path } => format!("-{path}"),
                News::Reset => "reset".to_owned(),
            }
        }
    }

    impl Drop for Stage {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.root);
        }
    }

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn gone_is_said_after_a_look() {
        let stage = Stage::new("look");
        stage.announcer.gone(&path("/f"));
        assert_eq!(stage.next(), "-/f");
        std::fs::write(stage.root.join("f"), b"").unwrap();
        stage.announcer.gone(&path("/f"));
        assert_eq!(stage.next(), "+/f", "somebody made it again");
        stage.announcer.made(&path("/g"), true);
        assert_eq!(stage.next(), "?/g");
    }

    #[test]
    fn a_look_that_was_overtaken_says_nothing_old() {
        let stage = Stage::new("overtaken");
        let gate = Gate::new();
        stage.faulty.add(Rule::new(&[Call::Stat], Fault::Hang(gate.clone())).times(1));
        stage.announcer.gone(&path("/f"));
        // While the disk is looking, the file is made and told.
        gate.wait_for(1);
        std::fs::write(stage.root.join("f"), b"").unwrap();
        stage.announcer.made(&path("/f"), false);
        assert_eq!(stage.next(), "+/f");
        gate.open();
        assert_eq!(stage.next(), "+/f", "it is looked at again, and is there");
    }

    #[test]
    fn a_storage_that_fails_is_no_reason_to_say_anything() {
        let stage = Stage::new("fails");
        stage.faulty.add(Rule::new(&[Call::Stat], Fault::Error(5)).times(1));
        stage.announcer.gone(&path("/f"));
        stage.announcer.made(&path("/after"), false);
        assert_eq!(stage.next(), "+/after");
    }

    #[test]
    fn a_renamed_directory_takes_its_names_along() {
        let stage = Stage::new("renamed");
        std::fs::create_dir_all(stage.root.join("new/sub")).unwrap();
        std::fs::write(stage.root.join("new/sub/f"), b"").unwrap();
        stage.announcer.moved(&path("/old"), &path("/new"));
        let mut told: Vec<String> = (0..4).map(|_| stage.next()).collect();
        told.sort();
        assert_eq!(told, ["+/new/sub", "+/new/sub/f", "-/old/sub", "-/old/sub/f"]);
        for number in 0..=MOVED_MAX {
            std::fs::write(stage.root.join("new").join(number.to_string()), b"").unwrap();
        }
        stage.announcer.moved(&path("/old"), &path("/new"));
        assert_eq!(stage.next(), "reset");
    }
}
