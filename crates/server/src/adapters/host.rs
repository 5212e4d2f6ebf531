//! The name of this machine. It is looked up once, at the start, because DNS can block.

/// Returns the canonical name: the node name, completed by its domain if the resolver knows it. May
/// query DNS, so it is called at the start only.
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
