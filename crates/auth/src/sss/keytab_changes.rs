//! Changes of key tables: new keys, removals, and writing the file.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use base::Rng;

use super::keytab::{Keytab, KeytabError, SssKey, keytab_mode};
use crate::replaced_file::{
    FileLock, check_owner, directory_of, editor_trust, owner_for_root, replace_file, sync_directory_of,
};

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
        let _lock = FileLock::acquire(path)?;
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
            replace_file(path, table.encode().as_bytes(), keytab_mode(path), owner, rng)?;
        }
        sync_directory_of(path)?;
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
        Self::open_owned(path, editor_trust(path))
    }
}

/// Returns the error of a table whose path is a link, which a change would replace by a file.
fn link_fault(path: &Path) -> KeytabError {
    let (reason, remedy) = ("it is a link".to_owned(), "name the file itself".to_owned());
    KeytabError::Unsafe { path: path.to_owned(), reason, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replaced_file::only_root_replaces;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

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
