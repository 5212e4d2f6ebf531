//! Parses metalinks: documents with the locations, size and checksums of a file.
//!
//! Versions 3 and 4 are supported. A metalink is untrusted input, so documents with a DTD (and thus
//! entities), above [`METALINK_BYTES_MAX`] or with more than [`URLS_MAX`] locations are refused.
//! Source: RFC 5854; Metalink 3.0.

use digest::Algorithm;

use crate::credentials::{is_for_client, remove_choice};
use crate::path::Name;
use crate::url::{Scheme, Url};

/// Maximum size of a metalink.
pub const METALINK_BYTES_MAX: usize = 1 << 20;
/// Maximum number of locations of one file.
pub const URLS_MAX: usize = 1000;
/// Maximum number of elements and texts of a metalink.
const NODES_MAX: u32 = 50_000;
/// Priority of a location that has none: the last.
const LAST: u32 = 999_999;
/// Maximum preference in version 3.
const PREFERENCE_MAX: u32 = 100;

/// The reason why a document is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetalinkError {
    /// It is not a metalink, or it is empty.
    #[error("it is no metalink: {0}")]
    Malformed(String),
    /// It lists several files.
    #[error("it lists {0} files; a copy is made of one")]
    SeveralFiles(usize),
    /// It is larger than [`METALINK_BYTES_MAX`].
    #[error("it is too large to be a metalink")]
    TooLarge,
}

/// The description of a file in a metalink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metalink {
    /// Name of the file without directories.
    pub name: Option<Name>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Checksums in hexadecimal, of known and unambiguous types.
    pub checksums: Vec<(Algorithm, String)>,
    /// Locations in the order of preference: URLs `root`, `roots`, `file`. The document sets
    /// neither their users nor elements for the client, because it must not choose credentials.
    pub urls: Vec<Url>,
}

impl Metalink {
    /// Reports whether a path has the suffix of a metalink.
    #[must_use]
    pub fn is_named_by(path: &str) -> bool {
        path.ends_with(".meta4") || path.ends_with(".metalink")
    }

    /// Parses a metalink. Global logical file names are resolved at `redirector`,
    /// `[root://]host[:port]`, if it is not empty.
    ///
    /// # Errors
    /// [`MetalinkError`].
    pub fn parse(bytes: &[u8], redirector: &str) -> Result<Self, MetalinkError> {
        let malformed = |text: &str| MetalinkError::Malformed(text.to_owned());
        if bytes.len() > METALINK_BYTES_MAX {
            return Err(MetalinkError::TooLarge);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| malformed("it is not UTF-8"))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let options = roxmltree::ParsingOptions { nodes_limit: NODES_MAX, ..Default::default() };
        let document = roxmltree::Document::parse_with_options(text, options)
            .map_err(|error| MetalinkError::Malformed(error.to_string()))?;
        let root = document.root_element();
        if root.tag_name().name() != "metalink" {
            return Err(malformed("its root is no `metalink`"));
        }
        // Version 3 has one more level.
        let files: Vec<_> = elements(root, "file")
            .chain(elements(root, "files").flat_map(|files| elements(files, "file")))
            .collect();
        let [file] = files.as_slice() else {
            return Err(match files.len() {
                0 => malformed("it lists no file"),
                count => MetalinkError::SeveralFiles(count),
            });
        };
        let name = file.attribute("name").and_then(|name| name.rsplit('/').next());
        let name = name.and_then(|name| Name::new(name).ok());
        let size = match elements(*file, "size").next().map(content) {
            None => None,
            Some(size) => Some(size.parse().map_err(|_| malformed("its size is no number"))?),
        };
        let hashes = elements(*file, "hash")
            .chain(elements(*file, "verification").flat_map(|inner| elements(inner, "hash")));
        let checksums = hashes.filter_map(checksum).collect();
        Ok(Self { name, size, checksums, urls: urls(*file, redirector)? })
    }
}

type Node<'a> = roxmltree::Node<'a, 'a>;

fn elements<'a>(node: Node<'a>, name: &'static str) -> impl Iterator<Item = Node<'a>> {
    node.children().filter(move |child| child.tag_name().name() == name)
}

fn content(node: Node<'_>) -> &str {
    node.text().unwrap_or_default().trim()
}

/// The name `crc32` is ambiguous between two checksums, so it is ignored.
fn checksum(node: Node<'_>) -> Option<(Algorithm, String)> {
    let kind = node.attribute("type")?.to_ascii_lowercase().replace('-', "");
    let algorithm = Algorithm::from_name(&kind).filter(|algorithm| *algorithm != Algorithm::Crc32)?;
    let value = content(node).to_ascii_lowercase();
    let good = !value.is_empty()
        && value.len() <= 2 * algorithm.bytes()
        && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    good.then(|| (algorithm, format!("{value:0>width$}", width = 2 * algorithm.bytes())))
}

/// Returns the locations in the order of preference; other protocols are ignored.
fn urls(file: Node<'_>, redirector: &str) -> Result<Vec<Url>, MetalinkError> {
    let mut found: Vec<(u32, Url)> = Vec::new();
    let inner = elements(file, "resources").flat_map(|resources| elements(resources, "url"));
    for (index, node) in elements(file, "url").chain(inner).enumerate() {
        if index >= URLS_MAX {
            return Err(MetalinkError::Malformed(format!("it lists more than {URLS_MAX} places")));
        }
        let number = |name| node.attribute(name).and_then(|text| text.trim().parse::<u32>().ok());
        let preference = || number("preference").map(|value| PREFERENCE_MAX.saturating_sub(value) + 1);
        let priority = number("priority").or_else(preference).unwrap_or(LAST);
        let Some(mut url) = Url::parse(content(node)).ok() else { continue };
        remove_choice(&mut url);
        let has_scheme = content(node).contains("://");
        if has_scheme && matches!(url.scheme, Scheme::Root | Scheme::Roots | Scheme::File) {
            found.push((priority, url));
        }
    }
    let redirector = redirector.trim_end_matches('/');
    let scheme = if redirector.contains("://") { "" } else { "root://" };
    for node in elements(file, "glfn").filter(|_| !redirector.is_empty()) {
        let name = node.attribute("name").unwrap_or_else(|| content(node)).trim_start_matches('/');
        if let Ok(mut url) = Url::parse(&format!("{scheme}{redirector}//{name}"))
            && matches!(url.scheme, Scheme::Root | Scheme::Roots)
        {
            // The user is that of the redirector, which is a setting.
            url.cgi.retain(|key, _| !is_for_client(key));
            found.push((u32::MAX, url));
        }
    }
    // The sort is stable.
    found.sort_by_key(|(priority, _)| *priority);
    if found.is_empty() {
        return Err(MetalinkError::Malformed("it names no place that can be read from".to_owned()));
    }
    Ok(found.into_iter().map(|(_, url)| url).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Metalink, MetalinkError> {
        Metalink::parse(text.as_bytes(), "")
    }

    fn places(metalink: &Metalink) -> Vec<String> {
        metalink.urls.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn version_4() {
        let metalink = parsed(
            r#"<?xml version="1.0" encoding="UTF-8"?>
            <metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="dir/f&amp;g">
              <size>10000</size><hash type="adler32">CFBD70e</hash><hash type="sha-256">x</hash><hash type="crc32">1</hash>
              <url location="b" priority="2"> root://two//f </url><url>root://last//f</url>
              <url location="a" priority="1">roots://one:7//f?a=b</url><url priority="1">https://no/f</url><url>relative</url>
            </file></metalink>"#,
        )
        .unwrap();
        assert_eq!((metalink.name.as_deref(), metalink.size), (Some("f&g"), Some(10_000)));
        assert_eq!(metalink.checksums, [(Algorithm::Adler32, "0cfbd70e".to_owned())]);
        assert_eq!(places(&metalink), ["roots://one:7//f", "root://two:1094//f", "root://last:1094//f"]);
    }

    #[test]
    fn version_3() {
        let metalink = parsed(
            r#"<metalink version="3.0" xmlns="http://www.metalinker.org/"><files><file name="f">
              <verification><hash type="md5">d41d8cd98f00b204e9800998ecf8427e</hash></verification>
              <resources><url type="root" preference="50">root://two//f</url><url preference="100">root://one//f</url></resources>
            </file></files></metalink>"#,
        )
        .unwrap();
        assert_eq!(places(&metalink), ["root://one:1094//f", "root://two:1094//f"]);
        assert_eq!((metalink.size, metalink.checksums.len()), (None, 1));
    }

    #[test]
    fn logical_names_are_resolved_at_the_redirector() {
        let text = r#"<metalink><file><url>root://one//f</url><glfn name="/g"/></file></metalink>"#;
        assert_eq!(places(&parsed(text).unwrap()), ["root://one:1094//f"]);
        for redirector in ["all:1", "root://all:1", "root://all:1//"] {
            let metalink = Metalink::parse(text.as_bytes(), redirector).unwrap();
            assert_eq!(places(&metalink), ["root://one:1094//f", "root://all:1//g"]);
        }
        // Only places of the xroot protocol take over in the middle of a file.
        let metalink = Metalink::parse(text.as_bytes(), "https://all:1").unwrap();
        assert_eq!(places(&metalink), ["root://one:1094//f"]);
    }

    #[test]
    fn locations_choose_no_credentials() {
        let cgi = "xrd.sss=/k&amp;xrd.wantprot=unix&amp;xrdcl.secuid=0&amp;y=2";
        let text = format!(
            "<metalink><file><url>root://alice:pw@one//f?{cgi}</url><glfn name='/g?{cgi}'/></file></metalink>"
        );
        let metalink = Metalink::parse(text.as_bytes(), "bob@all:1").unwrap();
        assert_eq!(places(&metalink), ["root://one:1094//f", "root://all:1//g"]);
        for (url, user) in metalink.urls.iter().zip([None, Some("bob")]) {
            assert_eq!((url.user.as_deref(), url.password.as_deref()), (user, None));
            assert_eq!(url.cgi.keys().collect::<Vec<_>>(), ["y"]);
        }
    }

    #[test]
    fn invalid_documents_are_refused() {
        let file = "<file><url>root://h//f</url></file>";
        for bad in [
            "",
            "hello",
            "<metalink><file>",
            "<metalink/>",
            "<other><file><url>root://h//f</url></file></other>",
            "<metalink><file><url>http://h/f</url></file></metalink>",
            "<metalink><file><size>x</size><url>root://h//f</url></file></metalink>",
        ] {
            assert!(matches!(parsed(bad), Err(MetalinkError::Malformed(_))), "{bad}");
        }
        let two = format!("<metalink>{file}{file}</metalink>");
        assert_eq!(parsed(&two), Err(MetalinkError::SeveralFiles(2)));
        assert_eq!(Metalink::parse(&[b' '; METALINK_BYTES_MAX + 1], ""), Err(MetalinkError::TooLarge));
        let many =
            format!("<metalink><file>{}</file></metalink>", "<url>root://h//f</url>".repeat(URLS_MAX + 1));
        assert!(matches!(parsed(&many), Err(MetalinkError::Malformed(_))));
    }

    #[test]
    fn entities_are_not_expanded() {
        let bomb = r#"<!DOCTYPE m [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>
            <metalink><file><size>1</size><url>root://h//&b;</url></file></metalink>"#;
        assert!(matches!(parsed(bomb), Err(MetalinkError::Malformed(_))));
        let deep = format!("{}{}", "<a>".repeat(10_000), "</a>".repeat(10_000));
        assert!(parsed(&format!("<metalink>{deep}</metalink>")).is_err());
    }

    #[test]
    fn names_cannot_leave_the_directory() {
        for name in ["../../etc/passwd", "/etc/passwd", "passwd"] {
            let text = format!("<metalink><file name='{name}'><url>root://h//f</url></file></metalink>");
            assert_eq!(parsed(&text).unwrap().name.as_deref(), Some("passwd"));
        }
        let text = "<metalink><file name='a/..'><url>root://h//f</url></file></metalink>";
        assert_eq!(parsed(text).unwrap().name, None);
    }
}
