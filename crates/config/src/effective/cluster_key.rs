//! The key by which the nodes of a cluster authenticate each other.

use std::fmt;
use std::path::PathBuf;

use super::network::HostPattern;

/// `scalla.clusterkey`: nodes prove with a key of this table that they belong to the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterKeyConfig {
    /// The key table.
    pub keytab: PathBuf,
    /// Hosts whose nodes need not authenticate.
    pub exempt: Vec<HostPattern>,
}

impl ClusterKeyConfig {
    /// Reports whether a host is exempt by its name or address as configured. No name is looked up.
    #[must_use]
    pub fn exempts(&self, host: &str) -> bool {
        self.exempt.iter().any(|pattern| pattern.matches(host))
    }
}

impl fmt::Display for ClusterKeyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.keytab.display())?;
        if !self.exempt.is_empty() {
            f.write_str(" except")?;
        }
        self.exempt.iter().try_for_each(|pattern| write!(f, " {}", pattern.as_str()))
    }
}
