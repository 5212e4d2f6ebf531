//! Checksums that a client sends with a PUT: `Repr-Digest` (RFC 9530), `Digest` (RFC 3230) and
//! `Content-MD5`. A file that does not have them is not kept.

use crate::conditions;
use crate::reply::RequestRefusal;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use digest::{Algorithm, Checksum, RunningChecksum};
use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName};

const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");
const DIGEST: HeaderName = HeaderName::from_static("digest");
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// The checksums that the body of a request must have, one of each algorithm.
#[derive(Default)]
pub(crate) struct ExpectedChecksums(Vec<(RunningChecksum, Checksum)>);

impl ExpectedChecksums {
    /// Reads the headers. Checksums of unknown types do not count.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, RequestRefusal> {
        let mut expected = Self::default();
        for item in items(headers, REPR_DIGEST) {
            let (name, value) = item.split_once('=').ok_or_else(malformed)?;
            let value = value.trim().strip_prefix(':').and_then(|value| value.strip_suffix(':'));
            expected.add(name, value.ok_or_else(malformed)?)?;
        }
        for item in items(headers, DIGEST) {
            let (name, value) = item.split_once('=').ok_or_else(malformed)?;
            expected.add(name, value.trim())?;
        }
        for item in items(headers, CONTENT_MD5) {
            expected.add("md5", &item)?;
        }
        Ok(expected)
    }

    fn add(&mut self, name: &str, value: &str) -> Result<(), RequestRefusal> {
        let Some(algorithm) = algorithm(name.trim()) else { return Ok(()) };
        let encoded = || Checksum::from_bytes(algorithm, &STANDARD.decode(value).ok()?);
        // `Digest` has short checksums in hexadecimal form.
        let checksum = Checksum::from_hex(algorithm, value).or_else(encoded).ok_or_else(malformed)?;
        // Each is computed for the whole body, so no algorithm is computed twice.
        match self.0.iter().find(|(_, known)| known.algorithm() == algorithm) {
            Some((_, known)) if *known == checksum => {}
            Some(_) => {
                return Err(RequestRefusal::new(
                    StatusCode::BAD_REQUEST,
                    "The request names two checksums of one algorithm.",
                ));
            }
            None => self.0.push((RunningChecksum::new(algorithm), checksum)),
        }
        Ok(())
    }

    /// Reports whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the next bytes of the body.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        for (running, _) in &mut self.0 {
            running.update(bytes);
        }
    }

    /// Compares the checksums of the whole body.
    pub(crate) fn check(self) -> Result<(), RequestRefusal> {
        for (running, expected) in self.0 {
            let found = running.finish();
            if found != expected {
                let (algorithm, expected, found) = (expected.algorithm(), expected.hex(), found.hex());
                let text = format!(
                    "The body has the {algorithm} checksum {found}, and the request names {expected}."
                );
                return Err(RequestRefusal::new(StatusCode::BAD_REQUEST, text));
            }
        }
        Ok(())
    }
}

fn items(headers: &HeaderMap, name: HeaderName) -> Vec<String> {
    let list = conditions::text(headers, name).unwrap_or_default();
    list.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

fn algorithm(name: &str) -> Option<Algorithm> {
    Some(match name.to_ascii_lowercase().as_str() {
        "adler32" | "adler" => Algorithm::Adler32,
        "crc32c" => Algorithm::Crc32c,
        "md5" => Algorithm::Md5,
        "sha" | "sha1" | "sha-1" => Algorithm::Sha1,
        "sha-256" | "sha256" => Algorithm::Sha256,
        _ => return None,
    })
}

fn malformed() -> RequestRefusal {
    RequestRefusal::new(StatusCode::BAD_REQUEST, "A checksum of the request is malformed.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    /// Reports whether a body is accepted; `None` for malformed headers.
    fn accepts(name: &'static str, value: &str, body: &[u8]) -> Option<bool> {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        let mut expected = ExpectedChecksums::of(&headers).ok()?;
        let (first, rest) = body.split_at(body.len() / 2);
        expected.update(first);
        expected.update(rest);
        Some(expected.check().is_ok())
    }

    #[test]
    fn bodies_must_have_the_checksums_of_their_headers() {
        let body = b"hello world\n";
        for (name, value) in [
            ("digest", "adler32=1e720467"),
            ("digest", "ADLER32=1E720467, MD5=b1kCrCNwJL3QwXbLkwY9xA=="),
            ("repr-digest", "md5=:b1kCrCNwJL3QwXbLkwY9xA==:, unknown=:AA==:"),
            ("content-md5", "b1kCrCNwJL3QwXbLkwY9xA=="),
            ("digest", "unknown=1"),
        ] {
            assert_eq!(accepts(name, value, body), Some(true), "{name}: {value}");
            let is_known = value != "unknown=1";
            assert_eq!(accepts(name, value, b"hello world?"), Some(!is_known), "{name}: {value}");
        }
        for (name, value) in [
            ("digest", "adler32"),
            ("digest", "adler32=xyz"),
            ("digest", "md5=AA=="),
            ("repr-digest", "md5=b1kCrCNwJL3QwXbLkwY9xA=="),
            ("content-md5", "xyz"),
        ] {
            assert_eq!(accepts(name, value, body), None, "{name}: {value}");
        }
    }

    #[test]
    fn each_algorithm_is_computed_once() {
        let number = |values: &[(HeaderName, &'static str)]| {
            let pairs = values.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
            ExpectedChecksums::of(&pairs.collect()).ok().map(|expected| expected.0.len())
        };
        let md5 = "b1kCrCNwJL3QwXbLkwY9xA==";
        assert_eq!(number(&[(DIGEST, "adler32=1e720467,adler=1E720467,ADLER32=1e720467")]), Some(1));
        assert_eq!(
            number(&[(DIGEST, "md5=b1kCrCNwJL3QwXbLkwY9xA==,adler32=1e720467"), (CONTENT_MD5, md5)]),
            Some(2)
        );
        // One of them would be wrong in any case.
        assert_eq!(number(&[(DIGEST, "adler32=1e720467,adler32=1e720468")]), None);
        assert_eq!(number(&[(DIGEST, "md5=AAAAAAAAAAAAAAAAAAAAAA=="), (CONTENT_MD5, md5)]), None);
    }
}
