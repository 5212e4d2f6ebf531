//! Traits of everything that has a layout in bytes.
//!
//! [`FixedLayout`] is for headers and elements of lists: their length is constant and each bit
//! pattern is valid, so decoding cannot fail and needs no buffer. [`Encode`] and [`Decode`] are for
//! bodies, whose length and contents vary. Messages whose header carries parameters, or which
//! cannot be sent to each peer, have a trait of their own: the requests of xroot and the messages
//! of cms.

use crate::error::WireError;

/// A layout that is appended to a buffer, which the caller keeps and reuses.
pub trait Encode {
    /// Appends the encoded bytes.
    fn encode(&self, out: &mut Vec<u8>);

    /// Returns the encoded bytes in a buffer of their own.
    #[must_use]
    fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }
}

/// A layout that is decoded from received bytes, from which it borrows.
pub trait Decode<'a>: Sized {
    /// Decodes all of `bytes`.
    ///
    /// # Errors
    /// A truncated field or an invalid value. Bytes behind the last field are ignored unless the
    /// type documents otherwise, because a later version of the protocol may append fields.
    fn decode(bytes: &'a [u8]) -> Result<Self, WireError>;
}

/// A layout of constant length, of which all bit patterns are valid.
pub trait FixedLayout: Sized {
    /// An array of the length of the layout.
    type Bytes: AsRef<[u8]>;

    /// Returns the encoded bytes.
    #[must_use]
    fn to_bytes(&self) -> Self::Bytes;

    /// Decodes the bytes.
    #[must_use]
    fn from_bytes(bytes: &Self::Bytes) -> Self;
}

/// Appends a head of `N` bytes and the body that `fill` appends. `head` encodes the head from the
/// length of the body. `fill` must not change the bytes before the body.
pub(crate) fn with_head<const N: usize>(
    out: &mut Vec<u8>,
    fill: impl FnOnce(&mut Vec<u8>),
    head: impl FnOnce(usize) -> [u8; N],
) {
    let at = out.len();
    out.extend_from_slice(&[0; N]);
    fill(out);
    let length = out.len().saturating_sub(at).saturating_sub(N);
    if let Some(place) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = head(length);
    }
}

impl<T: FixedLayout> Encode for T {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.to_bytes().as_ref());
    }
}

impl Encode for [u8] {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}
