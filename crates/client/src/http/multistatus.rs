//! Listings of WebDAV (RFC 4918, `multistatus`), read while they arrive.
//!
//! The memory of a listing is that of one entry: a text or an element of more than 64 KiB is an error.

use quick_xml::name::{Namespace, ResolveResult};

use super::elements::{ElementHandler, EventReader, bad, read_elements, read_whole};
use super::headers::{seconds_of, tag_of};
use crate::failure::Cause;

/// Maximum size of the value of a property, and of a path.
const VALUE_BYTES_MAX: usize = 16 * 1024;
/// Maximum depth of elements.
const DEPTH_MAX: usize = 32;

/// The properties of a path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct DavEntry {
    /// The segments of its path.
    pub(super) path: Vec<Vec<u8>>,
    pub(super) is_collection: bool,
    /// The entry shows its type.
    pub(super) has_type: bool,
    pub(super) size: Option<u64>,
    /// Time of the last change, in seconds since the epoch.
    pub(super) modified: Option<i64>,
    pub(super) tag: Option<String>,
}

/// Returns the decoded segments of a percent-encoded path. Empty ones and `.` are left out. A segment with
/// another `%` is not encoded, as some servers send names as they are.
///
/// # Errors
/// [`Cause::BadAnswer`]: a segment is `..`, or has a slash or NUL in it.
pub(super) fn segments(path: &str) -> Result<Vec<Vec<u8>>, Cause> {
    let mut found = Vec::new();
    for segment in path.split('/').filter(|segment| !matches!(*segment, "" | ".")) {
        let decoded = base::percent_decode(segment.as_bytes()).unwrap_or_else(|| segment.as_bytes().to_vec());
        let is_odd =
            matches!(decoded.as_slice(), b"" | b"." | b"..") || decoded.iter().any(|b| matches!(b, b'/' | 0));
        if is_odd {
            return Err(Cause::BadAnswer("a path in it is malformed".to_owned()));
        }
        found.push(decoded);
    }
    Ok(found)
}

/// An element of the namespace of WebDAV.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DavElement {
    Multistatus,
    Response,
    Href,
    Propstat,
    Prop,
    Status,
    ResourceType,
    Collection,
    Length,
    Modified,
    Tag,
    /// Another one, or one of another namespace.
    Other,
}

impl DavElement {
    fn of(namespace: &ResolveResult<'_>, name: &str) -> Self {
        if !matches!(namespace, ResolveResult::Bound(Namespace("DAV:"))) {
            return Self::Other;
        }
        match name {
            "multistatus" => Self::Multistatus,
            "response" => Self::Response,
            "href" => Self::Href,
            "propstat" => Self::Propstat,
            "prop" => Self::Prop,
            "status" => Self::Status,
            "resourcetype" => Self::ResourceType,
            "collection" => Self::Collection,
            "getcontentlength" => Self::Length,
            "getlastmodified" => Self::Modified,
            "getetag" => Self::Tag,
            _ => Self::Other,
        }
    }
}

/// The state of a listing that is read.
#[derive(Default)]
struct ListingState {
    entry: Option<DavEntry>,
    has_path: bool,
    /// The properties of one status, and whether that is a success.
    part: DavEntry,
    is_found: bool,
}

impl ElementHandler for ListingState {
    type Element = DavElement;
    type Entry = DavEntry;
    const DEPTH_MAX: usize = DEPTH_MAX;
    const VALUE_BYTES_MAX: usize = VALUE_BYTES_MAX;

    fn element(namespace: &ResolveResult<'_>, name: &str) -> DavElement {
        DavElement::of(namespace, name)
    }

    fn start(&mut self, open: &[DavElement], element: DavElement) -> Result<(), Cause> {
        match (open, element) {
            ([], DavElement::Multistatus) => {}
            ([], _) => return Err(bad("it is none of WebDAV")),
            ([DavElement::Multistatus], DavElement::Response) => {
                (self.entry, self.has_path) = (Some(DavEntry::default()), false);
            }
            ([DavElement::Multistatus, DavElement::Response], DavElement::Propstat) => {
                (self.part, self.is_found) = (DavEntry::default(), true);
            }
            ([.., DavElement::Propstat, DavElement::Prop], DavElement::ResourceType) => {
                self.part.has_type = true;
            }
            ([.., DavElement::Prop, DavElement::ResourceType], DavElement::Collection) => {
                self.part.is_collection = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn end(
        &mut self,
        open: &[DavElement],
        element: DavElement,
        text: String,
    ) -> Result<Option<DavEntry>, Cause> {
        let text = text.trim();
        match (open, element) {
            ([DavElement::Multistatus, DavElement::Response], DavElement::Href) => self.set_path(text)?,
            ([DavElement::Multistatus, DavElement::Response, DavElement::Propstat], DavElement::Status) => {
                self.is_found = text.split(' ').nth(1) == Some("200");
            }
            ([.., DavElement::Propstat, DavElement::Prop], DavElement::Length) => {
                self.part.size = text.parse().ok()
            }
            ([.., DavElement::Propstat, DavElement::Prop], DavElement::Modified) => {
                self.part.modified = seconds_of(text);
            }
            ([.., DavElement::Propstat, DavElement::Prop], DavElement::Tag) => self.part.tag = tag_of(text),
            ([DavElement::Multistatus, DavElement::Response], DavElement::Propstat) => self.take_part(),
            ([DavElement::Multistatus], DavElement::Response) => {
                let entry = self.entry.take().filter(|_| self.has_path);
                return entry.map(Some).ok_or_else(|| bad("an entry has no path"));
            }
            _ => {}
        }
        Ok(None)
    }
}

impl ListingState {
    fn set_path(&mut self, text: &str) -> Result<(), Cause> {
        let Some(entry) = &mut self.entry else { return Ok(()) };
        // It may be a URL.
        let path = match text.split_once("://") {
            Some((scheme, rest)) if !scheme.contains('/') => rest.find('/').and_then(|at| rest.get(at..)),
            _ => Some(text),
        };
        let path = path.and_then(|path| path.split(['?', '#']).next()).unwrap_or_default();
        if self.has_path || !path.starts_with('/') {
            return Err(bad("an entry has not one absolute path"));
        }
        entry.path = segments(path)?;
        self.has_path = true;
        Ok(())
    }

    /// Adds the properties that exist to the entry.
    fn take_part(&mut self) {
        let part = std::mem::take(&mut self.part);
        if let Some(entry) = self.entry.as_mut().filter(|_| self.is_found) {
            entry.is_collection |= part.is_collection;
            entry.has_type |= part.has_type;
            entry.size = part.size.or(entry.size);
            entry.modified = part.modified.or(entry.modified);
            entry.tag = part.tag.or(entry.tag.take());
        }
    }
}

/// Reads a listing, and passes each entry to `found`.
pub(super) async fn read_multistatus<R: EventReader>(
    reader: R,
    found: impl FnMut(DavEntry) -> Result<(), Cause> + Send,
) -> Result<(), Cause> {
    read_elements(reader, &mut ListingState::default(), found).await
}

/// Reads a listing of WebDAV, and returns the number of its entries.
///
/// # Errors
/// [`Cause::BadAnswer`]: it is malformed.
pub fn check_multistatus(text: &[u8]) -> Result<usize, Cause> {
    let mut count = 0;
    read_whole(text, &mut ListingState::default(), |_| {
        count += 1;
        Ok(())
    })?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Result<Vec<DavEntry>, Cause> {
        let mut found = Vec::new();
        read_whole(text.as_bytes(), &mut ListingState::default(), |entry| {
            found.push(entry);
            Ok(())
        })?;
        Ok(found)
    }

    fn entry(href: &str) -> String {
        format!(
            "<d:multistatus xmlns:d=\"DAV:\"><d:response><d:href>{href}</d:href></d:response></d:multistatus>"
        )
    }

    #[test]
    fn properties_of_any_prefix_are_read() {
        let text = "<?xml version=\"1.0\"?>\n<D:multistatus xmlns:D=\"DAV:\" xmlns:o=\"other\">
            <D:response xmlns:lp1=\"DAV:\"><D:href>/d/</D:href><D:propstat><D:prop>
            <lp1:resourcetype><D:collection/></lp1:resourcetype></D:prop><D:status>HTTP/1.1 200 OK</D:status>
            </D:propstat></D:response>
            <response xmlns=\"DAV:\"><href>http://h/d/a%20b&amp;c&#x41;</href><propstat><prop>
            <getcontentlength>12</getcontentlength><o:getcontentlength>13</o:getcontentlength>
            <getlastmodified>Sun, 06 Nov 1994 08:49:37 GMT</getlastmodified><getetag>W/\"x\"</getetag>
            <resourcetype/></prop><status>HTTP/1.1 200 OK</status></propstat>
            <propstat><prop><getcontentlength>99</getcontentlength></prop>
            <status>HTTP/1.1 404 Not Found</status></propstat></response></D:multistatus>";
        let found = entries(text).unwrap();
        let directory = DavEntry {
            path: vec![b"d".to_vec()],
            is_collection: true,
            has_type: true,
            ..DavEntry::default()
        };
        let file = DavEntry {
            path: vec![b"d".to_vec(), b"a b&cA".to_vec()],
            is_collection: false,
            has_type: true,
            size: Some(12),
            modified: Some(784_111_777),
            tag: Some("\"x\"".to_owned()),
        };
        assert_eq!(found, [directory, file]);
        let base = [b"d".to_vec()];
        assert_eq!(found[0].name_below(&base), Ok(None));
        assert_eq!(found[1].name_below(&base), Ok(Some(b"a b&cA".to_vec())));
        assert!(found[0].name_below(&[b"e".to_vec()]).is_err());
    }

    #[test]
    fn what_is_no_listing_is_an_error() {
        let deep = format!("<m:multistatus xmlns:m=\"DAV:\">{}", "<a>".repeat(DEPTH_MAX));
        let long = entry(&format!("/{}", "x".repeat(VALUE_BYTES_MAX)));
        for text in [
            "",
            "hello",
            "<html></html>",
            "<multistatus></multistatus>",
            "<d:multistatus xmlns:d=\"DAV:\">",
            "<d:multistatus xmlns:d=\"DAV:\"></d:other>",
            "<!DOCTYPE m [<!ENTITY x \"y\">]><d:multistatus xmlns:d=\"DAV:\"/>",
            "<d:multistatus xmlns:d=\"DAV:\"><d:response></d:response></d:multistatus>",
            &deep,
            &long,
            &entry("relative"),
            &entry("/a/../b"),
            &entry("/a/%2e%2E"),
            &entry("/a%2Fb"),
            &entry("/a%00"),
            &entry("/a&unknown;"),
        ] {
            assert!(matches!(entries(text), Err(Cause::BadAnswer(_))), "{text}");
        }
        assert_eq!(entries("<d:multistatus xmlns:d=\"DAV:\"/>"), Ok(Vec::new()));
        assert_eq!(entries(&entry("/a%zz b")).unwrap()[0].path, [b"a%zz b".to_vec()]);
    }
}
