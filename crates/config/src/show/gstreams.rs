//! `xrootd.mongstream` as text.

use super::lines::time;
use crate::effective::{GStreamSettings, GStreamTable};

/// Returns the arguments of directives with the same effect, one for each stream.
pub(super) fn arguments(table: &GStreamTable) -> Vec<String> {
    table.streams().map(|(stream, settings)| format!("{} use{}", stream.name(), options(settings))).collect()
}

fn options(settings: &GStreamSettings) -> String {
    let mut text = String::new();
    if let Some(flush) = &settings.flush {
        text.push_str(&format!(" flush {}", time(flush)));
    }
    if let Some(bytes) = settings.packet_bytes_max {
        text.push_str(&format!(" maxlen {bytes}"));
    }
    if let Some(destination) = &settings.destination {
        text.push_str(&format!(" send {destination}"));
    }
    text
}
