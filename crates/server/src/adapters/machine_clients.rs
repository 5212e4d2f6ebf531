//! [`MachineClients`]: the accounts of clients on this machine.

use base::Owner;
use cache::{DIRECT_DIRECTORY, DirectReaders};
use net::peer_account;
use nix::unistd::{Uid, User, getegid, geteuid, getgrouplist};
use proxy::LocalClients;
use std::ffi::CString;
use std::fs::{self, Metadata, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::Pool;
use vfs::ClientConnection;

/// Mode of the directory of the names: nobody else lists it, and who knows a name opens it.
const NAMES_MODE: u32 = 0o711;
/// Number of threads that look up groups, which can ask a directory server.
const THREADS: usize = 4;

/// The accounts of clients on this machine, from the kernel and the system.
pub(crate) struct MachineClients(Arc<Pool>);

impl MachineClients {
    pub(crate) fn new() -> Self {
        Self(Pool::for_long_work("local-clients", THREADS))
    }
}

impl LocalClients for MachineClients {
    fn prepare(&self, directory: &Path, readers: DirectReaders) -> Result<PathBuf, String> {
        prepare(directory, readers)
    }

    fn may_read(
        &self,
        connection: ClientConnection,
        readers: DirectReaders,
        answer: Box<dyn FnOnce(bool) + Send>,
    ) {
        let Some(uid) = peer_account(connection.client, connection.server).map(Uid::from_raw) else {
            return answer(false);
        };
        match readers {
            DirectReaders::World => answer(true),
            DirectReaders::Group if uid.is_root() || uid == geteuid() => answer(true),
            // Without a thread, the answer is dropped, and the client is served.
            DirectReaders::Group => {
                self.0.run(Owner::SERVER, Box::new(move || answer(is_of_own_group(uid)))).ok();
            }
        }
    }
}

/// Creates the directory of the names, and returns that of the cache without links.
fn prepare(directory: &Path, readers: DirectReaders) -> Result<PathBuf, String> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| format!("{path}: {error}")
    };
    let directory = directory.canonicalize().map_err(failed(directory))?;
    let names = directory.join(DIRECT_DIRECTORY);
    fs::create_dir_all(&names).map_err(failed(&names))?;
    fs::set_permissions(&names, Permissions::from_mode(NAMES_MODE)).map_err(failed(&names))?;
    let group = getegid().as_raw();
    for path in names.ancestors() {
        let found = fs::metadata(path).map_err(failed(path))?;
        if !can_pass(&found, readers, group) {
            return Err(format!("clients cannot pass the directory {}", path.display()));
        }
    }
    Ok(directory)
}

/// Reports whether all readers can pass a directory. The permissions of its group are for members only, and those of others
/// for all but them.
fn can_pass(directory: &Metadata, readers: DirectReaders, group: u32) -> bool {
    let is_for_group = readers == DirectReaders::Group && directory.gid() == group;
    let needed = if is_for_group { 0o010 } else { 0o011 };
    directory.mode() & needed == needed
}

/// Reports whether an account is a member of the group of this process. An account that cannot be looked up is not.
fn is_of_own_group(uid: Uid) -> bool {
    let groups = || {
        let user = User::from_uid(uid).ok().flatten()?;
        getgrouplist(&CString::new(user.name).ok()?, user.gid).ok()
    };
    groups().is_some_and(|groups| groups.contains(&getegid()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn clients_of_this_process_may_read_and_those_elsewhere_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let connection =
            ClientConnection { client: client.local_addr().unwrap(), server: client.peer_addr().unwrap() };
        let clients = MachineClients::new();
        let may = |readers| {
            let (answer, answered) = std::sync::mpsc::channel();
            clients.may_read(connection, readers, Box::new(move |may| answer.send(may).unwrap()));
            answered.recv().unwrap()
        };
        assert!(may(DirectReaders::World) && may(DirectReaders::Group));
        drop(client);
        assert!(!may(DirectReaders::World) && !may(DirectReaders::Group));
        assert!(!is_of_own_group(Uid::from_raw(3_999_999_999)));
    }

    #[test]
    fn the_way_to_the_names_has_to_be_open_to_all_readers() {
        let directory = std::env::temp_dir().join(format!("scalla-direct-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let own = fs::metadata(&directory).unwrap().gid();
        for (mode, world, members, others) in [
            (0o755, true, true, true),
            (0o750, false, true, false),
            (0o701, false, false, false),
            (0o705, false, false, false),
            (0o700, false, false, false),
        ] {
            fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
            let found = fs::metadata(&directory).unwrap();
            let can = |readers, group| can_pass(&found, readers, group);
            let of = [
                can(DirectReaders::World, own),
                can(DirectReaders::Group, own),
                can(DirectReaders::Group, own + 1),
            ];
            assert_eq!(of, [world, members, others], "{mode:o}");
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
