//! ListObjectsV2, and its first form ListObjects.

use super::buckets::RequestBucket;
use super::error::S3Error;
use super::walk::{BEHIND, KeyWalk, ListedItem};
use super::{UserRequest, multipart, xml};
use crate::reply::RequestReply;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fmt::Write;

/// Maximum number of keys of a page.
const KEYS_MAX: usize = 1000;
/// Size of the text of a page from which on the rest is left to the next one.
const PAGE_BYTES: usize = 1024 * 1024;
/// The delimiter that is supported.
const DELIMITER: &str = "/";

/// The parameters of a listing.
struct ListingParameters {
    is_second_form: bool,
    prefix: String,
    delimiter: Option<String>,
    keys_max: usize,
    encodes_keys: bool,
    /// The position behind which the page begins.
    after: Vec<u8>,
}

impl ListingParameters {
    fn of(request: &UserRequest) -> Result<Self, S3Error> {
        let text = |name: &str| request.parameter(name).unwrap_or_default().to_owned();
        let is_second_form = match request.parameter("list-type") {
            None => false,
            Some("2") => true,
            Some(_) => return Err(S3Error::argument("The list type is 2, or there is none.")),
        };
        let delimiter = request.parameter("delimiter").filter(|delimiter| !delimiter.is_empty());
        if delimiter.is_some_and(|delimiter| delimiter != DELIMITER) {
            return Err(S3Error::unsupported("The only delimiter is '/', because keys are paths."));
        }
        let keys_max = match request.parameter("max-keys") {
            None | Some("") => KEYS_MAX,
            Some(number) => number
                .parse::<u32>()
                .ok()
                .and_then(|number| usize::try_from(number).ok())
                .filter(|number| i32::try_from(*number).is_ok())
                .ok_or_else(|| S3Error::argument("max-keys is not a number from 0 to 2147483647."))?
                .min(KEYS_MAX),
        };
        let encodes_keys = match request.parameter("encoding-type") {
            None | Some("") => false,
            Some("url") => true,
            Some(_) => return Err(S3Error::argument("The encoding type is url, or there is none.")),
        };
        let after = match (is_second_form, request.parameter("continuation-token")) {
            (true, Some(token)) => URL_SAFE_NO_PAD
                .decode(token)
                .map_err(|_| S3Error::argument("The continuation token is not one of this server."))?,
            (true, None) => text("start-after").into_bytes(),
            (false, _) => behind_marker(&text("marker"), delimiter.is_some()),
        };
        let (prefix, delimiter) = (text("prefix"), delimiter.map(str::to_owned));
        Ok(Self { is_second_form, prefix, delimiter, keys_max, encodes_keys, after })
    }

    /// Returns a key as the reply has it.
    fn shown(&self, key: &str) -> String {
        if !self.encodes_keys {
            return key.to_owned();
        }
        let mut shown = String::new();
        base::percent_encode(&mut shown, key.as_bytes(), b"/");
        shown
    }
}

/// Returns the position of a marker. One that is a common prefix is behind all of its keys.
fn behind_marker(marker: &str, has_delimiter: bool) -> Vec<u8> {
    let mut after = marker.as_bytes().to_vec();
    if has_delimiter && marker.ends_with(DELIMITER) {
        after.push(BEHIND);
    }
    after
}

/// Replies to a listing.
pub(super) async fn reply(request: &UserRequest, bucket: &RequestBucket) -> Result<RequestReply, S3Error> {
    let parameters = ListingParameters::of(request)?;
    let _place = request.place(&request.context.shared().listing_slots).await?;
    let mut page = ListedPage::default();
    let (prefix, after) = (&parameters.prefix, parameters.after.clone());
    let begun = KeyWalk::begin(request, &bucket.path, prefix, parameters.delimiter.is_some(), after).await;
    let mut walk = match begun {
        Ok(walk) => walk,
        // Of the bucket itself.
        Err(error) if error.is_absent() => return Err(S3Error::no_bucket()),
        Err(error) => return Err(error),
    };
    bucket.check_exists(request).await?;
    page.fill(&parameters, &mut walk).await?;
    multipart::remove_old(request, bucket, &walk.uploads);
    Ok(xml::reply(document(request, bucket, &parameters, &page)))
}

/// The items of a page.
#[derive(Default)]
struct ListedPage {
    contents: String,
    prefixes: String,
    count: usize,
    /// The position of the next page, if there is one.
    next: Option<Vec<u8>>,
}

impl ListedPage {
    async fn fill(&mut self, parameters: &ListingParameters, walk: &mut KeyWalk<'_>) -> Result<(), S3Error> {
        if parameters.keys_max == 0 {
            return Ok(());
        }
        loop {
            let position = walk.position().to_vec();
            let Some(item) = walk.next().await? else {
                self.next = walk.is_stopped().then(|| walk.position().to_vec());
                return Ok(());
            };
            let is_full =
                self.count >= parameters.keys_max || self.contents.len() + self.prefixes.len() >= PAGE_BYTES;
            if is_full {
                self.next = Some(position);
                return Ok(());
            }
            self.add(parameters, item);
        }
    }

    fn add(&mut self, parameters: &ListingParameters, item: ListedItem) {
        self.count += 1;
        match item {
            ListedItem::Object(key, stat) => {
                self.contents.push_str("<Contents>");
                xml::element(&mut self.contents, "Key", &parameters.shown(&key));
                xml::element(&mut self.contents, "LastModified", &xml::time(stat.modified));
                xml::element(&mut self.contents, "ETag", &stat.shown_tag());
                // Writing to a string cannot fail.
                let _ = write!(
                    self.contents,
                    "<Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>",
                    stat.size
                );
            }
            ListedItem::Prefix(prefix) => {
                self.prefixes.push_str("<CommonPrefixes>");
                xml::element(&mut self.prefixes, "Prefix", &parameters.shown(&prefix));
                self.prefixes.push_str("</CommonPrefixes>");
            }
        }
    }
}

fn document(
    request: &UserRequest,
    bucket: &RequestBucket,
    parameters: &ListingParameters,
    page: &ListedPage,
) -> String {
    let mut text = format!("{}<ListBucketResult{}>", xml::HEAD, xml::NAME_SPACE);
    xml::element(&mut text, "Name", &bucket.name);
    xml::element(&mut text, "Prefix", &parameters.shown(&parameters.prefix));
    if let Some(delimiter) = &parameters.delimiter {
        xml::element(&mut text, "Delimiter", &parameters.shown(delimiter));
    }
    xml::element(&mut text, "MaxKeys", &parameters.keys_max.to_string());
    if parameters.encodes_keys {
        xml::element(&mut text, "EncodingType", "url");
    }
    xml::element(&mut text, "IsTruncated", if page.next.is_some() { "true" } else { "false" });
    if parameters.is_second_form {
        xml::element(&mut text, "KeyCount", &page.count.to_string());
        if let Some(start) = request.parameter("start-after") {
            xml::element(&mut text, "StartAfter", &parameters.shown(start));
        }
        if let Some(token) = request.parameter("continuation-token") {
            xml::element(&mut text, "ContinuationToken", token);
        }
        if let Some(next) = &page.next {
            xml::element(&mut text, "NextContinuationToken", &URL_SAFE_NO_PAD.encode(next));
        }
    } else {
        let marker = request.parameter("marker").unwrap_or_default();
        xml::element(&mut text, "Marker", &parameters.shown(marker));
        if let Some(next) = &page.next {
            let marker = next_marker(next, parameters.delimiter.is_some());
            xml::element(&mut text, "NextMarker", &parameters.shown(&marker));
        }
    }
    text.push_str(&page.contents);
    text.push_str(&page.prefixes);
    text.push_str("</ListBucketResult>\n");
    text
}

/// Returns the marker of the next page for its position. Without a delimiter, one behind a directory is behind all
/// texts that its keys can have.
fn next_marker(position: &[u8], has_delimiter: bool) -> String {
    match position.strip_suffix(&[BEHIND]) {
        Some(directory) if has_delimiter => String::from_utf8_lossy(directory).into_owned(),
        Some(directory) => format!("{}\u{10ffff}", String::from_utf8_lossy(directory)),
        None => String::from_utf8_lossy(position).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_lead_to_the_position_of_their_page() {
        for has_delimiter in [false, true] {
            assert_eq!(behind_marker(&next_marker(b"a/b", has_delimiter), has_delimiter), b"a/b");
        }
        assert_eq!(behind_marker(&next_marker(b"d/\xff", true), true), b"d/\xff");
        // Behind each key of the directory, and before those that follow it.
        let behind = behind_marker(&next_marker(b"d/\xff", false), false);
        assert!(behind.as_slice() > "d/zzz".as_bytes() && behind.as_slice() < "d0".as_bytes());
    }
}
