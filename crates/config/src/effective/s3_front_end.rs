//! Values of S3 for clients (`scalla.s3`).

use std::path::PathBuf;

use super::Effective;

/// Maximum length of the name of a bucket.
const BUCKET_BYTES_MAX: usize = 255;

/// A bucket and its directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BucketDirectory {
    /// The name of the bucket.
    pub name: String,
    /// The path of its directory.
    pub path: String,
}

/// `scalla.s3`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct S3FrontEnd {
    /// The file with the keys of the users; `None` without S3.
    pub credentials: Option<PathBuf>,
    /// Names of the server behind the bucket in the host of a request, in lower case.
    pub domains: Vec<String>,
    /// The buckets; without any, those of [`Effective::s3_buckets`].
    pub buckets: Vec<BucketDirectory>,
}

/// Reports whether a text can be the name of a bucket.
pub(crate) fn is_bucket(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=BUCKET_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain) && !name.starts_with('.')
}

impl Effective {
    /// Reports whether clients are served by S3.
    #[must_use]
    pub fn serves_s3(&self) -> bool {
        self.serves_http() && self.http.s3.credentials.is_some()
    }

    /// Returns the buckets of S3, and whether each directory of the root is one, too: those of the configuration,
    /// otherwise the exports with one component, and if the root is exported, its directories.
    #[must_use]
    pub fn s3_buckets(&self) -> (Vec<BucketDirectory>, bool) {
        let named = &self.http.s3.buckets;
        if !named.is_empty() {
            return (named.clone(), false);
        }
        let exports = &self.storage.exports;
        let bucket = |path: &str| {
            let name = path.trim_matches('/');
            is_bucket(name).then(|| BucketDirectory { name: name.to_owned(), path: format!("/{name}") })
        };
        let buckets = exports.iter().filter_map(|export| bucket(&export.prefix)).collect();
        (buckets, exports.iter().any(|export| export.prefix == "/"))
    }
}
