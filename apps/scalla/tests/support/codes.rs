//! Numbers of the xroot protocol.
//!
//! They are repeated here, so that a wrong number in the program's own crates is detected.

/// Request codes.
pub(crate) mod request {
    pub(crate) const CLOSE: u16 = 3003;
    pub(crate) const PROTOCOL: u16 = 3006;
    pub(crate) const OPEN: u16 = 3010;
    pub(crate) const PING: u16 = 3011;
    pub(crate) const CHECKPOINT: u16 = 3012;
    pub(crate) const READ: u16 = 3013;
    pub(crate) const STAT: u16 = 3017;
    pub(crate) const WRITE: u16 = 3019;
    pub(crate) const STATX: u16 = 3022;
    pub(crate) const BIND: u16 = 3024;
}

/// Reply statuses.
pub(crate) mod status {
    pub(crate) const OK: u16 = 0;
    pub(crate) const ATTN: u16 = 4001;
    pub(crate) const ERROR: u16 = 4003;
    pub(crate) const REDIRECT: u16 = 4004;
    pub(crate) const WAIT: u16 = 4005;
    pub(crate) const WAITRESP: u16 = 4006;
}
