//! `prepadd` (6) and `prepdel` (7): staging and its cancellation.
//!
//! `prepadd`: ident, reqid, notify, prty, mode, path; optional: opaque. All texts:
//!
//! | argument | meaning                                                                                     |
//! |----------|---------------------------------------------------------------------------------------------|
//! | reqid    | names the request, opaque                                                                   |
//! | notify   | `*`, or `udp://host:port/data`: whom to tell                                                |
//! | prty     | `0` to `3`; to co-locate, `n /first/path`                                                   |
//! | mode     | letters: r or w; n: notify errors; q: quiet                                                 |
//!
//! `prepdel`: ident, reqid. **A real manager with live nodes ends at a `prepdel`**: it goes to our own peers only.
//! Direction: redirector to manager, relayed to the chosen node (`prepadd`) or to all (`prepdel`).
//! Source: cms protocol version 3, sections 1.3, 4.14. Recorded: 12, 18, 19, 24.

use crate::cms::error::EncodeError;
use crate::cms::flags::{PrepaddModifier, RelayModifier};
use crate::cms::pup::{Packer, Unpacker};
use crate::error::WireError;

/// Stages a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prepadd<'a> {
    /// What to do.
    pub modifier: PrepaddModifier,
    /// Who asks, for logs; may be empty.
    pub ident: &'a [u8],
    /// Names the request.
    pub reqid: &'a [u8],
    /// Whom to tell.
    pub notify: &'a [u8],
    /// Priority, and the path to be near.
    pub priority: &'a [u8],
    /// Letters.
    pub mode: &'a [u8],
    /// The path.
    pub path: &'a [u8],
    /// The cgi behind the path.
    pub opaque: Option<&'a [u8]>,
}

/// Cancels staging.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prepdel<'a> {
    /// How often it was relayed.
    pub modifier: RelayModifier,
    /// Who asks, for logs; may be empty.
    pub ident: &'a [u8],
    /// The request to cancel.
    pub reqid: &'a [u8],
}

impl<'a> Prepadd<'a> {
    pub(super) fn decode(modifier: u8, payload: &'a [u8]) -> Result<Self, WireError> {
        let mut arguments = Unpacker::new(payload);
        Ok(Self {
            modifier: PrepaddModifier(modifier),
            ident: arguments.text("ident")?,
            reqid: arguments.text("reqid")?,
            notify: arguments.text("notify")?,
            priority: arguments.text("prty")?,
            mode: arguments.text("mode")?,
            path: arguments.text("path")?,
            opaque: arguments.optional("opaque")?,
        })
    }

    pub(super) fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.text("ident", self.ident)?;
        packer.filled("reqid", self.reqid)?;
        packer.filled("notify", self.notify)?;
        packer.filled("prty", self.priority)?;
        packer.filled("mode", self.mode)?;
        packer.filled("path", self.path)?;
        packer.optional("opaque", self.opaque)
    }
}

impl<'a> Prepdel<'a> {
    pub(super) fn decode(modifier: u8, payload: &'a [u8]) -> Result<Self, WireError> {
        let mut arguments = Unpacker::new(payload);
        Ok(Self {
            modifier: RelayModifier(modifier),
            ident: arguments.text("ident")?,
            reqid: arguments.text("reqid")?,
        })
    }

    pub(super) fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.text("ident", self.ident)?;
        packer.filled("reqid", self.reqid)
    }
}
