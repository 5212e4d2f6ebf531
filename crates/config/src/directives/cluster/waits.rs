//! `cms.delay`, `cms.sched`, `cms.ping`, `cms.fxhold`, `cms.conwait`: waits, selection, cached
//! locations.
//!
//! Options without effect are read and checked too, so that an error in them is reported.

use std::time::Duration;

use crate::directives::arguments::Arguments;
use crate::directives::draft::Draft;
use crate::directives::fault::DirectiveFault;
use crate::directives::shared::{option_without_effect, part_without_effect, without_effect};
use crate::effective::{
    AffinityKind, AffinityPart, ClusterConfig, Limit, OutsideAddress, Quorum, SchedulingAffinity, WaitTime,
};
use crate::language::DirectiveToken;
use crate::report::ProblemKind;
use crate::setting::Origin;
use crate::values::{self, DAY, TIME_MAX, between};

/// Minimum interval of pings in seconds. A shorter one is raised to it, as real daemons do.
const PING_MIN: u64 = 3;

pub(crate) fn delay(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let origin = arguments.origin();
    let mut token = arguments.need("delay option")?;
    loop {
        delay_option(token, arguments, draft, &origin)?;
        match arguments.next() {
            Some(next) => token = next,
            None => return Ok(()),
        }
    }
}

fn delay_option(
    token: &DirectiveToken,
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
    origin: &Origin,
) -> Result<(), DirectiveFault> {
    let name = token.text.as_str();
    let what = format!("delay {name}");
    let origin = origin.clone();
    match name {
        "startup" | "lookup" | "qdl" | "service" | "suspend" | "drop" => {
            let value = arguments.time(&what, between(1, TIME_MAX))?;
            let delay = &mut draft.effective.cluster.delay;
            match name {
                "startup" => {
                    delay.startup.set(value, origin);
                    let why = "clients are served as soon as the quorum is reached";
                    part_without_effect(arguments, token, why, draft);
                }
                "lookup" => delay.lookup.set(value, origin),
                "qdl" => delay.silence.set(Some(value), origin),
                "service" => delay.service.set(value, origin),
                "suspend" => delay.suspend.set(value, origin),
                _ => delay.drop.set(Some(value), origin),
            }
        }
        "hold" => {
            let value = arguments.count(&what, 1, 60_000)?;
            draft.effective.cluster.delay.hold.set(Duration::from_millis(value.into()), origin);
        }
        "servers" => {
            let value = quorum(arguments.need("delay servers value")?)?;
            draft.effective.cluster.delay.quorum.set(value, origin);
        }
        "full" | "overload" => {
            let value = wait(arguments, &what)?;
            let delay = &mut draft.effective.cluster.delay;
            if name == "full" { delay.full.set(value, origin) } else { delay.overload.set(value, origin) }
        }
        "nostage" => {
            let value = arguments.count(&what, 1, 1000)?;
            draft.effective.cluster.delay.stagers.set(value, origin);
        }
        "rw" => {
            let value = arguments.count(&what, 0, 2)?;
            draft.effective.cluster.delay.write_queue.set(u8::try_from(value).unwrap_or(2), origin);
            let why = "write requests are answered as soon as the location is known, like read requests";
            part_without_effect(arguments, token, why, draft);
        }
        "qdn" => {
            let value = arguments.count(&what, 0, 64)?;
            draft.effective.cluster.delay.answers.set(value, origin);
            let why = "a meta manager waits only for the answers it needs";
            part_without_effect(arguments, token, why, draft);
        }
        "discard" | "delnode" | "peer" => spent(name, token, arguments, draft)?,
        _ => draft.unknown_option(arguments, token),
    }
    Ok(())
}

/// Reads an option that is obsolete.
fn spent(
    name: &str,
    token: &DirectiveToken,
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let what = format!("delay {name}");
    let why = match name {
        "discard" => {
            arguments.count(&what, 0, u32::MAX)?;
            "messages carry their own hop count; real daemons ignore this number too"
        }
        "peer" => {
            arguments.time(&what, between(0, TIME_MAX))?;
            "the role peer no longer exists"
        }
        _ => {
            arguments.time(&what, between(0, TIME_MAX))?;
            "a lost node is removed with its slot (drop)"
        }
    };
    part_without_effect(arguments, token, why, draft);
    Ok(())
}

/// Parses a number, or a percentage of the nodes that joined.
fn quorum(token: &DirectiveToken) -> Result<Quorum, DirectiveFault> {
    if token.text.ends_with('%') {
        return values::percent(token, "delay servers").map(Quorum::Percent);
    }
    values::count32(token, "delay servers", 1, 10_000).map(Quorum::Count)
}

/// Reads a time, or `*`.
fn wait(arguments: &mut Arguments<'_>, what: &str) -> Result<WaitTime, DirectiveFault> {
    let token = arguments.need(&format!("{what} value"))?;
    match token.text.as_str() {
        "*" => Ok(WaitTime::ByReports),
        _ => values::time(token, what, between(1, TIME_MAX)).map(WaitTime::Time),
    }
}

pub(crate) fn sched(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let origin = arguments.origin();
    let mut token = arguments.need("sched option")?;
    loop {
        sched_option(token, arguments, draft, &origin)?;
        match arguments.next() {
            Some(next) => token = next,
            None => return Ok(()),
        }
    }
}

fn sched_option(
    token: &DirectiveToken,
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
    origin: &Origin,
) -> Result<(), DirectiveFault> {
    let (name, target) = match token.text.split_once('@') {
        Some((name, target)) => (name, Some(target)),
        None => (token.text.as_str(), None),
    };
    let what = format!("sched {name}");
    let origin = origin.clone();
    match name {
        "cpu" | "io" | "runq" | "mem" | "pag" | "space" => {
            weight(name, percent(arguments, &what)?, draft, origin);
        }
        "fuzz" | "maxload" | "gshr" | "gsdflt" => {
            let value = percent(arguments, &what)?;
            let sched = &mut draft.effective.cluster.sched;
            match name {
                "fuzz" => sched.fuzz.set(value, origin),
                "maxload" => sched.load_max.set(Some(value), origin),
                "gshr" => sched.share.set(value, origin),
                _ => sched.share_default.set(value, origin),
            }
        }
        "refreset" => {
            let value = arguments.time(&what, between(1, TIME_MAX))?;
            draft.effective.cluster.sched.reset.set(value, origin);
        }
        "affinity" => {
            let value = affinity(arguments)?;
            draft.effective.cluster.sched.affinity.set(value, origin);
        }
        "affpath" => {
            let value = affinity_part(arguments)?;
            draft.effective.cluster.sched.affinity_part.set(value, origin);
        }
        "tryhname" => {
            let value = arguments.count(&what, 0, 1)? == 1;
            draft.effective.cluster.sched.try_names.set(value, origin);
            let why = "tried servers are identified by the host name and the address of the redirect; no name is looked up";
            part_without_effect(arguments, token, why, draft);
        }
        "maxretries" => {
            let value = arguments.need("sched maxretries value")?;
            let (number, target) = value.text.split_once('@').unwrap_or((&value.text, ""));
            let number = DirectiveToken { text: number.to_owned(), position: value.position.clone() };
            let limit = values::count32(&number, &what, 0, 10_000)?;
            let outside = outside(value, Some(target), draft)?;
            draft.effective.cluster.sched.tried_max.set(Some(Limit { limit, outside }), origin);
        }
        "nomultisrc" => {
            let outside = outside(token, target, draft)?;
            draft.effective.cluster.sched.one_source.set(Some(Limit { limit: (), outside }), origin);
        }
        _ => draft.unknown_option(arguments, token),
    }
    Ok(())
}

/// Sets the weight of one kind of load.
fn weight(name: &str, value: u8, draft: &mut Draft<'_>, origin: Origin) {
    let sched = &mut draft.effective.cluster.sched;
    let mut weights = *sched.weights;
    match name {
        "cpu" => weights.cpu = value,
        "io" => weights.io = value,
        "runq" => weights.runq = value,
        "mem" => weights.mem = value,
        "pag" => weights.pag = value,
        _ => weights.space = value,
    }
    sched.weights.set(weights, origin);
}

fn percent(arguments: &mut Arguments<'_>, what: &str) -> Result<u8, DirectiveFault> {
    values::percent(arguments.need(&format!("{what} value"))?, what)
}

/// `[default] {none|weak|strong|strict|randomized}`.
fn affinity(arguments: &mut Arguments<'_>) -> Result<SchedulingAffinity, DirectiveFault> {
    let by_client = arguments.take("default").is_some();
    let token = arguments.need("sched affinity value")?;
    let kinds = [AffinityKind::None, AffinityKind::Weak, AffinityKind::Strong, AffinityKind::Strict];
    if token.text == "randomized" {
        return Ok(SchedulingAffinity { kind: AffinityKind::Strong, by_client, randomized: true });
    }
    match kinds.into_iter().find(|kind| kind.name() == token.text) {
        Some(kind) => Ok(SchedulingAffinity { kind, by_client, randomized: false }),
        None => Err(arguments.invalid(token, "sched affinity")),
    }
}

/// `all`, `first n`, `last n`.
fn affinity_part(arguments: &mut Arguments<'_>) -> Result<AffinityPart, DirectiveFault> {
    let token = arguments.need("sched affpath value")?;
    match token.text.as_str() {
        "all" => Ok(AffinityPart::All),
        "first" => arguments.count("sched affpath first", 1, 1000).map(AffinityPart::First),
        "last" => arguments.count("sched affpath last", 1, 1000).map(AffinityPart::Last),
        _ => Err(arguments.invalid(token, "sched affpath")),
    }
}

/// Parses `host:port` after an `@`.
fn outside(
    token: &DirectiveToken,
    text: Option<&str>,
    draft: &Draft<'_>,
) -> Result<Option<OutsideAddress>, DirectiveFault> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let found = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    let (host, port) = found.ok_or_else(|| {
        DirectiveFault::at(token, format!("invalid sched redirect target '{text}'"), "allowed: host:port")
    })?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok(Some(OutsideAddress { host, port: values::port(token, port, 1, draft.source)? }))
}

/// `time [log n] [usage n]`.
pub(crate) fn ping(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("ping value")?;
    let mut value = values::time(token, "ping", between(1, DAY))?;
    if value.as_secs() < PING_MIN {
        let what = format!("ping {} is raised to {PING_MIN}s", token.text);
        draft.note(ProblemKind::Doubtful, token, what, "at least 3s");
        value = Duration::from_secs(PING_MIN);
    }
    draft.effective.cluster.ping.set(value, arguments.origin());
    while let Some(token) = arguments.next() {
        match token.text.as_str() {
            "log" => {
                arguments.count("ping log", 0, u32::MAX)?;
                option_without_effect(arguments, token, draft);
            }
            "usage" => {
                let value = arguments.count("ping usage", 0, 1_000_000)?;
                draft.effective.cluster.ping_usage.set(value, arguments.origin());
            }
            _ => draft.unknown_option(arguments, token),
        }
    }
    Ok(())
}

/// `[noloc time] [time]`.
pub(crate) fn location_hold(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    if arguments.peek().is_none() {
        arguments.need("fxhold value")?;
    }
    if arguments.take("noloc").is_some() {
        let value = arguments.time("fxhold noloc", between(60, TIME_MAX))?;
        draft.effective.cluster.nowhere_hold.set(Some(value), arguments.origin());
    }
    if arguments.peek().is_some() {
        let value = arguments.time("fxhold", between(60, TIME_MAX))?;
        draft.effective.cluster.location_hold.set(value, arguments.origin());
    }
    draft.finish(arguments);
    Ok(())
}

pub(crate) fn contact_wait(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let value = arguments.time("conwait", between(1, TIME_MAX))?;
    draft.finish(arguments);
    draft.effective.cluster.contact_wait.set(value, arguments.origin());
    without_effect(arguments, draft)
}

/// Takes over the cluster values that apply as xrootd reads them; all others apply as cmsd reads
/// them.
pub(crate) fn read_by_xrootd(xrootd: &ClusterConfig, cmsd: &mut ClusterConfig) {
    cmsd.contact_wait = xrootd.contact_wait.clone();
    cmsd.forwarding = xrootd.forwarding.clone();
    // A key that only xrootd reads still restricts the cluster port.
    if cmsd.key.value.is_none() {
        cmsd.key = xrootd.key.clone();
    }
    for (list, other) in [
        (&mut cmsd.managers, &xrootd.managers),
        (&mut cmsd.proxy_managers, &xrootd.proxy_managers),
        (&mut cmsd.meta_managers, &xrootd.meta_managers),
    ] {
        for manager in list {
            let same = other.iter().find(|m| m.host == manager.host && m.port == manager.port);
            manager.value.spread = same.is_some_and(|same| same.spread);
        }
    }
}
