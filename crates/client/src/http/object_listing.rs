//! Listings of object stores (`ListObjectsV2`), read while they arrive.
//!
//! The memory of a page is that of one entry: a text or an element of more than 64 KiB is an error.

use quick_xml::name::ResolveResult;

use super::elements::{ElementHandler, EventReader, bad, read_elements, read_whole};
use crate::failure::Cause;

/// Maximum size of a value: keys have 1,024 bytes.
const VALUE_BYTES_MAX: usize = 8 * 1024;
/// Maximum depth of elements.
const DEPTH_MAX: usize = 16;

/// An object, or the common beginning of the keys of objects.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ListedObject {
    pub(super) key: String,
    /// It is the beginning of keys, up to a slash.
    pub(super) is_prefix: bool,
    pub(super) size: u64,
    /// Time of the last change, in seconds since the epoch.
    pub(super) modified: i64,
}

/// The end of a page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ListingPage {
    /// Number of entries.
    pub(super) entries: usize,
    /// The token of the next page; `None` if this was the last one.
    pub(super) next: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ListElement {
    Result,
    Contents,
    CommonPrefixes,
    Key,
    Prefix,
    Size,
    Modified,
    IsTruncated,
    NextToken,
    Other,
}

impl ListElement {
    fn of(name: &str) -> Self {
        match name {
            "ListBucketResult" => Self::Result,
            "Contents" => Self::Contents,
            "CommonPrefixes" => Self::CommonPrefixes,
            "Key" => Self::Key,
            "Prefix" => Self::Prefix,
            "Size" => Self::Size,
            "LastModified" => Self::Modified,
            "IsTruncated" => Self::IsTruncated,
            "NextContinuationToken" => Self::NextToken,
            _ => Self::Other,
        }
    }
}

/// The state of a page that is read.
#[derive(Default)]
struct PageState {
    key: Option<String>,
    size: Option<u64>,
    modified: Option<i64>,
    is_truncated: bool,
    next: Option<String>,
    entries: usize,
    has_root: bool,
}

impl ElementHandler for PageState {
    type Element = ListElement;
    type Entry = ListedObject;
    const DEPTH_MAX: usize = DEPTH_MAX;
    const VALUE_BYTES_MAX: usize = VALUE_BYTES_MAX;

    fn element(_: &ResolveResult<'_>, name: &str) -> ListElement {
        ListElement::of(name)
    }

    fn start(&mut self, open: &[ListElement], element: ListElement) -> Result<(), Cause> {
        if open.is_empty() && (element != ListElement::Result || self.has_root) {
            return Err(bad("it is none of an object store"));
        }
        self.has_root = true;
        if let [ListElement::Result] = open {
            (self.key, self.size, self.modified) = (None, None, None);
        }
        Ok(())
    }

    fn end(
        &mut self,
        open: &[ListElement],
        element: ListElement,
        text: String,
    ) -> Result<Option<ListedObject>, Cause> {
        use ListElement::{
            CommonPrefixes, Contents, IsTruncated, Key, Modified, NextToken, Prefix, Result, Size,
        };
        match (open, element) {
            // Spaces are part of a key.
            ([Result, Contents], Key) | ([Result, CommonPrefixes], Prefix) => self.key = Some(text),
            ([Result, Contents], Size) => {
                self.size = Some(text.trim().parse().map_err(|_| bad("a size is no number"))?);
            }
            ([Result, Contents], Modified) => {
                let time = text.trim().parse::<jiff::Timestamp>().map_err(|_| bad("a time is none"))?;
                self.modified = Some(time.as_second());
            }
            ([Result], IsTruncated) => self.is_truncated = text.trim() == "true",
            ([Result], NextToken) => self.next = Some(text),
            ([Result], Contents | CommonPrefixes) => {
                let key = self.key.take().ok_or_else(|| bad("an entry has no key"))?;
                let is_prefix = element == CommonPrefixes;
                let size = match self.size.take() {
                    Some(size) => size,
                    None if is_prefix => 0,
                    None => return Err(bad("an object has no size")),
                };
                self.entries += 1;
                let modified = self.modified.take().unwrap_or(0);
                return Ok(Some(ListedObject { key, is_prefix, size, modified }));
            }
            _ => {}
        }
        Ok(None)
    }
}

impl PageState {
    fn page(self) -> Result<ListingPage, Cause> {
        let next = self.next.filter(|token| !token.is_empty());
        if next.is_some() && !self.is_truncated {
            return Err(bad("it has a next page, and is not truncated"));
        }
        if self.is_truncated && next.is_none() {
            return Err(bad("it has more entries, and does not tell where"));
        }
        Ok(ListingPage { entries: self.entries, next })
    }
}

/// Reads a page, and passes each entry to `found`.
pub(super) async fn read_page<R: EventReader>(
    reader: R,
    found: impl FnMut(ListedObject) -> Result<(), Cause> + Send,
) -> Result<ListingPage, Cause> {
    let mut state = PageState::default();
    read_elements(reader, &mut state, found).await?;
    state.page()
}

/// Reads a page of an object store, and returns the number of its entries.
///
/// # Errors
/// [`Cause::BadAnswer`]: it is malformed.
pub fn check_object_listing(text: &[u8]) -> Result<usize, Cause> {
    let mut state = PageState::default();
    read_whole(text, &mut state, |_| Ok(()))?;
    state.page().map(|page| page.entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Result<(Vec<ListedObject>, ListingPage), Cause> {
        let (mut state, mut found) = (PageState::default(), Vec::new());
        read_whole(text.as_bytes(), &mut state, |entry| {
            found.push(entry);
            Ok(())
        })?;
        Ok((found, state.page()?))
    }

    #[test]
    fn objects_and_prefixes_are_read() {
        let text =
            "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
            <Name>b</Name><Prefix>d/</Prefix><KeyCount>3</KeyCount><IsTruncated>true</IsTruncated>
            <Contents><Key> a&amp;b </Key><LastModified>2009-10-12T17:50:30.000Z</LastModified>\
            <ETag>&quot;x&quot;</ETag><Size>434234</Size><Owner><ID>1</ID></Owner></Contents>
            <Contents><Size>0</Size><Key>e</Key></Contents>
            <CommonPrefixes><Prefix>d/e/</Prefix></CommonPrefixes>
            <NextContinuationToken>t=/+</NextContinuationToken></ListBucketResult>";
        let (found, page) = page(text).unwrap();
        let object = |key: &str, size, modified| ListedObject {
            key: key.to_owned(),
            is_prefix: false,
            size,
            modified,
        };
        let prefix = ListedObject { is_prefix: true, ..object("d/e/", 0, 0) };
        assert_eq!(found, [object(" a&b ", 434_234, 1_255_369_830), object("e", 0, 0), prefix]);
        assert_eq!(page, ListingPage { entries: 3, next: Some("t=/+".to_owned()) });
    }

    #[test]
    fn what_is_no_page_is_an_error() {
        let within = |text: &str| format!("<ListBucketResult>{text}</ListBucketResult>");
        let deep = format!("<ListBucketResult>{}", "<a>".repeat(DEPTH_MAX));
        for text in [
            "",
            "hello",
            "<html></html>",
            "<Error><Code>SlowDown</Code></Error>",
            "<ListBucketResult>",
            "<ListBucketResult></Other>",
            "<ListBucketResult/><ListBucketResult/>",
            "<!DOCTYPE m [<!ENTITY x \"y\">]><ListBucketResult/>",
            &deep,
            &within("<IsTruncated>true</IsTruncated>"),
            &within("<NextContinuationToken>t</NextContinuationToken>"),
            &within("<Contents><Key>a</Key></Contents>"),
            &within("<Contents><Size>1</Size></Contents>"),
            &within("<Contents><Key>a</Key><Size>-1</Size></Contents>"),
            &within("<Contents><Key>a&unknown;</Key><Size>1</Size></Contents>"),
            &within("<Contents><Key>a</Key><Size>1</Size><LastModified>x</LastModified></Contents>"),
            &within(&format!("<Contents><Key>{}</Key></Contents>", "x".repeat(VALUE_BYTES_MAX + 1))),
        ] {
            assert!(matches!(page(text), Err(Cause::BadAnswer(_))), "{text}");
        }
        assert_eq!(check_object_listing(b"<ListBucketResult/>"), Ok(0));
    }
}
