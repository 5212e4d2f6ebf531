//! The process that occupies a port, from the socket tables of the kernel, so that the error of a
//! failed start names it.

use std::fmt;
use std::fs;
use std::path::Path;

/// A process that listens on a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortOwner {
    /// The pid.
    pub pid: u32,
    /// The command, as `ps` shows it.
    pub command: String,
}

impl fmt::Display for PortOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {})", self.command, self.pid)
    }
}

/// Returns the process that listens on `port`, if it is visible. Only root sees processes of other
/// users.
pub fn port_owner(port: u16) -> Option<PortOwner> {
    let tables = ["/proc/net/tcp6", "/proc/net/tcp"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let sockets: Vec<String> = tables
        .iter()
        .flat_map(|table| listeners(table, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    if sockets.is_empty() {
        return None;
    }
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if holds_one_of(&process.path(), &sockets) {
            let command = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(PortOwner { pid, command: command.trim().to_owned() });
        }
    }
    None
}

fn holds_one_of(process: &Path, sockets: &[String]) -> bool {
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else { return false };
    descriptors.flatten().any(|descriptor| {
        fs::read_link(descriptor.path())
            .is_ok_and(|to| sockets.iter().any(|socket| to.as_os_str() == socket.as_str()))
    })
}

/// Returns the inodes of sockets in state LISTEN (0A) on `port` in a table of `/proc/net`.
fn listeners(table: &str, port: u16) -> Vec<&str> {
    let port = format!("{port:04X}");
    let mut inodes = Vec::new();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let (Some(local), Some(&"0A"), Some(inode)) = (fields.get(1), fields.get(3), fields.get(9))
            && local.rsplit(':').next() == Some(port.as_str())
        {
            inodes.push(*inode);
        }
    }
    inodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listeners_on_that_port_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 00000000:0446 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1\n\
            1: 0100007F:0446 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 4712 1\n\
            2: 00000000:0447 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1\n";
        assert_eq!(listeners(table, 1094), ["4711"]);
        assert!(listeners("", 1094).is_empty());
    }

    #[test]
    fn the_own_process_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let owner = port_owner(listener.local_addr().unwrap().port()).unwrap();
        assert_eq!(owner.pid, std::process::id());
    }
}
