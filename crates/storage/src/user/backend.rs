//! [`UserBackend`]: a storage that can make its calls as a user.

use super::directory::UserDirectoryStream;
use super::file::UserFile;
use super::{StorageUser, UserSwitch};
use crate::{
    Backend, CreateMode, DirectoryAbove, DirectoryStream, ExistingName, FileIdentity, FileSystemUsage,
    Metadata, Now, OpenMode, ParentCreation, Pool, SpaceUsage, StoredFile, TransferStorage, WorkPlacement,
};
use base::LogicalPath;
use std::borrow::Cow;
use std::io;
use std::sync::Arc;

/// A storage in front of another one. Its calls are made with the rights of a user, or with those of
/// the server as long as no user is chosen ([`Backend::as_user`]).
///
/// With a user, the calls that never block return [`Now::WouldBlock`], because they are made on
/// event loops, which never have the rights of a user.
pub struct UserBackend {
    behind: Arc<dyn Backend>,
    switch: Arc<UserSwitch>,
    user: Option<Arc<StorageUser>>,
}

impl UserBackend {
    /// Returns a storage that makes its calls as the server.
    pub fn new(behind: Arc<dyn Backend>, switch: Arc<UserSwitch>) -> Self {
        Self { behind, switch, user: None }
    }

    /// Makes a call with the rights of the user.
    fn call<T>(&self, call: impl FnOnce(&dyn Backend) -> io::Result<T>) -> io::Result<T> {
        let _acting = self.user.as_ref().map(|user| self.switch.act_as(user)).transpose()?;
        call(self.behind.as_ref())
    }
}

impl Backend for UserBackend {
    fn as_user(&self, user: &Arc<StorageUser>) -> Option<Arc<dyn Backend>> {
        let (behind, switch) = (self.behind.clone(), self.switch.clone());
        Some(Arc::new(Self { behind, switch, user: Some(user.clone()) }))
    }

    fn open(&self, path: &LogicalPath, how: &OpenMode) -> io::Result<Arc<dyn StoredFile>> {
        let file = self.call(|behind| behind.open(path, how))?;
        Ok(match &self.user {
            Some(user) => Arc::new(UserFile::new(file, self.switch.clone(), user.clone())),
            None => file,
        })
    }

    fn transfers(&self) -> Option<&dyn TransferStorage> {
        self.behind.transfers()
    }

    fn open_now(&self, path: &LogicalPath, how: &OpenMode) -> Now<Arc<dyn StoredFile>> {
        match self.user {
            Some(_) => Now::WouldBlock,
            None => self.behind.open_now(path, how),
        }
    }

    fn stat(&self, path: &LogicalPath) -> io::Result<Metadata> {
        self.call(|behind| behind.stat(path))
    }

    fn stat_now(&self, path: &LogicalPath) -> Now<Metadata> {
        match self.user {
            Some(_) => Now::WouldBlock,
            None => self.behind.stat_now(path),
        }
    }

    fn identity(&self, path: &LogicalPath) -> io::Result<FileIdentity> {
        self.call(|behind| behind.identity(path))
    }

    fn stored_path<'p>(&self, path: &'p LogicalPath) -> io::Result<Cow<'p, LogicalPath>> {
        self.behind.stored_path(path)
    }

    fn identities_above(&self, path: &LogicalPath) -> io::Result<Vec<DirectoryAbove>> {
        self.call(|behind| behind.identities_above(path))
    }

    fn sync_above(&self, path: &LogicalPath) -> io::Result<bool> {
        self.call(|behind| behind.sync_above(path))
    }

    fn creates_parent(&self, directory: &LogicalPath, path: &LogicalPath) -> bool {
        self.behind.creates_parent(directory, path)
    }

    fn has_name(&self, path: &LogicalPath) -> io::Result<bool> {
        self.call(|behind| behind.has_name(path))
    }

    fn sync_name(&self, path: &LogicalPath) -> io::Result<()> {
        self.call(|behind| behind.sync_name(path))
    }

    fn has_local_names(&self, path: &LogicalPath) -> bool {
        self.behind.has_local_names(path)
    }

    fn lists_all_names(&self) -> bool {
        self.behind.lists_all_names()
    }

    fn list(&self, path: &LogicalPath) -> io::Result<Box<dyn DirectoryStream>> {
        let stream = self.call(|behind| behind.list(path))?;
        Ok(match &self.user {
            Some(user) => Box::new(UserDirectoryStream::new(stream, self.switch.clone(), user.clone())),
            None => stream,
        })
    }

    fn make_directory(
        &self,
        path: &LogicalPath,
        mode: u32,
        parents: Option<&ParentCreation>,
    ) -> io::Result<()> {
        self.call(|behind| behind.make_directory(path, mode, parents))
    }

    fn remove_directory(&self, path: &LogicalPath) -> io::Result<()> {
        self.call(|behind| behind.remove_directory(path))
    }

    fn remove_file(&self, path: &LogicalPath) -> io::Result<()> {
        self.call(|behind| behind.remove_file(path))
    }

    fn rename(
        &self,
        from: &LogicalPath,
        to: &LogicalPath,
        existing: ExistingName,
        parents: Option<&ParentCreation>,
    ) -> io::Result<()> {
        self.call(|behind| behind.rename(from, to, existing, parents))
    }

    fn set_mode(&self, path: &LogicalPath, mode: u32) -> io::Result<()> {
        self.call(|behind| behind.set_mode(path, mode))
    }

    fn renew_access(&self, path: &LogicalPath) -> io::Result<()> {
        self.call(|behind| behind.renew_access(path))
    }

    fn truncate(&self, path: &LogicalPath, size: u64) -> io::Result<()> {
        self.call(|behind| behind.truncate(path, size))
    }

    fn attribute(&self, path: &LogicalPath, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.call(|behind| behind.attribute(path, name))
    }

    fn set_attribute(&self, path: &LogicalPath, name: &str, value: &[u8], new: bool) -> io::Result<()> {
        self.call(|behind| behind.set_attribute(path, name, value, new))
    }

    fn remove_attribute(&self, path: &LogicalPath, name: &str) -> io::Result<()> {
        self.call(|behind| behind.remove_attribute(path, name))
    }

    fn attributes(&self, path: &LogicalPath) -> io::Result<Vec<String>> {
        self.call(|behind| behind.attributes(path))
    }

    fn usage(&self, path: &LogicalPath, space: Option<&str>) -> io::Result<SpaceUsage> {
        self.call(|behind| behind.usage(path, space))
    }

    fn file_systems(&self, path: &LogicalPath) -> io::Result<Vec<FileSystemUsage>> {
        self.call(|behind| behind.file_systems(path))
    }

    fn space_file_systems(&self, path: &LogicalPath) -> io::Result<Vec<(String, FileSystemUsage)>> {
        self.call(|behind| behind.space_file_systems(path))
    }

    fn space_of(&self, path: &LogicalPath) -> String {
        // Without the rights of the user nothing is looked up.
        self.call(|behind| Ok(behind.space_of(path))).unwrap_or_default()
    }

    fn spaces_beside(&self, path: &LogicalPath, wish: &str) -> Option<Vec<String>> {
        self.behind.spaces_beside(path, wish)
    }

    fn pool(&self, path: &LogicalPath) -> &Arc<Pool> {
        self.behind.pool(path)
    }

    fn placement(&self, path: &LogicalPath, create: Option<&CreateMode>) -> Option<WorkPlacement> {
        self.call(|behind| Ok(behind.placement(path, create))).ok().flatten()
    }
}
