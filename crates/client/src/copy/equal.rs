//! When a file counts as equal to the one of its name at the target, and need not be copied.

use digest::{Algorithm, RunningChecksum};

use super::Copier;
use super::failure::{CopyError, Side};
use super::options::CopyJob;
use super::place::Place;
use super::web_source::checksum;
use crate::walk::WalkItem;

/// When two files count as equal. Sizes are compared in any case.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Equal {
    /// The target is not older than the source.
    #[default]
    Time,
    /// Their checksums are the same.
    Checksum(Algorithm),
    /// Nothing else counts.
    Size,
}

/// Why a file is copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The target does not have it.
    Missing,
    /// The sizes differ.
    Size,
    /// The target is older than the source.
    Newer,
    /// The checksums differ.
    Checksum,
}

/// Decides whether files have to be copied.
pub(super) struct EqualityCheck<'a> {
    pub(super) copier: &'a Copier,
    pub(super) equal: Equal,
}

impl EqualityCheck<'_> {
    /// Returns the reason to copy a file; `None` if the target has an equal one.
    pub(super) async fn difference(
        &self,
        job: &CopyJob,
        source: &WalkItem,
        target: Option<&WalkItem>,
    ) -> Result<Option<Reason>, CopyError> {
        let Some(target) = target else { return Ok(Some(Reason::Missing)) };
        if target.size != source.size {
            return Ok(Some(Reason::Size));
        }
        match self.equal {
            Equal::Size => Ok(None),
            Equal::Time => Ok((target.modified < source.modified).then_some(Reason::Newer)),
            Equal::Checksum(algorithm) => {
                let (source, target) = tokio::try_join!(
                    self.checksum_of(&job.source, algorithm, Side::Source),
                    self.checksum_of(&job.target, algorithm, Side::Target),
                )?;
                Ok((source != target).then_some(Reason::Checksum))
            }
        }
    }

    /// Returns the checksum of a file in lower-case hexadecimal.
    async fn checksum_of(
        &self,
        place: &Place,
        algorithm: Algorithm,
        side: Side,
    ) -> Result<String, CopyError> {
        match place {
            Place::Local(path) => {
                let path = path.clone();
                let sum = move || local_checksum(&path, algorithm);
                self.copier.disk.run(sum).await.unwrap_or(Err(CopyError::Cancelled))
            }
            Place::Remote(url) => {
                let sum = checksum(&self.copier.client, url, algorithm).await;
                let sum = sum.map_err(|error| CopyError::Remote { side, error })?;
                // Some servers leave leading zeros out.
                Ok(format!("{:0>width$}", sum.value.to_ascii_lowercase(), width = algorithm.bytes() * 2))
            }
            Place::Stream => Ok(String::new()),
        }
    }
}

fn local_checksum(path: &std::path::Path, algorithm: Algorithm) -> Result<String, CopyError> {
    use std::io::Read;
    let fail = |error| CopyError::local("read", path, &error);
    let mut file = std::fs::File::open(path).map_err(fail)?;
    let (mut running, mut buffer) = (RunningChecksum::new(algorithm), vec![0; 1024 * 1024]);
    loop {
        match file.read(&mut buffer).map_err(fail)? {
            0 => return Ok(running.finish().hex()),
            count => running.update(buffer.get(..count).unwrap_or_default()),
        }
    }
}
