//! The exports of a server as text, for the log and the control socket.

use config::Effective;

/// Returns the exports, one text each.
pub(crate) fn export_list(effective: &Effective) -> Vec<String> {
    let exports = effective.storage.exports.iter();
    exports
        .map(|export| {
            let mark = if export.attributes.read_only { " (read-only)" } else { "" };
            format!("{}{mark}", export.prefix)
        })
        .collect()
}

/// Describes the exports: `/srv/data as / (read-only)`, or only the exports if there is no local
/// root.
pub(crate) fn describe_exports(effective: &Effective) -> String {
    let list = export_list(effective).join(", ");
    if let Some(origin) = crate::proxied_files::query_answer(effective) {
        return format!("{list} of the origin {origin}");
    }
    match &effective.storage.local_root.value {
        Some(root) => format!("{} as {list}", root.display()),
        None => list,
    }
}
