//! `xrootd.monitor`: detailed monitoring streams.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::missing::PLUG_IN_STREAMS;
use crate::effective::{
    DetailedMonitoring, FileStreamSettings, MONITOR_DESTINATIONS_MAX, MonitorDestination, MonitorEvent,
    MonitorEvents, ReportDestination,
};
use crate::language::DirectiveToken;
use crate::values::{TIME_MAX, between};
use std::time::Duration;

/// Limits of the sizes of buffers.
const BUFFER_BYTES_MIN: u64 = 1024;
const BUFFER_BYTES_MAX: u64 = 65_535;
const REDIRECT_BUFFER_BYTES_MIN: u64 = 2048;
/// The size of buffers of the trace stream is a multiple of its records.
const TRACE_RECORD_BYTES: u32 = 16;
/// Maximum number of buffers of the redirect stream.
const REDIRECT_BUFFERS_MAX: u32 = 8;

/// `xrootd.monitor [...] [option…] [dest [event…] host:port]…`.
pub(super) fn monitor(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let origin = arguments.origin();
    let mut settings = match arguments.take("...") {
        Some(_) => draft.effective.monitoring.detailed.value.clone().unwrap_or_default(),
        None => DetailedMonitoring::default(),
    };
    while let Some(token) = arguments.next() {
        option(token, arguments, &mut settings, draft)?;
    }
    if settings.destinations.is_empty() {
        arguments.need("monitor dest")?;
    }
    draft.effective.monitoring.detailed.set(Some(settings), origin);
    Ok(())
}

fn option(
    token: &DirectiveToken,
    arguments: &mut Arguments<'_>,
    settings: &mut DetailedMonitoring,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    match token.text.as_str() {
        "all" => settings.all_clients = true,
        "auth" => settings.authentication = true,
        "flush" => {
            settings.flushes_io = arguments.take("io").is_some();
            settings.flush = match arguments.take("off") {
                Some(_) => None,
                None => Some(arguments.time("monitor flush", between(1, TIME_MAX))?),
            };
        }
        "fstat" => settings.files = file_stream(arguments)?,
        "fbuff" | "fbsz" => settings.file_buffer_bytes = buffer(arguments, "fbuff", BUFFER_BYTES_MIN)?,
        "gbuff" => settings.plugin_buffer_bytes = buffer(arguments, "gbuff", BUFFER_BYTES_MIN)?,
        "ident" => {
            settings.identification = match arguments.take("off") {
                Some(_) => None,
                None => Some(arguments.time("monitor ident", between(0, TIME_MAX))?),
            };
        }
        "mbuff" => {
            let bytes = buffer(arguments, "mbuff", BUFFER_BYTES_MIN)?;
            settings.trace_buffer_bytes = bytes - bytes % TRACE_RECORD_BYTES;
        }
        "rbuff" => settings.redirect_buffer_bytes = buffer(arguments, "rbuff", REDIRECT_BUFFER_BYTES_MIN)?,
        "rnums" => settings.redirect_buffers = arguments.count("monitor rnums", 1, REDIRECT_BUFFERS_MAX)?,
        "window" => settings.window = arguments.time("monitor window", between(1, TIME_MAX))?,
        "dest" => {
            let destination = destination(arguments, draft)?;
            add(settings, destination, token)?;
        }
        _ => return Err(arguments.invalid(token, "monitor option")),
    }
    Ok(())
}

fn buffer(arguments: &mut Arguments<'_>, name: &str, min: u64) -> Result<u32, DirectiveFault> {
    let bytes = arguments.size(&format!("monitor {name}"), between(min, BUFFER_BYTES_MAX))?;
    Ok(u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// Reads `time [lfn] [ops] [ssq] [xfr number]`.
fn file_stream(arguments: &mut Arguments<'_>) -> Result<FileStreamSettings, DirectiveFault> {
    let interval: Duration = arguments.time("monitor fstat", between(0, TIME_MAX))?;
    let mut settings =
        FileStreamSettings { interval, names: false, operations: false, squares: false, transfers: None };
    loop {
        match arguments.peek() {
            Some("lfn") => settings.names = true,
            Some("ops") => settings.operations = true,
            Some("ssq") => (settings.operations, settings.squares) = (true, true),
            Some("xfr") => {
                arguments.next();
                settings.transfers = Some(arguments.count("monitor xfr", 1, u32::MAX)?);
                continue;
            }
            _ => return Ok(settings),
        }
        arguments.next();
    }
}

/// Reads the events and the address behind `dest`.
fn destination(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<MonitorDestination, DirectiveFault> {
    let mut events = MonitorEvents::NONE;
    loop {
        let token = arguments.need("monitor dest")?;
        if let Some((name, event)) = MonitorEvent::ALL.iter().find(|(name, _)| *name == token.text) {
            events = events.with(*event);
            if !event.is_in_force() {
                draft.not_yet(token, format!("monitor dest {name}"), Some(PLUG_IN_STREAMS), None);
            }
            continue;
        }
        let address = token.text.parse().ok();
        // A collector of detailed monitoring is on the network.
        let address = address.filter(|found| matches!(found, ReportDestination::Host { .. }));
        let Some(address) = address else {
            return Err(arguments.invalid(token, "monitor event or destination"));
        };
        if events.is_empty() {
            events = events.with(MonitorEvent::Files);
        }
        return Ok(MonitorDestination { events, address });
    }
}

/// Adds a destination. Equal ones become one.
fn add(
    settings: &mut DetailedMonitoring,
    destination: MonitorDestination,
    token: &DirectiveToken,
) -> Result<(), DirectiveFault> {
    let is_full = settings.destinations.len() == MONITOR_DESTINATIONS_MAX;
    let known = settings.destinations.iter_mut().find(|known| known.address == destination.address);
    match known {
        Some(known) => known.events = known.events.and(destination.events),
        None if is_full => {
            let text = format!("there can be {MONITOR_DESTINATIONS_MAX} destinations of monitoring");
            return Err(DirectiveFault::at(token, text, "leave this one out".to_owned()));
        }
        None => settings.destinations.push(destination),
    }
    Ok(())
}
