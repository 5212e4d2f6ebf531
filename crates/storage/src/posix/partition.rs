//! A partition of a space: a directory on a file system, and its free space.
//!
//! Free space is cached and queried on the partition's own pool, because otherwise a hung disk
//! would block the creation of files on all others.

use super::calls::usage_of;
use super::volume::{Volume, Volumes};
use crate::SpaceUsage;
use base::Owner;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum age of the usage by which a partition is chosen; older usage is queried again.
pub(super) const FIGURES_AGE_MAX: Duration = Duration::from_secs(10);
/// Timeout of a usage query. A partition that has not answered is not chosen.
pub const FIGURES_WAIT: Duration = Duration::from_secs(2);
/// Maximum length of a partition's path, because its length with a `/` must fit into two
/// hexadecimal digits.
pub const PARTITION_BYTES_MAX: usize = 254;

/// Size hints of open files may reserve at most one part in `PROMISED_SHARE` of the free space,
/// because a client can announce any size.
const PROMISED_SHARE: u64 = 2;

struct PartitionFigures {
    usage: SpaceUsage,
    /// Bytes that open files will need by their size hints, and that were not in use when the file
    /// system was queried.
    promised: u64,
    taken: Instant,
    asked: Option<Instant>,
}

/// A directory of a space on one file system.
pub(super) struct Partition {
    pub(super) space: String,
    pub(super) directory: PathBuf,
    pub(super) volume: Arc<Volume>,
    figures: Mutex<PartitionFigures>,
    answered: Condvar,
}

/// Returns the directories that one directive names; with a wildcard all that start with its path,
/// sorted.
pub(super) fn directories(space: &config::SpacePartition) -> io::Result<Vec<PathBuf>> {
    if !space.wildcard {
        return Ok(vec![space.path.clone()]);
    }
    let (Some(above), Some(begin)) = (space.path.parent(), space.path.file_name()) else {
        return Ok(vec![space.path.clone()]);
    };
    // A path that ends in `/` matches all directories in it.
    let all = space.path.as_os_str().as_bytes().ends_with(b"/");
    let (above, begin) = if all { (space.path.as_path(), &b""[..]) } else { (above, begin.as_bytes()) };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(above).map_err(|error| partition_error(space, above, error))? {
        let path = entry?.path();
        let fits = path.file_name().is_some_and(|name| name.as_bytes().starts_with(begin));
        if fits && path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn partition_error(space: &config::SpacePartition, directory: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("oss.space {} {}: {error}", space.name, directory.display()))
}

impl Partition {
    /// Returns the partitions that one directive names. A partition whose mount check fails is
    /// omitted with a warning if the check is optional; otherwise it is an error. May wait.
    pub(super) fn all_of(space: &config::SpacePartition, volumes: &Volumes) -> io::Result<Vec<Arc<Self>>> {
        let mut all = Vec::new();
        for directory in directories(space)? {
            match Self::new(space, &directory, volumes) {
                Ok(partition) => all.push(Arc::new(partition)),
                Err(error) if space.mount_check.as_ref().is_some_and(|check| check.optional) => {
                    tracing::warn!(%error, "a partition is not used because its optional mount check failed");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    fn new(space: &config::SpacePartition, directory: &Path, volumes: &Volumes) -> io::Result<Self> {
        let failed = |error| partition_error(space, directory, error);
        if directory.as_os_str().len() > PARTITION_BYTES_MAX {
            let text = format!("the path is longer than {PARTITION_BYTES_MAX} bytes");
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, text)));
        }
        if let Some(check) = &space.mount_check {
            // `ID.NAME` in the directory, where NAME is the name of the directory itself.
            let mut mark = std::ffi::OsString::from(&check.id);
            mark.push(".");
            mark.push(directory.file_name().unwrap_or_default());
            std::fs::metadata(directory.join(&mark)).map_err(|error| {
                let text = format!(
                    "no file system is mounted there: {}: {error}; mount it, or create the mark file",
                    mark.display()
                );
                failed(io::Error::new(error.kind(), text))
            })?;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let place =
            rustix::fs::open(directory, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        let status = rustix::fs::fstat(&place).map_err(|error| failed(error.into()))?;
        let usage = usage_of(&place).map_err(failed)?;
        let figures = Mutex::new(PartitionFigures { usage, promised: 0, taken: Instant::now(), asked: None });
        let volume = volumes.of_file(status.st_dev, &place).clone();
        let (space, directory) = (space.name.clone(), directory.to_owned());
        Ok(Self { space, directory, volume, figures, answered: Condvar::new() })
    }

    /// Returns the length of the directory's path with a trailing `/`, in bytes.
    pub(super) fn prefix_length(&self) -> usize {
        self.directory.as_os_str().len() + 1
    }

    fn lock(&self) -> MutexGuard<'_, PartitionFigures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the usage, at most `age` old; `None` if the file system does not answer in time.
    ///
    /// The query runs on the pool of the partition, so a hung disk delays a caller for at most
    /// [`FIGURES_WAIT`], and later callers not at all. A thread of that same pool makes the query
    /// itself, because all the other threads may be waiting for the answer too.
    pub(super) fn figures(self: &Arc<Self>, age: Duration) -> Option<SpaceUsage> {
        let mut figures = self.lock();
        if figures.taken.elapsed() < age {
            return Some(figures.usage_left());
        }
        match figures.asked {
            Some(asked) if asked.elapsed() > FIGURES_WAIT => return None,
            _ if self.volume.pool.is_here() => {
                figures.asked.get_or_insert_with(Instant::now);
                drop(figures);
                self.take();
                return Some(self.lock().usage_left());
            }
            Some(_) => {}
            None => {
                figures.asked = Some(Instant::now());
                let partition = self.clone();
                if self.volume.pool.run(Owner::SERVER, Box::new(move || partition.take())).is_err() {
                    figures.asked = None;
                    return None;
                }
            }
        }
        let waited =
            self.answered.wait_timeout_while(figures, FIGURES_WAIT, |figures| figures.asked.is_some());
        let (figures, _) = waited.unwrap_or_else(PoisonError::into_inner);
        figures.asked.is_none().then(|| figures.usage_left())
    }

    /// Queries the file system.
    fn take(&self) {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let place = rustix::fs::open(&self.directory, flags, Mode::empty()).map_err(io::Error::from);
        // A partition that cannot be queried counts as full.
        let usage = place.and_then(usage_of).unwrap_or_default();
        *self.lock() = PartitionFigures { usage, promised: 0, taken: Instant::now(), asked: None };
        self.answered.notify_all();
    }

    /// Reserves space for `bytes` that a client announces to write, up to the limit for hints. The
    /// reservation holds until the file system is queried again or the promise is dropped.
    pub(super) fn promise(self: &Arc<Self>, bytes: u64) -> SpaceReservation {
        let mut figures = self.lock();
        let bytes = bytes.min((figures.usage.free / PROMISED_SHARE).saturating_sub(figures.promised));
        figures.promised += bytes;
        SpaceReservation { partition: self.clone(), bytes, taken: figures.taken }
    }
}

impl PartitionFigures {
    /// Returns the usage after subtracting the reservations.
    fn usage_left(&self) -> SpaceUsage {
        let mut usage = self.usage;
        usage.free = usage.free.saturating_sub(self.promised);
        usage.largest_free = usage.largest_free.saturating_sub(self.promised);
        usage
    }
}

/// Space reserved for an open file; released when dropped.
pub(super) struct SpaceReservation {
    partition: Arc<Partition>,
    bytes: u64,
    /// Time of the usage from which the space was subtracted.
    taken: Instant,
}

impl Drop for SpaceReservation {
    fn drop(&mut self) {
        let mut figures = self.partition.lock();
        if figures.taken == self.taken {
            figures.promised = figures.promised.saturating_sub(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::POOL_THREADS_MAX;
    use super::*;
    use base::LogicalPath;
    use std::sync::{Barrier, mpsc};

    fn partition() -> Arc<Partition> {
        let directory = std::env::temp_dir();
        let root = std::fs::File::open(&directory).unwrap();
        let volumes = Volumes::new(&directory, &root, vec![LogicalPath::root()], false).unwrap();
        let space = config::SpacePartition {
            name: "public".into(),
            path: directory.clone(),
            wildcard: false,
            mount_check: None,
        };
        let partition = Arc::new(Partition::new(&space, &directory, &volumes).unwrap());
        let old = Instant::now().checked_sub(FIGURES_AGE_MAX);
        partition.lock().taken = old.unwrap();
        partition
    }

    /// Names and data lie on one disk, and the cached usage is stale when many files are created
    /// there at once.
    #[test]
    fn all_threads_of_a_disk_may_query_its_usage() {
        let partition = partition();
        let (tell, told) = mpsc::channel();
        let meeting = Arc::new(Barrier::new(POOL_THREADS_MAX));
        for _ in 0..POOL_THREADS_MAX {
            let (tell, meeting, asked) = (tell.clone(), meeting.clone(), partition.clone());
            let job = move || {
                meeting.wait();
                tell.send(asked.figures(FIGURES_AGE_MAX).is_some()).unwrap();
            };
            assert!(partition.volume.pool.run(Owner::SERVER, Box::new(job)).is_ok());
        }
        drop(tell);
        assert_eq!(told.iter().filter(|known| *known).count(), POOL_THREADS_MAX);
    }
}
