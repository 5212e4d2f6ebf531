//! `xrootd.monitor` as text.

use super::lines::time;
use crate::effective::DetailedMonitoring;

/// Returns the arguments of a directive with the same effect.
pub(super) fn arguments(settings: &DetailedMonitoring) -> String {
    let mut words = Vec::new();
    words.extend(settings.all_clients.then(|| "all".to_owned()));
    words.extend(settings.authentication.then(|| "auth".to_owned()));
    let io = if settings.flushes_io { "io " } else { "" };
    words.push(format!("flush {io}{}", settings.flush.as_ref().map_or_else(|| "off".to_owned(), time)));
    let files = &settings.files;
    let mut fstat = format!("fstat {}", time(&files.interval));
    for (is_set, word) in [(files.names, " lfn"), (files.operations, " ops"), (files.squares, " ssq")] {
        fstat.push_str(if is_set { word } else { "" });
    }
    if let Some(number) = files.transfers {
        fstat.push_str(&format!(" xfr {number}"));
    }
    words.push(fstat);
    words.push(format!("fbuff {} gbuff {}", settings.file_buffer_bytes, settings.plugin_buffer_bytes));
    let ident = settings.identification.as_ref();
    words.push(format!("ident {}", ident.map_or_else(|| "off".to_owned(), time)));
    words.push(format!(
        "mbuff {} rbuff {} rnums {} window {}",
        settings.trace_buffer_bytes,
        settings.redirect_buffer_bytes,
        settings.redirect_buffers,
        time(&settings.window)
    ));
    for destination in &settings.destinations {
        words.push(format!("dest {} {}", destination.events, destination.address));
    }
    words.join(" ")
}
