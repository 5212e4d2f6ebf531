//! The values of monitoring as text.

use super::detailed_monitoring;
use super::gstreams;
use super::lines::{EffectiveLines, Reload, time};
use super::packet_marking;
use crate::effective::{MonitoringConfig, SummaryReports};

/// Shows the values.
pub(super) fn show(values: &MonitoringConfig, lines: &mut EffectiveLines) {
    lines.add(Reload::Safe, "xrd.report", &values.reports, |reports| reports.as_ref().map(summary));
    lines.add(Reload::Restart, "xrootd.monitor", &values.detailed, |settings| {
        settings.as_ref().map(detailed_monitoring::arguments)
    });
    let streams = gstreams::arguments(&values.gstreams);
    let show = |arguments: Option<String>| {
        lines.add(Reload::Restart, "xrootd.mongstream", &values.gstreams, |_| arguments)
    };
    match streams.is_empty() {
        true => [None].into_iter().for_each(show),
        false => streams.into_iter().map(Some).for_each(show),
    }
    lines.add(Reload::Restart, "xrootd.pmark", &values.marking, |settings| {
        settings.as_ref().map(packet_marking::arguments)
    });
}

fn summary(reports: &SummaryReports) -> String {
    let destinations: Vec<_> = reports.destinations.iter().map(ToString::to_string).collect();
    let mut text = format!("{} every {} ", destinations.join(","), time(&reports.interval));
    match reports.xml.is_empty() {
        true => text.push_str("off"),
        false => text.push_str(&reports.xml.to_string()),
    }
    if !reports.json.is_empty() {
        text.push_str(&format!(" json {}", reports.json));
    }
    text
}
