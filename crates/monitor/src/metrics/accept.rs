//! The choice of a format by the header `Accept`.

/// The media type of OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text";

/// The media type of the format of Prometheus.
const PLAIN: &str = "text/plain";

/// The version of OpenMetrics that is written.
const VERSION: &str = "1.0.0";

/// A media type that a client accepts, with its weight in thousandths.
struct AcceptedType<'a> {
    name: &'a str,
    version: Option<&'a str>,
    weight: u32,
}

/// Reports whether a client names OpenMetrics 1.0 and does not prefer `text/plain`.
pub(super) fn prefers_open_metrics(header: &str) -> bool {
    let weight = |wanted: &str, version: Option<&str>| {
        let is = |accepted: &AcceptedType<'_>| {
            let is_version = version.is_none_or(|version| accepted.version.is_none_or(|v| v == version));
            accepted.name.eq_ignore_ascii_case(wanted) && is_version
        };
        header.split(',').map(parse).filter(is).map(|accepted| accepted.weight).max().unwrap_or_default()
    };
    let open = weight(OPEN_METRICS, Some(VERSION));
    open > 0 && open >= weight(PLAIN, None)
}

fn parse(part: &str) -> AcceptedType<'_> {
    let mut pieces = part.split(';').map(str::trim);
    let mut accepted = AcceptedType { name: pieces.next().unwrap_or_default(), version: None, weight: 1000 };
    for piece in pieces {
        let Some((key, value)) = piece.split_once('=') else { continue };
        let value = value.trim().trim_matches('"');
        if key.trim().eq_ignore_ascii_case("version") {
            accepted.version = Some(value);
        } else if key.trim().eq_ignore_ascii_case("q") {
            accepted.weight = weight(value);
        }
    }
    accepted
}

/// Returns a weight in thousandths; 0 for one that is malformed.
fn weight(text: &str) -> u32 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = fraction.len() <= 3 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    match (whole, is_digits) {
        ("1", true) if fraction.bytes().all(|byte| byte == b'0') => 1000,
        ("0", true) => format!("{fraction:0<3}").parse().unwrap_or_default(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::prefers_open_metrics;
    use proptest::prelude::*;

    #[test]
    fn collectors_get_the_format_that_they_prefer() {
        for header in [
            "application/openmetrics-text",
            "Application/OpenMetrics-Text; Version=\"1.0.0\"",
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;q=0.5",
        ] {
            assert!(prefers_open_metrics(header), "{header}");
        }
        for header in [
            "",
            "*/*",
            "text/plain",
            "text/html,application/xhtml+xml,*/*;q=0.8",
            "application/openmetrics-text;version=0.0.1",
            "application/openmetrics-text;version=2.0.0",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=0.0",
            "application/openmetrics-text;q=2",
            "application/openmetrics-text;q=-1",
            "application/openmetrics-text;q=0.2,text/plain;q=0.3",
            "application/openmetrics-textual",
        ] {
            assert!(!prefers_open_metrics(header), "{header}");
        }
    }

    proptest! {
        #[test]
        fn any_header_is_decided(header in "[a-z/;=,.0-9\" *é]{0,60}") {
            prefers_open_metrics(&header);
        }
    }
}
