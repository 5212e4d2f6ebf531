//! `frm.all.monitor`: collectors of records about transfers and purges.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use crate::effective::{REPORT_DESTINATIONS_MAX, RecordDestination, ReportDestination, TransferMonitoring};
use crate::values::{TIME_MAX, between};
use std::time::Duration;

/// Interval of identifications, unless the directive names another one.
const INTERVAL: Duration = Duration::from_secs(3600);

/// `frm.all.monitor [ident time] dest [migr] [purge] [stage] host:port [dest …]`.
pub(super) fn records(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let (mut interval, mut destinations) = (INTERVAL, Vec::new());
    let mut token = arguments.need("monitor option")?;
    loop {
        match token.text.as_str() {
            "ident" => interval = arguments.time("monitor ident", between(1, TIME_MAX))?,
            "dest" => destinations.push(destination(arguments)?),
            _ => return Err(arguments.invalid(token, "monitor option")),
        }
        if destinations.len() > REPORT_DESTINATIONS_MAX {
            let text = format!("there can be {REPORT_DESTINATIONS_MAX} destinations of records");
            return Err(DirectiveFault::at(token, text, "leave this one out".to_owned()));
        }
        match arguments.next() {
            Some(next) => token = next,
            None => break,
        }
    }
    if destinations.is_empty() {
        let text = "monitor has no destination".to_owned();
        return Err(DirectiveFault::at(token, text, "add dest stage migr purge host:port".to_owned()));
    }
    let monitoring = TransferMonitoring { interval, destinations };
    draft.effective.residency.monitoring.set(Some(monitoring), arguments.origin());
    Ok(())
}

/// Reads the events and the address behind `dest`.
fn destination(arguments: &mut Arguments<'_>) -> Result<RecordDestination, DirectiveFault> {
    let (mut migrations, mut purges, mut stages) = (false, false, false);
    loop {
        let token = arguments.need("monitor dest")?;
        match token.text.as_str() {
            "migr" => migrations = true,
            "purge" => purges = true,
            "stage" => stages = true,
            text => {
                let address = text.parse().ok();
                // A collector of records is on the network.
                let address = address.filter(|found| matches!(found, ReportDestination::Host { .. }));
                let Some(address) = address else {
                    return Err(arguments.invalid(token, "monitor event or destination"));
                };
                if !(migrations || purges || stages) {
                    let text = format!("nothing is sent to {address}");
                    let help = "name events before it: migr, purge, stage".to_owned();
                    return Err(DirectiveFault::at(token, text, help));
                }
                return Ok(RecordDestination { migrations, purges, stages, address });
            }
        }
    }
}
