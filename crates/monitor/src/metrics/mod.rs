//! [`MetricsText`]: metrics in the text formats of Prometheus (0.0.4) and of OpenMetrics (1.0), and as bare samples.
//!
//! Names of counters are given without `_total`. Each family is written once, because both formats
//! forbid a second one with the same name.

mod accept;

use base::{LATENCY_BOUNDS_MICROS, Latencies};
use std::fmt::{self, Write};
use std::time::Duration;

/// A text format of metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricsFormat {
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The samples of Prometheus alone, for the dashboard: without help and types, and without buckets that
    /// are neither the bounds of times nor have times.
    Samples,
}

impl MetricsFormat {
    /// Returns the format for a client with this header `Accept`: OpenMetrics if it is named and not less
    /// welcome than `text/plain`.
    pub fn accepted(header: &str) -> Self {
        if accept::prefers_open_metrics(header) { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Returns the value of the header `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::Samples => "text/plain; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The kind of a family of metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// A number that only grows, until the server restarts.
    Counter,
    /// A number that grows and shrinks.
    Gauge,
    /// Labels that describe the server. The value is always 1.
    Info,
    /// Times in buckets. Samples are written by [`MetricFamily::histogram`].
    Histogram,
}

/// A value of a metric.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum MetricValue {
    /// A whole number.
    Whole(u64),
    /// A number with a fraction.
    Fraction(f64),
}

impl From<u64> for MetricValue {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for MetricValue {
    fn from(value: f64) -> Self {
        Self::Fraction(value)
    }
}

impl fmt::Display for MetricValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(value) => value.fmt(f),
            Self::Fraction(value) => value.fmt(f),
        }
    }
}

/// The units that a name of OpenMetrics ends with.
const UNITS: [&str; 2] = ["bytes", "seconds"];

/// A text with metrics.
#[derive(Debug)]
pub struct MetricsText {
    format: MetricsFormat,
    text: String,
}

// Writing to a string cannot fail.
impl MetricsText {
    /// Returns a text without metrics.
    pub fn new(format: MetricsFormat) -> Self {
        Self { format, text: String::new() }
    }

    /// Begins a family. `name` is without `_total` and `_info`.
    pub fn family(&mut self, kind: MetricKind, name: &str, help: &str) -> MetricFamily<'_> {
        let (word, suffix) = match (kind, self.format) {
            (MetricKind::Counter, _) => ("counter", "_total"),
            (MetricKind::Gauge, _) => ("gauge", ""),
            (MetricKind::Histogram, _) => ("histogram", ""),
            (MetricKind::Info, MetricsFormat::OpenMetrics) => ("info", "_info"),
            (MetricKind::Info, _) => ("gauge", "_info"),
        };
        let sample = format!("{name}{suffix}");
        let is_bare = self.is_bare();
        if !is_bare {
            self.head(name, &sample, word, help);
        }
        MetricFamily { text: &mut self.text, sample, is_bare }
    }

    fn head(&mut self, name: &str, sample: &str, word: &str, help: &str) {
        let is_open = self.format == MetricsFormat::OpenMetrics;
        let family = if is_open { name } else { sample };
        let _ = writeln!(self.text, "# HELP {family} {help}");
        let _ = writeln!(self.text, "# TYPE {family} {word}");
        let unit = UNITS.iter().find(|unit| name.strip_suffix(*unit).is_some_and(|rest| rest.ends_with('_')));
        if let Some(unit) = unit.filter(|_| is_open) {
            let _ = writeln!(self.text, "# UNIT {family} {unit}");
        }
    }

    /// Reports whether the text has samples alone.
    pub fn is_bare(&self) -> bool {
        self.format == MetricsFormat::Samples
    }

    /// Writes a counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Into<MetricValue>) {
        self.family(MetricKind::Counter, name, help).sample(&[], value);
    }

    /// Writes a gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Into<MetricValue>) {
        self.family(MetricKind::Gauge, name, help).sample(&[], value);
    }

    /// Returns the complete text.
    pub fn finish(mut self) -> String {
        if self.format == MetricsFormat::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// A family of metrics whose samples are being written.
#[derive(Debug)]
pub struct MetricFamily<'a> {
    text: &'a mut String,
    sample: String,
    is_bare: bool,
}

impl MetricFamily<'_> {
    /// Writes a sample. Two samples must not have the same labels.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Into<MetricValue>) {
        self.line("", labels, value.into());
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], value: MetricValue) {
        self.text.push_str(&self.sample);
        self.text.push_str(suffix);
        for (index, (name, value)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{name}=\"", if index == 0 { '{' } else { ',' });
            escape(self.text, value);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// Writes the samples of a histogram of times.
    pub fn histogram(&mut self, labels: [(&str, &str); 2], times: &Latencies) {
        let [first, second] = labels;
        let bounds = LATENCY_BOUNDS_MICROS.iter().map(|bound| seconds_of(*bound));
        let bounds = bounds.chain(std::iter::once("+Inf".to_owned()));
        let mut count = 0;
        for (index, (bound, number)) in bounds.zip(times.buckets).enumerate() {
            count += number;
            // The bound before a bucket with times is that of its shortest ones.
            let next = times.buckets.get(index + 1).copied().unwrap_or_default();
            if number > 0 || next > 0 || !self.is_bare {
                self.line("_bucket", &[first, second, ("le", &bound)], count.into());
            }
        }
        let seconds = Duration::from_nanos(times.nanos).as_secs_f64();
        self.line("_sum", &[first, second], seconds.into());
        // The number of the last bucket, because another time can have been added meanwhile.
        self.line("_count", &[first, second], count.into());
    }

    /// Writes a sample for each value of one label.
    pub fn each<const N: usize>(&mut self, label: &str, values: [(&str, u64); N]) {
        for (value, number) in values {
            self.sample(&[(label, value)], number);
        }
    }
}

/// Returns the bound of a bucket as a decimal number of seconds. OpenMetrics requires a point, and both formats
/// then have the same series.
fn seconds_of(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let short = text.trim_end_matches('0');
    if short.ends_with('.') { format!("{short}0") } else { short.to_owned() }
}

/// Appends the value of a label.
fn escape(text: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(format: MetricsFormat) -> String {
        let mut text = MetricsText::new(format);
        text.family(MetricKind::Info, "a_build", "The version.").sample(&[("version", "1")], 1);
        text.family(MetricKind::Counter, "a_bytes", "Bytes.")
            .each("direction", [("rx", 1), ("tx", u64::MAX)]);
        text.gauge("a_age_seconds", "Age.", 0.25);
        text.family(MetricKind::Gauge, "a_megabytes", "Space.").sample(&[("p", "\\a\"b\nc"), ("q", "é")], 3);
        text.finish()
    }

    #[test]
    fn prometheus_has_the_suffix_of_counters_in_the_name_of_the_family() {
        assert_eq!(
            text(MetricsFormat::Prometheus),
            "# HELP a_build_info The version.\n# TYPE a_build_info gauge\na_build_info{version=\"1\"} 1\n\
             # HELP a_bytes_total Bytes.\n# TYPE a_bytes_total counter\na_bytes_total{direction=\"rx\"} 1\n\
             a_bytes_total{direction=\"tx\"} 18446744073709551615\n\
             # HELP a_age_seconds Age.\n# TYPE a_age_seconds gauge\na_age_seconds 0.25\n\
             # HELP a_megabytes Space.\n# TYPE a_megabytes gauge\na_megabytes{p=\"\\\\a\\\"b\\nc\",q=\"é\"} 3\n"
        );
    }

    #[test]
    fn histograms_have_cumulative_buckets_a_sum_and_a_number() {
        let mut times = Latencies { nanos: 61_500_000_000, ..Latencies::default() };
        (times.buckets[0], times.buckets[15], times.buckets[21]) = (2, 1, 1);
        let mut text = MetricsText::new(MetricsFormat::OpenMetrics);
        let labels = [("operation", "open"), ("protocol", "xroot")];
        text.family(MetricKind::Histogram, "a_request_seconds", "Times.").histogram(labels, &times);
        let text = text.finish();
        let head = "# HELP a_request_seconds Times.\n# TYPE a_request_seconds histogram\n# UNIT a_request_seconds seconds\n\
                    a_request_seconds_bucket{operation=\"open\",protocol=\"xroot\",le=\"0.00001\"} 2\n\
                    a_request_seconds_bucket{operation=\"open\",protocol=\"xroot\",le=\"0.000025\"} 2\n";
        assert!(text.starts_with(head), "{text}");
        for line in ["le=\"0.5\"} 2", "le=\"1.0\"} 3", "le=\"2.5\"} 3", "le=\"60.0\"} 3", "le=\"+Inf\"} 4"] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let end = "a_request_seconds_sum{operation=\"open\",protocol=\"xroot\"} 61.5\n\
                   a_request_seconds_count{operation=\"open\",protocol=\"xroot\"} 4\n# EOF\n";
        assert!(text.ends_with(end), "{text}");
        assert_eq!(text.lines().count(), 3 + 22 + 2 + 1);
    }

    #[test]
    fn bare_samples_have_no_help_and_no_buckets_without_times() {
        assert_eq!(
            text(MetricsFormat::Samples),
            "a_build_info{version=\"1\"} 1\na_bytes_total{direction=\"rx\"} 1\n\
             a_bytes_total{direction=\"tx\"} 18446744073709551615\na_age_seconds 0.25\n\
             a_megabytes{p=\"\\\\a\\\"b\\nc\",q=\"é\"} 3\n"
        );
        let mut times = Latencies { nanos: 1_500_000_000, ..Latencies::default() };
        (times.buckets[0], times.buckets[15]) = (2, 1);
        let mut text = MetricsText::new(MetricsFormat::Samples);
        text.family(MetricKind::Histogram, "a_seconds", "Times.").histogram([("o", "x"), ("p", "y")], &times);
        assert_eq!(
            text.finish(),
            "a_seconds_bucket{o=\"x\",p=\"y\",le=\"0.00001\"} 2\na_seconds_bucket{o=\"x\",p=\"y\",le=\"0.5\"} 2\n\
             a_seconds_bucket{o=\"x\",p=\"y\",le=\"1.0\"} 3\n\
             a_seconds_sum{o=\"x\",p=\"y\"} 1.5\na_seconds_count{o=\"x\",p=\"y\"} 3\n"
        );
    }

    #[test]
    fn open_metrics_has_units_and_an_end() {
        assert_eq!(
            text(MetricsFormat::OpenMetrics),
            "# HELP a_build The version.\n# TYPE a_build info\na_build_info{version=\"1\"} 1\n\
             # HELP a_bytes Bytes.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\na_bytes_total{direction=\"rx\"} 1\n\
             a_bytes_total{direction=\"tx\"} 18446744073709551615\n\
             # HELP a_age_seconds Age.\n# TYPE a_age_seconds gauge\n# UNIT a_age_seconds seconds\na_age_seconds 0.25\n\
             # HELP a_megabytes Space.\n# TYPE a_megabytes gauge\na_megabytes{p=\"\\\\a\\\"b\\nc\",q=\"é\"} 3\n# EOF\n"
        );
    }
}
