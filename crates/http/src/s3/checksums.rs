//! Checksums that clients send with an object: in headers, or in trailers behind the body.

use super::error::S3Error;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use digest::{Algorithm, RunningChecksum, RunningCrc64};
use hyper::StatusCode;
use hyper::header::HeaderMap;

/// The begin of the names of headers with checksums.
const PREFIX: &str = "x-amz-checksum-";
/// The header that names trailers.
const TRAILER: &str = "x-amz-trailer";
/// Headers that begin like those with checksums and have none.
const OTHERS: [&str; 3] = ["x-amz-checksum-mode", "x-amz-checksum-type", "x-amz-checksum-algorithm"];

/// The header with the kind of the checksum of an object in parts.
const TYPE: &str = "x-amz-checksum-type";
/// Maximum number of checksums of a part, or of an object of parts.
const CONTENT_SUMS_MAX: usize = 1;

/// A checksum under computation.
enum RunningSum {
    Known(RunningChecksum),
    Crc64(RunningCrc64),
}

impl RunningSum {
    /// Returns the computation for the name of a header behind its begin.
    fn named(name: &str) -> Option<Self> {
        let algorithm = match name {
            "crc32" => Algorithm::Zcrc32,
            "crc32c" => Algorithm::Crc32c,
            "sha1" => Algorithm::Sha1,
            "sha256" => Algorithm::Sha256,
            "crc64nvme" => return Some(Self::Crc64(RunningCrc64::default())),
            _ => return None,
        };
        Some(Self::Known(RunningChecksum::new(algorithm)))
    }

    fn update(&mut self, data: &[u8]) {
        match self {
            Self::Known(running) => running.update(data),
            Self::Crc64(running) => running.update(data),
        }
    }

    fn finish(self) -> Vec<u8> {
        match self {
            Self::Crc64(running) => running.finish().to_vec(),
            Self::Known(running) => {
                let sum = running.finish();
                let mut bytes = sum.bytes().to_vec();
                // This type has its bytes in the other order.
                if sum.algorithm() == Algorithm::Zcrc32 {
                    bytes.reverse();
                }
                bytes
            }
        }
    }
}

/// A checksum that a body must have.
struct ExpectedSum {
    /// The name of its header or trailer.
    name: String,
    running: RunningSum,
    /// Its value; `None` until the trailers are known.
    value: Option<Vec<u8>>,
}

/// The checksums that the body of a request must have.
#[derive(Default)]
pub(super) struct ObjectChecksums(Vec<ExpectedSum>);

impl ObjectChecksums {
    /// Reads the headers of a request.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, S3Error> {
        let mut sums = Vec::new();
        if let Some(value) = headers.get("content-md5") {
            let value = STANDARD.decode(value.as_bytes()).ok().filter(|value| value.len() == 16);
            let invalid =
                || S3Error::new(StatusCode::BAD_REQUEST, "InvalidDigest", "Content-MD5 is malformed.");
            let value = Some(value.ok_or_else(invalid)?);
            let running = RunningSum::Known(RunningChecksum::new(Algorithm::Md5));
            sums.push(ExpectedSum { name: "content-md5".to_owned(), running, value });
        }
        for (name, value) in headers {
            let name = name.as_str();
            let Some(algorithm) = name.strip_prefix(PREFIX).filter(|_| !OTHERS.contains(&name)) else {
                continue;
            };
            let value = Some(STANDARD.decode(value.as_bytes()).map_err(|_| invalid(name))?);
            sums.push(ExpectedSum { name: name.to_owned(), running: running(algorithm)?, value });
        }
        for names in headers.get_all(TRAILER) {
            let names = names.to_str().map_err(|_| invalid(TRAILER))?.to_ascii_lowercase();
            for name in names.split(',').map(str::trim) {
                let algorithm = name.strip_prefix(PREFIX).ok_or_else(|| invalid(TRAILER))?;
                sums.push(ExpectedSum { name: name.to_owned(), running: running(algorithm)?, value: None });
            }
        }
        // Each is computed for the whole body.
        match sums.len() {
            0..=2 => Ok(Self(sums)),
            _ => Err(S3Error::request("The request names more checksums than one and an MD5.")),
        }
    }

    /// Reads the checksums of the object that the headers of a completion have. Its body has others.
    pub(super) fn of_object(headers: &HeaderMap) -> Result<Self, S3Error> {
        let mut named = Vec::new();
        for (name, value) in headers {
            if let Some(name) =
                name.as_str().strip_prefix(PREFIX).filter(|_| !OTHERS.contains(&name.as_str()))
            {
                named.push((name.to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
            }
        }
        let is_whole = headers.get(TYPE).is_none_or(|kind| kind == "FULL_OBJECT");
        match named.is_empty() || is_whole {
            true => Self::of_content(&named),
            false => Err(S3Error::unsupported("Checksums of checksums of parts are not supported.")),
        }
    }

    /// Returns the checksums that some content must have: names and values.
    pub(super) fn of_content(named: &[(String, String)]) -> Result<Self, S3Error> {
        if named.len() > CONTENT_SUMS_MAX {
            return Err(S3Error::request("The request names more than one checksum of a part."));
        }
        let expected = named.iter().map(|(algorithm, value)| {
            let name = format!("{PREFIX}{algorithm}");
            let value = Some(STANDARD.decode(value).map_err(|_| invalid(&name))?);
            Ok(ExpectedSum { running: running(algorithm)?, name, value })
        });
        Ok(Self(expected.collect::<Result<_, S3Error>>()?))
    }

    pub(super) fn update(&mut self, data: &[u8]) {
        for sum in &mut self.0 {
            sum.running.update(data);
        }
    }

    /// Compares the checksums of the whole body, also with those of its trailers.
    pub(super) fn check(self, trailers: &[(String, String)]) -> Result<(), S3Error> {
        for ExpectedSum { name, running, value } in self.0 {
            let value = match value {
                Some(value) => value,
                None => {
                    let trailer = trailers.iter().find(|(trailer, _)| *trailer == name);
                    let (_, value) = trailer.ok_or_else(|| invalid(&name))?;
                    STANDARD.decode(value).map_err(|_| invalid(&name))?
                }
            };
            if running.finish() != value {
                let text = format!("The body does not have the checksum of {name}.");
                return Err(S3Error::new(StatusCode::BAD_REQUEST, "BadDigest", text));
            }
        }
        Ok(())
    }
}

fn running(algorithm: &str) -> Result<RunningSum, S3Error> {
    RunningSum::named(algorithm)
        .ok_or_else(|| S3Error::unsupported("The algorithm of the checksum is not supported."))
}

fn invalid(name: &str) -> S3Error {
    S3Error::request(format!("The value of {name} is malformed or missing."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{HeaderName, HeaderValue};

    fn code(
        headers: &[(&'static str, &'static str)],
        trailers: &[(&str, &str)],
        body: &[u8],
    ) -> &'static str {
        let pairs = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut sums = match ObjectChecksums::of(&pairs.collect()) {
            Ok(sums) => sums,
            Err(error) => return error.code,
        };
        let (first, rest) = body.split_at(body.len() / 2);
        sums.update(first);
        sums.update(rest);
        let text = |text: &str| text.to_owned();
        let trailers: Vec<_> = trailers.iter().map(|(name, value)| (text(name), text(value))).collect();
        sums.check(&trailers).err().map_or("", |error| error.code)
    }

    /// The values are those of Python's `zlib`, `hashlib`, and of the catalogue of CRCs for `123456789`.
    #[test]
    fn bodies_must_have_their_checksums() {
        let body = b"123456789";
        for (name, value) in [
            ("content-md5", "JfnnlDI7RTiF9RgfG2JNCw=="),
            ("x-amz-checksum-crc32", "y/Q5Jg=="),
            ("x-amz-checksum-crc32c", "4waSgw=="),
            ("x-amz-checksum-crc64nvme", "rosUhgp5mIg="),
            ("x-amz-checksum-sha1", "98O8HYCOBHMq32eZZczDTKeuNEE="),
            ("x-amz-checksum-sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
        ] {
            assert_eq!(code(&[(name, value)], &[], body), "", "{name}");
            assert_eq!(code(&[(name, value)], &[], b"12345678"), "BadDigest", "{name}");
            if name != "content-md5" {
                assert_eq!(code(&[("x-amz-trailer", name)], &[(name, value)], body), "", "{name}");
                assert_eq!(code(&[("x-amz-trailer", name)], &[(name, value)], b"x"), "BadDigest", "{name}");
                assert_eq!(code(&[("x-amz-trailer", name)], &[], body), "InvalidRequest", "{name}");
            }
        }
        assert_eq!(code(&[("x-amz-checksum-type", "FULL_OBJECT")], &[], body), "");
        assert_eq!(code(&[("x-amz-checksum-x", "AA==")], &[], body), "NotImplemented");
        assert_eq!(code(&[("x-amz-checksum-crc32", "?")], &[], body), "InvalidRequest");
        assert_eq!(code(&[("content-md5", "AA==")], &[], body), "InvalidDigest");
        assert_eq!(code(&[("x-amz-trailer", "x-other")], &[], body), "InvalidRequest");
    }
}
