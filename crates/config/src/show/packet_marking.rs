//! `xrootd.pmark` as text.

use super::lines::time;
use crate::effective::{ActivityRule, ExperimentRule, MarkedDomain, PacketMarking};

/// Returns the arguments of a directive with the same effect.
pub(super) fn arguments(settings: &PacketMarking) -> String {
    let domain = match settings.domain {
        MarkedDomain::Any => "any",
        MarkedDomain::Local => "local",
        MarkedDomain::Remote => "remote",
    };
    let mut words = vec![format!("domain {domain}")];
    let collector = settings.collector.as_ref().map(ToString::to_string);
    let origin = settings.origin_port.map(|port| format!("origin:{port}"));
    let destinations: Vec<_> = collector.into_iter().chain(origin).collect();
    if !destinations.is_empty() {
        words.push(format!("ffdest {}", destinations.join(",")));
    }
    words.extend(settings.echo.as_ref().map(|echo| format!("ffecho {}", time(echo))));
    let no = |is_off: bool| if is_off { "no" } else { "" };
    words.push(format!("use {}firefly {}scitag", no(settings.is_silent), no(settings.ignores_tags)));
    for (rule, name) in &settings.experiments {
        words.push(match rule {
            ExperimentRule::Default => format!("map2exp default {name}"),
            ExperimentRule::Path(path) => format!("map2exp path {path} {name}"),
            ExperimentRule::Organization(vo) => format!("map2exp vo {vo} {name}"),
        });
    }
    for (experiment, rule, name) in &settings.activities {
        words.push(match rule {
            ActivityRule::Default => format!("map2act {experiment} default {name}"),
            ActivityRule::Role(role) => format!("map2act {experiment} role {role} {name}"),
            ActivityRule::User(user) => format!("map2act {experiment} user {user} {name}"),
        });
    }
    let fail = if settings.needs_registry { "fail " } else { "" };
    words.extend(settings.registry.as_ref().map(|file| format!("defsfile {fail}{file}")));
    words.join(" ")
}
