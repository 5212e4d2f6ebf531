//! The text that answers `locate`: a list of locations as in the reply to `kXR_locate`.
//!
//! Locations are separated by blanks. Each is `<node><access><address>`: the node is `M` with
//! children and `S` without. It is in lower case if the path is pending there, or, in the list of
//! all nodes (`*`), if the node is offline, suspended or disabled. The access is `w` or `r`, and
//! always `r` in the list of all nodes. The address is `[::a.b.c.d]:port`, `[ipv6]:port` or
//! `name:port`; deferred answers of XRootD managers contain names without a port. The grammar is
//! that of `kXR_locate`, so this file only removes the final NUL.
//!
//! Source: cms protocol version 3, section 4.7. Recorded: 05, 09, 15, 16.

pub use crate::xroot::reply::locate::{Location, NodeKind, address, parse};

/// Appends the text without NUL, as required by
/// [`ResponseAnswer::Data`](super::ResponseAnswer::Data).
pub fn encode<'a>(out: &mut Vec<u8>, locations: impl IntoIterator<Item = Location<'a>>) {
    crate::xroot::reply::locate::encode(out, locations);
    out.pop();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_texts_parse_and_encode() {
        let texts: [(&[u8], usize); 6] = [
            (b"Sw[::127.0.0.1]:22021", 1),
            (b"Sr[::127.0.0.1]:22020 Sr[::127.0.0.1]:22021", 2),
            (b"Mw[::127.0.0.1]:22060", 1),
            (b"sw[::127.0.0.1]:30001", 1),
            (b"Swvm", 1),
            (b"", 0),
        ];
        for (text, places) in texts {
            assert_eq!(parse(text).count(), places);
            let mut out = Vec::new();
            encode(&mut out, parse(text));
            assert_eq!(out, text);
        }
        // A blank at the end is accepted.
        assert_eq!(parse(b"Sw[::127.0.0.1]:22021 ").count(), 1);
    }
}
