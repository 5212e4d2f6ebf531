//! Changes of key tables: new keys, removals, and writing the file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};

use base::Rng;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, statat};

use super::keytab::{Keytab, KeytabError, SssKey, keytab_mode};
use crate::trusted_file::{STICKY, TrustedOwner, is_of_root_alone};

/// Permissions of directories that are created for a table.
const DIRECTORY_MODE: u32 = 0o755;

/// The keys that a change applies to: those that have all given properties.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct KeySelector {
    /// Name of the key.
    pub name: Option<String>,
    /// User of the key.
    pub user: Option<String>,
    /// Group of the key.
    pub group: Option<String>,
    /// The number, which is the low half of the id.
    pub number: Option<u32>,
}

impl KeySelector {
    /// Reports whether a key has all given properties.
    #[must_use]
    pub fn selects(&self, key: &SssKey) -> bool {
        let is =
            |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|wanted| wanted == value);
        is(&self.name, &key.name)
            && is(&self.user, &key.user)
            && is(&self.group, &key.group)
            && self.number.is_none_or(|number| number == key.number())
    }
}

impl SssKey {
    /// Returns the number of the key within its table, which is the low half of its id.
    #[must_use]
    pub const fn number(&self) -> u32 {
        let [.., b0, b1, b2, b3] = self.id.to_be_bytes();
        u32::from_be_bytes([b0, b1, b2, b3])
    }

    /// Sets the id to the one of a key with this number, by convention.
    pub fn set_number(&mut self, number: u32) {
        let created = self.created & 0x7fff_ffff;
        self.id = i64::try_from(created << 32 | u64::from(number)).unwrap_or(i64::MAX);
    }
}

impl Keytab {
    /// Returns the number after the highest one of the table.
    #[must_use]
    pub fn next_number(&self) -> u32 {
        self.keys.iter().map(SssKey::number).max().unwrap_or(0).saturating_add(1)
    }

    /// Adds a key behind those of the same name, user and group, and removes the oldest of these if
    /// there are more than `hold` of them then.
    pub fn insert(&mut self, key: SssKey, hold: usize) {
        let last = self.keys.iter().rposition(|other| other.triple() == key.triple());
        let place = last.map_or(self.keys.len(), |last| last + 1);
        let alike = |keys: &[SssKey], key: &SssKey| {
            keys.iter().filter(|other| other.triple() == key.triple()).count()
        };
        let mut surplus = (alike(&self.keys, &key) + 1).saturating_sub(hold.max(1));
        let triple = [key.name.clone(), key.user.clone(), key.group.clone()];
        self.keys.insert(place, key);
        self.keys.retain(|other| {
            let (name, user, group) = other.triple();
            let is_surplus = surplus > 0 && triple == [name, user, group];
            surplus -= usize::from(is_surplus);
            !is_surplus
        });
    }

    /// Removes the keys that are expired and returns their number.
    pub fn remove_expired(&mut self, now: u64) -> usize {
        let before = self.keys.len();
        self.keys.retain(|key| !key.is_expired(now));
        before - self.keys.len()
    }

    /// Changes the table of a file. `change` gets the present table, or the reason why it cannot be
    /// read, and returns the new one.
    ///
    /// * Changes wait for each other, so that none is lost. `change` must not wait for a person.
    /// * A reader sees either the old table or the new one.
    /// * A link counts as a table that cannot be read, because it would be replaced.
    /// * The file has the permissions that readers require. Missing directories are created.
    /// * In a directory of its own, root can change the table of another user, which keeps its owner.
    ///   Elsewhere the table of another user is not replaced.
    /// * The file is removed if the new table has no keys.
    /// * If `change` fails, the file stays as it is, and the inner result has the error.
    ///
    /// # Errors
    /// The error of the file system. The previous table is unchanged, unless the error is that of
    /// the last step, which makes the new one durable.
    pub fn update<T, E>(
        path: &Path,
        rng: &mut dyn Rng,
        change: impl FnOnce(Result<Self, KeytabError>) -> Result<(Self, T), E>,
    ) -> io::Result<Result<T, E>> {
        let directory = directory_of(path);
        fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
        let _lock = KeytabLock::acquire(path)?;
        let present = if path.is_symlink() { Err(link_fault(path)) } else { Self::open_to_edit(path) };
        // The keys go to the user that owns the present file, even if its content is not a table.
        let owner = present.as_ref().ok().map(|(_, owner)| *owner).or_else(|| owner_for_root(path));
        let present = present.map(|(table, _)| table);
        let is_readable = present.is_ok();
        let (table, result) = match change(present) {
            Ok(changed) => changed,
            Err(error) => return Ok(Err(error)),
        };
        if !is_readable {
            check_owner(path, owner)?;
        }
        if table.keys.is_empty() {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        } else {
            table.replace(path, rng, owner)?;
        }
        File::open(directory)?.sync_all()?;
        Ok(Ok(result))
    }

    /// Opens the table of a file for somebody who may change it. In a directory of its own, root may
    /// change the tables of all users.
    ///
    /// # Errors
    /// [`KeytabError`].
    pub fn open_as_editor(path: &Path) -> Result<Self, KeytabError> {
        Self::open_to_edit(path).map(|(table, _)| table)
    }

    fn open_to_edit(path: &Path) -> Result<(Self, (u32, u32)), KeytabError> {
        let owner = if edits_any(path) { TrustedOwner::AnyInDirectoryOfRoot } else { TrustedOwner::Own };
        Self::open_owned(path, owner)
    }

    fn replace(&self, path: &Path, rng: &mut dyn Rng, owner: Option<(u32, u32)>) -> io::Result<()> {
        let beside = beside(path, rng)?;
        let written =
            self.write_to(&beside, keytab_mode(path), owner).and_then(|()| fs::rename(&beside, path));
        if written.is_err() {
            let _ = fs::remove_file(&beside);
        }
        written
    }

    fn write_to(&self, path: &Path, mode: u32, owner: Option<(u32, u32)>) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(mode))?);
        if let Some((user, group)) = owner.filter(|_| rustix::process::geteuid().is_root()) {
            fchown(&file, Some(user), Some(group))?;
        }
        // The mask of the process may have removed permissions.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        file.write_all(self.encode().as_bytes())?;
        file.sync_all()
    }
}

/// A lock on a key table against other changes. It is a file beside the table, because the table
/// itself is replaced. Dropping it removes the file.
struct KeytabLock {
    path: PathBuf,
    _file: File,
}

impl KeytabLock {
    /// Waits for the lock.
    fn acquire(table: &Path) -> io::Result<Self> {
        let mut name = table.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        name.push(".lock");
        let path = table.with_file_name(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        loop {
            let file = File::from(rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))?);
            let found = file.metadata()?;
            let owners = [0, rustix::process::geteuid().as_raw()];
            if !found.is_file() || !owners.contains(&found.uid()) {
                // Another user could keep the lock for ever.
                let text = format!("the lock {} is not a file of this user; remove it", path.display());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
            }
            flock(&file, FlockOperation::LockExclusive)?;
            // The previous holder may have removed the file between open and lock. Then the next
            // change would lock a new file.
            let is_current = statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|named| named.st_ino == found.ino() && named.st_dev == found.dev());
            if is_current {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for KeytabLock {
    fn drop(&mut self) {
        // A file that stays behind is locked by the next change.
        fs::remove_file(&self.path).ok();
    }
}

fn directory_of(path: &Path) -> &Path {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    directory.unwrap_or_else(|| Path::new("."))
}

/// Reports whether only root can exchange the file at a path. The owner of a directory above could
/// exchange the file, or the next directory, for a link while root works on it, and so could the owner
/// of a file in a sticky directory. A path through links counts as replaceable, because the
/// directories that contain the links are not examined.
#[must_use]
pub fn only_root_replaces(path: &Path) -> bool {
    let Ok(directory) = std::path::absolute(directory_of(path)) else { return false };
    fs::canonicalize(&directory).is_ok_and(|real| real == directory)
        && fs::metadata(&directory).is_ok_and(|found| is_of_root_alone(&found))
        && directory.ancestors().skip(1).all(only_root_replaces_directories)
}

/// Reports whether only root can exchange the directories of root in a directory.
fn only_root_replaces_directories(directory: &Path) -> bool {
    let is_sticky = |found: &fs::Metadata| found.uid() == 0 && found.mode() & STICKY != 0;
    fs::metadata(directory).is_ok_and(|found| is_of_root_alone(&found) || is_sticky(&found))
}

/// Reports whether this process is one of root and may change the table of any user at a path.
fn edits_any(path: &Path) -> bool {
    rustix::process::geteuid().is_root() && only_root_replaces(path)
}

/// Returns the user and group that own the file at a path, if root may change it for them.
fn owner_for_root(path: &Path) -> Option<(u32, u32)> {
    let found = path.symlink_metadata().ok().filter(|found| edits_any(path) && found.is_file())?;
    Some((found.uid(), found.gid()))
}

/// Checks that the file at a path would not get another owner. Its present one could not read the keys.
fn check_owner(path: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    let own = rustix::process::geteuid();
    let next = owner.filter(|_| own.is_root()).map_or(own.as_raw(), |(user, _)| user);
    match path.symlink_metadata() {
        Ok(found) if found.is_file() && found.uid() != next => {
            let text = "it belongs to another user and cannot be read; change it as that user, or remove it";
            Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
        }
        _ => Ok(()),
    }
}

/// Returns the error of a table whose path is a link, which a change would replace by a file.
fn link_fault(path: &Path) -> KeytabError {
    let (reason, remedy) = ("it is a link".to_owned(), "name the file itself".to_owned());
    KeytabError::Unsafe { path: path.to_owned(), reason, remedy }
}

/// Returns a new name in the directory of `path`.
fn beside(path: &Path, rng: &mut dyn Rng) -> io::Result<PathBuf> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    let mut random = [0; 8];
    rng.fill(&mut random);
    name.push(format!(".{:016x}.new", u64::from_be_bytes(random)));
    Ok(path.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn key(name: &str, number: u32) -> SssKey {
        let line = format!("0 u:a g:b n:{name} N:1 c:1795721885 e:0 k:00");
        let mut key = Keytab::parse(line.as_bytes()).unwrap().keys.remove(0);
        key.set_number(number);
        key
    }

    fn numbers(keytab: &Keytab) -> Vec<u32> {
        keytab.keys.iter().map(SssKey::number).collect()
    }

    #[test]
    fn the_id_of_a_key_has_its_creation_time_and_number() {
        assert_eq!((key("k", 1).id, key("k", 1).number()), (7_712_566_768_786_472_961, 1));
    }

    #[test]
    fn a_key_joins_its_triple_and_the_oldest_leaves() {
        let mut keytab = Keytab::default();
        for (name, number) in [("x", 1), ("y", 2), ("x", 3), ("x", 4)] {
            keytab.insert(key(name, number), 3);
        }
        assert_eq!(numbers(&keytab), [1, 3, 4, 2]);
        assert_eq!(keytab.next_number(), 5);
        keytab.insert(key("x", 5), 3);
        assert_eq!(numbers(&keytab), [3, 4, 5, 2]);
        keytab.insert(key("x", 6), 1);
        assert_eq!(numbers(&keytab), [6, 2]);
    }

    #[test]
    fn a_selector_needs_all_given_properties() {
        let selector = |name: &str, number| KeySelector {
            name: Some(name.to_owned()),
            number,
            ..KeySelector::default()
        };
        assert!(selector("x", None).selects(&key("x", 7)) && selector("x", Some(7)).selects(&key("x", 7)));
        assert!(!selector("y", None).selects(&key("x", 7)) && !selector("x", Some(8)).selects(&key("x", 7)));
        assert!(KeySelector::default().selects(&key("x", 7)));
    }

    #[test]
    fn a_saved_table_has_the_permissions_that_readers_require() {
        let directory = std::env::temp_dir().join(format!("auth-save-{}", std::process::id()));
        let mut keytab = Keytab::default();
        for (file, mode) in [("sub/a.keytab", 0o600), ("sub/a.grp", 0o640)] {
            let path = directory.join(file);
            for number in 1..=2 {
                keytab.insert(key("x", number), 3);
                write(&path, &keytab);
                assert_eq!(numbers(&Keytab::open(&path).unwrap()), numbers(&keytab));
            }
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, mode);
        }
        assert_eq!(fs::read_dir(directory.join("sub")).unwrap().count(), 2, "nothing is left behind");
        let kept = Keytab::update(&directory.join("sub/a.grp"), &mut crate::SystemRng, |table| {
            assert_eq!(table.unwrap().keys.len(), 3);
            Err::<(Keytab, ()), _>("kept")
        });
        assert_eq!(kept.unwrap(), Err("kept"));
        assert_eq!(Keytab::open(&directory.join("sub/a.grp")).unwrap().keys.len(), 3);
        let link = directory.join("sub/link.grp");
        std::os::unix::fs::symlink("a.grp", &link).unwrap();
        assert_eq!(Keytab::open(&link).unwrap().keys.len(), 3);
        let refused = Keytab::update(&link, &mut crate::SystemRng, |table| table.map(|table| (table, ())));
        assert!(matches!(refused, Ok(Err(KeytabError::Unsafe { .. }))), "a change would replace the link");
        write(&directory.join("sub/a.grp"), &Keytab::default());
        assert!(!directory.join("sub/a.grp").exists(), "a table without keys has no file");
        fs::remove_dir_all(directory).unwrap();
    }

    fn write(path: &Path, table: &Keytab) {
        let replace = |_| Ok::<_, ()>((table.clone(), ()));
        Keytab::update(path, &mut crate::SystemRng, replace).unwrap().unwrap();
    }

    #[test]
    fn root_changes_the_table_of_a_server_in_its_own_directory() {
        use std::os::unix::fs::chown;
        if !rustix::process::geteuid().is_root() {
            return;
        }
        const OWNER: u32 = 4711;
        let directory = std::env::temp_dir().join(format!("auth-owner-{}", std::process::id()));
        let table = directory.join("k");
        let mut keytab = Keytab::default();
        keytab.insert(key("x", 1), 3);
        write(&table, &keytab);
        chown(&table, Some(OWNER), Some(OWNER)).unwrap();
        let change =
            || Keytab::update(&table, &mut crate::SystemRng, |table| table.map(|table| (table, ()))).unwrap();
        change().unwrap();
        let found = fs::metadata(&table).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (OWNER, OWNER, 0o600));
        assert_eq!(numbers(&Keytab::open_as_editor(&table).unwrap()), [1]);
        assert!(Keytab::open(&table).is_err(), "a server of root does not use it");
        // The owner could exchange it for a link to a file of root.
        for (owner, mode) in [(OWNER, 0o755), (0, 0o1777), (0, 0o775)] {
            chown(&directory, Some(owner), None).unwrap();
            fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
            assert!(change().is_err() && Keytab::open_as_editor(&table).is_err(), "{owner} {mode:o}");
            // New keys would be those of root, so the owner could not read them.
            let new = |_| Ok::<_, ()>((keytab.clone(), ()));
            let refused = Keytab::update(&table, &mut crate::SystemRng, new).unwrap_err();
            assert!(refused.to_string().contains("belongs to another user"), "{refused}");
            assert_eq!(fs::metadata(&table).unwrap().uid(), OWNER, "{owner} {mode:o}");
        }
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing is left behind");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(only_root_replaces(&table));
        // New keys in place of a file that is not a table are for the same user.
        fs::write(&table, "not a table").unwrap();
        assert!(change().is_err());
        write(&table, &keytab);
        assert_eq!(fs::metadata(&table).unwrap().uid(), OWNER);
        // The owner of a directory above could exchange the next one.
        let below = directory.join("below");
        fs::create_dir(&below).unwrap();
        assert!(only_root_replaces(&below.join("k")));
        chown(&directory, Some(OWNER), None).unwrap();
        assert!(!only_root_replaces(&below.join("k")));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn changes_at_the_same_time_are_all_kept() {
        let directory = std::env::temp_dir().join(format!("auth-update-{}", std::process::id()));
        let path = directory.join("k");
        let mut old = Keytab::default();
        (100..108).for_each(|number| old.insert(key("old", number), 100));
        write(&path, &old);
        let change = &|edit: &dyn Fn(&mut Keytab)| {
            let change = |table: Result<Keytab, KeytabError>| {
                table.map(|mut table| {
                    edit(&mut table);
                    (table, ())
                })
            };
            Keytab::update(&path, &mut crate::SystemRng, change).unwrap().unwrap();
        };
        std::thread::scope(|scope| {
            for number in 1..=8 {
                scope.spawn(move || change(&|table| table.insert(key("new", number), 100)));
                let deleted = 99 + number;
                scope.spawn(move || change(&|table| table.keys.retain(|key| key.number() != deleted)));
            }
        });
        let mut left = numbers(&Keytab::open(&path).unwrap());
        left.sort_unstable();
        assert_eq!(left, [1, 2, 3, 4, 5, 6, 7, 8]);
        fs::remove_dir_all(directory).unwrap();
    }
}
