//! Settings of a session and the limits of its resources.
//!
//! The server passes the settings to each session at its start. They are here because the session
//! reads no configuration itself.

use base::DescriptorBudget;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use wire::xroot::codes::SecurityLevel;
use wire::xroot::flags::ServerFlags;

/// Maximum length in bytes of an argument before login. The cgi of a login is far smaller, and an
/// unknown peer must not claim more memory.
pub const GREETING_ARGUMENT_BYTES_MAX: usize = 16 * 1024;

/// Maximum number of requests of a session that wait for the file system. At this limit the driver
/// stops reading (back-pressure).
pub const CALLS_MAX: usize = 1024;

/// Maximum number of bad pages of one kXR_pgwrite that a driver lists: one more than the protocol
/// can report, so that an excess is visible.
pub const BAD_PAGES_MAX: usize = wire::xroot::limits::PGWRITE_BAD_PAGES_MAX + 1;

/// Maximum number of open files in one session.
pub const FILES_MAX: usize = 65_536;

/// A text that another part of the server changes. Clones share it.
#[derive(Clone, Default, Debug)]
pub struct LiveValue(Arc<Mutex<String>>);

impl LiveValue {
    /// Returns the current text.
    #[must_use]
    pub fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the text.
    pub fn set(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

/// Settings that all sessions of a front end share.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Role and capabilities that the server announces.
    pub flags: ServerFlags,
    /// Signing required of clients.
    pub signing: Signing,
    /// Answers to `query config`, by key. Unknown keys are echoed.
    pub configuration: Vec<(String, String)>,
    /// Further answers to `query config`, by key, that change while the server runs.
    pub live_values: Vec<(String, LiveValue)>,
    /// Maximum number of prepare requests per session; `None` means unlimited.
    pub prepares_max: Option<usize>,
    /// Reports success for prepare requests beyond that limit without executing them. Otherwise
    /// they fail.
    pub prepares_silent: bool,
    /// Maximum number of open files per session, independent of the available descriptors.
    pub files_max: usize,
    /// Descriptors for the connections and files of all sessions.
    pub descriptors: Arc<DescriptorBudget>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            flags: ServerFlags::IS_SERVER | ServerFlags::SUPPOSC | ServerFlags::SUPPGRW,
            signing: Signing::default(),
            configuration: Vec::new(),
            live_values: Vec::new(),
            prepares_max: None,
            prepares_silent: false,
            files_max: FILES_MAX,
            descriptors: Arc::default(),
        }
    }
}

/// Requests that must be signed (kXR_sigver).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signing {
    /// The security level.
    pub level: SecurityLevel,
    /// Also requires signatures of clients whose authentication gave no key. They sign with the
    /// bare hash.
    pub force: bool,
}

impl Default for Signing {
    fn default() -> Self {
        Self { level: SecurityLevel::NONE, force: false }
    }
}

/// The remote end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Address; `None` in tests.
    pub address: Option<IpAddr>,
    /// Host name if known, otherwise the address as text.
    pub host: String,
}
