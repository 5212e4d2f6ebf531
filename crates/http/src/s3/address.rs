//! Bucket and key of a request, and the path of an object.
//!
//! The key is the path below the directory of the bucket. A key that a path cannot express is refused, so that two
//! keys never name one file, and no key leads out of its bucket.

use super::S3Service;
use super::error::S3Error;
use super::uploads;
use base::LogicalPath;
use hyper::StatusCode;
use hyper::header::{HOST, HeaderMap};
use hyper::http::request::Parts;

/// Maximum length of a key in bytes.
pub(super) const KEY_BYTES_MAX: usize = 1024;
/// Maximum length of one of its components.
const COMPONENT_BYTES_MAX: usize = 255;
/// Maximum length of the name of a bucket.
const BUCKET_BYTES_MAX: usize = 255;

/// What a request addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RequestAddress {
    /// All buckets.
    Service,
    /// A bucket.
    Bucket(String),
    /// An object of a bucket.
    Object(String, ObjectKey),
}

/// The key of an object. With a slash at its end it is that of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ObjectKey(String);

impl ObjectKey {
    pub(super) fn parse(text: &str) -> Result<Self, S3Error> {
        if text.len() > KEY_BYTES_MAX {
            return Err(S3Error::new(
                StatusCode::BAD_REQUEST,
                "KeyTooLongError",
                "The key is longer than 1024 bytes.",
            ));
        }
        if text.contains('\0') {
            return Err(S3Error::argument("The key has a NUL."));
        }
        let components = text.strip_suffix('/').unwrap_or(text);
        for component in components.split('/') {
            match component {
                "" | "." | ".." => {
                    return Err(S3Error::argument(
                        "A key with an empty component, '.' or '..' is not supported, because keys are paths.",
                    ));
                }
                name if name.len() > COMPONENT_BYTES_MAX => {
                    let text = "A component of the key is longer than 255 bytes.";
                    return Err(S3Error::new(StatusCode::BAD_REQUEST, "KeyTooLongError", text));
                }
                name if uploads::is_reserved(name) => {
                    return Err(S3Error::argument("The key has a name that is reserved for uploads."));
                }
                _ => {}
            }
        }
        Ok(Self(text.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Reports whether this is the key of a directory.
    pub(super) fn is_directory(&self) -> bool {
        self.0.ends_with('/')
    }

    /// Returns the path in the directory of a bucket, without a slash at its end.
    pub(super) fn path(&self, bucket: &LogicalPath) -> Result<LogicalPath, S3Error> {
        below(bucket, self.0.trim_end_matches('/'))
    }
}

/// Returns the path of names in a directory.
pub(super) fn below(directory: &LogicalPath, names: &str) -> Result<LogicalPath, S3Error> {
    let path = [directory.without_slash().as_bytes(), b"/", names.as_bytes()].concat();
    let path = LogicalPath::parse(&path).map_err(|_| S3Error::argument("The key is not a path."))?;
    // The names were checked before. Nothing may depend on that alone.
    match path.is_within(directory) {
        true => Ok(path),
        false => Err(S3Error::argument("The key is not in its bucket.")),
    }
}

impl RequestAddress {
    /// Returns what a request addresses: `/BUCKET/KEY`, or `/KEY` with the bucket in the name of the host.
    pub(super) fn of(service: &S3Service, head: &Parts) -> Result<Self, S3Error> {
        let invalid =
            || S3Error::new(StatusCode::BAD_REQUEST, "InvalidURI", "The path is not percent-encoded UTF-8.");
        let path = base::percent_decode(head.uri.path().as_bytes()).ok_or_else(invalid)?;
        let path = String::from_utf8(path).map_err(|_| invalid())?;
        let path = path.strip_prefix('/').ok_or_else(invalid)?;
        let (bucket, key) = match bucket_of_host(service, &head.headers) {
            Some(bucket) => (bucket, path),
            None => {
                let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
                (bucket.to_owned(), key)
            }
        };
        match (bucket.is_empty(), key.is_empty()) {
            (true, true) => Ok(Self::Service),
            (true, false) => Err(invalid()),
            (false, _) if !is_bucket(&bucket) => Err(S3Error::new(
                StatusCode::BAD_REQUEST,
                "InvalidBucketName",
                "The name of the bucket is malformed.",
            )),
            (false, true) => Ok(Self::Bucket(bucket)),
            (false, false) => Ok(Self::Object(bucket, ObjectKey::parse(key)?)),
        }
    }
}

/// Reports whether a text can be the name of a bucket.
pub(super) fn is_bucket(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=BUCKET_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain) && !name.starts_with('.')
}

/// Returns the bucket that the host of a request names.
pub(super) fn bucket_of_host(service: &S3Service, headers: &HeaderMap) -> Option<String> {
    if service.domains.is_empty() {
        return None;
    }
    let host = headers.get(HOST)?.to_str().ok()?.to_ascii_lowercase();
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let host = match host.rsplit_once(':') {
        Some((host, port)) if is_port(port) => host,
        _ => &host,
    };
    service.domains.iter().find_map(|domain| {
        let bucket = host.strip_suffix(domain.as_str())?.strip_suffix('.')?;
        is_bucket(bucket).then(|| bucket.to_owned())
    })
}

/// Reports whether the host of a request that is not signed is that of a bucket of the configuration. Others below a
/// domain may be names of servers, whose other services must not become S3.
pub(super) fn names_known_bucket(service: &S3Service, headers: &HeaderMap) -> bool {
    bucket_of_host(service, headers)
        .is_some_and(|name| service.buckets.iter().any(|bucket| bucket.name == name))
}

/// Returns the parameters of a query. Each has one value.
pub(super) fn parse_query(query: &str) -> Result<Vec<(String, String)>, S3Error> {
    let invalid =
        || S3Error::argument("The query is not percent-encoded UTF-8, or a parameter occurs twice.");
    let decode = |text: &str| String::from_utf8(base::percent_decode(text.as_bytes())?).ok();
    let mut parameters: Vec<(String, String)> = Vec::new();
    for element in query.split('&').filter(|element| !element.is_empty()) {
        let (name, value) = element.split_once('=').unwrap_or((element, ""));
        let (name, value) = decode(name).zip(decode(value)).ok_or_else(invalid)?;
        if parameters.iter().any(|(known, _)| *known == name) {
            return Err(invalid());
        }
        parameters.push((name, value));
    }
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use auth::S3Users;
    use hyper::Request;
    use std::sync::Arc;

    fn service() -> S3Service {
        let path = std::env::temp_dir().join(format!(
            "scalla-s3-address-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::write(&path, "[a]\naws_access_key_id = A\naws_secret_access_key = 0123456789abcdef\n")
            .unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let users = Arc::new(S3Users::read(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        S3Service { users, buckets: Vec::new(), has_root: true, domains: vec!["s3.example.org".to_owned()] }
    }

    fn address(service: &S3Service, host: &str, uri: &str) -> Result<RequestAddress, &'static str> {
        let (head, ()) = Request::builder().uri(uri).header("host", host).body(()).unwrap().into_parts();
        RequestAddress::of(service, &head).map_err(|error| error.code)
    }

    #[test]
    fn bucket_and_key_are_those_of_the_path_or_of_the_host() {
        let service = service();
        let object = |bucket: &str, key: &str| {
            Ok(RequestAddress::Object(bucket.to_owned(), ObjectKey(key.to_owned())))
        };
        let path = |uri: &str| address(&service, "s3.example.org", uri);
        assert_eq!(path("/"), Ok(RequestAddress::Service));
        assert_eq!(path("/b"), Ok(RequestAddress::Bucket("b".to_owned())));
        assert_eq!(path("/b/"), Ok(RequestAddress::Bucket("b".to_owned())));
        assert_eq!(path("/b/a%20b/%C3%BC%3F+?x"), object("b", "a b/ü?+"));
        assert_eq!(path("/b/d/"), object("b", "d/"));
        for host in ["b.s3.example.org", "B.S3.example.org:1094"] {
            assert_eq!(address(&service, host, "/c/k"), object("b", "c/k"), "{host}");
            assert_eq!(address(&service, host, "/"), Ok(RequestAddress::Bucket("b".to_owned())), "{host}");
        }
        for host in ["xs3.example.org", "b.other.org", ".s3.example.org", "127.0.0.1:1"] {
            assert_eq!(address(&service, host, "/c/k"), object("c", "k"), "{host}");
        }
    }

    #[test]
    fn keys_that_are_no_paths_are_refused() {
        let service = service();
        let code = |uri: &str| address(&service, "h", uri).unwrap_err();
        for key in [
            "..", "a/../b", "%2e%2e", "a/%2E%2e", "/a", "a//b", "a//", "//", ".", "a/.", "a%2F%2Fb", "a%00b",
            "%2F", "a/..%2Fb",
        ] {
            assert_eq!(code(&format!("/b/{key}")), "InvalidArgument", "{key}");
        }
        for key in ["%", "a%2", "%zz", "%ff", "a%C3"] {
            assert_eq!(code(&format!("/b/{key}")), "InvalidURI", "{key}");
        }
        assert_eq!(code("/.."), "InvalidBucketName");
        assert_eq!(code("/%2e%2e/x"), "InvalidBucketName");
        assert_eq!(code("//k"), "InvalidURI");
        assert_eq!(code(&format!("/b/{}", "a/".repeat(513))), "KeyTooLongError");
        assert_eq!(code(&format!("/b/{}", "a".repeat(256))), "KeyTooLongError");
        assert!(address(&service, "h", &format!("/b/{}a", "a/".repeat(511))).is_ok());
    }

    #[test]
    fn a_key_stays_in_its_bucket() {
        let bucket = LogicalPath::parse(b"/data/b").unwrap();
        let path = |key: &str| ObjectKey::parse(key).unwrap().path(&bucket).unwrap();
        assert_eq!(path("a/b").as_bytes(), b"/data/b/a/b");
        assert_eq!(path("d/").as_bytes(), b"/data/b/d");
        assert!(below(&bucket, "../c").is_err() && below(&bucket, "/../../etc").is_err());
        assert_eq!(below(&LogicalPath::root(), "a").unwrap().as_bytes(), b"/a");
    }

    #[test]
    fn parameters_have_one_value() {
        let parsed = parse_query("list-type=2&prefix=a%2Fb&delete&x-id=ListObjects&X-Amz-Date=1").unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [
            pair("list-type", "2"),
            pair("prefix", "a/b"),
            pair("delete", ""),
            pair("x-id", "ListObjects"),
            pair("X-Amz-Date", "1"),
        ];
        assert_eq!(parsed, expected);
        for malformed in ["a=%", "a=%ff", "a=1&a=2", "%zz=1"] {
            assert!(parse_query(malformed).is_err(), "{malformed}");
        }
    }
}
