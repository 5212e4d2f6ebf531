//! `xrootd.mongstream`: streams of JSON records.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::missing::PLUG_IN_STREAMS;
use crate::effective::{
    GSTREAMS, GStream, GStreamDestination, GStreamForm, GStreamHeader, GStreamSettings, ReportDestination,
};
use crate::values::{TIME_MAX, between};

/// Limits of the size of a packet.
const PACKET_BYTES_MIN: u64 = 1024;
const PACKET_BYTES_MAX: u64 = 65_535;

/// `xrootd.mongstream {all|stream…} use [flush time] [maxlen size] [send …]`.
pub(super) fn gstreams(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let origin = arguments.origin();
    let streams = streams(arguments, draft)?;
    if arguments.peek().is_none() {
        arguments.need("mongstream option")?;
    }
    let mut settings = GStreamSettings::default();
    while let Some(token) = arguments.next() {
        match token.text.as_str() {
            "flush" => settings.flush = Some(arguments.time("mongstream flush", between(1, TIME_MAX))?),
            "maxlen" => {
                let range = between(PACKET_BYTES_MIN, PACKET_BYTES_MAX);
                let bytes = arguments.size("mongstream maxlen", range)?;
                settings.packet_bytes_max = u32::try_from(bytes).ok();
            }
            "send" => settings.destination = Some(destination(arguments)?),
            _ => return Err(arguments.invalid(token, "mongstream option")),
        }
    }
    let mut table = draft.effective.monitoring.gstreams.value.clone();
    for stream in streams {
        table.set(stream, settings.clone());
    }
    draft.effective.monitoring.gstreams.set(table, origin);
    Ok(())
}

/// Reads the names of streams and `use`.
fn streams(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<Vec<GStream>, DirectiveFault> {
    let mut found = Vec::with_capacity(GSTREAMS);
    loop {
        let token = arguments.need("mongstream 'use'")?;
        let name = token.text.as_str();
        if name == "use" && !found.is_empty() {
            return Ok(found);
        }
        if name.eq_ignore_ascii_case("all") {
            // The stream of the storage is too much for `all`.
            let all = GStream::ALL.iter().map(|(_, stream)| *stream);
            found.extend(all.filter(|stream| *stream != GStream::Storage));
            continue;
        }
        let known = GStream::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let Some((name, stream)) = known else { return Err(arguments.invalid(token, "mongstream stream")) };
        if !stream.is_in_force() {
            draft.not_yet(token, format!("mongstream {name}"), Some(PLUG_IN_STREAMS), None);
        }
        found.push(*stream);
    }
}

/// Reads the words after `send`.
fn destination(arguments: &mut Arguments<'_>) -> Result<GStreamDestination, DirectiveFault> {
    let token = arguments.need("mongstream send format")?;
    let form = match token.text.as_str() {
        "json" => GStreamForm::Json,
        "cgi" => GStreamForm::Cgi,
        "nohdr" => GStreamForm::Bare,
        _ => return Err(arguments.invalid(token, "mongstream send format")),
    };
    let (mut header, mut is_identified) = (GStreamHeader::Default, form != GStreamForm::Bare);
    if form != GStreamForm::Bare {
        let named = |text: &str| GStreamHeader::ALL.iter().find(|(name, _)| *name == text);
        if let Some((_, found)) = arguments.peek().and_then(named) {
            header = *found;
            arguments.next();
        }
        is_identified = arguments.take("noident").is_none();
    }
    let token = arguments.need("mongstream send endpoint")?;
    let address = token.text.parse().ok();
    // A collector of these streams is on the network.
    let address = address.filter(|found| matches!(found, ReportDestination::Host { .. }));
    let Some(address) = address else { return Err(arguments.invalid(token, "mongstream send endpoint")) };
    Ok(GStreamDestination { form, header, is_identified, address })
}
