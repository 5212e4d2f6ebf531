//! The paths of a login: the parts of the name space that a node serves, and how.
//!
//! Lines `flags SP path` are separated by LF. The flags are letters: `r` may be read, `w` may be
//! read and written, `s` may be staged. XRootD nodes send `r`, `w`, `rs` and `ws`, but any sequence
//! of the letters is valid. An empty text means `r /`. An invalid line is an error, so that a
//! manager can refuse the node with a reason instead of serving part of its paths.
//!
//! Source: cms protocol version 3, section 2.6.

use crate::crc::crc32;
use crate::error::WireError;

/// A part of the name space that a node serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExportLine<'a> {
    /// The paths may be written; otherwise only read.
    pub writable: bool,
    /// Missing files can be staged.
    pub stageable: bool,
    /// Prefix of the paths. It matches as a string, also within a component.
    pub prefix: &'a [u8],
}

/// An iterator over the lines of the paths of a login.
#[derive(Clone, Debug)]
pub struct ExportLines<'a> {
    rest: Option<&'a [u8]>,
}

const EVERYTHING: &[u8] = b"r /";

impl<'a> ExportLines<'a> {
    /// Creates the iterator for the text of a login.
    #[must_use]
    pub const fn parse(text: &'a [u8]) -> Self {
        Self { rest: Some(if text.is_empty() { EVERYTHING } else { text }) }
    }

    /// Returns the CRC-32 of the text, with which a parent checks whether a reconnecting node
    /// exports the same paths.
    #[must_use]
    pub fn configuration_id(text: &[u8]) -> u32 {
        crc32(text)
    }

    /// Appends a line.
    pub fn append(out: &mut Vec<u8>, export: ExportLine<'_>) {
        if !out.is_empty() {
            out.push(b'\n');
        }
        out.push(if export.writable { b'w' } else { b'r' });
        out.extend_from_slice(if export.stageable { b"s " } else { b" " });
        out.extend_from_slice(export.prefix);
    }
}

impl<'a> Iterator for ExportLines<'a> {
    /// An export, or [`WireError::BadText`] for an invalid line, after which the node must be
    /// refused.
    type Item = Result<ExportLine<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut lines = self.rest.take()?.splitn(2, |&byte| byte == b'\n');
        let line = lines.next()?;
        // A line end at the end of the text does not start another line.
        self.rest = lines.next().filter(|rest| !rest.is_empty());
        Some(parse_line(line).ok_or(WireError::BadText { field: "paths" }))
    }
}

fn parse_line(line: &[u8]) -> Option<ExportLine<'_>> {
    let blank = line.iter().position(|&byte| byte == b' ')?;
    let (flags, path) = line.split_at_checked(blank)?;
    let prefix = path.trim_ascii_start();
    let known = !flags.is_empty() && flags.iter().all(|flag| matches!(flag, b'r' | b'w' | b's'));
    (known && prefix.starts_with(b"/")).then_some(ExportLine {
        writable: flags.contains(&b'w'),
        stageable: flags.contains(&b's'),
        prefix,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_parse_and_encode() {
        let text = b"w /\nrs /tape\nr /a b\nws /x\n";
        let exports: Vec<_> = ExportLines::parse(text).collect::<Result<_, _>>().unwrap();
        let export = |writable, stageable, prefix| ExportLine { writable, stageable, prefix };
        assert_eq!(
            exports,
            [
                export(true, false, &b"/"[..]),
                export(false, true, b"/tape"),
                export(false, false, b"/a b"),
                export(true, true, b"/x"),
            ]
        );
        let mut out = Vec::new();
        exports.into_iter().for_each(|export| ExportLines::append(&mut out, export));
        assert_eq!([&out[..], b"\n"].concat(), text);
    }

    #[test]
    fn an_empty_text_exports_everything_for_reading() {
        let everything = ExportLine { writable: false, stageable: false, prefix: b"/" };
        assert_eq!(ExportLines::parse(b"").collect::<Vec<_>>(), [Ok(everything)]);
    }

    #[test]
    fn flags_are_accepted_in_any_order_and_others_refused() {
        let swr = ExportLines::parse(b"swr /a").next();
        assert_eq!(swr, Some(Ok(ExportLine { writable: true, stageable: true, prefix: b"/a" })));
        for bad in [&b"q /"[..], b" /", b"w", b"w ", b"w a", b"\nw /"] {
            let first = ExportLines::parse(bad).next();
            assert_eq!(first, Some(Err(WireError::BadText { field: "paths" })), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn equal_paths_have_equal_ids() {
        assert_eq!(ExportLines::configuration_id(b"w /"), crc32(b"w /"));
        assert_ne!(ExportLines::configuration_id(b"w /"), ExportLines::configuration_id(b"r /"));
    }
}
