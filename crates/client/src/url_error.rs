//! Errors of URLs.

use std::fmt;

use crate::path::NameError;

/// The reason why a text is not a URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UrlError {
    /// The text is empty.
    Empty,
    /// The scheme in front of `://` is not supported.
    UnknownScheme(String),
    /// The host is missing.
    NoHost,
    /// The text behind `s3://` is not the name of a bucket.
    NoBucket(String),
    /// The path of an object has a `?`, behind which other protocols have parameters.
    KeyWithParameters(String),
    /// The text in brackets is not an IPv6 address, or the bracket is not closed.
    BadAddress(String),
    /// The text behind the colon of a host is not a port (0 to 65535).
    BadPort(String),
    /// The path contains bytes that no request can carry.
    BadPath(String, NameError),
    /// The path of a URL of HTTP has escapes, and a `%` that begins none.
    BadEscape(String),
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the URL is empty"),
            Self::UnknownScheme(scheme) => {
                write!(
                    f,
                    "`{scheme}` is no protocol for files (root, roots, xroot, xroots, http, https, dav, davs, s3, file)"
                )
            }
            Self::NoHost => write!(f, "the URL has no host (root://HOST[:PORT]//PATH)"),
            Self::NoBucket(text) => write!(
                f,
                "`{text}` is no bucket (s3://BUCKET/KEY); AWS_ENDPOINT_URL_S3 names the store, and AWS_PROFILE or \
                 AWS_ACCESS_KEY_ID the keys"
            ),
            Self::KeyWithParameters(place) => {
                write!(f, "s3://{place}?…: objects have no parameters, and keys with a `?` cannot be named")
            }
            Self::BadAddress(text) => write!(f, "`{text}` is no IPv6 address in brackets"),
            Self::BadPort(text) => write!(f, "`{text}` is no port (0 to 65535)"),
            Self::BadEscape(text) => write!(f, "{text:?} has a % that begins no escape; write it as %25"),
            Self::BadPath(text, why) => write!(f, "{text:?} cannot be asked for: {why}"),
        }
    }
}

impl std::error::Error for UrlError {}
