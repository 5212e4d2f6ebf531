//! Waits for the work of requests: notices to clients whose answer takes long, and the end of work whose client has left.

use crate::place::RequestFailure;
use std::future::Future;
use std::time::Duration;
use vfs::{Caller, ReplyTo};

/// Interval at which the caller of a request is checked.
const CALLER_CHECK: Duration = Duration::from_secs(1);
/// Time after which a client is told that its answer follows late.
const NOTICE_AFTER: Duration = Duration::from_secs(10);
/// Time within which a late answer follows, in seconds.
const LATE_ANSWER: u32 = 1800;

/// Does work. The client is notified through `notices` when it takes long.
pub(crate) async fn with_notice<T>(notices: Option<ReplyTo>, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    if let Some(notices) = notices {
        match tokio::time::timeout(NOTICE_AFTER, &mut work).await {
            Ok(result) => return result,
            Err(_) => notices.notify_later(LATE_ANSWER),
        }
    }
    work.await
}

/// Does the work of a request until its client leaves. Clients that accept it are notified through `notices` when the
/// work takes long.
pub(crate) async fn for_caller<T>(
    caller: &Caller,
    notices: Option<ReplyTo>,
    work: impl Future<Output = Result<T, RequestFailure>>,
) -> Result<T, RequestFailure> {
    let notices = notices.filter(|_| caller.accepts_deferred_reply);
    let left = async {
        loop {
            tokio::time::sleep(CALLER_CHECK).await;
            if caller.is_disconnected() {
                break;
            }
        }
    };
    tokio::select! {
        biased;
        result = with_notice(notices, work) => result,
        () = left => Err(RequestFailure::Cancelled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Identity, LoginNames};
    use std::sync::{Arc, Mutex};
    use tokio::time::Instant;
    use vfs::{Answer, Mailbox, ReplyToken, Value};

    /// Records notices.
    #[derive(Default)]
    struct Notices(Mutex<Vec<u32>>);

    impl Mailbox for Notices {
        fn deliver(&self, _: ReplyToken, _: Answer) {}

        fn deliver_notice(&self, _: ReplyToken, seconds: u32) {
            self.0.lock().unwrap().push(seconds);
        }
    }

    fn caller(accepts_notices: bool) -> Caller {
        let names = LoginNames { user: "u", host: "c.example.org", ..LoginNames::default() };
        Caller::new(Identity::new(&names, 7, None, "host"), accepts_notices, false)
    }

    async fn slow() -> Result<Value, RequestFailure> {
        tokio::time::sleep(Duration::from_secs(100)).await;
        Ok(Value::Nothing)
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_is_announced_once() {
        for (seconds, expected) in [(9, vec![]), (100, vec![LATE_ANSWER])] {
            let notices = Arc::new(Notices::default());
            let reply = ReplyTo::new(notices.clone(), ReplyToken { owner: 1, call: 2 });
            let work = tokio::time::sleep(Duration::from_secs(seconds));
            with_notice(Some(reply), work).await;
            assert_eq!(*notices.0.lock().unwrap(), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_is_announced_once_to_clients_that_accept_it() {
        for (accepts, expected) in [(true, vec![LATE_ANSWER]), (false, vec![])] {
            let notices = Arc::new(Notices::default());
            let reply = ReplyTo::new(notices.clone(), ReplyToken { owner: 1, call: 2 });
            for_caller(&caller(accepts), Some(reply), slow()).await.unwrap();
            assert_eq!(*notices.0.lock().unwrap(), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_ends_when_its_client_has_disconnected() {
        let (caller, begun) = (caller(true), Instant::now());
        let reply = ReplyTo::new(Arc::new(Notices::default()), ReplyToken { owner: 1, call: 2 });
        caller.disconnect();
        let ended = for_caller(&caller, Some(reply), slow()).await;
        assert!(matches!(ended, Err(RequestFailure::Cancelled)));
        assert!(begun.elapsed() <= CALLER_CHECK);
    }
}
