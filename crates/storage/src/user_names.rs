//! A cache of user and group names by number.
//!
//! A lookup may wait for a directory service. It therefore runs on a pool thread, and the result is
//! cached for [`NAMES_BELIEVED`].

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Maximum number of cached users, and of cached groups. When it is reached, all entries are
/// evicted and looked up again.
pub const NAMES_MAX: usize = 4096;
/// Time after which a cached name is stale.
pub const NAMES_BELIEVED: Duration = Duration::from_secs(300);
/// First and maximum buffer size for an entry, in bytes.
const ENTRY_BYTES: usize = 1024;
const ENTRY_BYTES_MAX: usize = 1 << 20;

type Table = RwLock<HashMap<u32, (Arc<str>, Instant)>>;

/// The cached names of users and groups.
#[derive(Default)]
pub struct UserNameCache {
    users: Table,
    groups: Table,
}

impl UserNameCache {
    /// Returns an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the name of a user, or the number if it has no name. May wait.
    pub fn user(&self, uid: u32) -> Arc<str> {
        named(&self.users, uid, user_name)
    }

    /// Returns the name of a group, or the number if it has no name. May wait.
    pub fn group(&self, gid: u32) -> Arc<str> {
        named(&self.groups, gid, group_name)
    }

    /// Returns the name of a user if it is cached and not stale.
    pub fn user_now(&self, uid: u32) -> Option<Arc<str>> {
        known(&self.users, uid)
    }

    /// Returns the name of a group if it is cached and not stale.
    pub fn group_now(&self, gid: u32) -> Option<Arc<str>> {
        known(&self.groups, gid)
    }
}

fn known(table: &Table, number: u32) -> Option<Arc<str>> {
    let table = table.read().unwrap_or_else(PoisonError::into_inner);
    let (name, asked) = table.get(&number)?;
    (asked.elapsed() < NAMES_BELIEVED).then(|| name.clone())
}

fn named(table: &Table, number: u32, ask: impl FnOnce(u32) -> Option<String>) -> Arc<str> {
    if let Some(name) = known(table, number) {
        return name;
    }
    // The lookup runs without the lock, so that it does not delay lookups of other names.
    let name: Arc<str> = ask(number).unwrap_or_else(|| number.to_string()).into();
    let mut table = table.write().unwrap_or_else(PoisonError::into_inner);
    if table.len() >= NAMES_MAX {
        table.clear();
    }
    table.insert(number, (name.clone(), Instant::now()));
    name
}

/// Runs a `get…_r` call, with a larger buffer after `ERANGE`. `call` returns the error number, and
/// the name if there is one.
fn entry(mut call: impl FnMut(&mut [libc::c_char]) -> (i32, Option<String>)) -> Option<String> {
    let mut bytes = ENTRY_BYTES;
    loop {
        let (error, name) = call(&mut vec![0; bytes]);
        if error != libc::ERANGE || bytes >= ENTRY_BYTES_MAX {
            return name.filter(|name| !name.is_empty());
        }
        bytes *= 4;
    }
}

/// # Safety
/// `name` is null or a C string that stays unchanged during the call.
unsafe fn owned(name: *const libc::c_char) -> Option<String> {
    // SAFETY: the pointer is not null, and the caller guarantees the rest.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

fn user_name(uid: u32) -> Option<String> {
    entry(|buffer| {
        // SAFETY: the structure consists of integers and pointers, for which all zeros are valid
        // values.
        let mut found: libc::passwd = unsafe { std::mem::zeroed() };
        let mut result = std::ptr::null_mut();
        // SAFETY: all pointers are to live objects, and the length is that of the buffer.
        let error = unsafe {
            libc::getpwuid_r(uid, &raw mut found, buffer.as_mut_ptr(), buffer.len(), &raw mut result)
        };
        // SAFETY: with a result, the name is a C string in `buffer`, which lives until the end of
        // this block.
        (error, if result.is_null() { None } else { unsafe { owned(found.pw_name) } })
    })
}

fn group_name(gid: u32) -> Option<String> {
    entry(|buffer| {
        // SAFETY: the structure consists of integers and pointers, for which all zeros are valid
        // values.
        let mut found: libc::group = unsafe { std::mem::zeroed() };
        let mut result = std::ptr::null_mut();
        // SAFETY: all pointers are to live objects, and the length is that of the buffer.
        let error = unsafe {
            libc::getgrgid_r(gid, &raw mut found, buffer.as_mut_ptr(), buffer.len(), &raw mut result)
        };
        // SAFETY: with a result, the name is a C string in `buffer`, which lives until the end of
        // this block.
        (error, if result.is_null() { None } else { unsafe { owned(found.gr_name) } })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_without_a_name_is_returned_as_digits() {
        let names = UserNameCache::new();
        assert_eq!(names.user_now(0), None);
        assert_eq!((&*names.user(0), &*names.group(0)), ("root", "root"));
        assert_eq!(names.user_now(0).as_deref(), Some("root"));
        assert_eq!(&*names.user(3_999_999_999), "3999999999");
        assert_eq!(names.group_now(3_999_999_999), None);
        assert_eq!(&*names.group(3_999_999_999), "3999999999");
    }

    #[test]
    fn the_cache_never_exceeds_its_limit() {
        let table = Table::default();
        for number in 0..=NAMES_MAX as u32 {
            named(&table, number, |_| Some("x".to_owned()));
            assert!(table.read().unwrap().len() <= NAMES_MAX);
        }
        assert!(known(&table, NAMES_MAX as u32).is_some());
    }

    #[test]
    fn a_large_entry_gets_a_larger_buffer() {
        let mut tried = Vec::new();
        let name = entry(|buffer| {
            tried.push(buffer.len());
            if buffer.len() < 10_000 { (libc::ERANGE, None) } else { (0, Some("long".to_owned())) }
        });
        assert_eq!((name.as_deref(), tried), (Some("long"), vec![1024, 4096, 16_384]));
        assert_eq!(entry(|_| (libc::ERANGE, None)), None);
    }
}
