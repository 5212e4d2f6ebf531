//! The section of HTTP.
//!
//! XRootD 6 has a section of this name with an element for each status, such as `<200>`. No parser of XML
//! accepts such names, so the statuses are classes here.

use http::{COUNTED_METHODS, HttpFigures};
use monitor::{ReportSection, number_group};

/// Returns the section: requests by method, and replies by class of the status.
pub(super) fn http_section(found: &HttpFigures) -> ReportSection {
    let requests = COUNTED_METHODS.iter().zip(&found.requests).map(|(name, classes)| {
        let name = if *name == "other" { "Unknown" } else { name };
        (name.into(), classes.iter().sum::<u64>().into())
    });
    let requests = requests.chain([("Malformed".into(), found.malformed.into())]).collect();
    let of = |class: usize| found.requests.iter().filter_map(|classes| classes.get(class)).sum::<u64>();
    let replies =
        number_group([("s1xx", of(0)), ("s2xx", of(1)), ("s3xx", of(2)), ("s4xx", of(3)), ("s5xx", of(4))]);
    let figures =
        vec![("request".into(), monitor::ReportValue::Group(requests)), ("response".into(), replies)];
    ReportSection::new("http_plugin", figures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use monitor::SummaryReport;

    #[test]
    fn requests_are_sums_over_classes_and_replies_over_methods() {
        let mut found = HttpFigures { malformed: 9, ..HttpFigures::default() };
        found.requests[0] = [0, 5, 0, 2, 0];
        found.requests[1] = [0, 1, 0, 0, 0];
        found.requests[8] = [0, 0, 0, 0, 3];
        let sections = vec![http_section(&found)];
        let text = SummaryReport { sections, ..SummaryReport::default() }.xml();
        for part in [
            "<stats id=\"http_plugin\"><request><GET>7</GET><HEAD>1</HEAD><PUT>0</PUT>",
            "<Unknown>3</Unknown><Malformed>9</Malformed></request>",
            "<response><s1xx>0</s1xx><s2xx>6</s2xx><s3xx>0</s3xx><s4xx>2</s4xx><s5xx>3</s5xx></response>",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
