//! [`Bar`]: progress on the error output.

use std::fmt::Display;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line on a terminal that is drawn again and again.
#[derive(Debug)]
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// One that shows a message.
    pub(crate) fn of_messages() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
        let style = ProgressStyle::with_template("{msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self(bar)
    }

    /// One that shows bytes of copies.
    pub(crate) fn of_bytes() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10));
        let template =
            "{prefix}{wide_bar} {percent:>3}%  {bytes}/{total_bytes}  {binary_bytes_per_sec}  {eta} left";
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// Shows a message.
    pub(crate) fn set_message(&self, message: &str) {
        self.0.set_message(base::shown(message).to_string());
    }

    /// Shows a text in front.
    pub(crate) fn set_prefix(&self, prefix: impl Display) {
        self.0.set_prefix(base::shown(&prefix.to_string()).to_string());
    }

    /// Sets the bytes of all copies.
    pub(crate) fn set_length(&self, length: u64) {
        self.0.set_length(length);
    }

    /// Counts bytes that were copied.
    pub(crate) fn inc(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    /// Runs `print` while it is not on the screen.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }

    /// Takes it off the screen.
    pub(crate) fn finish_and_clear(&self) {
        self.0.finish_and_clear();
    }
}
