//! The settings of a file system that all servers share (`cms.dfs`).

/// The settings of a shared file system: all servers see the same files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedFilePolicy {
    /// Clients are redirected without a check that the file exists.
    pub unchecked: bool,
    /// The node looks itself, at its own mount, instead of querying a server.
    pub central: bool,
    /// The number of servers that a client may try for one file; a further one has the same files.
    pub tries_max: usize,
}

impl Default for SharedFilePolicy {
    fn default() -> Self {
        Self { unchecked: false, central: false, tries_max: 2 }
    }
}
