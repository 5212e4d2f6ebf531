//! A disk in memory for tests: it stops after any call, fails, fills up, and loses in a power cut what is not
//! synced.

#![allow(clippy::unwrap_used)]

mod direct_client;
mod restart;

use super::{CacheDisk, CacheDiskFile};
use base::LogicalPath;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use storage::{PlainKind, PlainStatus, SECOND_NAME_ATTRIBUTE};

pub(crate) use direct_client::DirectClient;

/// The files of the recorded index.
const INDEX_DIRECTORY: &[u8] = b"/.scalla-cache/index";

#[derive(Clone, Default)]
struct Inode {
    content: Vec<u8>,
    durable: Vec<u8>,
    /// For each byte of the content, whether its space was freed. The bytes behind it have theirs.
    freed: Vec<bool>,
    attributes: BTreeSet<String>,
    /// Number of programs beside the cache that have it open.
    readers: usize,
    /// Number of descriptors of the cache.
    opened: usize,
    is_sparse: bool,
    /// It is a file of the recorded index.
    is_index: bool,
}

#[derive(Clone, Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<LogicalPath, usize>,
    durable: BTreeMap<LogicalPath, usize>,
    /// Changes of names since the last sync of their directory.
    pending: Vec<(LogicalPath, Option<usize>)>,
    links: BTreeSet<LogicalPath>,
    directories: BTreeSet<LogicalPath>,
    /// Names of the threads that have closed files.
    closers: BTreeSet<String>,
    calls: u64,
    stop_after: Option<u64>,
    /// Calls of this kind that fail, after a number of them, and the error.
    faults: Vec<(&'static str, u64, i32)>,
    room: Option<u64>,
    has_no_attributes: bool,
    /// No file counts as open elsewhere.
    is_blind: bool,
    opened: u64,
    /// Calls of this kind always fail.
    always: Vec<(&'static str, i32)>,
    /// The number of calls of each kind.
    counts: BTreeMap<&'static str, u64>,
    /// Calls for files of the recorded index neither fail nor count.
    is_index_quiet: bool,
    /// The number of times that the file system was mounted.
    mounts: u64,
    /// What makes it another disk.
    identity: u64,
    /// Interval of reads without waiting that find only a part of their bytes in memory; 0 for none.
    cold_one_of: u64,
    reads_now: u64,
    /// Calls of this kind fail for files with this text in their paths.
    faults_at: Vec<(&'static str, &'static str, i32)>,
}

impl Inode {
    fn allocated(&self) -> u64 {
        (self.content.len() - self.freed.iter().filter(|is_freed| **is_freed).count()) as u64
    }
}

impl State {
    /// Returns the number of names of a file.
    fn names_of(&self, inode: usize) -> u64 {
        self.names.values().filter(|of| **of == inode).count() as u64
    }

    /// Makes the changes of the chosen names durable.
    fn sync_names(&mut self, is_chosen: impl Fn(&LogicalPath) -> bool) {
        let (now, later) =
            std::mem::take(&mut self.pending).into_iter().partition::<Vec<_>, _>(|(name, _)| is_chosen(name));
        self.pending = later;
        for (name, inode) in now {
            match inode {
                Some(inode) => drop(self.durable.insert(name, inode)),
                None => drop(self.durable.remove(&name)),
            }
        }
    }
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Default)]
pub(crate) struct MemoryDisk(Arc<Mutex<State>>, Arc<HangingReads>);

/// Whether reads hang, and what wakes them.
#[derive(Default)]
struct HangingReads(Mutex<bool>, Condvar);

struct MemoryFile {
    disk: MemoryDisk,
    inode: usize,
}

impl MemoryFile {
    fn call(&self, name: &'static str) -> io::Result<MutexGuard<'_, State>> {
        self.disk.call_for(name, |state| state.inodes[self.inode].is_index)
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let thread = std::thread::current();
        let mut state = self.disk.lock();
        if state.inodes[self.inode].is_index {
            return;
        }
        state.opened -= 1;
        state.inodes[self.inode].opened -= 1;
        state.closers.insert(thread.name().unwrap_or_default().to_owned());
    }
}

impl MemoryDisk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn call(&self, name: &'static str) -> io::Result<MutexGuard<'_, State>> {
        self.call_for(name, |_| false)
    }

    fn call_at(&self, name: &'static str, path: &LogicalPath) -> io::Result<MutexGuard<'_, State>> {
        let is_index = path.as_bytes().starts_with(INDEX_DIRECTORY);
        let is_at = |(call, text, _): &&(_, &str, _)| *call == name && path.text().contains(text);
        let fault = self.lock().faults_at.iter().find(is_at).map(|(.., number)| *number);
        match fault {
            Some(number) => Err(io::Error::from_raw_os_error(number)),
            None => self.call_for(name, |_| is_index),
        }
    }

    fn call_for(
        &self,
        name: &'static str,
        is_index: impl FnOnce(&State) -> bool,
    ) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.lock();
        if state.stop_after.is_some_and(|most| state.calls >= most) {
            return Err(Errno::IO.into());
        }
        if state.is_index_quiet && is_index(&state) {
            return Ok(state);
        }
        state.calls += 1;
        *state.counts.entry(name).or_default() += 1;
        if let Some((_, number)) = state.always.iter().find(|(call, _)| *call == name) {
            return Err(io::Error::from_raw_os_error(*number));
        }
        if let Some(at) = state.faults.iter().position(|(call, ..)| *call == name) {
            if let Some((_, left @ 1.., _)) = state.faults.get_mut(at) {
                *left -= 1;
                return Ok(state);
            }
            let (.., number) = state.faults.remove(at);
            return Err(io::Error::from_raw_os_error(number));
        }
        Ok(state)
    }

    /// Fails all calls after this number of them.
    pub(crate) fn stop_after(&self, calls: u64) {
        let mut state = self.lock();
        (state.calls, state.stop_after) = (0, Some(calls));
    }

    /// Reports whether a call has failed because the disk has stopped.
    pub(crate) fn has_stopped(&self) -> bool {
        let state = self.lock();
        state.stop_after.is_some_and(|most| state.calls >= most)
    }

    /// Makes the next call of this kind fail.
    pub(crate) fn fail(&self, call: &'static str, error: Errno) {
        self.fail_later(call, 0, error);
    }

    /// Makes a call of this kind fail after this number of them.
    pub(crate) fn fail_later(&self, call: &'static str, after: u64, error: Errno) {
        self.lock().faults.push((call, after, error.raw_os_error()));
    }

    /// Makes all calls of this kind fail.
    pub(crate) fn fail_always(&self, call: &'static str, error: Errno) {
        self.lock().always.push((call, error.raw_os_error()));
    }

    /// Makes all calls of this kind fail for files with this text in their paths.
    pub(crate) fn fail_at(&self, call: &'static str, text: &'static str, error: Errno) {
        self.lock().faults_at.push((call, text, error.raw_os_error()));
    }

    /// Lets reads hang, or go on.
    pub(crate) fn set_hanging(&self, hang: bool) {
        *self.1.0.lock().unwrap() = hang;
        self.1.1.notify_all();
    }

    /// Ends all failures. Returns whether all single ones have happened.
    pub(crate) fn clear_faults(&self) -> bool {
        let mut state = self.lock();
        let have_happened = state.faults.is_empty();
        state.faults.clear();
        state.always.clear();
        state.faults_at.clear();
        have_happened
    }

    /// Returns the number of calls of a kind.
    pub(crate) fn count(&self, call: &str) -> u64 {
        self.lock().counts.get(call).copied().unwrap_or(0)
    }

    /// Puts a file without data there, which only has a size.
    pub(crate) fn put_sparse(&self, path: &LogicalPath, size: usize) {
        self.put(path, &vec![0; size]);
        let mut state = self.lock();
        let inode = state.names[path];
        state.inodes[inode].is_sparse = true;
    }

    /// Removes the recorded index.
    pub(crate) fn forget_index(&self) {
        self.lock().names.retain(|name, _| !name.as_bytes().starts_with(INDEX_DIRECTORY));
    }

    /// Sets whether calls for files of the recorded index neither fail nor count.
    pub(crate) fn set_index_quiet(&self, is_quiet: bool) {
        self.lock().is_index_quiet = is_quiet;
    }

    /// Mounts the file system again. Nothing is lost.
    pub(crate) fn remount(&self) {
        self.lock().mounts += 1;
    }

    /// Makes it another disk with the same files.
    pub(crate) fn become_another(&self) {
        self.lock().identity += 1;
    }

    /// Limits the bytes that can still be written.
    pub(crate) fn set_room(&self, room: Option<u64>) {
        self.lock().room = room;
    }

    pub(crate) fn set_blind(&self) {
        self.lock().is_blind = true;
    }

    pub(crate) fn set_no_attributes(&self) {
        self.lock().has_no_attributes = true;
    }

    /// Returns the number of bytes of a range of a file that use space; `None` if there is no such file.
    pub(crate) fn allocated_within(&self, path: &LogicalPath, range: &Range<u64>) -> Option<u64> {
        let state = self.lock();
        let inode = &state.inodes[*state.names.get(path)?];
        let end = inode.content.len().min(range.end as usize);
        let bytes = (range.start as usize).min(end)..end;
        let freed = bytes.clone().filter(|at| inode.freed.get(*at).copied().unwrap_or(false)).count();
        Some((bytes.len() - freed) as u64)
    }

    /// Returns the number of open files.
    pub(crate) fn open_files(&self) -> u64 {
        self.lock().opened
    }

    /// Puts a file there, as another program would.
    pub(crate) fn put(&self, path: &LogicalPath, content: &[u8]) {
        let mut state = self.lock();
        let is_index = path.as_bytes().starts_with(INDEX_DIRECTORY);
        let (content, durable) = (content.to_vec(), content.to_vec());
        let inode = Inode { content, durable, is_index, ..Inode::default() };
        state.inodes.push(inode);
        let number = state.inodes.len() - 1;
        state.names.insert(path.clone(), number);
        state.durable.insert(path.clone(), number);
    }

    /// Returns the names of the threads that have closed files since the last call.
    pub(crate) fn take_closers(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.lock().closers)
    }

    /// Puts an empty directory there.
    pub(crate) fn put_directory(&self, path: &LogicalPath) {
        self.lock().directories.insert(path.clone());
    }

    /// Returns all directories.
    pub(crate) fn directories(&self) -> Vec<LogicalPath> {
        self.lock().directories.iter().cloned().collect()
    }

    /// Puts a link there.
    pub(crate) fn put_link(&self, path: &LogicalPath) {
        self.put(path, b"");
        self.lock().links.insert(path.clone());
    }

    /// Returns the content of a file.
    pub(crate) fn get(&self, path: &LogicalPath) -> Option<Vec<u8>> {
        let state = self.lock();
        Some(state.inodes[*state.names.get(path)?].content.clone())
    }

    /// Lets every `one_of`-th read without waiting find only a part of its bytes; 0 for none.
    pub(crate) fn set_cold(&self, one_of: u64) {
        self.lock().cold_one_of = one_of;
    }

    /// Changes a byte of a file, if there is one.
    pub(crate) fn flip_some(&self, path: &LogicalPath, draw: u64) {
        let mut state = self.lock();
        let Some(inode) = state.names.get(path).copied() else { return };
        let content = &mut state.inodes[inode].content;
        if !content.is_empty() {
            let at = draw as usize % content.len();
            content[at] ^= 0x40;
        }
    }

    /// Changes a byte of a file.
    pub(crate) fn flip(&self, path: &LogicalPath, at: usize) {
        let inode = self.lock().names[path];
        self.lock().inodes[inode].content[at] ^= 0x40;
    }

    /// Returns all files.
    pub(crate) fn names(&self) -> Vec<LogicalPath> {
        self.lock().names.keys().cloned().collect()
    }

    fn file(&self, state: &mut State, inode: usize) -> Arc<dyn CacheDiskFile> {
        if !state.inodes[inode].is_index {
            state.opened += 1;
            state.inodes[inode].opened += 1;
        }
        Arc::new(MemoryFile { disk: self.clone(), inode })
    }
}

impl CacheDisk for MemoryDisk {
    fn open(&self, path: &LogicalPath) -> io::Result<Arc<dyn CacheDiskFile>> {
        let mut state = self.call_at("open", path)?;
        if state.links.contains(path) {
            return Err(Errno::LOOP.into());
        }
        if state.directories.contains(path) {
            return Err(Errno::ISDIR.into());
        }
        let inode = *state.names.get(path).ok_or(Errno::NOENT)?;
        let has_others = state.names_of(inode) > 1;
        if has_others && !state.inodes[inode].attributes.contains(SECOND_NAME_ATTRIBUTE) {
            return Err(Errno::MLINK.into());
        }
        Ok(self.file(&mut state, inode))
    }

    fn create(&self, path: &LogicalPath) -> io::Result<Arc<dyn CacheDiskFile>> {
        // Also a full disk reports that.
        if self.lock().names.contains_key(path) {
            return Err(Errno::EXIST.into());
        }
        let mut state = self.call_at("create", path)?;
        if state.directories.contains(path) {
            return Err(Errno::EXIST.into());
        }
        let above = std::iter::successors(path.parent(), LogicalPath::parent);
        state.directories.extend(above.filter(|directory| !directory.is_root()));
        let is_index = path.as_bytes().starts_with(INDEX_DIRECTORY);
        state.inodes.push(Inode { is_index, ..Inode::default() });
        let inode = state.inodes.len() - 1;
        state.names.insert(path.clone(), inode);
        state.pending.push((path.clone(), Some(inode)));
        Ok(self.file(&mut state, inode))
    }

    fn rename(&self, from: &LogicalPath, to: &LogicalPath) -> io::Result<()> {
        let mut state = self.call_at("rename", to)?;
        let inode = state.names.remove(from).ok_or(Errno::NOENT)?;
        state.names.insert(to.clone(), inode);
        state.pending.push((from.clone(), None));
        state.pending.push((to.clone(), Some(inode)));
        Ok(())
    }

    fn add_name(&self, from: &LogicalPath, to: &LogicalPath) -> io::Result<()> {
        let mut state = self.call_at("add_name", to)?;
        let inode = *state.names.get(from).ok_or(Errno::NOENT)?;
        if state.names.contains_key(to) || state.names_of(inode) > 1 {
            return Err(Errno::EXIST.into());
        }
        state.inodes[inode].attributes.insert(SECOND_NAME_ATTRIBUTE.to_owned());
        state.names.insert(to.clone(), inode);
        state.pending.push((to.clone(), Some(inode)));
        Ok(())
    }

    fn remove(&self, path: &LogicalPath) -> io::Result<()> {
        let mut state = self.call_at("remove", path)?;
        state.names.remove(path).ok_or(Errno::NOENT)?;
        state.pending.push((path.clone(), None));
        Ok(())
    }

    fn remove_directory(&self, path: &LogicalPath) -> io::Result<()> {
        let mut state = self.call("remove_directory")?;
        if !state.directories.contains(path) {
            return Err(Errno::NOENT.into());
        }
        let is_below = |name: &&LogicalPath| *name != path && name.is_within(path);
        if state.names.keys().chain(&state.directories).any(|name| is_below(&name)) {
            return Err(Errno::NOTEMPTY.into());
        }
        state.directories.remove(path);
        Ok(())
    }

    fn sync_directory(&self, path: &LogicalPath) -> io::Result<()> {
        self.call_at("sync_directory", path)?.sync_names(|name| name.parent().as_ref() == Some(path));
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        let mut state = self.call("sync_all")?;
        state.sync_names(|_| true);
        state.inodes.iter_mut().for_each(|inode| inode.durable = inode.content.clone());
        Ok(())
    }

    fn list(&self, path: &LogicalPath) -> io::Result<super::disk::CacheDiskEntries> {
        let state = self.call_at("list", path)?;
        let prefix = path.without_slash();
        let mut entries = BTreeMap::new();
        for name in state.names.keys().filter(|name| name.is_within(&prefix)) {
            let rest = &name.as_bytes()[prefix.as_bytes().len()..];
            let rest = rest.strip_prefix(b"/").unwrap_or(rest);
            let mut parts = rest.split(|&byte| byte == b'/');
            let first = parts.next().unwrap().to_vec();
            let kind = if parts.next().is_some() { PlainKind::Directory } else { PlainKind::File };
            entries.insert(first, if state.links.contains(name) { PlainKind::Other } else { kind });
        }
        if entries.is_empty() && !path.is_root() {
            return Err(Errno::NOENT.into());
        }
        Ok(Box::new(entries.into_iter().map(Ok)))
    }

    fn usage(&self) -> io::Result<(u64, u64)> {
        let state = self.call("usage")?;
        let inodes: BTreeSet<_> = state.names.values().collect();
        let used = inodes.into_iter().map(|inode| state.inodes[*inode].allocated()).sum();
        Ok((1 << 20, used))
    }

    fn identity(&self, _: &LogicalPath) -> io::Result<u64> {
        Ok(self.call("identity")?.identity)
    }

    fn mounted(&self) -> Option<u64> {
        Some(self.lock().mounts)
    }
}

impl CacheDiskFile for MemoryFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let HangingReads(hang, woken) = &*self.disk.1;
        drop(woken.wait_while(hang.lock().unwrap(), |hang| *hang).unwrap());
        let state = self.call("read")?;
        let content = &state.inodes[self.inode].content;
        let begin = (offset as usize).min(content.len());
        let count = into.len().min(content.len() - begin);
        into[..count].copy_from_slice(&content[begin..begin + count]);
        Ok(count)
    }

    fn read_now(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> bool {
        let mut at = offset;
        let is_cold = {
            let mut state = self.disk.lock();
            state.reads_now += 1;
            state.cold_one_of > 0 && state.reads_now.is_multiple_of(state.cold_one_of)
        };
        let parts = into.len() - usize::from(is_cold);
        let is_read = into.iter_mut().take(parts).all(|part| {
            let is_read = self.read_at(at, part).is_ok_and(|count| count == part.len());
            at += part.len() as u64;
            is_read
        });
        is_read && !is_cold
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        let mut state = self.call("write")?;
        let room = state.room.unwrap_or(u64::MAX).min(from.len() as u64) as usize;
        state.room = state.room.map(|left| left - room as u64);
        let Inode { content, freed, .. } = &mut state.inodes[self.inode];
        let end = offset as usize + room;
        let begin = freed.len().min(offset as usize);
        let rewritten = begin..freed.len().min(end);
        freed[rewritten].fill(false);
        if content.len() < end {
            // What was never written has no space either.
            let gap = content.len()..(offset as usize).max(content.len());
            if !gap.is_empty() {
                freed.resize(gap.start, false);
                freed.resize(gap.end, true);
            }
            content.resize(end, 0);
        }
        content[offset as usize..end].copy_from_slice(&from[..room]);
        if room < from.len() { Err(Errno::NOSPC.into()) } else { Ok(()) }
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let mut state = self.call("discard")?;
        let Inode { content, freed, .. } = &mut state.inodes[self.inode];
        let end = content.len().min((offset + length) as usize);
        let begin = end.min(offset as usize);
        content[begin..end].fill(0);
        freed.resize(freed.len().max(end), false);
        freed[begin..end].fill(true);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.call("sync")?;
        let inode = &mut state.inodes[self.inode];
        inode.durable = inode.content.clone();
        Ok(())
    }

    fn status(&self) -> io::Result<PlainStatus> {
        let state = self.call("status")?;
        let inode = &state.inodes[self.inode];
        let size = inode.content.len() as u64;
        Ok(PlainStatus {
            size,
            allocated: if inode.is_sparse { 0 } else { inode.allocated() },
            modified: 0,
            number: self.inode as u64,
            names: state.names_of(self.inode),
        })
    }

    fn set_attribute(&self, name: &str, _: &[u8]) -> io::Result<()> {
        let mut state = self.call("attribute")?;
        if state.has_no_attributes {
            return Err(Errno::NOTSUP.into());
        }
        state.inodes[self.inode].attributes.insert(name.to_owned());
        Ok(())
    }

    fn has_attribute(&self, name: &str) -> io::Result<bool> {
        Ok(self.call("attribute")?.inodes[self.inode].attributes.contains(name))
    }

    fn remove_attribute(&self, name: &str) -> io::Result<()> {
        self.call("attribute")?.inodes[self.inode].attributes.remove(name);
        Ok(())
    }

    fn is_open_elsewhere(&self) -> io::Result<bool> {
        let state = self.call("lease")?;
        let inode = &state.inodes[self.inode];
        Ok(!state.is_blind && inode.readers + inode.opened > 1)
    }

    fn try_lock(&self) -> io::Result<bool> {
        Ok(true)
    }
}
