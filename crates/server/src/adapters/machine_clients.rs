//! [`MachineClients`]: the processes of clients on this machine.

use base::Owner;
use cache::DIRECT_DIRECTORY;
use net::peer_socket;
use nix::unistd::geteuid;
use proxy::{LocalClient, LocalClients};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, openat, openat2, statx};
use std::fs::{self, File, Metadata, Permissions};
use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::Pool;
use vfs::ClientConnection;

/// Mode of the directory of the names.
const NAMES_MODE: u32 = 0o700;
/// Number of threads that read about processes.
const THREADS: usize = 2;
/// Maximum number of bytes of a text of the kernel.
const TEXT_BYTES_MAX: u64 = 1 << 16;
/// Maximum number of open files of a process among which its connection is looked for.
const FILES_MAX: usize = 4096;
/// The processes of clients on this machine, from the kernel.
///
/// A connection does not show that its client finds the files of this machine: it can be relayed by a program here, or the
/// client can be in a container. So the process that the client has named in its login must have the other end of the
/// connection open, must have the account of this server, and must find the same directory of names at its path. Whatever
/// cannot be seen is not so. The files have no permissions for other accounts.
pub(crate) struct MachineClients(Arc<Pool>);

impl MachineClients {
    pub(crate) fn new() -> Self {
        Self(Pool::new("local-clients", THREADS))
    }
}

impl LocalClients for MachineClients {
    fn prepare(&self, directory: &Path) -> Result<PathBuf, String> {
        let directory = prepare(directory)?;
        check_kernel(&directory)?;
        Ok(directory)
    }

    fn may_read(&self, client: LocalClient, directory: Arc<Path>, answer: Box<dyn FnOnce(bool) + Send>) {
        let job = move || answer(may_read(&client, &directory).unwrap_or(false));
        self.0.run(client.owner, Box::new(job)).ok();
    }
}

/// Reports whether a client is a process with the account of this server, and finds the same files below the directory of
/// the cache. Errors mean that this cannot be seen.
fn may_read(client: &LocalClient, directory: &Path) -> std::io::Result<bool> {
    let ends = client.connection;
    let Some(socket) = peer_socket(ends.client, ends.server)? else { return Ok(false) };
    let process = PathBuf::from(format!("/proc/{}", client.pid));
    let own = geteuid().as_raw();
    Ok(socket.account == own
        && text(&process.join("status")).and_then(|status| file_account(&status)) == Some(own)
        && has_open(&process, socket.inode)?
        && has_same_directory(&process, &directory.join(DIRECT_DIRECTORY))?)
}

/// Reports whether a process has a socket open.
fn has_open(process: &Path, inode: u32) -> std::io::Result<bool> {
    let socket = PathBuf::from(format!("socket:[{inode}]"));
    let mut files = fs::read_dir(process.join("fd"))?.take(FILES_MAX).flatten();
    Ok(files.any(|file| fs::read_link(file.path()).is_ok_and(|target| target == socket)))
}

/// Reports whether a path without links leads a process to the same directory as this one. A process can have file systems on
/// the way that hang, so the path is looked up only among the entries that the kernel has in memory.
fn has_same_directory(process: &Path, path: &Path) -> std::io::Result<bool> {
    let identity = |root: &Path| -> rustix::io::Result<_> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = openat(CWD, root, flags, Mode::empty())?;
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::CACHED;
        let directory = openat2(&root, path, flags, Mode::empty(), how)?;
        let asked = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = statx(&directory, "", asked, StatxFlags::INO)?;
        Ok((found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
    };
    // The kernel knows the directory from now on.
    fs::metadata(path)?;
    Ok(identity(Path::new("/proc/self/root"))? == identity(&process.join("root"))?)
}

/// Checks, with a connection of this process, that the kernel shows which process has a connection.
fn check_kernel(directory: &Path) -> Result<(), String> {
    let own = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let connection = ClientConnection { client: stream.local_addr()?, server: stream.peer_addr()? };
        let client = LocalClient { connection, pid: std::process::id(), owner: Owner::SERVER };
        may_read(&client, directory)
    };
    let needs =
        "the kernel does not tell which process has a connection (sock_diag over AF_NETLINK, /proc, openat2)";
    match own() {
        Ok(true) => {}
        Ok(false) => return Err(needs.to_owned()),
        Err(error) => return Err(format!("{needs}: {error}")),
    }
    Ok(())
}

/// Creates the directory of the names, and returns that of the cache without links.
fn prepare(directory: &Path) -> Result<PathBuf, String> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| format!("{path}: {error}")
    };
    let directory = directory.canonicalize().map_err(failed(directory))?;
    let names = directory.join(DIRECT_DIRECTORY);
    fs::create_dir_all(&names).map_err(failed(&names))?;
    if names.canonicalize().map_err(failed(&names))? != names {
        return Err(format!("there is a link on the way to {}", names.display()));
    }
    fs::set_permissions(&names, Permissions::from_mode(NAMES_MODE)).map_err(failed(&names))?;
    let account = geteuid().as_raw();
    for path in names.ancestors() {
        let found = fs::metadata(path).map_err(failed(path))?;
        if !can_pass(&found, account) {
            return Err(format!("clients cannot pass the directory {}", path.display()));
        }
    }
    Ok(directory)
}

/// Reports whether all processes of an account can pass a directory, whatever groups they are in. The permissions of the
/// group are for its members only, and those of others for all but them.
fn can_pass(directory: &Metadata, account: u32) -> bool {
    let needed = if directory.uid() == account { 0o100 } else { 0o011 };
    directory.mode() & needed == needed
}

/// Returns the account with which a process opens files, from the text of `/proc/PID/status`. The name of a process, which
/// it chooses, has no line of its own in it.
fn file_account(status: &str) -> Option<u32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    // The last one of four is that of file systems.
    numbers.split_whitespace().nth(3)?.parse().ok()
}

/// Returns a text of the kernel, unless it is too long.
fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text).ok()?;
    (text.len() as u64 <= TEXT_BYTES_MAX).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Returns a directory with a directory of names, which is removed at the end.
    fn cache_directory(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("scalla-{name}-{}", std::process::id()));
        fs::create_dir_all(directory.join(DIRECT_DIRECTORY)).unwrap();
        directory.canonicalize().unwrap()
    }

    #[test]
    fn only_the_process_that_has_the_connection_may_read() {
        let directory = cache_directory("clients");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let connection =
            ClientConnection { client: stream.local_addr().unwrap(), server: stream.peer_addr().unwrap() };
        let clients = MachineClients::new();
        let may = |pid| {
            let (answer, answered) = std::sync::mpsc::channel();
            let done = Box::new(move |may_read| answer.send(may_read).unwrap());
            let client = LocalClient { connection, pid, owner: Owner(7) };
            clients.may_read(client, directory.as_path().into(), done);
            answered.recv().unwrap()
        };
        // A process of the same account with the same file systems, as any in a container can name one.
        let mut other = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(may(std::process::id()));
        assert!(!may(other.id()), "it does not have the connection");
        for pid in [0, 1, 2, u32::MAX] {
            assert!(!may(pid), "{pid}");
        }
        drop(stream);
        assert!(!may(std::process::id()));
        drop(other.stdin.take());
        other.wait().unwrap();
        assert_eq!(check_kernel(&directory), Ok(()));
        fs::remove_dir_all(&directory).unwrap();
        assert!(check_kernel(&directory).unwrap_err().contains("openat2"));
    }

    #[test]
    fn the_account_of_a_process_is_that_with_which_it_opens_files() {
        let status = "Name:\tUid:\nUmask:\t0022\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n";
        assert_eq!(file_account(status), Some(4));
        for (from, to) in [("\nUid:", "\nuid:"), ("\t4", ""), ("\t4", "\tx")] {
            assert_eq!(file_account(&status.replace(from, to)), None, "{from:?}");
        }
    }

    #[test]
    fn a_process_that_finds_another_directory_at_the_path_is_noticed() {
        let directory = cache_directory("roots");
        let names = directory.join(DIRECT_DIRECTORY);
        // A directory in place of that of a process, with its root.
        let process = directory.join("process");
        let below = |root: &Path| root.join(names.strip_prefix("/").unwrap());
        fs::create_dir_all(below(&process.join("root"))).unwrap();
        fs::metadata(below(&process.join("root"))).unwrap();
        assert!(!has_same_directory(&process, &names).unwrap());
        assert!(has_same_directory(Path::new("/proc/self"), &names).unwrap());
        // A way with a link, one that is not there, and a process that is not there.
        let link = directory.join("link");
        std::os::unix::fs::symlink(&names, &link).unwrap();
        assert!(has_same_directory(Path::new("/proc/self"), &link).is_err());
        assert!(has_same_directory(Path::new("/proc/self"), &directory.join("none")).is_err());
        assert!(has_same_directory(Path::new("/proc/0"), &names).is_err());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn the_way_to_the_names_has_to_be_open_to_all_processes_of_the_account() {
        let directory = std::env::temp_dir().join(format!("scalla-direct-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let own = fs::metadata(&directory).unwrap().uid();
        for (mode, by_own, by_other) in [
            (0o755, true, true),
            (0o750, true, false),
            (0o705, true, false),
            (0o700, true, false),
            (0o611, false, true),
        ] {
            fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
            let found = fs::metadata(&directory).unwrap();
            let can = [can_pass(&found, own), can_pass(&found, own + 1)];
            assert_eq!(can, [by_own, by_other], "{mode:o}");
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
