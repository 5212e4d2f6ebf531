//! [`DashboardFeed`]: the events of the dashboard, made once for all viewers.

use crate::DASHBOARD_PERIOD;
use crate::config::MetricsPage;
use crate::door::ConnectionEnd;
use crate::host_shares::HeldShare;
use bytes::Bytes;
use monitor::MetricsFormat;
use std::fmt::Write;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};

/// The event of a period without figures: the server is starting, or has too much to do. Programs of viewers ignore
/// it, and it shows whether they are still there.
const NOTHING: &[u8] = b": no figures\n\n";

/// The events of all viewers.
#[derive(Clone, Default)]
pub(crate) struct DashboardFeed(Arc<Mutex<DashboardFeedState>>);

#[derive(Default)]
struct DashboardFeedState {
    /// The last event, while a task makes them. It ends when nobody has a receiver.
    events: Option<watch::Sender<Bytes>>,
}

impl DashboardFeed {
    /// Returns the events for one more viewer, whose place is kept until their end. They end with `ends`.
    pub(crate) fn watch(
        &self,
        page: &MetricsPage,
        place: Option<HeldShare>,
        ends: watch::Receiver<ConnectionEnd>,
    ) -> mpsc::Receiver<io::Result<Bytes>> {
        let mut state = self.state();
        let events = match &state.events {
            Some(events) => events.subscribe(),
            None => {
                let (events, received) = watch::channel(Bytes::from_static(NOTHING));
                state.events = Some(events);
                tokio::spawn(self.clone().make(page.clone()));
                received
            }
        };
        drop(state);
        let (to, parts) = mpsc::channel(1);
        tokio::spawn(async move {
            let _place = place;
            send(events, to, ends).await;
        });
        parts
    }

    fn state(&self) -> MutexGuard<'_, DashboardFeedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes events until nobody wants them.
    async fn make(self, page: MetricsPage) {
        let mut run = FeedRun { feed: self.clone(), has_ended: false };
        let mut periods = interval(DASHBOARD_PERIOD);
        periods.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            periods.tick().await;
            if self.ends_unwatched() {
                run.has_ended = true;
                return;
            }
            let text = (page.text)(MetricsFormat::Samples).await;
            let event = text.map_or(Bytes::from_static(NOTHING), |text| event(SystemTime::now(), &text));
            if let Some(events) = &self.state().events {
                events.send_replace(event);
            }
        }
    }

    /// Ends the events if they have no receiver. Reports whether they have ended. A new viewer starts them again.
    fn ends_unwatched(&self) -> bool {
        let mut state = self.state();
        state.events.take_if(|events| events.receiver_count() == 0);
        state.events.is_none()
    }
}

/// The task that makes events. If it panics, the next viewer starts another one.
struct FeedRun {
    feed: DashboardFeed,
    has_ended: bool,
}

impl Drop for FeedRun {
    fn drop(&mut self) {
        if !self.has_ended {
            self.feed.state().events = None;
        }
    }
}

/// Sends the newest event to one viewer whenever it takes one, at first the last one. So a slow viewer misses some, and
/// never has more than one in memory here.
async fn send(
    mut events: watch::Receiver<Bytes>,
    to: mpsc::Sender<io::Result<Bytes>>,
    mut ends: watch::Receiver<ConnectionEnd>,
) {
    events.mark_changed();
    loop {
        if *ends.borrow_and_update() != ConnectionEnd::Open {
            return;
        }
        tokio::select! {
            changed = events.changed() => if changed.is_err() {
                return;
            },
            () = to.closed() => return,
            _ = ends.changed() => continue,
        }
        tokio::select! {
            place = to.reserve() => match place {
                Ok(place) => place.send(Ok(events.borrow_and_update().clone())),
                Err(_) => return,
            },
            _ = ends.changed() => {}
        }
    }
}

/// Returns the event with a text, whose id is the time in milliseconds since 1970.
fn event(now: SystemTime, text: &str) -> Bytes {
    let millis = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let mut event = String::with_capacity(text.len() + text.len() / 8);
    // Writing to a string cannot fail.
    let _ = writeln!(event, "id: {millis}");
    for line in text.lines() {
        // A carriage return would end the line too.
        let _ = writeln!(event, "data: {}", line.replace('\r', " "));
    }
    event.push('\n');
    Bytes::from(event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;
    use tokio::time::sleep;

    /// A page that counts how often its text was made.
    fn counted() -> (MetricsPage, Arc<AtomicU32>) {
        let made = Arc::<AtomicU32>::default();
        let counter = made.clone();
        let text = move |format| {
            assert_eq!(format, MetricsFormat::Samples);
            let number = counter.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::ready((number != 1).then(|| format!("a {number}\n")))) as _
        };
        (
            MetricsPage {
                is_reader: Arc::new(|_| true),
                is_own_host: Arc::new(|_| true),
                text: Arc::new(text),
            },
            made,
        )
    }

    fn open() -> (watch::Sender<ConnectionEnd>, watch::Receiver<ConnectionEnd>) {
        watch::channel(ConnectionEnd::Open)
    }

    async fn next(parts: &mut mpsc::Receiver<io::Result<Bytes>>) -> String {
        String::from_utf8(parts.recv().await.unwrap().unwrap().to_vec()).unwrap()
    }

    /// Returns the next event with figures. At first there can be one without.
    async fn figures(parts: &mut mpsc::Receiver<io::Result<Bytes>>) -> String {
        loop {
            let event = next(parts).await;
            if event.as_bytes() != NOTHING {
                return event;
            }
        }
    }

    #[test]
    fn an_event_has_its_time_and_all_lines() {
        let event = event(UNIX_EPOCH + Duration::from_millis(1500), "a 1\nb{c=\"d\\ne\rid: 2\"} 2\n");
        assert_eq!(event, "id: 1500\ndata: a 1\ndata: b{c=\"d\\ne id: 2\"} 2\n\n");
    }

    #[tokio::test(start_paused = true)]
    async fn figures_are_collected_once_for_all_viewers_and_only_for_viewers() {
        let ((page, made), (_ends, received)) = (counted(), open());
        let feed = DashboardFeed::default();
        let mut first = feed.watch(&page, None, received.clone());
        assert!(figures(&mut first).await.ends_with("data: a 0\n\n"));
        let mut second = feed.watch(&page, None, received.clone());
        assert!(next(&mut second).await.ends_with("data: a 0\n\n"));
        // The second text is missing.
        for viewer in [&mut first, &mut second] {
            assert_eq!(next(viewer).await, ": no figures\n\n");
            assert!(next(viewer).await.ends_with("data: a 2\n\n"));
        }
        drop((first, second));
        sleep(2 * DASHBOARD_PERIOD).await;
        let before = made.load(Ordering::Relaxed);
        sleep(10 * DASHBOARD_PERIOD).await;
        assert_eq!(made.load(Ordering::Relaxed), before);
        // Nothing that is old is shown to a later viewer.
        let mut third = feed.watch(&page, None, received);
        assert!(figures(&mut third).await.ends_with(&format!("data: a {before}\n\n")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_viewer_gets_the_newest_event() {
        let ((page, made), (_ends, received)) = (counted(), open());
        let mut parts = DashboardFeed::default().watch(&page, None, received);
        sleep(20 * DASHBOARD_PERIOD + DASHBOARD_PERIOD / 2).await;
        // The one that waits in the channel is old.
        next(&mut parts).await;
        let newest = made.load(Ordering::Relaxed) - 1;
        assert!(next(&mut parts).await.ends_with(&format!("data: a {newest}\n\n")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_ends_the_events_of_present_viewers_only() {
        let ((page, _), (_ends, received)) = (counted(), open());
        let panics = MetricsPage { text: Arc::new(|_| panic!("a test")), ..page.clone() };
        let feed = DashboardFeed::default();
        let mut first = feed.watch(&panics, None, received.clone());
        while first.recv().await.is_some() {}
        let mut second = feed.watch(&page, None, received);
        assert!(figures(&mut second).await.ends_with("data: a 0\n\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn events_end_with_the_server_also_for_a_viewer_that_takes_none() {
        for end in [ConnectionEnd::AfterRequest, ConnectionEnd::Now] {
            let ((page, _), (ends, received)) = (counted(), open());
            let feed = DashboardFeed::default();
            let mut reading = feed.watch(&page, None, received.clone());
            let mut stalled = feed.watch(&page, None, received.clone());
            next(&mut reading).await;
            next(&mut reading).await;
            sleep(3 * DASHBOARD_PERIOD).await;
            ends.send_replace(end);
            while reading.recv().await.is_some() {}
            while stalled.recv().await.is_some() {}
            let mut late = feed.watch(&page, None, received);
            assert!(late.recv().await.is_none());
        }
    }
}
