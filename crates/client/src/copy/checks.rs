//! Checksums of source and target of a copy: requested from servers, computed and compared.
//!
//! Servers are asked while the bytes are in transfer because they may need as long as the copy
//! itself.

use digest::{Algorithm, RunningChecksum};
use tokio::task::JoinSet;

use super::Copier;
use super::failure::CopyError;
use super::options::{Against, ChecksumWish, CopyOptions};
use super::place::Place;
use super::source::{SourceKind, SourceReader};
use super::web_source::checksum;
use crate::answers::FileChecksum;
use crate::url::Url;

/// The checksums that are computed and requested for one copy.
pub(super) struct Checks {
    wishes: Vec<(Algorithm, Against)>,
    /// Queries to the source's server, in the order of the requested checksums.
    asked: Vec<Option<JoinSet<Result<FileChecksum, CopyError>>>>,
    /// Results of these queries, once received.
    heard: Vec<Option<FileChecksum>>,
    /// Checksums that the source provides and that were not requested.
    implied: Vec<(Algorithm, String)>,
}

impl Checks {
    /// Starts the queries that are possible before the transfer.
    pub(super) async fn begin(
        copier: &Copier,
        source: &SourceReader,
        target: &Place,
        options: &CopyOptions,
    ) -> Result<Self, CopyError> {
        let (mut wishes, mut asked) = (Vec::new(), Vec::new());
        let (at, known) = (source.location(), source.known.as_slice());
        let mut options = options.clone();
        if let Some((first, _)) = known.first() {
            // `auto` selects the checksum that the source provides.
            for wish in options.checksums.iter_mut().filter(|wish| wish.algorithm.is_none()) {
                wish.algorithm = Some(*first);
            }
        }
        for (algorithm, against) in Self::wishes(copier, at.as_ref().or(target.url()), &options).await {
            let wanted = matches!(against, Against::EachOther | Against::PrintSource);
            let came = known.iter().find(|(kind, _)| *kind == algorithm && wanted);
            if let Some((_, value)) = came {
                let sum = FileChecksum { kind: algorithm.name().to_owned(), value: value.clone() };
                asked.push(Some(std::iter::once(async { Ok(sum) }).collect()));
                wishes.push((algorithm, against));
                continue;
            }
            asked.push(at.as_ref().filter(|_| wanted).map(|url| {
                let mut asking = JoinSet::new();
                if let SourceKind::Many(sources) = &source.from {
                    let sources = sources.clone();
                    asking.spawn(async move { sources.ask_sums(algorithm, None).await });
                } else {
                    let (client, url) = (copier.client.clone(), url.clone());
                    asking.spawn(async move {
                        checksum(&client, &url, algorithm).await.map_err(CopyError::source)
                    });
                }
                asking
            }));
            wishes.push((algorithm, against));
        }
        let compared = |kind: &Algorithm| {
            wishes.iter().any(|(algorithm, against)| algorithm == kind && *against == Against::EachOther)
        };
        let implied = known.iter().filter(|(kind, _)| !compared(kind)).cloned().collect();
        Ok(Self { wishes, asked, heard: Vec::new(), implied })
    }

    /// Returns the requested checksums, with `auto` replaced by a type that a server supports.
    pub(super) async fn wishes(
        copier: &Copier,
        server: Option<&Url>,
        options: &CopyOptions,
    ) -> Vec<(Algorithm, Against)> {
        let mut wishes = Vec::new();
        for ChecksumWish { algorithm, against } in &options.checksums {
            let algorithm = match algorithm {
                Some(algorithm) => *algorithm,
                None => first_of(copier, server).await,
            };
            wishes.push((algorithm, against.clone()));
        }
        wishes
    }

    /// Returns the checksums to compute during the transfer.
    pub(super) fn sums(&self) -> Vec<RunningChecksum> {
        let wished = self.wishes.iter().map(|(algorithm, _)| algorithm);
        let all = wished.chain(self.implied.iter().map(|(algorithm, _)| algorithm));
        all.map(|algorithm| RunningChecksum::new(*algorithm)).collect()
    }

    /// Waits for the checksums of the source's server.
    pub(super) async fn hear(&mut self) -> Result<(), CopyError> {
        for asked in std::mem::take(&mut self.asked) {
            self.heard.push(match asked {
                Some(mut asked) => match asked.join_next().await {
                    Some(Ok(told)) => Some(told?),
                    _ => return Err(CopyError::Cancelled),
                },
                None => None,
            });
        }
        Ok(())
    }

    /// Compares the computed checksums with those of the source's server, or with given values.
    pub(super) fn verify_source(
        &self,
        source: &Place,
        sums: &[digest::Checksum],
    ) -> Result<Vec<(Place, FileChecksum)>, CopyError> {
        let mut told = Vec::new();
        let implied = sums.get(self.wishes.len()..).unwrap_or_default();
        for ((algorithm, value), sum) in self.implied.iter().zip(implied) {
            compare(source, *algorithm, &of(sum), value)?;
        }
        for (((algorithm, against), theirs), sum) in self.wishes.iter().zip(&self.heard).zip(sums) {
            let computed = of(sum);
            match (against, theirs) {
                (Against::EachOther, Some(theirs)) => compare(source, *algorithm, &computed, &theirs.value)?,
                (Against::Value(value), _) => compare(source, *algorithm, &computed, value)?,
                (Against::PrintSource, theirs) => {
                    told.push((source.clone(), theirs.clone().unwrap_or(computed)));
                }
                _ => {}
            }
        }
        Ok(told)
    }

    /// Returns the first given value that differs from the computed one: type, value and computed
    /// value.
    pub(super) fn wrong_value(&self, sums: &[digest::Checksum]) -> Option<(Algorithm, &str, String)> {
        self.wishes.iter().zip(sums).find_map(|((algorithm, against), sum)| match against {
            Against::Value(value) if !same(*algorithm, &sum.hex(), value) => {
                Some((*algorithm, value.as_str(), sum.hex()))
            }
            _ => None,
        })
    }

    /// Compares the checksums of the target's server with the computed ones.
    pub(super) async fn verify_target(
        &self,
        copier: &Copier,
        target: &Place,
        at: Option<&Url>,
        sums: &[digest::Checksum],
    ) -> Result<Vec<(Place, FileChecksum)>, CopyError> {
        let mut told = Vec::new();
        for ((algorithm, against), sum) in self.wishes.iter().zip(sums) {
            if *against == Against::PrintSource {
                continue;
            }
            let computed = of(sum);
            let has = match at {
                Some(url) => checksum(&copier.client, url, *algorithm).await.map_err(CopyError::target)?,
                None => computed.clone(),
            };
            if *against != Against::PrintTarget {
                compare(target, *algorithm, &has, &computed.value)?;
            }
            told.push((target.clone(), has));
        }
        Ok(told)
    }
}

fn of(sum: &digest::Checksum) -> FileChecksum {
    FileChecksum { kind: sum.algorithm().name().to_owned(), value: sum.hex() }
}

/// Reports whether two values are equal. Leading zeros of short checksums are ignored because some
/// servers omit them.
pub(super) fn same(algorithm: Algorithm, one: &str, other: &str) -> bool {
    let bare = |value: &str| {
        let lower = value.trim().to_ascii_lowercase();
        if algorithm.bytes() == 4 { lower.trim_start_matches('0').to_owned() } else { lower }
    };
    bare(one) == bare(other)
}

/// Returns an error if a value differs from the expected one.
pub(super) fn compare(
    place: &Place,
    algorithm: Algorithm,
    found: &FileChecksum,
    expected: &str,
) -> Result<(), CopyError> {
    if same(algorithm, &found.value, expected) {
        return Ok(());
    }
    Err(CopyError::Checksum {
        place: place.to_string(),
        kind: algorithm.name().to_owned(),
        found: found.value.clone(),
        expected: expected.to_owned(),
    })
}

/// Returns the first type that a server supports, or adler32 as fallback if the server reports
/// none.
async fn first_of(copier: &Copier, url: Option<&Url>) -> Algorithm {
    let told = match url {
        Some(url) => copier.client.file_system(url).config(&["chksum"]).await.ok(),
        None => None,
    };
    let told = told.and_then(|values| values.into_iter().next().flatten()).unwrap_or_default();
    let names = told.split(',').map(|name| name.rsplit(':').next().unwrap_or_default());
    names.filter_map(Algorithm::from_name).next().unwrap_or(Algorithm::Adler32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_zeros_are_significant_in_long_checksums_only() {
        let compare = |kind: Algorithm, a: &str, b: &str| {
            let found = FileChecksum { kind: kind.name().to_owned(), value: a.to_owned() };
            compare(&Place::Stream, kind, &found, b).is_ok()
        };
        assert!(compare(Algorithm::Adler32, "0a", "0000000A"));
        assert!(!compare(Algorithm::Md5, "0a", "a"));
        assert!(!compare(Algorithm::Crc32c, "1a", "a"));
    }
}
