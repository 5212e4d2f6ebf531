//! The values of third-party copies as text.

use super::lines::time;
use crate::effective::{COPY_STREAMS_MAX, CopyScan, CopySource, CopySources, ThirdPartyCopy};

/// Shows all values as one directive. The program is last because all words after it are its
/// arguments.
pub(super) fn show(value: &ThirdPartyCopy) -> String {
    let mut words = vec![format!("ttl {} {}", time(&value.ttl), time(&value.ttl_max))];
    words.push(format!("xfr {}", value.jobs_max));
    let most =
        if value.streams_max == COPY_STREAMS_MAX { String::new() } else { format!(",{}", value.streams_max) };
    words.push(format!("streams {}{most}", value.streams));
    words.extend(value.checksum.map(|kind| format!("cksum {}", kind.name())));
    words.extend(value.restrict.iter().map(|path| format!("restrict {path}")));
    for rule in &value.allow {
        let host = rule.host.as_ref().map(|host| format!(" host {}", host.as_str())).unwrap_or_default();
        let rest: String =
            rule.attributes.iter().map(|(kind, name)| format!(" {} {name}", kind.word())).collect();
        words.push(format!("allow{host}{rest}"));
    }
    for rule in &value.require {
        let who = match (rule.client, rule.destination) {
            (true, false) => "client",
            (false, true) => "dest",
            _ => "all",
        };
        words.push(format!("require {who} {}{}", rule.protocol, if rule.encrypted { "+" } else { "" }));
    }
    for rule in &value.redirects {
        let which = match (rule.delegated, rule.undelegated) {
            (true, false) => "delegated ",
            (false, true) => "undelegated ",
            _ => "",
        };
        let cgi = if rule.cgi.is_empty() { String::new() } else { format!(" ?{}", rule.cgi) };
        words.push(format!("redirect {which}{}:{}{cgi}", rule.target.host, rule.target.port));
    }
    if let Some(credentials) = &value.credentials {
        let optional = if credentials.is_optional { "?" } else { "" };
        words.push(format!("fcreds {optional}gsi ={}", credentials.variable));
    }
    words.extend(value.credentials_directory.as_ref().map(|path| format!("fcpath {}", path.display())));
    match value.scan {
        CopyScan::All => {}
        CopyScan::Stderr => words.push("scan stderr".to_owned()),
        CopyScan::Stdout => words.push("scan stdout".to_owned()),
    }
    for (on, word) in [(value.echo, "echo"), (value.log_success, "logok"), (value.object_ids, "oids")] {
        words.extend(on.then(|| word.to_owned()));
    }
    if let Some(program) = &value.program {
        words.push(format!("pgm {}", program.path.display()));
        words.extend(program.arguments.iter().cloned());
    }
    words.join(" ")
}

/// Shows one list after the other. Returns `None` if both are empty.
pub(super) fn show_sources(value: &CopySources) -> Option<String> {
    let words = |list: &[CopySource]| {
        let words: Vec<&str> = list
            .iter()
            .map(|source| match source {
                CopySource::Loopback => "loopback",
                CopySource::LinkLocal => "linklocal",
                CopySource::Private => "private",
                CopySource::Host(pattern) => pattern.as_str(),
            })
            .collect();
        words.join(" ")
    };
    let lists: Vec<String> = [("allow", &value.allow), ("deny", &value.deny)]
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(name, list)| format!("{name} {}", words(list)))
        .collect();
    (!lists.is_empty()).then(|| lists.join("; "))
}
