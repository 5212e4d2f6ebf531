//! The id of this node, from the configuration or from the admin directory.
//!
//! `<admin directory>/.cluster/id` holds one line; it is created at the first start and never
//! changed. `.cluster/place` holds the last parent of the node. Both are independent of addresses
//! and name servers, so that a container may restart at another address and remains the same node.

use crate::error::StartError;
use cluster::tree::NodeId;
use config::Effective;
use std::fs;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use storage::PrivateDirectory;

/// Number of random bytes in an id.
const RANDOM_BYTES: usize = 8;
/// Maximum number of characters of the host name in front of them, which is for human readers only.
const NAME_MAX: usize = 32;

/// The id of a node, and the directory in which it is stored.
#[derive(Clone, Debug)]
pub(crate) struct OwnNodeId {
    id: NodeId,
    directory: PathBuf,
}

impl OwnNodeId {
    /// Returns the identity of the node of this configuration. An id that is not configured is read
    /// from the admin directory, or created there.
    ///
    /// # Errors
    /// [`StartError::File`] if the id cannot be stored, because the node would have another id
    /// after each restart.
    pub(crate) fn of(effective: &Effective) -> Result<Self, StartError> {
        let directory = effective.admin_directory().join(".cluster");
        let name = match &effective.cluster.virtual_id.value {
            Some(id) => id.clone(),
            None => kept(&directory, &effective.host).map_err(|source| StartError::File {
                what: "node id",
                path: directory.join("id"),
                source,
            })?,
        };
        Ok(Self { id: system_id(effective, &name), directory })
    }

    /// Returns the id for a login.
    pub(crate) fn system_id(&self) -> NodeId {
        self.id.clone()
    }

    /// Returns the file in which the driver stores the parent of the node.
    pub(crate) fn place_file(&self) -> PathBuf {
        self.directory.join("place")
    }
}

/// Returns the id in the directory at `path`, which is created if it is missing.
fn kept(path: &Path, host: &str) -> io::Result<String> {
    let directory = PrivateDirectory::create(path)?;
    if let Some(id) = read(&directory)? {
        return Ok(id);
    }
    // The replacement is atomic, so a crash leaves no truncated id, which would be another one.
    let id = made(host)?;
    directory.replace("id", format!("{id}\n").as_bytes())?;
    Ok(id)
}

/// Reads the id; `None` if the file is missing or empty. Other invalid content is an error, because
/// only the owner of the file may change the id of the node.
fn read(directory: &PrivateDirectory) -> io::Result<Option<String>> {
    let text = match directory.read("id") {
        Ok(content) => String::from_utf8_lossy(&content).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let id = text.trim();
    let odd = |c: char| c == char::REPLACEMENT_CHARACTER || c.is_whitespace() || c.is_control() || c == '&';
    if id.contains(odd) || id.len() > config::VIRTUAL_ID_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it holds no node id; remove it for a new one",
        ));
    }
    Ok((!id.is_empty()).then(|| id.to_owned()))
}

/// Creates an id: the host name, for human readers, and a random part that is unique.
fn made(host: &str) -> io::Result<String> {
    let mut random = [0; RANDOM_BYTES];
    fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    let name = host.split('.').next().unwrap_or_default();
    let name: String =
        name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(NAME_MAX).collect();
    let name = if name.is_empty() { "node".to_owned() } else { name };
    Ok(random.iter().fold(format!("{name}-"), |text, byte| text + &format!("{byte:02x}")))
}

/// Returns the id of a node with the identity `floating`, in the cluster of its managers.
fn system_id(effective: &Effective, floating: &str) -> NodeId {
    let cluster = &effective.cluster;
    let kind = match *cluster.role {
        config::NodeRole::Server => 's',
        config::NodeRole::Supervisor => 'u',
        config::NodeRole::Manager | config::NodeRole::MetaManager => 'm',
    };
    let kind = if cluster.of_proxies { kind.to_ascii_uppercase() } else { kind };
    let instance =
        format!("{}@{}", effective.instance.as_deref().unwrap_or(config::ANONYMOUS), effective.host);
    let hosts: Vec<(String, u16)> = cluster
        .managers
        .iter()
        .map(|manager| match manager.host.parse::<IpAddr>() {
            Ok(address) => (auth::address_text(address), manager.port),
            Err(_) => (manager.host.clone(), manager.port),
        })
        .collect();
    let managers = hosts.iter().map(|(host, port)| wire::cms::login::cluster_id::ClusterIdManager {
        host: host.as_bytes(),
        port: *port,
    });
    let mut id = Vec::new();
    let tag = cluster.tag.as_ref().map(String::as_bytes);
    wire::cms::login::cluster_id::encode(&mut id, tag, managers, instance.as_bytes());
    NodeId::compose(kind, &instance, Some(floating), &String::from_utf8_lossy(&id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("scalla-identity-{name}-{}", std::process::id()));
        fs::remove_dir_all(&directory).ok();
        directory
    }

    #[test]
    fn an_id_is_created_once_and_survives_a_change_of_the_host_name() {
        let directory = temporary("made");
        let first = kept(&directory, "disk1.example.org").unwrap();
        assert!(first.starts_with("disk1-") && first.len() == "disk1-".len() + 2 * RANDOM_BYTES, "{first}");
        assert_eq!(kept(&directory, "other").unwrap(), first);
        fs::write(directory.join("id"), "").unwrap();
        let second = kept(&directory, "").unwrap();
        assert!(second.starts_with("node-"), "{second}");
        fs::write(directory.join("id"), "a b\n").unwrap();
        assert_eq!(kept(&directory, "x").unwrap_err().kind(), io::ErrorKind::InvalidData);
        fs::remove_dir_all(&directory).unwrap();
    }
}
