//! `kXR_mv` (3009): renames a file or a directory.
//!
//! | bytes  | field     | type   | meaning                                   |
//! |--------|-----------|--------|-------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                     |
//! | 2..4   | requestid | u16    | 3009                                      |
//! | 4..18  | reserved  |        |                                           |
//! | 18..20 | arg1len   | i16    | length of the old path with its CGI, or 0 |
//! | 20..24 | dlen      | i32    | length of both paths                      |
//! | 24..   | args      | text   | `old SP new`, each `path[?cgi]`           |
//!
//! If arg1len is 0, the first blank separates the paths, so paths with blanks need a length. Reply:
//! `kXR_ok` (dlen 0). Errors: 3000 no blank at arg1len, 3001 no new path.
//!
//! Source: xroot protocol 5.2.0, section 2.11. Recorded: `fs_namespace`, `raw_errors`.

use super::body::{RequestBody, RequestHeader, WireError};

/// Renames a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mv<'a> {
    /// Length of the old path as sent; may be negative or exceed the argument.
    pub arg1len: i16,
    /// Both paths as sent; see [`Mv::paths`].
    pub args: &'a [u8],
}

impl<'a> RequestBody<'a> for Mv<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { arg1len: i16::from_be_bytes(header.field::<18, 2>()), args: payload })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header.with::<18, 2>(self.arg1len.to_be_bytes()).finish(self.args, out);
    }
}

impl<'a> Mv<'a> {
    /// Returns the old and the new path with their CGI.
    ///
    /// # Errors
    /// [`WireError::BadText`] without a blank at arg1len, [`WireError::Short`] without a new path.
    pub fn paths(&self) -> Result<(&'a [u8], &'a [u8]), WireError> {
        let missing = WireError::Short { field: "new path", need: 1, have: 0 };
        let misplaced = WireError::BadText { field: "mv paths" };
        let args = self.args.split(|&byte| byte == 0).next().unwrap_or_default();
        let old_bytes = match usize::try_from(self.arg1len).map_err(|_| misplaced)? {
            0 => args.iter().position(|&byte| byte == b' ').ok_or(missing)?,
            arg1len => arg1len,
        };
        let (old, rest) = args.split_at_checked(old_bytes).ok_or(misplaced)?;
        match rest.split_first() {
            Some((b' ', new)) if !new.is_empty() => Ok((old, new)),
            Some((b' ', _)) | None => Err(missing),
            Some(_) => Err(misplaced),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_misplaced_blank_is_an_error() {
        let paths = |arg1len, args: &'static [u8]| Mv { arg1len, args }.paths();
        assert_eq!(paths(2, b"/a /b"), Ok((&b"/a"[..], &b"/b"[..])));
        assert_eq!(paths(0, b"/a /b"), Ok((&b"/a"[..], &b"/b"[..])));
        assert_eq!(paths(4, b"/a b /c d\0"), Ok((&b"/a b"[..], &b"/c d"[..])));
        assert_eq!(paths(3, b"/a /b"), Err(WireError::BadText { field: "mv paths" }));
        assert_eq!(paths(99, b"/a /b"), Err(WireError::BadText { field: "mv paths" }));
        assert_eq!(paths(-1, b"/a /b"), Err(WireError::BadText { field: "mv paths" }));
        for (arg1len, args) in [(0, &b"/a"[..]), (2, b"/a"), (2, b"/a "), (0, b"/a ")] {
            assert!(
                matches!(paths(arg1len, args), Err(WireError::Short { field: "new path", .. })),
                "{args:?}"
            );
        }
    }
}
