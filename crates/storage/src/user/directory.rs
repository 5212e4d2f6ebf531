//! An open directory whose entries are looked up as a user.

use super::{StorageUser, UserSwitch};
use crate::{DirectoryPosition, DirectoryStream, Metadata, Pool, RawEntry};
use std::io;
use std::sync::Arc;

/// A directory that a user opened.
pub(super) struct UserDirectoryStream {
    stream: Box<dyn DirectoryStream>,
    switch: Arc<UserSwitch>,
    user: Arc<StorageUser>,
}

impl UserDirectoryStream {
    pub(super) fn new(
        stream: Box<dyn DirectoryStream>,
        switch: Arc<UserSwitch>,
        user: Arc<StorageUser>,
    ) -> Self {
        Self { stream, switch, user }
    }
}

impl DirectoryStream for UserDirectoryStream {
    fn next(&mut self, most: usize) -> io::Result<Vec<RawEntry>> {
        let _acting = self.switch.act_as(&self.user)?;
        self.stream.next(most)
    }

    fn position(&self) -> Option<DirectoryPosition> {
        self.stream.position()
    }

    fn go_to(&mut self, position: DirectoryPosition) -> io::Result<()> {
        let _acting = self.switch.act_as(&self.user)?;
        self.stream.go_to(position)
    }

    fn other_pool(&self, entry: &RawEntry) -> Option<Arc<Pool>> {
        // Without the rights nothing is looked up, neither here nor in the other pool.
        let _acting = self.switch.act_as(&self.user).ok()?;
        self.stream.other_pool(entry)
    }

    fn is_alias(&self, entry: &RawEntry) -> bool {
        match self.switch.act_as(&self.user) {
            Ok(_acting) => self.stream.is_alias(entry),
            Err(_) => entry.link,
        }
    }

    fn stat(&self, name: &[u8]) -> io::Result<Metadata> {
        let _acting = self.switch.act_as(&self.user)?;
        self.stream.stat(name)
    }

    fn attribute(&self, name: &[u8], attribute: &str) -> io::Result<Option<Vec<u8>>> {
        let _acting = self.switch.act_as(&self.user)?;
        self.stream.attribute(name, attribute)
    }
}
