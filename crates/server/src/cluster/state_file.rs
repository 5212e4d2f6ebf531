//! A small file with state of a node, for its next start.
//!
//! It is written on another thread, because the cluster's thread must not wait for a disk. Of
//! contents that follow each other quickly the last one is on disk in the end, on whichever thread
//! it is written.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use storage::PrivateDirectory;

/// A file that is kept up to date. Without a path nothing is written.
pub(super) struct StateFile(Option<Arc<StateFileWriter>>);

struct StateFileWriter {
    file: PathBuf,
    /// The content to be written; `Some(None)` removes the file. `None` if the file is up to date.
    next: Mutex<Option<Option<String>>>,
    /// Only one thread writes at a time.
    writing: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StateFile {
    pub(super) fn new(file: Option<PathBuf>) -> Self {
        Self(file.map(|file| {
            Arc::new(StateFileWriter { file, next: Mutex::default(), writing: Mutex::default() })
        }))
    }

    /// Schedules the file to be replaced by `content`, or removed without one.
    pub(super) fn keep(&self, content: Option<String>) {
        let Some(shared) = self.0.clone() else { return };
        *lock(&shared.next) = Some(content);
        spawn_blocking_thread("cluster-kept", move || shared.write());
    }
}

impl StateFileWriter {
    fn write(&self) {
        let _alone = lock(&self.writing);
        // Another thread may have written this content, and its successor, too.
        let Some(content) = lock(&self.next).take() else { return };
        let (directory, name) = place(&self.file);
        let written = PrivateDirectory::create(directory).and_then(|directory| match content {
            Some(text) => directory.replace(name, text.as_bytes()).map(drop),
            None => directory.remove(name),
        });
        if let Err(error) = written {
            tracing::error!("{} is not kept over a restart: {error}", self.file.display());
        }
    }
}

/// Runs blocking work on a thread of its own. It is rare, so a thread pool is not needed.
pub(super) fn spawn_blocking_thread(name: &str, work: impl FnOnce() + Send + 'static) {
    if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(work) {
        tracing::warn!("no thread for {name}: {error}");
    }
}

/// Returns the content of `file` from an earlier run; `None` if there is none. A file that another
/// user could have written is not trusted.
pub(super) fn read(file: &Path) -> Option<String> {
    let (directory, name) = place(file);
    match PrivateDirectory::open(directory).and_then(|directory| directory.read_inherited(name)) {
        Ok(content) => String::from_utf8(content).ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::error!("{} is not read: {error}", file.display());
            None
        }
    }
}

/// Returns the directory and the name of a file. The names are our own and plain text.
fn place(file: &Path) -> (&Path, &str) {
    let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
    (file.parent().unwrap_or(Path::new(".")), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_an_earlier_version_with_a_wide_umask_are_read() {
        use std::fs::{self, Permissions};
        use std::os::unix::fs::PermissionsExt as _;
        let directory = std::env::temp_dir().join(format!("scalla-kept-earlier-{}", std::process::id()));
        let file = directory.join("place");
        drop(PrivateDirectory::create(&directory).unwrap());
        let set_mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        fs::write(&file, "m.example.org:1213").unwrap();
        set_mode(&file, 0o664);
        // Other users could have reached the file in this directory.
        set_mode(&directory, 0o710);
        assert_eq!((read(&file), mode()), (None, 0o664));
        set_mode(&directory, 0o700);
        assert_eq!((read(&file).as_deref(), mode()), (Some("m.example.org:1213"), 0o600));
        fs::hard_link(&file, directory.join("other")).unwrap();
        assert_eq!(read(&file), None);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn the_last_content_remains() {
        let directory = std::env::temp_dir().join(format!("scalla-kept-{}", std::process::id()));
        let file = directory.join("place");
        let shared = Arc::new(StateFileWriter {
            file: file.clone(),
            next: Mutex::default(),
            writing: Mutex::default(),
        });
        let kept = StateFile(Some(shared.clone()));
        let writing = lock(&shared.writing);
        for number in 0..20 {
            kept.keep(Some(number.to_string()));
        }
        drop(writing);
        // A later writer finds nothing to write.
        shared.write();
        assert_eq!(read(&file).unwrap(), "19");
        kept.keep(None);
        shared.write();
        assert!(!file.exists() && read(&file).is_none());
        std::fs::remove_dir_all(&directory).unwrap();
        StateFile::new(None).keep(Some("nowhere".to_owned()));
    }
}
