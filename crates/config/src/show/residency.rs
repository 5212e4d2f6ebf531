//! The values of staging as text.

use super::lines::{EffectiveLines, Reload, time};
use crate::effective::{
    CopyProgram, FreeSpaceLimit, NameSpaceDaemon, PurgeProgram, PurgeRule, ResidencyConfig, StageForm,
    StageProgram, TransferMonitoring,
};
use crate::values::show_size;

/// Shows the values. They need a restart, because the queue is opened at the start.
pub(super) fn show(values: &ResidencyConfig, lines: &mut EffectiveLines) {
    let reads_lines = if values.catalog_reads_lines { "|" } else { "" };
    let program = |program: &Option<CopyProgram>| {
        program.as_ref().map(|program| format!("{reads_lines}{}", command(program)))
    };
    lines.add(Reload::Restart, "oss.remoteroot", &values.remote_root, Clone::clone);
    lines.add(Reload::Restart, "oss.rsscmd", &values.catalog, program);
    lines.restart("oss.xfr", &values.deny, |deny| format!("deny {}", time(deny)));
    lines.add(Reload::Restart, "oss.xfr", &values.stage_threads, |threads| threads.map(|n| n.to_string()));
    let creates = if values.stage_creates { "creates " } else { "" };
    let form = match values.stage_form {
        StageForm::PerFile => "",
        StageForm::Reporting => "async |",
        StageForm::Silent => "|",
    };
    // One of XRootD's agents stands for the queue of this server.
    let agent = values.stage_creates.then(|| "creates |frm_xfragent".to_owned());
    lines.add(Reload::Restart, "oss.stagecmd", &values.stage_program, |program| match program {
        Some(program) => Some(format!("{creates}{form}{}", command(program))),
        None => agent,
    });
    lines.add(Reload::Restart, "oss.stagemsg", &values.stage_message, Clone::clone);
    lines.add(Reload::Restart, "frm.xfr.copycmd", &values.from_path, |program| stage("in", program.as_ref()));
    lines.add(Reload::Restart, "frm.xfr.copycmd", &values.from_url, |program| {
        stage("in url", program.as_ref())
    });
    lines.add(Reload::Restart, "frm.xfr.copycmd", &values.to_path, |program| stage("out", program.as_ref()));
    lines.add(Reload::Restart, "frm.xfr.copycmd", &values.to_url, |program| {
        stage("out url", program.as_ref())
    });
    lines.restart("frm.xfr.migr.idlehold", &values.migration_idle, time);
    lines.restart("frm.xfr.migr.waittime", &values.migration_interval, time);
    lines.restart("frm.xfr.copymax", &values.slots, |slots| {
        format!("split {} {}", slots.inward, slots.outward)
    });
    lines.restart("frm.all.cnsd", &values.name_space, |value| {
        let daemon = match value.daemon {
            NameSpaceDaemon::Optional => "auto",
            NameSpaceDaemon::Ignored => "ignore",
            NameSpaceDaemon::Required => "require",
        };
        let directory = value.directory.as_ref().map(|path| format!(" apath {}", path.display()));
        format!("{daemon}{}", directory.unwrap_or_default())
    });
    lines.restart("xrootd.prep", &values.prepare_keep, |keep| format!("keep {}", time(keep)));
    lines.restart("scalla.stageshare", &values.share, |share| {
        let copies = share.copies.map_or_else(|| "all".to_owned(), |copies| copies.to_string());
        format!("copies {copies} queued {}", share.places)
    });
    lines.add(Reload::Restart, "frm.xfr.qcheck", &values.directory, |path| {
        path.as_ref().map(|path| path.display().to_string())
    });
}

/// Shows the values of purges.
pub(super) fn show_purge(values: &ResidencyConfig, lines: &mut EffectiveLines) {
    // A policy can ask the program only after it.
    lines.add(Reload::Restart, "frm.purge.polprog", &values.purge_program, |program| {
        let PurgeProgram { command: program, variables } = program.as_ref()?;
        Some(variables.iter().map(|name| format!("{name} ")).collect::<String>() + "|" + &command(program))
    });
    lines.restart("frm.purge.policy", &values.purge, |rule| purge_rule("*", rule));
    for (space, rule) in &values.purge_spaces {
        lines.restart("frm.purge.policy", rule, |rule| purge_rule(space, rule));
    }
    lines.restart("frm.purge.waittime", &values.purge_interval, time);
    lines
        .add(Reload::Restart, "frm.purge.dirhold", &values.purge_directories, |hold| hold.as_ref().map(time));
    lines.add(Reload::Restart, "frm.all.monitor", &values.monitoring, |monitoring| {
        let TransferMonitoring { interval, destinations } = monitoring.as_ref()?;
        let mut text = format!("ident {}", time(interval));
        for destination in destinations {
            text.push_str(&format!(" dest {destination}"));
        }
        Some(text)
    });
}

fn purge_rule(space: &str, rule: &PurgeRule) -> String {
    let Some((low, high)) = rule.free else { return format!("{space} nopurge") };
    let limit = |limit| match limit {
        FreeSpaceLimit::Percent(percent) => format!("{percent}%"),
        FreeSpaceLimit::Bytes(bytes) => show_size(bytes),
    };
    let asks = if rule.asks_program { " polprog" } else { "" };
    format!("{space} {} {} hold {}{asks}", limit(low), limit(high), time(&rule.hold))
}

fn stage(kind: &str, program: Option<&StageProgram>) -> Option<String> {
    let StageProgram { command: program, timeout, creates_file } = program?;
    let creates = if *creates_file { " noalloc" } else { "" };
    let timeout = timeout.map(|limit| format!(" timeout {}", time(&limit))).unwrap_or_default();
    Some(format!("{kind}{creates}{timeout} {}", command(program)))
}

fn command(program: &CopyProgram) -> String {
    let path = program.path.display().to_string();
    std::iter::once(&path).chain(&program.arguments).map(String::as_str).collect::<Vec<_>>().join(" ")
}
