//! [`UserStores`]: the object stores of `s3://` URLs, which the environment of the user names.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use auth::S3Environment;

use super::object_store::ObjectStore;
use crate::client::Client;
use crate::url::{Scheme, Url};

/// Maximum number of buckets whose stores are kept.
const BUCKETS_MAX: usize = 64;
/// Maximum length of the name of a bucket.
const BUCKET_BYTES_MAX: usize = 255;

/// The stores of a client, by their buckets.
#[derive(Default)]
pub(super) struct UserStores {
    environment: OnceLock<Result<S3Environment, String>>,
    buckets: Mutex<HashMap<String, Arc<ObjectStore>>>,
}

impl UserStores {
    /// Returns the store of an `s3://` URL. The environment is read for the first one.
    ///
    /// # Errors
    /// A text with the remedy.
    pub(super) fn store_of(&self, client: &Client, url: &Url) -> Result<Arc<ObjectStore>, String> {
        let bucket = url.host.as_str();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if bucket.len() > BUCKET_BYTES_MAX || !bucket.bytes().all(is_plain) || bucket.starts_with('.') {
            return Err(format!("`{bucket}` is not the name of a bucket (s3://BUCKET/KEY)"));
        }
        // The keys are those of the user of this process, not of clients for which it acts.
        let user = client.pool().credentials().user().filter(|user| user.tokens.is_some());
        let user = user.ok_or_else(|| "this program reads no keys for s3:// URLs".to_owned())?;
        let environment = self.environment.get_or_init(|| {
            user.keep_out_of_core_dumps();
            S3Environment::read(|name| std::env::var(name).ok())
        });
        let environment = environment.as_ref().map_err(Clone::clone)?;
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = buckets.get(bucket) {
            return Ok(store.clone());
        }
        let store = store_at(environment, bucket)?;
        if buckets.len() >= BUCKETS_MAX {
            buckets.clear();
        }
        buckets.insert(bucket.to_owned(), store.clone());
        Ok(store)
    }
}

/// Creates the store of a bucket.
fn store_at(environment: &S3Environment, bucket: &str) -> Result<Arc<ObjectStore>, String> {
    let S3Environment { endpoint, region, credentials } = environment;
    // A user in it may have a password.
    let shown = endpoint.rsplit('@').next().unwrap_or_default();
    let bad =
        |why: &str| format!("{shown:?} is not the address of an object store: {why} (AWS_ENDPOINT_URL)");
    let url = Url::parse(endpoint).map_err(|_| bad("it is no URL"))?;
    if !matches!(url.scheme, Scheme::Http | Scheme::Https) || !endpoint.contains("://") {
        return Err(bad("it begins with https:// or http://"));
    }
    if !url.path.trim_matches('/').is_empty() || !url.cgi.is_empty() {
        return Err(bad("it has a path"));
    }
    if url.user.is_some() || !url.others.is_empty() {
        return Err(bad("it is one host, without a user"));
    }
    Ok(ObjectStore::new(&url, bucket, region, credentials.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Credentials;
    use crate::settings::Settings;

    #[test]
    fn endpoints_are_servers() {
        let of = |endpoint: &str| {
            let (endpoint, region) = (endpoint.to_owned(), "r".to_owned());
            store_at(&S3Environment { endpoint, region, credentials: None }, "b").map(drop)
        };
        assert_eq!(of("http://localhost:9000/"), Ok(()));
        assert_eq!(of("https://s3.r.amazonaws.com"), Ok(()));
        for endpoint in
            ["localhost:9000", "root://h", "https://h/path", "https://u@h", "https://a,b", "https://"]
        {
            assert!(of(endpoint).unwrap_err().contains("AWS_ENDPOINT_URL"), "{endpoint}");
        }
        for endpoint in ["https://u:SECRET@h", "https://u:SECRET@h:port", "root://u:SECRET@h/p"] {
            assert!(!of(endpoint).unwrap_err().contains("SECRET"), "{endpoint}");
        }
    }

    #[test]
    fn clients_of_servers_read_no_keys() {
        let client = Client::with(Settings::default(), Credentials::none(), "test");
        let url = Url::parse("s3://bucket/key").unwrap();
        assert!(UserStores::default().store_of(&client, &url).is_err());
    }
}
