//! The disk of the backend in memory, which loses unsynced effects when the power is cut.
//!
//! Every change is made at once for the running process and noted as an effect until a sync makes it stable. When the
//! power is cut, a seed chooses for each effect whether it survived, so data, sizes, modes, attributes and names are lost
//! independently of each other, as on a disk that writes them in any order.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub const DIRECTORY: u32 = 0o040_000;
pub const FILE: u32 = 0o100_000;
/// Into how many pieces a write is cut, each of which survives or is lost as a whole.
const PIECES: usize = 3;

/// A file or directory.
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
    /// Reports whether a sync of data and size includes it.
    fn is_data(&self) -> bool {
        matches!(self, Self::Data { .. } | Self::Size(_))
    }

    fn apply(&self, inner: &mut Inner) {
        match self {
            // Data beyond the size that survived is not part of the file.
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

    /// The state that the running process sees.
    pub fn see<T>(&self, look: impl FnOnce(&Inner) -> T) -> T {
        look(&self.state().now)
    }

    pub fn is_directory(&self) -> bool {
        self.see(|inner| inner.mode & DIRECTORY != 0)
    }

    /// Changes what no power cut concerns: times.
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

    /// Makes data and size stable, with `all` also what describes them.
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

    /// The file after a loss of power.
    fn after_power_cut(&self, chance: &mut Chance) -> Arc<Self> {
        let state = self.state();
        let mut inner = state.stable.clone();
        (inner.modified, inner.accessed) = (state.now.modified, state.now.accessed);
        state.unsynced.iter().filter(|_| chance.toss()).for_each(|effect| effect.apply(&mut inner));
        Self::new(self.inode, inner)
    }
}

/// Names and the nodes that they lead to.
pub type Tree = BTreeMap<Vec<u8>, Arc<Node>>;

/// A change of names that may not have reached stable storage.
enum NameEffect {
    Add(Vec<u8>, Arc<Node>),
    Remove(Vec<u8>),
    Rename(Vec<u8>, Vec<u8>),
}

fn parent(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) if at > 0 => &path[..at],
        _ => b"/",
    }
}

fn is_within(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

impl NameEffect {
    fn concerns(&self, directory: &[u8]) -> bool {
        match self {
            Self::Add(path, _) | Self::Remove(path) => parent(path) == directory,
            Self::Rename(from, to) => parent(from) == directory || parent(to) == directory,
        }
    }

    fn apply(&self, tree: &mut Tree) {
        match self {
            Self::Add(path, node) => {
                tree.insert(path.clone(), node.clone());
            }
            Self::Remove(path) => {
                tree.remove(path);
            }
            Self::Rename(from, to) => {
                let moved: Vec<_> = tree.keys().filter(|key| is_within(key, from)).cloned().collect();
                for key in moved {
                    let node = tree.remove(&key).unwrap();
                    tree.insert([to.as_slice(), &key[from.len()..]].concat(), node);
                }
            }
        }
    }
}

/// Chooses by a seed, the same way each time.
struct Chance(u64);

impl Chance {
    fn toss(&mut self) -> bool {
        // SplitMix64, whose constants these are.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) & 1 == 0
    }
}

struct Names {
    now: Tree,
    stable: Tree,
    unsynced: Vec<NameEffect>,
}

/// A disk with a tree of names.
pub struct Disk {
    names: Mutex<Names>,
    next_inode: Mutex<u64>,
}

impl Disk {
    /// A disk with a root directory only.
    pub fn new(now: u64) -> Self {
        let root = Node::new(1, Self::inner(DIRECTORY | 0o755, Vec::new(), now));
        let tree = Tree::from([(b"/".to_vec(), root)]);
        let names = Names { now: tree.clone(), stable: tree, unsynced: Vec::new() };
        Self { names: Mutex::new(names), next_inode: Mutex::new(2) }
    }

    fn inner(mode: u32, bytes: Vec<u8>, now: u64) -> Inner {
        Inner { bytes, mode, modified: now, accessed: now, attributes: BTreeMap::new() }
    }

    /// A file or directory that has no name yet.
    pub fn node(&self, mode: u32, bytes: Vec<u8>, now: u64) -> Arc<Node> {
        let mut next = self.next_inode.lock().unwrap();
        *next += 1;
        Node::new(*next, Self::inner(mode, bytes, now))
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state that the running process sees.
    pub fn see<T>(&self, look: impl FnOnce(&Tree) -> T) -> T {
        look(&self.names().now)
    }

    fn change(&self, effect: NameEffect) {
        let mut names = self.names();
        effect.apply(&mut names.now);
        names.unsynced.push(effect);
    }

    pub fn add(&self, path: &[u8], node: Arc<Node>) {
        self.change(NameEffect::Add(path.to_vec(), node));
    }

    pub fn remove(&self, path: &[u8]) {
        self.change(NameEffect::Remove(path.to_vec()));
    }

    pub fn rename(&self, from: &[u8], to: &[u8]) {
        self.change(NameEffect::Rename(from.to_vec(), to.to_vec()));
    }

    /// Makes all names in the directory of `path` stable.
    pub fn sync_name(&self, path: &[u8]) -> io::Result<()> {
        let Names { stable, unsynced, .. } = &mut *self.names();
        unsynced.retain(|effect| {
            let synced = effect.concerns(parent(path));
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
        names.now.values().for_each(|node| node.sync(true));
    }

    /// A copy of the tree, in which everything has another inode number.
    pub fn copied(&self, keep_attributes: bool) -> Self {
        let mut next = *self.next_inode.lock().unwrap();
        let copy = |node: &Arc<Node>| {
            next += 1;
            let mut inner = node.see(Inner::clone);
            inner.attributes.retain(|_, _| keep_attributes);
            Node::new(next, inner)
        };
        let tree: Tree = self.see(|tree| tree.keys().cloned().zip(tree.values().map(copy)).collect());
        let names = Names { now: tree.clone(), stable: tree, unsynced: Vec::new() };
        Self { names: Mutex::new(names), next_inode: Mutex::new(next) }
    }

    /// What is left after a loss of power.
    pub fn after_power_cut(&self, seed: u64) -> Self {
        let mut chance = Chance(seed);
        let names = self.names();
        let mut tree = names.stable.clone();
        names.unsynced.iter().filter(|_| chance.toss()).for_each(|effect| effect.apply(&mut tree));
        // What was in a directory that is lost has no name any more.
        let is_reachable = |path: &[u8]| {
            let mut at = parent(path);
            while at != b"/" {
                if !tree.contains_key(at) {
                    return false;
                }
                at = parent(at);
            }
            true
        };
        // A file with two names stays one file.
        let mut survivors: BTreeMap<u64, Arc<Node>> = BTreeMap::new();
        let mut left = Tree::new();
        for (path, node) in tree.iter().filter(|(path, _)| is_reachable(path)) {
            let survivor =
                survivors.entry(node.inode).or_insert_with(|| node.after_power_cut(&mut chance)).clone();
            left.insert(path.clone(), survivor);
        }
        let next = *self.next_inode.lock().unwrap();
        let names = Names { now: left.clone(), stable: left, unsynced: Vec::new() };
        Self { names: Mutex::new(names), next_inode: Mutex::new(next) }
    }
}
