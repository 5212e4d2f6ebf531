//! The disk of the in-memory backend, which loses unsynced effects at a power failure.
//!
//! Every change is visible to the running process at once, and recorded as an effect until a sync
//! makes it stable. At a power failure, a seed selects the effects that survive. So data, sizes,
//! modes, attributes and names are lost independently of each other, as on a disk that writes them
//! in any order.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub const DIRECTORY: u32 = 0o040_000;
pub const FILE: u32 = 0o100_000;
/// Number of pieces of a write, each of which survives or is lost as a whole.
const PIECES: usize = 3;

/// The state of a file or directory.
#[derive(Clone)]
pub struct Inner {
    pub bytes: Vec<u8>,
    pub mode: u32,
    pub modified: u64,
    pub accessed: u64,
    pub attributes: BTreeMap<String, Vec<u8>>,
}

/// A change of a file that may not have reached stable storage.
enum Effect {
    Data { offset: usize, bytes: Vec<u8> },
    Size(usize),
    Mode(u32),
    Attribute(String, Option<Vec<u8>>),
}

impl Effect {
    /// Reports whether a sync of data and size includes the effect.
    fn is_data(&self) -> bool {
        matches!(self, Self::Data { .. } | Self::Size(_))
    }

    fn apply(&self, inner: &mut Inner) {
        match self {
            // Data beyond the surviving size is not part of the file.
            Self::Data { offset, bytes } => {
                let end = inner.bytes.len().min(offset + bytes.len());
                if let Some(into) = inner.bytes.get_mut(*offset..end) {
                    into.copy_from_slice(&bytes[..into.len()]);
                }
            }
            Self::Size(size) => inner.bytes.resize(*size, 0),
            Self::Mode(mode) => inner.mode = *mode,
            Self::Attribute(name, Some(value)) => {
                inner.attributes.insert(name.clone(), value.clone());
            }
            Self::Attribute(name, None) => {
                inner.attributes.remove(name);
            }
        }
    }
}

struct State {
    now: Inner,
    stable: Inner,
    unsynced: Vec<Effect>,
}

/// A file or directory.
pub struct Node {
    pub inode: u64,
    state: Mutex<State>,
}

impl Node {
    fn new(inode: u64, inner: Inner) -> Arc<Self> {
        let state = State { now: inner.clone(), stable: inner, unsynced: Vec::new() };
        Arc::new(Self { inode, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the state that the running process sees.
    pub fn see<T>(&self, look: impl FnOnce(&Inner) -> T) -> T {
        look(&self.state().now)
    }

    pub fn is_directory(&self) -> bool {
        self.see(|inner| inner.mode & DIRECTORY != 0)
    }

    /// Changes times, which are not affected by a power failure.
    pub fn touch(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.state().now);
    }

    fn change(&self, effect: Effect) {
        let mut state = self.state();
        effect.apply(&mut state.now);
        state.unsynced.push(effect);
    }

    pub fn write(&self, offset: usize, from: &[u8]) {
        let end = offset + from.len();
        if self.see(|inner| inner.bytes.len() < end) {
            self.change(Effect::Size(end));
        }
        let length = from.len().div_ceil(PIECES).max(1);
        for (at, piece) in from.chunks(length).enumerate() {
            self.change(Effect::Data { offset: offset + at * length, bytes: piece.to_vec() });
        }
    }

    pub fn resize(&self, size: usize) {
        self.change(Effect::Size(size));
    }

    pub fn set_mode(&self, mode: u32) {
        let kind = self.see(|inner| inner.mode & 0o170_000);
        self.change(Effect::Mode(kind | mode & 0o7777));
    }

    pub fn set_attribute(&self, name: &str, value: Option<&[u8]>) {
        self.change(Effect::Attribute(name.to_owned(), value.map(<[u8]>::to_vec)));
    }

    /// Makes data and size stable, and with `all` also the metadata.
    pub fn sync(&self, all: bool) {
        let State { stable, unsynced, .. } = &mut *self.state();
        unsynced.retain(|effect| {
            let synced = all || effect.is_data();
            if synced {
                effect.apply(stable);
            }
            !synced
        });
    }

    /// Returns the file after a power failure.
    fn after_power_cut(&self, chance: &mut Chance) -> Arc<Self> {
        let state = self.state();
        let mut inner = state.stable.clone();
        (inner.modified, inner.accessed) = (state.now.modified, state.now.accessed);
        state.unsynced.iter().filter(|_| chance.toss()).for_each(|effect| effect.apply(&mut inner));
        Self::new(self.inode, inner)
    }
}

/// Nodes by path.
pub type Tree = BTreeMap<Vec<u8>, Arc<Node>>;

/// A name in the directory with this inode number; a rename of the directory does not change it.
type Entry = (u64, Vec<u8>);
type Entries = BTreeMap<Entry, Arc<Node>>;

const ROOT: u64 = 1;

/// A change of names that may not have reached stable storage.
enum NameEffect {
    Add(Entry, Arc<Node>),
    Remove(Entry),
    Rename { from: Entry, to: Entry, node: Arc<Node> },
}

fn parent(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) if at > 0 => &path[..at],
        _ => b"/",
    }
}

impl NameEffect {
    fn concerns(&self, directory: u64) -> bool {
        match self {
            Self::Add(entry, _) | Self::Remove(entry) => entry.0 == directory,
            Self::Rename { from, to, .. } => from.0 == directory || to.0 == directory,
        }
    }

    fn apply(&self, entries: &mut Entries) {
        match self {
            Self::Add(entry, node) => {
                entries.insert(entry.clone(), node.clone());
            }
            Self::Remove(entry) => {
                entries.remove(entry);
            }
            Self::Rename { from, to, node } => {
                entries.remove(from);
                entries.insert(to.clone(), node.clone());
            }
        }
    }
}

/// Adds all nodes below a directory to the tree.
fn add_reachable(entries: &Entries, at: &[u8], directory: &Arc<Node>, tree: &mut Tree) {
    tree.insert(at.to_vec(), directory.clone());
    let first = (directory.inode, Vec::new());
    for ((inode, name), node) in entries.range(first..) {
        if *inode != directory.inode {
            break;
        }
        add_reachable(entries, &[at.strip_suffix(b"/").unwrap_or(at), b"/", name].concat(), node, tree);
    }
}

/// A pseudo-random generator; the same seed gives the same numbers.
struct Chance(u64);

impl Chance {
    fn toss(&mut self) -> bool {
        // SplitMix64 with its constants.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) & 1 == 0
    }
}

struct Names {
    root: Arc<Node>,
    now: Entries,
    /// The present names by path.
    tree: Tree,
    stable: Entries,
    unsynced: Vec<NameEffect>,
}

impl Names {
    fn new(root: Arc<Node>, stable: Entries) -> Self {
        let mut names = Self { root, now: stable.clone(), tree: Tree::new(), stable, unsynced: Vec::new() };
        names.grow_tree();
        names
    }

    fn grow_tree(&mut self) {
        self.tree.clear();
        add_reachable(&self.now, b"/", &self.root, &mut self.tree);
    }

    /// Returns the entry of a path; `None` if its parent does not exist.
    fn entry(&self, path: &[u8]) -> Option<Entry> {
        let directory = self.tree.get(parent(path))?;
        Some((directory.inode, path.rsplit(|&byte| byte == b'/').next()?.to_vec()))
    }

    /// Applies a change of the name `path`. Only a directory with entries requires another look at the
    /// whole tree: a test that creates thousands of files would take minutes otherwise.
    fn change(&mut self, path: &[u8], effect: NameEffect) {
        effect.apply(&mut self.now);
        match &effect {
            NameEffect::Add(_, node) if !self.has_entries(node) => {
                self.tree.insert(path.to_vec(), node.clone());
            }
            NameEffect::Remove(_) if self.tree.get(path).is_some_and(|node| !self.has_entries(node)) => {
                self.tree.remove(path);
            }
            _ => self.grow_tree(),
        }
        self.unsynced.push(effect);
    }

    fn has_entries(&self, node: &Node) -> bool {
        let first = (node.inode, Vec::new());
        self.now.range(first..).next().is_some_and(|((inode, _), _)| *inode == node.inode)
    }
}

/// A disk with a tree of names.
pub struct Disk {
    names: Mutex<Names>,
    next_inode: Mutex<u64>,
}

impl Disk {
    /// Returns a disk with only a root directory.
    pub fn new(now: u64) -> Self {
        let root = Node::new(ROOT, Self::inner(DIRECTORY | 0o755, Vec::new(), now));
        Self { names: Mutex::new(Names::new(root, Entries::new())), next_inode: Mutex::new(ROOT + 1) }
    }

    fn inner(mode: u32, bytes: Vec<u8>, now: u64) -> Inner {
        Inner { bytes, mode, modified: now, accessed: now, attributes: BTreeMap::new() }
    }

    /// Returns a file or directory without a name.
    pub fn node(&self, mode: u32, bytes: Vec<u8>, now: u64) -> Arc<Node> {
        let mut next = self.next_inode.lock().unwrap();
        *next += 1;
        Node::new(*next, Self::inner(mode, bytes, now))
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the names that the running process sees.
    pub fn see<T>(&self, look: impl FnOnce(&Tree) -> T) -> T {
        look(&self.names().tree)
    }

    pub fn add(&self, path: &[u8], node: Arc<Node>) {
        let mut names = self.names();
        let entry = names.entry(path).expect("its parent is there");
        names.change(path, NameEffect::Add(entry, node));
    }

    pub fn remove(&self, path: &[u8]) {
        let mut names = self.names();
        if let Some(entry) = names.entry(path) {
            names.change(path, NameEffect::Remove(entry));
        }
    }

    pub fn rename(&self, from: &[u8], to: &[u8]) {
        let mut names = self.names();
        let Some(node) = names.tree.get(from).cloned() else { return };
        let [old, new] = [from, to].map(|path| names.entry(path).expect("its parent is there"));
        names.change(to, NameEffect::Rename { from: old, to: new, node });
    }

    /// Makes all names in the directory of `path` stable.
    pub fn sync_name(&self, path: &[u8]) -> io::Result<()> {
        let Names { tree, stable, unsynced, .. } = &mut *self.names();
        let Some(directory) = tree.get(parent(path)) else { return Err(io::Error::from_raw_os_error(2)) };
        unsynced.retain(|effect| {
            let synced = effect.concerns(directory.inode);
            if synced {
                effect.apply(stable);
            }
            !synced
        });
        Ok(())
    }

    /// Makes everything stable, as after a long time.
    pub fn sync_everything(&self) {
        let names = &mut *self.names();
        names.unsynced.clear();
        names.stable = names.now.clone();
        names.tree.values().for_each(|node| node.sync(true));
    }

    /// Returns a copy of the tree in which everything has another inode number.
    pub fn copied(&self, keep_attributes: bool) -> Self {
        let mut next = *self.next_inode.lock().unwrap();
        let names = self.names();
        let mut copies: BTreeMap<Vec<u8>, Arc<Node>> = BTreeMap::new();
        let mut entries = Entries::new();
        // A directory sorts before its content.
        for (path, node) in &names.tree {
            next += 1;
            let inode = if path == b"/" { ROOT } else { next };
            let mut inner = node.see(Inner::clone);
            inner.attributes.retain(|_, _| keep_attributes);
            let copy = Node::new(inode, inner);
            if let Some(directory) = copies.get(parent(path)) {
                let (_, name) = names.entry(path).expect("its parent is there");
                entries.insert((directory.inode, name), copy.clone());
            }
            copies.insert(path.clone(), copy);
        }
        let root = copies.remove(b"/".as_slice()).expect("there is a root");
        Self { names: Mutex::new(Names::new(root, entries)), next_inode: Mutex::new(next) }
    }

    /// Returns the disk after a power failure.
    pub fn after_power_cut(&self, seed: u64) -> Self {
        let mut chance = Chance(seed);
        let names = self.names();
        let mut entries = names.stable.clone();
        names.unsynced.iter().filter(|_| chance.toss()).for_each(|effect| effect.apply(&mut entries));
        // A file with two names stays one file.
        let mut survivors: BTreeMap<u64, Arc<Node>> = BTreeMap::new();
        let mut survivor = |node: &Arc<Node>| {
            survivors.entry(node.inode).or_insert_with(|| node.after_power_cut(&mut chance)).clone()
        };
        let root = survivor(&names.root);
        entries.values_mut().for_each(|node| *node = survivor(node));
        let next = *self.next_inode.lock().unwrap();
        Self { names: Mutex::new(Names::new(root, entries)), next_inode: Mutex::new(next) }
    }
}
