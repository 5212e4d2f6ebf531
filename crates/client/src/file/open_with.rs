//! Options for opening a file.

use rawclient::Encoded;
use wire::xroot::FileHandle;
use wire::xroot::flags::{OpenOptions, OpenTemplateOptions};
use wire::xroot::request::{Open, Request};

use crate::path::RequestTarget;

/// Default permission bits of created files.
const MODE: u16 = 0o644;

/// Options for opening a file. Start with [`OpenWith::read`], [`OpenWith::create`],
/// [`OpenWith::overwrite`] or [`OpenWith::update`], and add others.
#[derive(Clone, Debug)]
#[must_use]
pub struct OpenWith {
    /// The options of the protocol.
    pub options: OpenOptions,
    /// Permission bits of a created file.
    pub mode: u16,
    /// The expected size in bytes, by which servers choose a place.
    pub expected_size: Option<u64>,
}

impl OpenWith {
    /// Creates options from those of the protocol.
    pub const fn options(options: OpenOptions) -> Self {
        Self { options, mode: MODE, expected_size: None }
    }

    /// Opens an existing file to read.
    pub const fn read() -> Self {
        Self::options(OpenOptions::READ)
    }

    /// Creates a file, which must not exist yet, to read and write.
    pub const fn create() -> Self {
        Self::options(OpenOptions::NEW.with(OpenOptions::UPDT))
    }

    /// Creates a file, replacing an existing one, to read and write.
    pub const fn overwrite() -> Self {
        Self::options(OpenOptions::DELETE.with(OpenOptions::UPDT))
    }

    /// Opens an existing file to read and write.
    pub const fn update() -> Self {
        Self::options(OpenOptions::UPDT)
    }

    /// Adds options of the protocol.
    pub const fn with(mut self, options: OpenOptions) -> Self {
        self.options = self.options.with(options);
        self
    }

    /// Keeps the file only if it is closed successfully.
    pub const fn persist_on_successful_close(self) -> Self {
        self.with(OpenOptions::POSC)
    }

    /// Creates missing parent directories.
    pub const fn make_path(self) -> Self {
        self.with(OpenOptions::MKPATH)
    }

    /// Ignores locks of other readers and writers.
    pub const fn force(self) -> Self {
        self.with(OpenOptions::FORCE)
    }

    /// Sets the permission bits of a created file.
    pub const fn mode(mut self, mode: u16) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the expected size in bytes.
    pub const fn expected_size(mut self, bytes: u64) -> Self {
        self.expected_size = Some(bytes);
        self
    }

    /// Reports whether the file can be written.
    #[must_use]
    pub const fn is_writable(&self) -> bool {
        let writing = OpenOptions(
            OpenOptions::UPDT.0
                | OpenOptions::WRTO.0
                | OpenOptions::NEW.0
                | OpenOptions::DELETE.0
                | OpenOptions::APND.0,
        );
        self.options.intersects(writing)
    }

    /// Returns the options of the first open. Like the XRootD client, it requests the status in the
    /// reply.
    pub(crate) const fn sent_options(&self) -> OpenOptions {
        self.options.with(OpenOptions::RETSTAT).with(OpenOptions::ASYNC)
    }

    /// Returns the options of an open that finds the file again that the first one opened or
    /// created. The status shows whether it is the same file.
    pub(crate) const fn again_options(&self) -> OpenOptions {
        let creating = OpenOptions(OpenOptions::NEW.0 | OpenOptions::DELETE.0 | OpenOptions::ASYNC.0);
        let options = self.options.without(creating).with(OpenOptions::RETSTAT);
        if self.is_writable() && !options.intersects(OpenOptions::WRTO) {
            options.with(OpenOptions::UPDT)
        } else {
            options
        }
    }

    pub(crate) fn request(&self, target: &RequestTarget, options: OpenOptions) -> Encoded {
        Encoded::new(&Request::Open(Open {
            mode: self.mode,
            options,
            optiont: OpenTemplateOptions::NONE,
            fhtemplt: FileHandle::default(),
            target: target.as_bytes(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_as_stock_clients_send_them() {
        assert_eq!(OpenWith::read().sent_options(), OpenOptions(0x0450));
        assert_eq!(OpenWith::overwrite().sent_options(), OpenOptions(0x0462));
        assert_eq!(OpenWith::create().persist_on_successful_close().sent_options(), OpenOptions(0x1468));
        assert_eq!(OpenWith::read().again_options(), OpenOptions(0x0410));
        assert_eq!(OpenWith::create().persist_on_successful_close().again_options(), OpenOptions(0x1420));
        assert!(OpenWith::update().is_writable() && !OpenWith::read().force().is_writable());
    }
}
