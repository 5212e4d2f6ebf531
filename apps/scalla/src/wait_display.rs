//! Messages at a terminal while a command waits for a server.

use std::time::Duration;

use client::{Client, PendingWait, WaitFor};
use tokio::time::Instant;

use crate::printer::err;

/// Shorter waits are not shown.
const SHOW_AFTER: Duration = Duration::from_secs(1);
/// Interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Runs `work` and calls `show` periodically with the reason of the wait.
pub(crate) async fn with_wait_display<T>(
    client: &Client,
    work: impl Future<Output = T>,
    show: impl Fn(Option<String>),
) -> T {
    if !err().is_terminal() {
        return work.await;
    }
    client.waits().watch();
    let mut work = std::pin::pin!(work);
    let mut ticks = tokio::time::interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            _ = ticks.tick() => {
                let now = Instant::now();
                let long = |wait: &PendingWait| now.saturating_duration_since(wait.since) >= SHOW_AFTER;
                show(client.waits().longest().filter(long).map(|wait| describe(&wait, now)));
            }
        }
    }
}

/// Describes a wait.
fn describe(wait: &PendingWait, now: Instant) -> String {
    let (server, waited) = (&wait.server, now.saturating_duration_since(wait.since).as_secs());
    match &wait.what {
        WaitFor::Connection => format!("connecting to {server} … {waited} s"),
        WaitFor::Pause { until, text } => {
            let left = until.saturating_duration_since(now).as_secs() + 1;
            let why = text.trim_end_matches('\0').trim().trim_end_matches('.');
            let why = if why.is_empty() { "it asks to wait" } else { why };
            format!("waiting for {server}: {why}; asked again in {left} s (Ctrl-C stops)")
        }
        _ => format!("waiting for {server}: no answer for {waited} s (Ctrl-C stops)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_wait_has_its_words() {
        let now = Instant::now();
        let wait = |what| PendingWait { server: "h:1".to_owned(), what, since: now };
        let later = now + Duration::from_secs(4);
        assert_eq!(describe(&wait(WaitFor::Connection), later), "connecting to h:1 … 4 s");
        let silent = "waiting for h:1: no answer for 4 s (Ctrl-C stops)";
        assert_eq!(describe(&wait(WaitFor::Answer), later), silent);
        let until = later + Duration::from_millis(2500);
        for (text, why) in [("no server has it.", "no server has it"), (" ", "it asks to wait")] {
            let pause = wait(WaitFor::Pause { until, text: text.to_owned() });
            let expected = format!("waiting for h:1: {why}; asked again in 3 s (Ctrl-C stops)");
            assert_eq!(describe(&pause, later), expected);
        }
    }
}
