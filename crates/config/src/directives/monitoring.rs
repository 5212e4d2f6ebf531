//! Directives of monitoring.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use crate::effective::{
    REPORT_DESTINATIONS_MAX, REPORT_INTERVAL, ReportDestination, ReportPart, ReportParts, SummaryReports,
};
use crate::language::DirectiveToken;
use crate::values::{TIME_MAX, between};

/// `xrd.report dest[,dest2] [every time] [json] [off] [[-]option…]`.
pub(super) fn report(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let origin = arguments.origin();
    let destinations = destinations(arguments.need("report destination")?)?;
    let mut interval = REPORT_INTERVAL;
    let all = ReportParts::all();
    let of_json = ReportPart::OF_JSON.into_iter().fold(ReportParts::NONE, ReportParts::with);
    // Options after `json` are those of the report in JSON.
    let (mut xml, mut json) = (ReportOptions::default(), None);
    while let Some(token) = arguments.next() {
        match token.text.as_str() {
            "every" => interval = arguments.time("report every", between(1, TIME_MAX))?,
            "json" => drop(json.get_or_insert_with(ReportOptions::default)),
            "off" => {
                let options = json.as_mut().unwrap_or(&mut xml);
                *options = ReportOptions { is_off: true, ..ReportOptions::default() };
            }
            // Counters are always read without stopping their threads.
            "sync" | "syncwp" | "-sync" | "-syncwp" => {}
            text => {
                let (options, allowed) = match &mut json {
                    Some(options) => (options, of_json),
                    None => (&mut xml, all),
                };
                if !options.apply(text, allowed) {
                    return Err(arguments.invalid(token, "report option"));
                }
            }
        }
    }
    let xml = xml.parts(all, all.without(ReportPart::Info));
    let json = json.map(|options| options.parts(of_json, of_json)).unwrap_or_default();
    let value = SummaryReports { destinations, interval, xml, json };
    draft.effective.monitoring.reports.set(Some(value), origin);
    Ok(())
}

/// The options of one kind of report.
#[derive(Default)]
struct ReportOptions {
    parts: ReportParts,
    /// There was an option about parts.
    is_chosen: bool,
    is_off: bool,
}

impl ReportOptions {
    /// Applies an option. Returns `false` if it is unknown or not one of such reports.
    fn apply(&mut self, text: &str, allowed: ReportParts) -> bool {
        let (name, adds) = text.strip_prefix('-').map_or((text, true), |name| (name, false));
        let parts = match ReportPart::named(name) {
            _ if name == "all" => allowed,
            Some(part) if allowed.has(part) => ReportParts::NONE.with(part),
            _ => return false,
        };
        for (_, part) in ReportPart::ALL.iter().filter(|(_, part)| parts.has(*part)) {
            self.parts = if adds { self.parts.with(*part) } else { self.parts.without(*part) };
        }
        (self.is_chosen, self.is_off) = (true, false);
        true
    }

    /// Returns the parts: `all` without options, `others` if the options leave none.
    fn parts(&self, all: ReportParts, others: ReportParts) -> ReportParts {
        match (self.is_off, self.is_chosen, self.parts.is_empty()) {
            (true, ..) => ReportParts::NONE,
            (_, false, _) => all,
            (_, true, true) => others,
            (_, true, false) => self.parts,
        }
    }
}

fn destinations(token: &DirectiveToken) -> Result<Vec<ReportDestination>, DirectiveFault> {
    let mut found: Vec<ReportDestination> = Vec::new();
    for text in token.text.split(',') {
        let destination = text.parse().map_err(|_| {
            let text = format!("invalid report destination '{text}'");
            DirectiveFault::at(token, text, "allowed: host:port, or the path of a datagram socket".to_owned())
        })?;
        if !found.contains(&destination) {
            found.push(destination);
        }
    }
    if found.len() > REPORT_DESTINATIONS_MAX {
        let text =
            format!("{} destinations of reports, but there can be {REPORT_DESTINATIONS_MAX}", found.len());
        return Err(DirectiveFault::at(token, text, "leave some out".to_owned()));
    }
    Ok(found)
}
