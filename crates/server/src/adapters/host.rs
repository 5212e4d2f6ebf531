//! What this machine is called.

/// The canonical name: the node's own, completed by its domain where the resolver knows it. May ask DNS: for the start.
pub fn host_name() -> String {
    let node = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    if node.contains('.') || node.is_empty() {
        return node;
    }
    let prefix = format!("{node}.");
    let full = dns_lookup::lookup_host(&node).ok().and_then(|addresses| {
        let mut names = addresses.filter_map(|address| dns_lookup::lookup_addr(&address).ok());
        names.find(|name| name.to_ascii_lowercase().starts_with(&prefix))
    });
    full.map_or(node, |name| name.to_ascii_lowercase())
}
