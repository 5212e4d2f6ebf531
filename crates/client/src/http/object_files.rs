//! Status and listings of an object store: keys with slashes are shown as files in directories.
//!
//! A directory exists as long as a key begins with its name and a slash.

use hyper::{Method, StatusCode};
use wire::xroot::ErrorCode;
use wire::xroot::reply::StatText;

use super::address::HttpAddress;
use super::elements::BodyReader;
use super::exchange::{HttpExchange, HttpReply, HttpRequest};
use super::files::{find, stat};
use super::object_listing::{ListedObject, ListingPage, read_page};
use super::object_store::{ObjectStore, store_refusal};
use crate::answers::StatInfo;
use crate::entries::ServerListing;
use crate::failure::{Cause, Error};
use crate::filesystem::ListWith;
use crate::listing_memory::ListingMemory;

/// Maximum number of pages without names of files that follow each other.
const EMPTY_PAGES_MAX: usize = 1000;

/// Returns the status of an object, or of a directory of them.
pub(super) async fn stat_object(
    exchange: &HttpExchange<'_>,
    store: &ObjectStore,
    address: &HttpAddress,
) -> Result<StatInfo, Error> {
    let failed = |cause| exchange.error(cause, address, &[]);
    let prefix = prefix_of(&store.key(address).map_err(failed)?);
    let not_found = match prefix.is_empty() {
        true => None,
        false => match find(exchange, &address.without_slash()).await {
            Ok(found) => return Ok(found.stat),
            Err(error) if is_not_found(&error) => Some(error),
            Err(error) => return Err(error),
        },
    };
    let mut is_directory = false;
    let found = |entry: ListedObject| {
        is_directory = true;
        // A store that ignores the prefix shows no directory.
        name_below(&entry, &prefix).map(drop)
    };
    list_page(exchange, store, (&prefix, 1), None, found).await?;
    match not_found.filter(|_| !is_directory) {
        Some(error) => Err(error),
        None => Ok(stat(true, 0, 0, 0)),
    }
}

/// Lists a directory.
pub(super) async fn list_objects(
    exchange: &HttpExchange<'_>,
    store: &ObjectStore,
    address: &HttpAddress,
    with: &ListWith,
    memory: &ListingMemory,
) -> Result<ServerListing, Error> {
    let failed = |cause| exchange.error(cause, address, &[]);
    let prefix = prefix_of(&store.key(address).map_err(failed)?);
    let mut listing = ServerListing::empty(memory, with.stat);
    let mut is_directory = false;
    let (mut token, mut empty_pages) = (None, 0);
    loop {
        let mut is_empty = true;
        let add = |entry: ListedObject| {
            is_directory = true;
            let Some(name) = name_below(&entry, &prefix)? else { return Ok(()) };
            is_empty = false;
            let StatInfo { id, size, flags, mtime, .. } =
                stat(entry.is_prefix, entry.size, entry.modified, 0);
            let line = StatText { id, size, flags, mtime, extended: None };
            if listing.add(name, with.stat.then_some(&line)) {
                return Ok(());
            }
            Err(Cause::TooLarge(format!("{} bytes of listings (XRD_LISTINGBYTES)", memory.bytes_max())))
        };
        let page = list_page(exchange, store, (&prefix, 1000), token.as_deref(), add).await?;
        empty_pages = if is_empty { empty_pages + 1 } else { 0 };
        match page.next {
            None => break,
            next if next == token => {
                return Err(failed(Cause::BadAnswer("the listing in it repeats a page".to_owned())));
            }
            Some(_) if empty_pages >= EMPTY_PAGES_MAX => {
                let text = format!("the listing in it has {EMPTY_PAGES_MAX} pages without names of files");
                return Err(failed(Cause::BadAnswer(text)));
            }
            next => token = next,
        }
    }
    if !is_directory && !prefix.is_empty() {
        // A missing path is an error of this.
        find(exchange, &address.without_slash()).await?;
        let text = format!("{address} is not a directory");
        return Err(failed(Cause::Server { code: ErrorCode::FS_ERROR, text }));
    }
    Ok(listing)
}

/// Reports whether a directory has no key but the one that shows it.
pub(super) async fn is_empty_prefix(
    exchange: &HttpExchange<'_>,
    store: &ObjectStore,
    address: &HttpAddress,
) -> Result<bool, Error> {
    let prefix = prefix_of(&store.key(address).map_err(|cause| exchange.refused(cause))?);
    let (mut others, own) = (0, &prefix);
    let count = |entry: ListedObject| {
        others += usize::from(entry.is_prefix || entry.key.as_bytes() != own.as_slice());
        Ok(())
    };
    let page = list_page(exchange, store, (&prefix, 2), None, count).await?;
    Ok(others == 0 && page.next.is_none())
}

/// Returns the beginning of the keys in a directory.
fn prefix_of(key: &[u8]) -> Vec<u8> {
    let end = key.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    match key.get(..end) {
        None | Some(b"") => Vec::new(),
        Some(name) => [name, b"/"].concat(),
    }
}

/// Returns the name of an entry of a directory. `None` for one that no file system can have.
fn name_below<'a>(entry: &'a ListedObject, prefix: &[u8]) -> Result<Option<&'a [u8]>, Cause> {
    let outside = || Cause::BadAnswer("an entry in it lies outside of the directory".to_owned());
    let name = entry.key.as_bytes().strip_prefix(prefix).ok_or_else(outside)?;
    let name = match entry.is_prefix {
        true => name.strip_suffix(b"/").ok_or_else(outside)?,
        false => name,
    };
    if name.contains(&b'/') {
        return Err(outside());
    }
    let is_odd = matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, b'\n' | 0));
    Ok((!is_odd).then_some(name))
}

fn is_not_found(error: &Error) -> bool {
    matches!(error.cause(), Cause::Server { code: ErrorCode::NOT_FOUND, .. })
}

/// Requests one page of at most `count` keys.
async fn list_page(
    exchange: &HttpExchange<'_>,
    store: &ObjectStore,
    (prefix, count): (&[u8], usize),
    token: Option<&str>,
    found: impl FnMut(ListedObject) -> Result<(), Cause> + Send,
) -> Result<ListingPage, Error> {
    let mut query = String::new();
    if let Some(token) = token {
        query.push_str("continuation-token=");
        base::percent_encode(&mut query, token.as_bytes(), b"");
        query.push('&');
    }
    query.push_str(&format!("delimiter=%2F&list-type=2&max-keys={count}&prefix="));
    base::percent_encode(&mut query, prefix, b"");
    let address = store.bucket_address(&query).map_err(|cause| exchange.refused(cause))?;
    let reply = exchange.send(&HttpRequest::new(Method::GET), &address).await?;
    let HttpReply { status, mut body, .. } = reply;
    let failed = |cause| exchange.error(cause, &address, &[]);
    if status != StatusCode::OK {
        return Err(failed(store_refusal(status, body, &address).await));
    }
    read_page(BodyReader::new(&mut body), found).await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_beginnings_of_keys() {
        for (key, expected) in [("", ""), ("a", "a/"), ("a/b//", "a/b/"), ("/", "")] {
            assert_eq!(prefix_of(key.as_bytes()), expected.as_bytes(), "{key}");
        }
    }

    #[test]
    fn names_stay_in_their_directory() {
        let name = |key: &str, is_prefix, prefix: &str| {
            let entry = ListedObject { key: key.to_owned(), is_prefix, ..ListedObject::default() };
            name_below(&entry, prefix.as_bytes()).map(|name| name.map(<[u8]>::to_vec))
        };
        assert_eq!(name("d/a", false, "d/"), Ok(Some(b"a".to_vec())));
        assert_eq!(name("d/e/", true, "d/"), Ok(Some(b"e".to_vec())));
        for (key, is_prefix) in
            [("d/", false), ("d/.", false), ("d/../", true), ("d//", true), ("d/a\nb", false)]
        {
            assert_eq!(name(key, is_prefix, "d/"), Ok(None), "{key}");
        }
        for (key, is_prefix) in
            [("e/a", false), ("d", false), ("d/a/b", false), ("d/a", true), ("d/a/b/", true)]
        {
            assert!(name(key, is_prefix, "d/").is_err(), "{key}");
        }
    }
}
