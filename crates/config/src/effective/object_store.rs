//! Values for an object store as the origin of a proxy.

use std::path::PathBuf;
use std::str::FromStr;

use super::proxy::ProxyServer;
use crate::setting::Setting;

/// The scheme of a bucket.
const SCHEME: &str = "s3://";
/// The region if none is set. Most stores but that of Amazon have one region of this name.
const REGION: &str = "us-east-1";
/// The section of a file with keys if none is chosen.
const SECTION: &str = "default";
/// Maximum lengths of a bucket, and of the name of a region or section.
const BUCKET_BYTES_MAX: usize = 255;
const NAME_BYTES_MAX: usize = 64;

/// A bucket as origin: `s3://BUCKET[/PREFIX]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OriginBucket {
    /// The name.
    pub name: String,
    /// The path within it whose files are served; empty for all, otherwise it begins with a slash.
    pub prefix: String,
}

impl OriginBucket {
    /// Reports whether a text names a bucket, correctly or not.
    pub(crate) fn is_named(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// Returns the URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{SCHEME}{}{}", self.name, self.prefix)
    }
}

impl FromStr for OriginBucket {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let place = text.strip_prefix(SCHEME).ok_or_else(|| format!("it does not begin with {SCHEME}"))?;
        let (name, prefix) = place.split_once('/').unwrap_or((place, ""));
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        let is_bucket = (1..=BUCKET_BYTES_MAX).contains(&name.len())
            && name.bytes().all(is_plain)
            && name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !is_bucket {
            return Err("badly formed bucket; allowed: s3://BUCKET[/PREFIX], without a host".to_owned());
        }
        let prefix = prefix.trim_end_matches('/');
        if prefix.contains(['%', '?', '#']) || prefix.contains(char::is_control) {
            return Err("write the prefix as it is, without percent-encoding and query".to_owned());
        }
        if !prefix.is_empty() && prefix.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
            return Err("the prefix has an empty segment, '.' or '..'".to_owned());
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        Ok(Self { name: name.to_owned(), prefix })
    }
}

/// Parses the address of an object store: `https://HOST[:PORT]`.
///
/// # Errors
/// A text that names the fault.
pub fn parse_store_endpoint(text: &str) -> Result<ProxyServer, String> {
    let server: ProxyServer = text.parse()?;
    match text.contains("://") && server.protocol.is_http() {
        true => Ok(server),
        false => Err("an object store is reached by https:// or http://".to_owned()),
    }
}

/// Parses the name of a region.
///
/// # Errors
/// A text that names the fault.
pub fn parse_region(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_region = (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain);
    if is_region { Ok(text.to_owned()) } else { Err(format!("'{text}' is not the name of a region")) }
}

/// Reports whether a text can be the name of a section.
pub(crate) fn is_section(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len())
        && !text.contains(['[', ']'])
        && !text.contains(char::is_control)
}

/// A file with keys, and the section there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreKeys {
    /// The file.
    pub file: PathBuf,
    /// The section.
    pub section: String,
}

impl StoreKeys {
    /// Returns the keys of the section that is used if none is chosen.
    pub(crate) fn of(file: PathBuf) -> Self {
        Self { file, section: SECTION.to_owned() }
    }
}

/// Values for an object store.
#[derive(Clone, PartialEq, Debug)]
pub struct StoreValues {
    /// `scalla.s3endpoint`: `None` for that of Amazon in the region.
    pub endpoint: Setting<Option<ProxyServer>>,
    /// `scalla.s3region`.
    pub region: Setting<String>,
    /// `scalla.s3credentials`: `None` for requests without a signature.
    pub keys: Setting<Option<StoreKeys>>,
}

impl Default for StoreValues {
    fn default() -> Self {
        Self {
            endpoint: Setting::default(),
            region: Setting::default_of(REGION.to_owned()),
            keys: Setting::default(),
        }
    }
}

impl StoreValues {
    /// Returns the URL of the store.
    #[must_use]
    pub fn url(&self) -> String {
        match &*self.endpoint {
            Some(server) => server.url(),
            None => format!("https://s3.{}.amazonaws.com:443", *self.region),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_parsed() {
        let parsed = |text: &str| text.parse::<OriginBucket>().map(|bucket| bucket.url());
        assert_eq!(parsed("s3://b").as_deref(), Ok("s3://b"));
        assert_eq!(parsed("s3://my.b-1/a b/c/").as_deref(), Ok("s3://my.b-1/a b/c"));
        for text in [
            "s3://",
            "s3:///a",
            "s3://..",
            "s3://b:9000/a",
            "s3://u@b",
            "s3://b//a",
            "s3://b/a/../c",
            "s3://b/a%20",
            "s3://b/a?x",
            "b",
            "s3://-b",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn endpoints_are_web_servers() {
        assert_eq!(parse_store_endpoint("http://h:9000").unwrap().url(), "http://h:9000");
        assert_eq!(parse_store_endpoint("https://h/").unwrap().url(), "https://h:443");
        for text in ["h:9000", "root://h", "http://h/path", "s3://h", ""] {
            assert!(parse_store_endpoint(text).is_err(), "{text}");
        }
        let amazon =
            StoreValues { region: Setting::default_of("eu-west-1".to_owned()), ..Default::default() };
        assert_eq!(amazon.url(), "https://s3.eu-west-1.amazonaws.com:443");
        assert!(
            parse_region("eu-west-1").is_ok() && parse_region("a/b").is_err() && parse_region("").is_err()
        );
    }
}
