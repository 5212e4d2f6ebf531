//! [`DashboardFeed`]: the events of the dashboard, made once for all viewers.

use crate::config::MetricsPage;
use crate::door::ConnectionEnd;
use crate::{DASHBOARD_PERIOD, DASHBOARD_VIEWERS_MAX};
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
pub(crate) struct DashboardFeed(Arc<Mutex<FeedState>>);

#[derive(Default)]
struct FeedState {
    /// The last event, while a task makes them. It ends when nobody has a receiver.
    events: Option<watch::Sender<Bytes>>,
}

impl DashboardFeed {
    /// Returns the events for one more viewer; `None` if there are too many viewers. They end with
    /// `ends`.
    pub(crate) fn watch(
        &self,
        page: &MetricsPage,
        ends: watch::Receiver<ConnectionEnd>,
    ) -> Option<mpsc::Receiver<io::Result<Bytes>>> {
        let mut state = self.state();
        let events = match &state.events {
            Some(events) if events.receiver_count() >= DASHBOARD_VIEWERS_MAX => return None,
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
        tokio::spawn(send(events, to, ends));
        Some(parts)
    }

    fn state(&self) -> MutexGuard<'_, FeedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes events until nobody wants them.
    async fn make(self, page: MetricsPage) {
        let mut periods = interval(DASHBOARD_PERIOD);
        periods.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            periods.tick().await;
            if self.ends_unwatched() {
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
        let _ = writeln!(event, "data: {line}");
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
        (MetricsPage { is_reader: Arc::new(|_| true), text: Arc::new(text) }, made)
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
        let event = event(UNIX_EPOCH + Duration::from_millis(1500), "a 1\nb{c=\"d\\ne\"} 2\n");
        assert_eq!(event, "id: 1500\ndata: a 1\ndata: b{c=\"d\\ne\"} 2\n\n");
    }

    #[tokio::test(start_paused = true)]
    async fn figures_are_collected_once_for_all_viewers_and_only_for_viewers() {
        let ((page, made), (_ends, received)) = (counted(), open());
        let feed = DashboardFeed::default();
        let mut first = feed.watch(&page, received.clone()).unwrap();
        assert!(figures(&mut first).await.ends_with("data: a 0\n\n"));
        let mut second = feed.watch(&page, received.clone()).unwrap();
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
        let mut third = feed.watch(&page, received).unwrap();
        assert!(figures(&mut third).await.ends_with(&format!("data: a {before}\n\n")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_viewer_gets_the_newest_event() {
        let ((page, made), (_ends, received)) = (counted(), open());
        let mut parts = DashboardFeed::default().watch(&page, received).unwrap();
        sleep(20 * DASHBOARD_PERIOD + DASHBOARD_PERIOD / 2).await;
        // The one that waits in the channel is old.
        next(&mut parts).await;
        let newest = made.load(Ordering::Relaxed) - 1;
        assert!(next(&mut parts).await.ends_with(&format!("data: a {newest}\n\n")));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_viewers_is_limited() {
        let ((page, _), (_ends, received)) = (counted(), open());
        let feed = DashboardFeed::default();
        let watch = || feed.watch(&page, received.clone());
        let mut viewers: Vec<_> = (0..DASHBOARD_VIEWERS_MAX).map(|_| watch().unwrap()).collect();
        assert!(watch().is_none());
        viewers.pop();
        sleep(DASHBOARD_PERIOD).await;
        assert!(watch().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn events_end_with_the_server_also_for_a_viewer_that_takes_none() {
        for end in [ConnectionEnd::AfterRequest, ConnectionEnd::Now] {
            let ((page, _), (ends, received)) = (counted(), open());
            let feed = DashboardFeed::default();
            let mut reading = feed.watch(&page, received.clone()).unwrap();
            let mut stalled = feed.watch(&page, received.clone()).unwrap();
            next(&mut reading).await;
            next(&mut reading).await;
            sleep(3 * DASHBOARD_PERIOD).await;
            ends.send_replace(end);
            while reading.recv().await.is_some() {}
            while stalled.recv().await.is_some() {}
            let mut late = feed.watch(&page, received).unwrap();
            assert!(late.recv().await.is_none());
        }
    }
}
