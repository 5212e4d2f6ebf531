//! A walk over the directories of exports, for searches that may take hours.
//!
//! The walk is depth-first, and its memory does not grow with the number of names. Directories on the
//! way down stay open, up to a limit. Above that, the upper ones are closed, and are read again when
//! the walk comes back to them.

use base::LogicalPath;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use storage::{Backend, DirectoryPosition, DirectoryStream, RawEntry};

/// Number of names of a directory that are read at once.
const NAMES_AT_ONCE: usize = 512;

/// Maximum number of directories that are open at once.
const OPEN_MAX: usize = 32;

/// Maximum number of links to directories that one walk follows.
const LINKS_MAX: usize = 65_536;

/// `st_mode`: the type of a file, and that of a directory.
const TYPE_MASK: u32 = 0o170_000;
const TYPE_DIRECTORY: u32 = 0o040_000;

/// A receiver of what a walk finds.
pub(crate) trait TreeVisitor {
    /// Reports whether a directory is read. What is below one that is not read is left out.
    fn enters(&self, directory: &LogicalPath) -> bool;

    /// Handles a directory, before its names.
    fn directory(&mut self, directory: &LogicalPath) {
        let _ = directory;
    }

    /// Handles a name that is not a directory. Its status is not read unless this asks `stream` for it.
    fn file(&mut self, path: &LogicalPath, entry: &RawEntry, stream: &dyn DirectoryStream) {
        let _ = (path, entry, stream);
    }

    /// Reports whether links to directories are followed that lead to another path of the exports.
    fn follows_aliases(&self) -> bool {
        true
    }

    /// Is called after each piece of work with its time. It may wait, so that others have the disk.
    fn pause(&mut self, busy: Duration) -> ControlFlow<()>;
}

/// A file system and the number of a file on it.
type FileNumber = (u64, u64);

/// The place of a page of names in its directory.
enum PageBegin {
    Position(DirectoryPosition),
    /// The number of names before it, which have to be read again.
    Count(usize),
}

/// A directory on the way down.
struct WalkDirectory {
    path: LogicalPath,
    number: FileNumber,
    /// `None` while it is closed.
    stream: Option<Box<dyn DirectoryStream>>,
    page: std::vec::IntoIter<RawEntry>,
    /// Where the page begins.
    page_begin: PageBegin,
    /// The last name of the page that was handled, and the number of those that were.
    last: Vec<u8>,
    taken: usize,
    /// Number of names that were handled. A directory that is opened again continues behind them. If
    /// it was changed meanwhile, a name can be missed or handled twice, as in any listing.
    handled: usize,
}

impl WalkDirectory {
    fn open(backend: &dyn Backend, path: LogicalPath) -> Option<Self> {
        let found = backend.stat(&path).ok()?;
        let stream = backend.list(&path).ok()?;
        let number = (found.device, found.inode);
        let (page, page_begin, last) = (Vec::new().into_iter(), PageBegin::Count(0), Vec::new());
        Some(Self { path, number, stream: Some(stream), page, page_begin, last, taken: 0, handled: 0 })
    }

    /// Closes the directory until its next name is needed.
    fn close(&mut self) {
        self.stream = None;
        self.page = Vec::new().into_iter();
    }

    /// Opens the directory again, with the rest of the page that was handled in part.
    fn reopen(&mut self, backend: &dyn Backend) -> Option<()> {
        let mut stream = backend.list(&self.path).ok()?;
        let before = match self.page_begin {
            PageBegin::Position(position) => {
                stream.go_to(position).ok()?;
                None
            }
            PageBegin::Count(count) => Some(count),
        };
        let mut left = before.unwrap_or(0);
        while left > 0 {
            let page = stream.next(left.min(NAMES_AT_ONCE)).ok()?;
            if page.is_empty() {
                return None;
            }
            left = left.saturating_sub(page.len());
        }
        let page = stream.next(NAMES_AT_ONCE).ok()?;
        // If the name is gone, their number decides, so that each reading makes progress.
        let at = page.iter().position(|entry| entry.name == self.last);
        self.taken = at.map_or(self.taken, |at| at + 1);
        self.page = page.into_iter();
        self.page.by_ref().take(self.taken).for_each(drop);
        self.stream = Some(stream);
        Some(())
    }

    /// Reads the next page.
    fn read_page(&mut self) -> Option<()> {
        let stream = self.stream.as_mut()?;
        self.page_begin = stream.position().map_or(PageBegin::Count(self.handled), PageBegin::Position);
        self.page = stream.next(NAMES_AT_ONCE).ok()?.into_iter();
        self.taken = 0;
        Some(())
    }

    /// Returns the next name, or `None` at the end and if the directory cannot be read any more.
    /// `true` is returned with a name for which the disk was asked.
    fn next(&mut self, backend: &dyn Backend) -> Option<(RawEntry, bool)> {
        let is_read = self.page.len() == 0;
        if self.stream.is_none() {
            self.reopen(backend)?;
        }
        if self.page.len() == 0 {
            self.read_page()?;
        }
        let entry = self.page.next()?;
        self.handled += 1;
        self.taken += 1;
        self.last.clone_from(&entry.name);
        Some((entry, is_read))
    }
}

/// A walk.
struct OngoingWalk<'a> {
    backend: &'a dyn Backend,
    visitor: &'a mut dyn TreeVisitor,
    stack: Vec<WalkDirectory>,
    /// Targets of links that were followed. Links can give a directory endlessly many paths.
    followed: HashSet<FileNumber>,
    since: Instant,
}

/// Reports to `visitor` what is at and below these roots. What cannot be read is left out. A
/// directory is visited at its own path, and once more at most through links to it. Blocks for long.
pub(crate) fn walk_tree(
    backend: &dyn Backend,
    roots: &[LogicalPath],
    visitor: &mut dyn TreeVisitor,
) -> ControlFlow<()> {
    let mut walk =
        OngoingWalk { backend, visitor, stack: Vec::new(), followed: HashSet::new(), since: Instant::now() };
    for root in roots {
        // One below another root is reached from there, unless a directory between is not read.
        let reaches = |other: &LogicalPath| {
            let above = std::iter::successors(root.parent(), LogicalPath::parent);
            let mut between = above.take_while(|path| path.is_within(other));
            other != root && root.is_within(other) && between.all(|path| walk.visitor.enters(&path))
        };
        if !roots.iter().any(reaches) {
            walk.run(root.clone())?;
        }
    }
    ControlFlow::Continue(())
}

impl OngoingWalk<'_> {
    fn run(&mut self, root: LogicalPath) -> ControlFlow<()> {
        self.enter(root)?;
        while let Some(directory) = self.stack.last_mut() {
            let Some((entry, is_read)) = directory.next(self.backend) else {
                self.stack.pop();
                self.pause()?;
                continue;
            };
            if is_read {
                self.pause()?;
            }
            if let Some(below) = self.handle(&entry) {
                self.enter(below)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn pause(&mut self) -> ControlFlow<()> {
        let flow = self.visitor.pause(self.since.elapsed());
        self.since = Instant::now();
        flow
    }

    fn enter(&mut self, path: LogicalPath) -> ControlFlow<()> {
        if !self.visitor.enters(&path) {
            return ControlFlow::Continue(());
        }
        if let Some(directory) = WalkDirectory::open(self.backend, path) {
            self.visitor.directory(&directory.path);
            self.stack.push(directory);
            if let Some(upper) = self.stack.len().checked_sub(OPEN_MAX + 1) {
                self.stack.get_mut(upper).map(WalkDirectory::close);
            }
        }
        self.pause()
    }

    /// Handles a name, and returns its path if it is a directory to be visited.
    fn handle(&mut self, entry: &RawEntry) -> Option<LogicalPath> {
        let directory = self.stack.last()?;
        let stream = directory.stream.as_deref()?;
        let path = directory.path.join(&entry.name).ok()?;
        let (is_directory, target) = match entry.is_directory {
            Some(is_directory) => (is_directory, None),
            None => {
                let found = stream.stat(&entry.name).ok()?;
                let number = (found.device, found.inode);
                (found.mode & TYPE_MASK == TYPE_DIRECTORY, entry.link.then_some(number))
            }
        };
        if !is_directory {
            self.visitor.file(&path, entry, stream);
            return None;
        }
        match target {
            None => Some(path),
            Some(number) if self.stack.iter().any(|above| above.number == number) => None,
            // The type was not known before, or the link leads out of the exports.
            Some(_) if !stream.is_alias(entry) => Some(path),
            Some(_) if !self.visitor.follows_aliases() => None,
            Some(_) if self.followed.len() >= LINKS_MAX => None,
            Some(number) => self.followed.insert(number).then_some(path),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    #[derive(Default)]
    struct Recorder {
        accepted: &'static str,
        directories: Vec<String>,
        files: Vec<String>,
        pauses_left: Option<usize>,
        pauses: usize,
    }

    impl TreeVisitor for Recorder {
        fn enters(&self, path: &LogicalPath) -> bool {
            path.as_bytes().starts_with(self.accepted.as_bytes())
        }
        fn directory(&mut self, path: &LogicalPath) {
            self.directories.push(path.shown().to_string());
        }
        fn file(&mut self, path: &LogicalPath, entry: &RawEntry, stream: &dyn DirectoryStream) {
            assert!(stream.stat(&entry.name).is_ok());
            self.files.push(path.shown().to_string());
        }
        fn pause(&mut self, _: Duration) -> ControlFlow<()> {
            self.pauses += 1;
            match &mut self.pauses_left {
                Some(0) => ControlFlow::Break(()),
                Some(left) => {
                    *left -= 1;
                    ControlFlow::Continue(())
                }
                None => ControlFlow::Continue(()),
            }
        }
    }

    struct Top(PathBuf);

    impl Top {
        fn new(name: &str) -> Self {
            let top = std::env::temp_dir().join(format!("scalla-tree-walk-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&top);
            fs::create_dir_all(&top).unwrap();
            Self(top)
        }

        fn walk(&self, roots: &[&str], recorder: &mut Recorder) -> ControlFlow<()> {
            let backend = storage::Posix::new(&storage::posix::Config::new(&self.0)).unwrap();
            let roots: Vec<_> =
                roots.iter().map(|text| LogicalPath::parse(text.as_bytes()).unwrap()).collect();
            let flow = walk_tree(&backend, &roots, recorder);
            recorder.directories.sort_unstable();
            recorder.files.sort_unstable();
            flow
        }
    }

    impl Drop for Top {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    #[test]
    fn directories_that_are_not_accepted_are_not_read() {
        let top = Top::new("accepted");
        fs::create_dir_all(top.0.join("staged/below")).unwrap();
        fs::create_dir_all(top.0.join("local/deep/staged")).unwrap();
        fs::write(top.0.join("staged/below/f"), "").unwrap();
        fs::write(top.0.join("local/deep/f"), "").unwrap();
        // The second path is accepted, and the first one is not. Links can be endless.
        symlink(top.0.join("local/deep"), top.0.join("staged/link")).unwrap();
        symlink(top.0.join("staged"), top.0.join("staged/below/again")).unwrap();
        let mut found = Recorder { accepted: "/staged", ..Recorder::default() };
        let flow = top.walk(&["/staged", "/local", "/none", "/staged/below"], &mut found);
        assert_eq!(flow, ControlFlow::Continue(()));
        assert_eq!(found.directories, ["/staged", "/staged/below", "/staged/link", "/staged/link/staged"]);
        assert_eq!(found.files, ["/staged/below/f", "/staged/link/f"]);
    }

    #[test]
    fn links_to_each_other_end() {
        let top = Top::new("links");
        for (one, other) in [("a", "b"), ("b", "c"), ("c", "a")] {
            fs::create_dir_all(top.0.join(one)).unwrap();
            for number in 0..3 {
                symlink(top.0.join(other), top.0.join(one).join(format!("to{number}"))).unwrap();
            }
        }
        let mut found = Recorder { accepted: "/", ..Recorder::default() };
        let _ = top.walk(&["/"], &mut found);
        for own in ["/", "/a", "/b", "/c"] {
            assert_eq!(found.directories.iter().filter(|path| *path == own).count(), 1, "{own}");
        }
        // Each of the three is reached through a link once at most.
        assert!(found.directories.len() <= 7, "{:?}", found.directories);
    }

    #[test]
    fn a_tree_that_is_deeper_than_the_limit_is_read_whole() {
        let top = Top::new("deep");
        let mut wanted = Vec::new();
        let mut at = top.0.clone();
        for level in 0..OPEN_MAX * 3 {
            at = at.join("d");
            fs::create_dir(&at).unwrap();
            for side in ["a", "z"] {
                fs::create_dir(at.join(side)).unwrap();
                fs::write(at.join(side).join("f"), "").unwrap();
                wanted.push(format!("{}/{side}/f", "/d".repeat(level + 1)));
            }
        }
        wanted.sort_unstable();
        let mut found = Recorder { accepted: "/", ..Recorder::default() };
        let _ = top.walk(&["/"], &mut found);
        assert_eq!(found.files, wanted);
        assert_eq!(found.directories.len(), 1 + OPEN_MAX * 3 * 3);
    }

    #[test]
    fn a_directory_above_the_limit_is_not_read_from_its_begin_again() {
        let top = Top::new("wide");
        for number in 0..NAMES_AT_ONCE * 8 {
            fs::write(top.0.join(format!("f{number}")), "").unwrap();
        }
        // Below each of these names, the directory at the top and the one below it are closed.
        let (chains, levels) = (20, OPEN_MAX + 1);
        for number in 0..chains {
            fs::create_dir_all(top.0.join(format!("d{number}")).join("d/".repeat(levels - 1))).unwrap();
        }
        let posix = storage::Posix::new(&storage::posix::Config::new(&top.0)).unwrap();
        let backend = storage::Faulty::new(std::sync::Arc::new(posix));
        // The last page of each directory is empty, and each that was closed has one page again.
        let calls = 10 + chains * (levels * 2 + 2);
        let fault = storage::faulty::InjectedFault::Error(5);
        let rule = storage::faulty::FaultRule::new(&[storage::faulty::FaultyCall::ListNext], fault);
        backend.rules().add(rule.after(calls as u64));
        let mut found = Recorder { accepted: "/", ..Recorder::default() };
        let _ = walk_tree(&backend, &[LogicalPath::root()], &mut found);
        assert_eq!(found.directories.len(), 1 + chains * levels);
        assert_eq!(found.files.len(), NAMES_AT_ONCE * 8);
    }

    #[test]
    fn a_walk_pauses_and_can_be_ended() {
        let top = Top::new("pauses");
        for number in 0..NAMES_AT_ONCE * 2 {
            fs::write(top.0.join(number.to_string()), "").unwrap();
        }
        let mut found = Recorder { accepted: "/", ..Recorder::default() };
        assert_eq!(top.walk(&["/"], &mut found), ControlFlow::Continue(()));
        assert_eq!(found.files.len(), NAMES_AT_ONCE * 2);
        assert!(found.pauses >= 3, "{}", found.pauses);
        let mut found = Recorder { accepted: "/", pauses_left: Some(1), ..Recorder::default() };
        assert_eq!(top.walk(&["/"], &mut found), ControlFlow::Break(()));
        assert!(found.files.is_empty(), "{}", found.files.len());
    }
}
