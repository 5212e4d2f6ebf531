//! `xrootd.pmark`: reports about flows with their experiment and activity.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::shared::{option_not_yet, option_without_effect};
use crate::effective::{
    ActivityRule, ExperimentRule, FIREFLY_PORT, MarkedDomain, PacketMarking, ReportDestination,
};
use crate::language::DirectiveToken;
use crate::values::{self, TIME_MAX, between};
use std::time::Duration;

/// Shorter intervals of reports mean none.
const ECHO_MIN: Duration = Duration::from_secs(30);
/// Maximum number of rules of one kind.
const RULES_MAX: usize = 1024;
/// The word before the port of clients.
const ORIGIN: &str = "origin";

/// `xrootd.pmark [option…]…`. Lines add to each other.
pub(super) fn packet_marking(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let origin = arguments.origin();
    let mut settings = draft.effective.monitoring.marking.value.clone().unwrap_or_default();
    if arguments.peek().is_none() {
        arguments.need("pmark option")?;
    }
    while let Some(token) = arguments.next() {
        option(token, arguments, &mut settings, draft)?;
    }
    draft.effective.monitoring.marking.set(Some(settings), origin);
    Ok(())
}

fn option(
    token: &DirectiveToken,
    arguments: &mut Arguments<'_>,
    settings: &mut PacketMarking,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    match token.text.as_str() {
        "debug" | "nodebug" | "trace" | "notrace" | "fail" | "nofail" => {
            option_without_effect(arguments, token, draft);
        }
        "domain" => {
            let token = arguments.need("pmark domain")?;
            settings.domain = match token.text.as_str() {
                "any" => MarkedDomain::Any,
                "local" => MarkedDomain::Local,
                "remote" => MarkedDomain::Remote,
                _ => return Err(arguments.invalid(token, "pmark domain")),
            };
        }
        "ffdest" => destinations(arguments, settings, draft)?,
        "ffecho" => {
            let interval: Duration = arguments.time("pmark ffecho", between(0, TIME_MAX))?;
            settings.echo = (interval >= ECHO_MIN).then_some(interval);
        }
        "use" => uses(arguments, settings, draft)?,
        "map2exp" => {
            let rule = experiment_rule(arguments)?;
            let name = arguments.need("pmark experiment")?.text.clone();
            settings.experiments.retain(|(known, _)| *known != rule);
            limit(settings.experiments.len(), token)?;
            settings.experiments.push((rule, name));
        }
        "map2act" => {
            let experiment = arguments.need("pmark experiment")?.text.clone();
            let rule = activity_rule(arguments)?;
            let name = arguments.need("pmark activity")?.text.clone();
            settings.activities.retain(|(of, known, _)| *of != experiment || *known != rule);
            limit(settings.activities.len(), token)?;
            settings.activities.push((experiment, rule, name));
        }
        "defsfile" => registry(arguments, settings, draft)?,
        _ => return Err(arguments.invalid(token, "pmark option")),
    }
    Ok(())
}

fn limit(rules: usize, token: &DirectiveToken) -> Result<(), DirectiveFault> {
    if rules < RULES_MAX {
        return Ok(());
    }
    let what = format!("more than {RULES_MAX} rules of {}", token.text);
    Err(DirectiveFault::at(token, what, "leave some out".to_owned()))
}

/// Reads `host[:port][,origin[:port]]` or `origin[:port]`.
fn destinations(
    arguments: &mut Arguments<'_>,
    settings: &mut PacketMarking,
    draft: &Draft<'_>,
) -> Result<(), DirectiveFault> {
    let token = arguments.need("pmark ffdest")?;
    (settings.collector, settings.origin_port) = (None, None);
    for text in token.text.split(',') {
        let port = match text.strip_prefix(ORIGIN) {
            Some("") => Some(FIREFLY_PORT),
            Some(rest) => match rest.strip_prefix(':') {
                Some(port) => Some(values::port(token, port, 1, draft.source)?),
                None => None,
            },
            None => None,
        };
        if port.is_some() {
            settings.origin_port = port;
            continue;
        }
        let has_port =
            text.rsplit_once(':').is_some_and(|(host, _)| !host.is_empty() && !host.ends_with(':'))
                && !text.ends_with(']');
        let whole = if has_port { text.to_owned() } else { format!("{text}:{FIREFLY_PORT}") };
        let found = whole.parse().ok().filter(|found| matches!(found, ReportDestination::Host { .. }));
        let Some(found) = found.filter(|_| settings.collector.is_none()) else {
            return Err(arguments.invalid(token, "pmark ffdest"));
        };
        settings.collector = Some(found);
    }
    Ok(())
}

/// Reads the words behind `use`, of which one is required.
fn uses(
    arguments: &mut Arguments<'_>,
    settings: &mut PacketMarking,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let mut is_first = true;
    loop {
        match arguments.peek() {
            Some("firefly") => settings.is_silent = false,
            Some("nofirefly") => settings.is_silent = true,
            Some("scitag") => settings.ignores_tags = false,
            Some("noscitag") => settings.ignores_tags = true,
            Some("noflowlabel" | "noflowlabel+ff") => {}
            Some("flowlabel" | "flowlabel+ff") => {
                if let Some(token) = arguments.next() {
                    option_not_yet(arguments, token, draft);
                }
                is_first = false;
                continue;
            }
            _ if is_first => {
                let token = arguments.need("pmark use")?;
                return Err(arguments.invalid(token, "pmark use"));
            }
            _ => return Ok(()),
        }
        is_first = false;
        arguments.next();
    }
}

fn experiment_rule(arguments: &mut Arguments<'_>) -> Result<ExperimentRule, DirectiveFault> {
    let token = arguments.need("pmark map2exp")?;
    Ok(match token.text.as_str() {
        "default" => ExperimentRule::Default,
        "path" => ExperimentRule::Path(arguments.path("pmark map2exp")?),
        "vo" => ExperimentRule::Organization(arguments.need("pmark organization")?.text.clone()),
        _ => return Err(arguments.invalid(token, "pmark experiment determinant")),
    })
}

fn activity_rule(arguments: &mut Arguments<'_>) -> Result<ActivityRule, DirectiveFault> {
    let token = arguments.need("pmark map2act")?;
    Ok(match token.text.as_str() {
        "default" => ActivityRule::Default,
        "role" => ActivityRule::Role(arguments.need("pmark role")?.text.clone()),
        "user" => ActivityRule::User(arguments.need("pmark user")?.text.clone()),
        _ => return Err(arguments.invalid(token, "pmark activity determinant")),
    })
}

/// Reads `[fail|nofail] {/file|{curl|wget} [timeout] url}`. The server downloads nothing.
fn registry(
    arguments: &mut Arguments<'_>,
    settings: &mut PacketMarking,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    settings.needs_registry = false;
    while let Some(word @ ("fail" | "nofail")) = arguments.peek() {
        settings.needs_registry = word == "fail";
        arguments.next();
    }
    let token = arguments.need("pmark defsfile")?;
    if !matches!(token.text.as_str(), "curl" | "wget") {
        settings.registry = Some(values::path(token, "pmark defsfile")?);
        return Ok(());
    }
    settings.registry = None;
    option_not_yet(arguments, token, draft);
    if arguments.peek().is_some_and(|word| !word.contains("://")) {
        arguments.next();
    }
    arguments.need("pmark defsfile")?;
    Ok(())
}
