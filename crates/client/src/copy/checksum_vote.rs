//! Majority vote on the checksums of the sources of a file.
//!
//! A source that differs from the majority, or from a known value, is untrusted.

use std::time::Duration;

use digest::Algorithm;
use tokio::task::JoinSet;

use super::checks::same;
use super::failure::CopyError;
use super::multi_source::MultiSource;
use super::sample::most;
use crate::answers::FileChecksum;

/// Interval between checks for sources that were given up in the meantime.
const LOOK_TIME: Duration = Duration::from_millis(500);

impl MultiSource {
    /// Requests a checksum from all sources, marks sources with a wrong one as untrusted, and
    /// returns the right one: `known` if any source has it, otherwise that of the majority.
    ///
    /// # Errors
    /// The reason why no source returned a checksum.
    pub(super) async fn ask_sums(
        &self,
        algorithm: Algorithm,
        known: Option<&str>,
    ) -> Result<FileChecksum, CopyError> {
        let mut asking = JoinSet::new();
        let mut open = Vec::new();
        let (mut told, mut failed): (Vec<(usize, FileChecksum)>, _) = (Vec::new(), None);
        for (number, file) in self.present() {
            let (files, path) = (self.client().file_system(&file.location()), file.url().path.clone());
            open.push(number);
            asking.spawn(async move { (number, files.checksum(&path, Some(algorithm.name())).await) });
        }
        let all = open.len();
        let agree = |a: &FileChecksum, b: &FileChecksum| same(algorithm, &a.value, &b.value);
        while !open.is_empty() {
            let ended = match tokio::time::timeout(LOOK_TIME, asking.join_next()).await {
                Ok(Some(ended)) => ended,
                Ok(None) => break,
                Err(_) => {
                    // Sources that were given up do not have to answer.
                    let present = self.present();
                    open.retain(|number| present.iter().any(|(other, _)| other == number));
                    continue;
                }
            };
            let Ok((number, answer)) = ended else { continue };
            open.retain(|other| *other != number);
            match answer {
                Ok(sum) => told.push((number, sum)),
                Err(error) => failed = Some(error),
            }
            // The remaining sources cannot outvote these.
            let votes = |one: &FileChecksum| told.iter().filter(|(_, other)| agree(one, other)).count();
            if known.is_none() && told.iter().any(|(_, one)| votes(one) * 2 > all) {
                break;
            }
        }
        told.sort_by_key(|(number, _)| *number);
        let sums: Vec<FileChecksum> = told.iter().map(|(_, sum)| sum.clone()).collect();
        let right = known.and_then(|known| sums.iter().find(|sum| same(algorithm, &sum.value, known)));
        let right = right.or_else(|| most(&sums, agree).and_then(|index| sums.get(index))).cloned();
        let Some(right) = right else {
            return Err(failed.map_or_else(|| self.nobody(), CopyError::source));
        };
        for (number, sum) in told.iter().filter(|(_, sum)| !agree(sum, &right)) {
            let (kind, value) = (algorithm.name(), &sum.value);
            self.mark_untrusted(
                *number,
                format!("its {kind} is {value}, that of the file is {}", right.value),
            );
        }
        Ok(right)
    }
}
