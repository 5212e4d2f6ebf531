//! Small files in which a node keeps over its restart what it learns while it runs.
//!
//! They are written beside the cluster's thread, which waits for no disk. Of contents that follow each other quickly the last
//! one is what is on disk in the end, whichever thread writes it.

use super::engine::aside;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A file that is kept up to date; none without a path.
pub(super) struct Kept(Option<Arc<Shared>>);

struct Shared {
    file: PathBuf,
    /// What it is to hold; `Some(None)`: there is to be no such file. `None` when that is so already.
    next: Mutex<Option<Option<String>>>,
    /// One writes at a time.
    writing: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    pub(super) fn new(file: Option<PathBuf>) -> Self {
        Self(file.map(|file| Arc::new(Shared { file, next: Mutex::default(), writing: Mutex::default() })))
    }

    /// Soon holds `content`; without any it is removed.
    pub(super) fn keep(&self, content: Option<String>) {
        let Some(shared) = self.0.clone() else { return };
        *lock(&shared.next) = Some(content);
        aside("cluster-kept", move || shared.write());
    }
}

impl Shared {
    fn write(&self) {
        let _alone = lock(&self.writing);
        // Another thread may have written it, and what came after it, too.
        let Some(content) = lock(&self.next).take() else { return };
        let written = match content {
            Some(text) => {
                let new = self.file.with_extension("new");
                fs::write(&new, text).and_then(|()| fs::rename(&new, &self.file))
            }
            None => fs::remove_file(&self.file)
                .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }),
        };
        if let Err(error) = written {
            tracing::error!("{} is not kept over a restart: {error}", self.file.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_content_is_what_stays() {
        let file = std::env::temp_dir().join(format!("scalla-kept-{}", std::process::id()));
        let shared =
            Arc::new(Shared { file: file.clone(), next: Mutex::default(), writing: Mutex::default() });
        let kept = Kept(Some(shared.clone()));
        let writing = lock(&shared.writing);
        for number in 0..20 {
            kept.keep(Some(number.to_string()));
        }
        drop(writing);
        // Whoever writes after this finds nothing to do.
        shared.write();
        assert_eq!(fs::read_to_string(&file).unwrap(), "19");
        kept.keep(None);
        shared.write();
        assert!(!file.exists());
        Kept::new(None).keep(Some("nowhere".to_owned()));
    }
}
