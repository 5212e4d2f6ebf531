//! `prepadd` (6) and `prepdel` (7): requests staging and cancels it.
//!
//! `prepadd`: ident, reqid, notify, prty, mode, path; optional: opaque. All are texts:
//!
//! | argument | meaning                                               |
//! |----------|-------------------------------------------------------|
//! | reqid    | opaque id of the request                              |
//! | notify   | `*`, or `udp://host:port/data`: the address to notify |
//! | prty     | `0` to `3`; to co-locate, `n /first/path`             |
//! | mode     | letters: r or w; n: notify of errors; q: quiet        |
//!
//! `prepdel`: ident, reqid. It is an error to encode it for a peer that is not a Scalla node.
//! Direction: redirector to manager, relayed to the chosen node (`prepadd`) or to all nodes
//! (`prepdel`).
//!
//! Source: cms protocol version 3, sections 1.3, 4.14. Recorded: 12, 18, 19, 24.

use crate::cms::error::EncodeError;
use crate::cms::flags::{PrepaddModifier, RelayModifier};
use crate::cms::pup::{Arguments, Packer, Unpacker};
use crate::error::WireError;

/// Requests staging of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prepadd<'a> {
    /// Options of the request.
    pub modifier: PrepaddModifier,
    /// Identity of the client, for logs; may be empty.
    pub ident: &'a [u8],
    /// Id of the request.
    pub reqid: &'a [u8],
    /// Address to notify.
    pub notify: &'a [u8],
    /// Priority, and the path to place the file beside.
    pub priority: &'a [u8],
    /// Mode letters.
    pub mode: &'a [u8],
    /// The path.
    pub path: &'a [u8],
    /// The CGI of the path.
    pub opaque: Option<&'a [u8]>,
}

/// Cancels staging.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prepdel<'a> {
    /// Number of relays.
    pub modifier: RelayModifier,
    /// Identity of the client, for logs; may be empty.
    pub ident: &'a [u8],
    /// Id of the request to cancel.
    pub reqid: &'a [u8],
}

impl<'a> Arguments<'a> for Prepadd<'a> {
    fn unpack(modifier: u8, arguments: &mut Unpacker<'a>) -> Result<Self, WireError> {
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

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.text("ident", self.ident)?;
        packer.filled("reqid", self.reqid)?;
        packer.filled("notify", self.notify)?;
        packer.filled("prty", self.priority)?;
        packer.filled("mode", self.mode)?;
        packer.filled("path", self.path)?;
        packer.optional("opaque", self.opaque)
    }
}

impl<'a> Arguments<'a> for Prepdel<'a> {
    fn unpack(modifier: u8, arguments: &mut Unpacker<'a>) -> Result<Self, WireError> {
        Ok(Self {
            modifier: RelayModifier(modifier),
            ident: arguments.text("ident")?,
            reqid: arguments.text("reqid")?,
        })
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.text("ident", self.ident)?;
        packer.filled("reqid", self.reqid)
    }
}
