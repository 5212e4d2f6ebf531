//! Whether a path is here, and all that is: what the rest of a cluster asks a server. What comes and goes meanwhile it
//! hears through [`crate::Events`].

use crate::describe;
use crate::file_system::Logical;
use crate::shared::{Shared, errno};
use base::LogicalPath;
use storage::{Metadata, Now};
use vfs::FileKind;

/// Whether a path is here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// A file or directory of this name is here.
    Here {
        /// It is a file that is not yet whole.
        pending: bool,
    },
    /// Nothing of this name is here, or nothing that is exported.
    NotHere,
    /// It cannot be told now: the storage failed or is overloaded.
    Unknown,
}

impl Logical {
    /// Whether a path is here. What is in memory is told at once; else `then` hears it later, on a thread of the pool of
    /// that file system. Never blocks.
    pub fn look(&self, path: &LogicalPath, then: impl FnOnce(Presence) + Send + 'static) -> Option<Presence> {
        let shared = &self.shared;
        let plain = path.without_slash();
        if shared.export(&plain, "Locating").is_err() {
            return Some(Presence::NotHere);
        }
        match shared.backend.stat_now(&plain) {
            Now::Done(result) => Some(presence(shared, &plain, result)),
            Now::WouldBlock => {
                let inside = shared.clone();
                let job = move || then(presence(&inside, &plain, inside.backend.stat(&plain)));
                // Refused, the question is dropped with the job: who asked hears nothing from `then`.
                match shared.backend.pool(path).run(Box::new(job)) {
                    Ok(()) => None,
                    Err(_) => Some(Presence::Unknown),
                }
            }
        }
    }

    /// Calls `with` for files that are here, those of one directory after the other, until all were named or it says
    /// `false`. Blocks for long: for a thread of its own. Files that are not yet whole are left out.
    pub fn walk(&self, with: &mut dyn FnMut(&LogicalPath) -> bool) {
        const NAMES_AT_ONCE: usize = 512;
        let backend = &self.shared.backend;
        let mut directories: Vec<LogicalPath> =
            self.shared.config.exports.iter().map(|export| export.prefix.without_slash()).collect();
        while let Some(directory) = directories.pop() {
            let Ok(mut stream) = backend.list(&directory) else { continue };
            while let Ok(names) = stream.next(NAMES_AT_ONCE)
                && !names.is_empty()
            {
                for entry in names {
                    let Ok(path) = directory.join(&entry.name) else { continue };
                    let Ok(metadata) = stream.stat(&entry.name) else { continue };
                    let kind = describe::kind(&metadata);
                    let is_whole = kind == FileKind::File && !describe::is_pending(&metadata);
                    if is_whole && !with(&path) {
                        return;
                    }
                    if kind == FileKind::Directory {
                        directories.push(path);
                    }
                }
            }
        }
    }
}

fn presence(shared: &Shared, path: &LogicalPath, found: std::io::Result<Metadata>) -> Presence {
    match found {
        Ok(metadata) => {
            let pending = describe::is_pending(&metadata) || shared.persist.is_pending(path);
            Presence::Here { pending }
        }
        Err(error) if matches!(error.raw_os_error(), Some(errno::NOT_FOUND | errno::NOT_A_DIRECTORY)) => {
            Presence::NotHere
        }
        Err(_) => Presence::Unknown,
    }
}
