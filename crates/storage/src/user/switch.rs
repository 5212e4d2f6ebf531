//! [`UserSwitch`]: gives the calling thread the rights of a user for one call, and takes them back.
//!
//! The kernel keeps user and groups for each thread. The functions of the C library change those of
//! all threads, so the system calls are made directly. `setfsuid` and `setfsgid` change only the ids
//! with which access to files is checked, and they report no errors. Their effect is therefore read
//! back.
//!
//! The process runs as a user without privileges and has exactly two capabilities, `CAP_SETUID` and
//! `CAP_SETGID`. With any other one, calls made for a user could bypass file modes or quotas.

use super::StorageUser;
use rustix::process::Gid;
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::cell::Cell;
use std::io;
use std::marker::PhantomData;

/// The capabilities of a process that acts for users.
const NEEDED: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID);

/// An id that the kernel rejects, so that `setfsuid` and `setfsgid` only return the present id.
const INVALID: u32 = u32::MAX;

thread_local! {
    /// This thread has the rights of a user.
    static ACTING: Cell<bool> = const { Cell::new(false) };
}

/// Reports whether this thread has the rights of a user. It must not start threads then, because
/// they would inherit these rights.
pub(crate) fn is_acting() -> bool {
    ACTING.get()
}

/// The ability to act for users, and the identity to return to.
pub struct UserSwitch {
    uid: u32,
    gid: u32,
    groups: Vec<Gid>,
}

impl UserSwitch {
    /// Reduces the capabilities of the calling thread to the two that switching needs, and checks
    /// that it can switch. Threads that it starts later inherit them.
    ///
    /// # Errors
    /// The thread runs as the superuser, does not have the capabilities, or the system refuses the
    /// calls.
    pub fn claim() -> io::Result<Self> {
        let denied = |text: &str| io::Error::new(io::ErrorKind::PermissionDenied, text);
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        if uid == 0 {
            return Err(denied("it runs as the superuser; name the user of the service (--user, -R)"));
        }
        let present = rustix::thread::capabilities(None)?;
        if !present.permitted.contains(NEEDED) {
            return Err(denied(
                "the capabilities CAP_SETUID and CAP_SETGID are missing; start as root with --user (-R), or let \
                 systemd grant them (AmbientCapabilities=CAP_SETUID CAP_SETGID)",
            ));
        }
        rustix::thread::clear_ambient_capability_set()?;
        let only =
            CapabilitySets { effective: NEEDED, permitted: NEEDED, inheritable: CapabilitySet::empty() };
        rustix::thread::set_capabilities(None, only)?;
        let switch = Self { uid, gid, groups: rustix::process::getgroups()? };
        switch.check()?;
        Ok(switch)
    }

    /// Switches to a group of its own and back, because a container may forbid the calls.
    fn check(&self) -> io::Result<()> {
        let Some(user) = StorageUser::new(self.uid, self.gid, []) else {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the primary group of the user of the service is that of the superuser; give it another one",
            ));
        };
        drop(self.act_as(&user)?);
        Ok(())
    }

    /// Gives this thread the rights of a user until the result is dropped.
    ///
    /// # Errors
    /// The system refused. The thread has its own rights.
    pub fn act_as(&self, user: &StorageUser) -> io::Result<ActingAs<'_>> {
        if ACTING.replace(true) {
            return Err(io::Error::other("this thread has the rights of another user already"));
        }
        // From here on, dropping the guard takes the rights back, also after a partial switch.
        let acting = ActingAs { switch: self, _thread: PhantomData };
        let groups: Vec<Gid> = user.groups().iter().map(|&gid| Gid::from_raw(gid)).collect();
        rustix::thread::set_thread_groups(&groups)?;
        set_file_gid(user.gid())?;
        set_file_uid(user.uid())?;
        Ok(acting)
    }

    fn restore(&self) -> io::Result<()> {
        set_file_uid(self.uid)?;
        set_file_gid(self.gid)?;
        Ok(rustix::thread::set_thread_groups(&self.groups)?)
    }
}

/// The rights of a user, which this thread has until this is dropped.
///
/// If the rights cannot be taken back, the process ends, because the thread would do the work of
/// others with them.
pub struct ActingAs<'a> {
    switch: &'a UserSwitch,
    /// It belongs to one thread.
    _thread: PhantomData<*const ()>,
}

impl Drop for ActingAs<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.switch.restore() {
            tracing::error!("cannot return from the rights of a user: {error}; the process ends");
            std::process::abort();
        }
        ACTING.set(false);
    }
}

fn set_file_uid(uid: u32) -> io::Result<()> {
    set_id(libc::SYS_setfsuid, uid)
}

fn set_file_gid(gid: u32) -> io::Result<()> {
    set_id(libc::SYS_setfsgid, gid)
}

/// Sets an id of this thread by one of the two calls, and checks that it is in force.
fn set_id(call: libc::c_long, id: u32) -> io::Result<()> {
    // SAFETY: the call takes an integer and accesses no memory. It changes only the id with which
    // this thread accesses files. The caller restores it ([`ActingAs`]).
    unsafe { libc::syscall(call, id) };
    // SAFETY: as above. An invalid id changes nothing; the result is the present id.
    let present = unsafe { libc::syscall(call, INVALID) };
    if u32::try_from(present) == Ok(id) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
}

#[cfg(test)]
mod tests;
