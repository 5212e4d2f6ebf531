//! [`ProgressLine`]: progress on standard error, in one row even on narrow terminals.

use std::fmt::Display;
use std::time::Duration;

use super::err;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Templates for the progress of copies, each with its minimum width. Narrow terminals omit first
/// the total, then the rate.
const BYTES: [(usize, &str); 5] = [
    (80, "{prefix}{wide_bar} {percent:>3}%  {bytes}/{total_bytes}  {binary_bytes_per_sec}  {eta} left"),
    (65, "{prefix}{wide_bar} {percent:>3}%  {bytes}  {binary_bytes_per_sec}  {eta} left"),
    (45, "{prefix}{wide_bar} {percent:>3}%  {bytes}  {eta} left"),
    (28, "{prefix}{wide_bar} {percent:>3}%  {eta} left"),
    (0, "{prefix}{percent:>3}%"),
];
/// Divisor of the terminal width that yields the maximum width of the prefix.
const PREFIX_SHARE: usize = 5;

/// A terminal line that is redrawn.
#[derive(Debug)]
pub(crate) struct ProgressLine(ProgressBar);

impl ProgressLine {
    /// Creates a bar that shows messages.
    pub(crate) fn of_messages() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
        bar.set_style(style("{msg}"));
        Self(bar)
    }

    /// Creates a bar for copies. It shows messages until [`ProgressLine::show_bytes`] is called.
    pub(crate) fn of_copies() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10));
        bar.set_style(style("{msg}"));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// Shows a message.
    pub(crate) fn set_message(&self, message: &str) {
        self.0.set_message(fitted(message, err().width_now().saturating_sub(1)));
    }

    /// Shows a message instead of the bytes of copies.
    pub(crate) fn show_message(&self, message: &str) {
        self.set_message(message);
        self.0.set_style(style("{msg}"));
    }

    /// Shows the bytes of copies after a prefix, in as much detail as the terminal is wide.
    pub(crate) fn show_bytes(&self, prefix: impl Display) {
        let width = err().width_now();
        let prefix = fitted(&prefix.to_string(), (width / PREFIX_SHARE).max(8));
        self.0.set_prefix(if prefix.is_empty() { prefix } else { format!("{prefix} ") });
        self.0.set_style(style(template(width)));
    }

    /// Sets the total size of all copies.
    pub(crate) fn set_length(&self, length: u64) {
        self.0.set_length(length);
    }

    /// Adds copied bytes.
    pub(crate) fn inc(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    /// Runs `print` while the bar is hidden.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }

    /// Removes the bar from the screen.
    pub(crate) fn finish_and_clear(&self) {
        self.0.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn template(width: usize) -> &'static str {
    BYTES.iter().find(|(least, _)| width >= *least).map_or("{percent}%", |(_, template)| template)
}

/// Returns a text, escaped, in at most `columns` columns. A longer one is cut at its beginning,
/// because names usually differ at the end.
fn fitted(text: &str, columns: usize) -> String {
    let text = base::shown(text).to_string();
    if text.width() <= columns {
        return text;
    }
    let mut left = columns.saturating_sub(1);
    let is_message = text.contains(' ');
    let mut keep = |letter: &char| {
        let width = letter.width().unwrap_or(0);
        let fits = width <= left;
        left = if fits { left - width } else { 0 };
        fits
    };
    if is_message {
        let kept: String = text.chars().take_while(&mut keep).collect();
        return format!("{kept}…");
    }
    let kept: Vec<char> = text.chars().rev().take_while(&mut keep).collect();
    std::iter::once('…').chain(kept.into_iter().rev()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_end_and_messages_their_beginning() {
        assert_eq!(fitted("run7.root", 9), "run7.root");
        assert_eq!(fitted("long-name-run7.root", 10), "…run7.root");
        assert_eq!(fitted("waiting for host", 8), "waiting…");
        assert_eq!(fitted("名前名前", 5), "…名前");
        assert_eq!(fitted("a\nb", 9), "a\\nb");
    }

    #[test]
    fn total_then_rate_are_left_out() {
        assert!(template(80).contains("{total_bytes}") && template(120) == template(80));
        assert!(!template(79).contains("total") && template(65).contains("per_sec"));
        assert!(!template(64).contains("per_sec") && template(45).contains("{bytes}"));
        assert!(template(30).contains("{eta}") && template(10) == "{prefix}{percent:>3}%");
    }
}
