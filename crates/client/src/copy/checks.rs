//! Checksums of both ends of a copy.

use digest::{Algorithm, Running};

use super::Copier;
use super::failure::{CopyError, Side};
use super::options::{Against, ChecksumWish, CopyOptions};
use super::place::Place;
use crate::answers::Checksum;
use crate::failure::Error;
use crate::url::Url;

/// What is computed and asked for one copy.
pub(super) struct Checks {
    wishes: Vec<(Algorithm, Against)>,
    /// Answers of the source's server, in the order of the wishes; asked while the bytes are on their way.
    asked: Vec<Option<tokio::task::JoinHandle<Result<Checksum, Error>>>>,
}

impl Checks {
    /// Asks what can be asked at the beginning.
    pub(super) async fn begin(
        copier: &Copier,
        source: Option<&Url>,
        target: &Place,
        options: &CopyOptions,
    ) -> Result<Self, CopyError> {
        let (mut wishes, mut asked) = (Vec::new(), Vec::new());
        for (algorithm, against) in Self::wishes(copier, source.or(target.url()), options).await {
            let wanted = matches!(against, Against::EachOther | Against::PrintSource);
            asked.push(source.filter(|_| wanted).map(|url| {
                let files = copier.client.file_system(url);
                let path = url.path.clone();
                tokio::spawn(async move { files.checksum(&path, Some(algorithm.name())).await })
            }));
            wishes.push((algorithm, against));
        }
        Ok(Self { wishes, asked })
    }

    /// What is wished, with the type that a server has for `auto`.
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

    /// Sums to compute while the bytes pass.
    pub(super) fn sums(&self) -> Vec<Running> {
        self.wishes.iter().map(|(algorithm, _)| Running::new(*algorithm)).collect()
    }

    /// Compares what the bytes add up to with what the source's server says, or with a value.
    pub(super) async fn verify_source(
        &mut self,
        source: &Place,
        sums: &[digest::Checksum],
    ) -> Result<Vec<(Place, Checksum)>, CopyError> {
        let mut told = Vec::new();
        for (((algorithm, against), asked), sum) in self.wishes.iter().zip(&mut self.asked).zip(sums) {
            let computed = of(sum);
            let theirs = match asked.take() {
                Some(asked) => match asked.await {
                    Ok(Ok(theirs)) => Some(theirs),
                    Ok(Err(error)) => return Err(CopyError::Remote { side: Side::Source, error }),
                    Err(_) => return Err(CopyError::Cancelled),
                },
                None => None,
            };
            match (against, theirs) {
                (Against::EachOther, Some(theirs)) => compare(source, *algorithm, &computed, &theirs.value)?,
                (Against::Value(value), _) => compare(source, *algorithm, &computed, value)?,
                (Against::PrintSource, theirs) => told.push((source.clone(), theirs.unwrap_or(computed))),
                _ => {}
            }
        }
        Ok(told)
    }

    /// Compares what the target's server has with what the bytes add up to.
    pub(super) async fn verify_target(
        &self,
        copier: &Copier,
        target: &Place,
        at: Option<&Url>,
        sums: &[digest::Checksum],
    ) -> Result<Vec<(Place, Checksum)>, CopyError> {
        let mut told = Vec::new();
        for ((algorithm, against), sum) in self.wishes.iter().zip(sums) {
            if *against == Against::PrintSource {
                continue;
            }
            let computed = of(sum);
            let has = match at {
                Some(url) => copier
                    .client
                    .file_system(url)
                    .checksum(&url.path, Some(algorithm.name()))
                    .await
                    .map_err(CopyError::target)?,
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

fn of(sum: &digest::Checksum) -> Checksum {
    Checksum { kind: sum.algorithm().name().to_owned(), value: sum.hex() }
}

/// Leading zeros of the short ones do not count: some servers leave them out.
pub(super) fn compare(
    place: &Place,
    algorithm: Algorithm,
    found: &Checksum,
    expected: &str,
) -> Result<(), CopyError> {
    let bare = |value: &str| {
        let lower = value.trim().to_ascii_lowercase();
        if algorithm.bytes() == 4 { lower.trim_start_matches('0').to_owned() } else { lower }
    };
    if bare(&found.value) == bare(expected) {
        return Ok(());
    }
    Err(CopyError::Checksum {
        place: place.to_string(),
        kind: algorithm.name().to_owned(),
        found: found.value.clone(),
        expected: expected.to_owned(),
    })
}

/// The first type that a server has, adler32 where none is told.
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
    fn leading_zeros_count_for_long_checksums_only() {
        let compare = |kind: Algorithm, a: &str, b: &str| {
            let found = Checksum { kind: kind.name().to_owned(), value: a.to_owned() };
            compare(&Place::Stream, kind, &found, b).is_ok()
        };
        assert!(compare(Algorithm::Adler32, "0a", "0000000A"));
        assert!(!compare(Algorithm::Md5, "0a", "a"));
        assert!(!compare(Algorithm::Crc32c, "1a", "a"));
    }
}
