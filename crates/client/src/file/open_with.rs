//! How to open a file.

use wire::xroot::FileHandle;
use wire::xroot::flags::{OpenOptions, OpenTemplateOptions};
use wire::xroot::request::{Open, Request};

use crate::encoded::Encoded;
use crate::path::RequestTarget;

/// Permission bits of files that get created, unless told otherwise.
const MODE: u16 = 0o644;

/// How to open a file: begin with [`OpenWith::read`], [`OpenWith::create`], [`OpenWith::overwrite`] or
/// [`OpenWith::update`], and add to it.
#[derive(Clone, Debug)]
#[must_use]
pub struct OpenWith {
    /// The protocol's options.
    pub options: OpenOptions,
    /// Permission bits of a file that gets created.
    pub mode: u16,
    /// Bytes that the file will have, for servers to choose a place.
    pub expected_size: Option<u64>,
}

impl OpenWith {
    /// With options of the protocol.
    pub const fn options(options: OpenOptions) -> Self {
        Self { options, mode: MODE, expected_size: None }
    }

    /// An existing file, to read.
    pub const fn read() -> Self {
        Self::options(OpenOptions::READ)
    }

    /// A file that must not exist yet, to read and write.
    pub const fn create() -> Self {
        Self::options(OpenOptions::NEW.with(OpenOptions::UPDT))
    }

    /// A new file in place of any that exists, to read and write.
    pub const fn overwrite() -> Self {
        Self::options(OpenOptions::DELETE.with(OpenOptions::UPDT))
    }

    /// An existing file, to read and write.
    pub const fn update() -> Self {
        Self::options(OpenOptions::UPDT)
    }

    /// With more options of the protocol.
    pub const fn with(mut self, options: OpenOptions) -> Self {
        self.options = self.options.with(options);
        self
    }

    /// The file stays only if it is closed successfully.
    pub const fn persist_on_successful_close(self) -> Self {
        self.with(OpenOptions::POSC)
    }

    /// Missing parent directories are created.
    pub const fn make_path(self) -> Self {
        self.with(OpenOptions::MKPATH)
    }

    /// Locks of other readers and writers are ignored.
    pub const fn force(self) -> Self {
        self.with(OpenOptions::FORCE)
    }

    /// Permission bits of a file that gets created.
    pub const fn mode(mut self, mode: u16) -> Self {
        self.mode = mode;
        self
    }

    /// Bytes that the file will have.
    pub const fn expected_size(mut self, bytes: u64) -> Self {
        self.expected_size = Some(bytes);
        self
    }

    /// Whether the file can be written.
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

    /// The options of the first open: as stock clients, with the status in the answer.
    pub(crate) const fn sent_options(&self) -> OpenOptions {
        self.options.with(OpenOptions::RETSTAT).with(OpenOptions::ASYNC)
    }

    /// The options of an open that finds again what the first one opened or created. The status shows whether it is that.
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
