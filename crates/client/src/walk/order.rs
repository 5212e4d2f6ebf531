//! [`Walk`]: the order in which the directories of a tree are visited, with listings read ahead.
//!
//! Read-ahead hides the round trip of each listing.

use std::collections::VecDeque;
use std::sync::Arc;

use super::items::{Items, WalkItem};
use super::listed::DirectoryListing;
use super::unknown::{UnreliableEntry, whole};
use super::{Above, DIRECTORIES_MAX, Directory, Pending, Tree};
use crate::abort_on_drop::AbortOnDrop;
use crate::failure::{Cause, Error};
use crate::listing_memory::ListingMemory;
use crate::path::RelativePath;

/// Maximum number of listings in flight.
const AHEAD_MAX: usize = 64;
/// Divisor of the listing memory for additional use by read-ahead.
const AHEAD_PART: usize = 3;

/// The directories of one directory that remain to be read. Of their listing only the necessary
/// part is kept.
pub(crate) struct DirectoryQueue {
    path: RelativePath,
    depth: usize,
    chain: Arc<Above>,
    items: Items,
    numbers: Vec<u32>,
}

impl DirectoryQueue {
    pub(super) fn new(directory: &Directory, numbers: Vec<u32>, memory: &ListingMemory) -> Self {
        let (path, depth, chain) = (directory.path.clone(), directory.depth, directory.chain.clone());
        // A copy releases the listing after its directory was processed.
        let is_small = numbers.len() < directory.items.len() / 2;
        let chosen = if is_small { directory.items.choose(&numbers, memory) } else { None };
        match chosen {
            Some(items) => {
                let numbers = items.numbers().collect();
                Self { path, depth, chain, items, numbers }
            }
            None => Self { path, depth, chain, items: directory.items.clone(), numbers },
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Returns one of them.
    pub(crate) fn get(&self, index: usize) -> Option<Pending> {
        let item = self.items.get(*self.numbers.get(index)?)?;
        Some(Pending {
            path: self.path.join(&item.name),
            depth: self.depth + 1,
            ids: item.ids,
            above: Some(self.chain.clone()),
        })
    }
}

/// A directory whose subdirectories are being visited.
struct WalkLevel {
    /// `None` for the root.
    queue: Option<DirectoryQueue>,
    next: usize,
    /// Listings of the next directories in flight.
    ahead: VecDeque<AbortOnDrop<Directory>>,
}

impl WalkLevel {
    fn len(&self) -> usize {
        self.queue.as_ref().map_or(1, DirectoryQueue::len)
    }

    fn get(&self, tree: &Tree, index: usize) -> Option<Pending> {
        self.queue.as_ref().map_or_else(|| Some(tree.root()), |queue| queue.get(index))
    }
}

/// A walk through a tree. Each directory comes before its subdirectories, and subdirectories come
/// in the order in which they were entered. The next directories are read ahead.
pub struct Walk {
    tree: Tree,
    /// Levels in order; the next one is first.
    open: VecDeque<WalkLevel>,
    is_nearest_first: bool,
    entered: u64,
    /// Maximum number of listings in flight; smaller if listings are large.
    ahead: usize,
    memory_ahead: ListingMemory,
}

impl std::fmt::Debug for Walk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Walk({:?})", self.tree)
    }
}

impl Walk {
    /// Starts at the root of a tree.
    #[must_use]
    pub fn through(tree: Tree) -> Self {
        let root = WalkLevel { queue: None, next: 0, ahead: VecDeque::new() };
        let memory_ahead = ListingMemory::new(tree.memory.bytes_max() / AHEAD_PART);
        let open = VecDeque::from([root]);
        Self { tree, open, is_nearest_first: false, entered: 0, ahead: AHEAD_MAX, memory_ahead }
    }

    /// Changes to breadth-first order: all directories of a depth before those below them.
    #[must_use]
    pub fn nearest_first(mut self) -> Self {
        self.is_nearest_first = true;
        self
    }

    /// Returns the tree.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the next directory; `None` at the end.
    pub async fn next(&mut self) -> Option<Directory> {
        while self.open.front().is_some_and(|level| level.next >= level.len()) {
            self.open.pop_front();
        }
        self.read_ahead();
        let level = self.open.front_mut()?;
        let pending = level.get(&self.tree, level.next)?;
        level.next += 1;
        let Some(reading) = level.ahead.pop_front() else { return Some(self.tree.read(pending).await) };
        let Ok(mut directory) = reading.join().await else {
            // The task panicked and has reported that.
            let place = self.tree.root.below(&pending.path);
            let unknown = vec![whole(&pending.path, Error::new("list", &place, Cause::Closed))];
            return Some(Tree::directory(
                place,
                pending,
                DirectoryListing { unknown, ..DirectoryListing::default() },
            ));
        };
        if directory.lacks_memory() {
            self.ahead = (self.ahead / 2).max(1);
        } else if directory.items.move_to(&self.tree.memory) {
            self.ahead = (self.ahead + 1).min(AHEAD_MAX);
            return Some(directory);
        }
        drop(directory);
        Some(self.tree.read(pending).await)
    }

    /// Starts to read the listings after the next one.
    fn read_ahead(&mut self) {
        let mut room = self.ahead;
        for (index, level) in self.open.iter_mut().enumerate() {
            if index == 0 && level.ahead.is_empty() && level.len() - level.next == 1 {
                // It is the next one and is read at once.
                continue;
            }
            let end = level.len().min(level.next + room);
            while level.next + level.ahead.len() < end {
                let Some(pending) = level.get(&self.tree, level.next + level.ahead.len()) else { return };
                let (tree, memory) = (self.tree.clone(), self.memory_ahead.clone());
                let read = async move { tree.read_into(pending, &memory).await };
                level.ahead.push_back(AbortOnDrop::spawn(read));
            }
            room -= end.saturating_sub(level.next).min(room);
            if room == 0 {
                return;
            }
        }
    }

    /// Enters subdirectories by their numbers: they come next, in this order. Those that are not
    /// entered become unknown. Returns for each number if it was entered.
    pub fn enter(&mut self, directory: &mut Directory, numbers: &[u32]) -> Vec<bool> {
        let (mut entered_all, mut entered) = (Vec::with_capacity(numbers.len()), Vec::new());
        for number in numbers {
            let Some(item) = directory.items.get(*number) else {
                entered_all.push(false);
                continue;
            };
            match self.may_enter(directory, &item) {
                Ok(()) => {
                    self.entered += 1;
                    entered.push(*number);
                    entered_all.push(true);
                }
                Err(unknown) => {
                    directory.refuse(*unknown);
                    entered_all.push(false);
                }
            }
        }
        if !entered.is_empty() {
            let queue = Some(self.tree.queue(directory, entered));
            let level = WalkLevel { queue, next: 0, ahead: VecDeque::new() };
            if self.is_nearest_first { self.open.push_back(level) } else { self.open.push_front(level) }
        }
        entered_all
    }

    fn may_enter(&self, directory: &Directory, item: &WalkItem) -> Result<(), Box<UnreliableEntry>> {
        if self.entered < DIRECTORIES_MAX {
            return self.tree.enters(directory, item);
        }
        let text = format!("there are more than {DIRECTORIES_MAX} directories");
        let error = Error::new("list", directory.child(item), Cause::NotEntered(text));
        let name = Some(item.name.to_string());
        Err(Box::new(UnreliableEntry { directory: directory.path.clone(), name, error }))
    }

    /// Enters all subdirectories of a directory.
    pub fn enter_all(&mut self, directory: &mut Directory) {
        let numbers: Vec<u32> = directory.directories().map(|item| item.number()).collect();
        self.enter(directory, &numbers);
    }
}
