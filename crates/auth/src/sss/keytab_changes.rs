//! Changes of key tables: new keys, removals, and writing the file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use base::Rng;
use rustix::fs::{Mode, OFlags};

use super::keytab::{Keytab, SssKey, keytab_mode};

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

    /// Writes the table beside `path` and renames it, so that a reader sees either the old table or
    /// the new one. Missing directories are created. The file has the permissions that readers
    /// require.
    ///
    /// # Errors
    /// The error of the file system; the previous table is unchanged then.
    pub fn save(&self, path: &Path, rng: &mut dyn Rng) -> io::Result<()> {
        if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(directory)?;
        }
        let beside = beside(path, rng)?;
        let written = self.write_to(&beside, keytab_mode(path)).and_then(|()| fs::rename(&beside, path));
        if written.is_err() {
            let _ = fs::remove_file(&beside);
        }
        written
    }

    fn write_to(&self, path: &Path, mode: u32) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(mode))?);
        // The mask of the process may have removed permissions.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        file.write_all(self.encode().as_bytes())?;
        file.sync_all()
    }
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
        let mut rng = crate::SystemRng;
        let mut keytab = Keytab::default();
        for (file, mode) in [("sub/a.keytab", 0o600), ("sub/a.grp", 0o640)] {
            let path = directory.join(file);
            for number in 1..=2 {
                keytab.insert(key("x", number), 3);
                keytab.save(&path, &mut rng).unwrap();
                assert_eq!(numbers(&Keytab::open(&path).unwrap()), numbers(&keytab));
            }
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, mode);
        }
        assert_eq!(fs::read_dir(directory.join("sub")).unwrap().count(), 2, "nothing is left behind");
        fs::remove_dir_all(directory).unwrap();
    }
}
