//! The text that answers `locate`: places separated by blanks, each as in the reply to `kXR_locate`.
//!
//! `<node><access><address>`: node `M` with children, `S` without; lower case when the path is pending there, in the
//! list of all nodes (`*`) when the node is offline, suspended or disabled. Access `w` or `r`; in the list of all
//! nodes always `r`. The address is `[::a.b.c.d]:port`, `[ipv6]:port` or `name:port`; late answers of real managers
//! have bare names without a port.
//! Source: cms protocol version 3, section 4.7. Recorded: 05, 09, 15, 16.

pub use crate::xroot::reply::locate::{Location, NodeKind, address, parse};

/// Appends the text without NUL, as [`Answer::Data`](super::Answer::Data) takes it.
pub fn encode<'a>(out: &mut Vec<u8>, locations: impl IntoIterator<Item = Location<'a>>) {
    crate::xroot::reply::locate::encode(out, locations);
    out.pop();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_texts_both_ways() {
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
        // A trailing blank occurs.
        assert_eq!(parse(b"Sw[::127.0.0.1]:22021 ").count(), 1);
    }
}
