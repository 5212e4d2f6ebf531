//! What a session is told about its server, once, at its start.

use base::DescriptorBudget;
use std::net::IpAddr;
use std::sync::Arc;
use wire::xroot::codes::SecurityLevel;
use wire::xroot::flags::ServerFlags;

/// Bytes of argument before login: a login's cgi is far smaller, and nobody unknown gets more memory than this.
pub const GREETING_ARGUMENT_BYTES_MAX: usize = 16 * 1024;

/// Requests of a session that wait for an answer of the file system at once. Beyond it the driver stops reading.
pub const CALLS_MAX: usize = 1024;

/// Bad pages of one kXR_pgwrite that a driver lists: one more than may be reported.
pub const BAD_PAGES_MAX: usize = wire::xroot::limits::PGWRITE_BAD_PAGES_MAX + 1;

/// Files open in one session.
pub const FILES_MAX: usize = 65_536;

/// What is the same for all sessions of a door.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the server says it is and can do.
    pub flags: ServerFlags,
    /// Signing demanded of clients.
    pub signing: Signing,
    /// Answers to `query config`, by key. What is not here is echoed.
    pub configuration: Vec<(String, String)>,
    /// Prepare requests allowed per session; `None` without a limit.
    pub prepares_max: Option<usize>,
    /// Past that limit say that it was done, and do nothing, instead of an error.
    pub prepares_silent: bool,
    /// Files per session, however many descriptors there are.
    pub files_max: usize,
    /// Descriptors for connections and files of all sessions.
    pub descriptors: Arc<DescriptorBudget>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            flags: ServerFlags::IS_SERVER | ServerFlags::SUPPOSC | ServerFlags::SUPPGRW,
            signing: Signing::default(),
            configuration: Vec::new(),
            prepares_max: None,
            prepares_silent: false,
            files_max: FILES_MAX,
            descriptors: Arc::default(),
        }
    }
}

/// Which requests must be signed (kXR_sigver).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signing {
    /// The level.
    pub level: SecurityLevel,
    /// Also of clients whose authentication gave no key: they sign with the bare hash.
    pub force: bool,
}

impl Default for Signing {
    fn default() -> Self {
        Self { level: SecurityLevel::NONE, force: false }
    }
}

/// Who connected.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Address; `None` for a test.
    pub address: Option<IpAddr>,
    /// Name where known, else the address as text.
    pub host: String,
}
