//! The operations on names that a redirector forwards (`ofs.forward`).

/// Forwarding of operations on names to all servers (`ofs.forward`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ForwardWay {
    /// Disabled: the client is redirected to one server.
    #[default]
    Off,
    /// Forwarded; success is reported to the client immediately.
    OneWay,
    /// Forwarded; the result is reported to the client.
    TwoWay,
}

/// `ofs.forward`, for each operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Forwarding {
    /// Change of permissions.
    pub chmod: ForwardWay,
    /// Creation of directories.
    pub mkdir: ForwardWay,
    /// Renaming.
    pub mv: ForwardWay,
    /// Removal of files.
    pub rm: ForwardWay,
    /// Removal of directories.
    pub rmdir: ForwardWay,
    /// Truncation.
    pub trunc: ForwardWay,
}
