//! Random lists of requests before, during and after an authentication: nothing reaches a file
//! system, another session or the driver's payload before the client is identified.

#![allow(clippy::unwrap_used)]

mod support;

use proptest::prelude::*;
use session::{DriverTask, TakeResult};
use std::time::SystemTime;
use support::logins::{auth_request, guarded};
use support::*;

/// One event of a connection.
#[derive(Clone, Debug)]
enum Event {
    Login,
    /// Credentials of a protocol, and the letter that decides the outcome of their step.
    Auth(&'static str, char),
    /// A request with this code, and an argument of some bytes.
    Request(u16, usize),
    /// The end of the own session, or of another one.
    EndSession(bool),
}

fn event() -> impl Strategy<Value = Event> {
    let protocol = prop_oneof![Just("gsi"), Just("unix"), Just("host"), Just("krb5")];
    let letter = prop_oneof![Just('d'), Just('c'), Just('r'), Just('e'), Just('x')];
    prop_oneof![
        1 => Just(Event::Login),
        4 => (protocol, letter).prop_map(|(id, letter)| Event::Auth(id, letter)),
        6 => (3000..3034_u16, 0..40_usize).prop_map(|(code, bytes)| Event::Request(code, bytes)),
        1 => (0..=u16::MAX, 0..40_usize).prop_map(|(code, bytes)| Event::Request(code, bytes)),
        1 => any::<bool>().prop_map(Event::EndSession),
    ]
}

fn encode(event: &Event) -> Raw {
    match event {
        Event::Login => login(5),
        Event::Auth(id, letter) => auth_request(id, &letter.to_string()),
        Event::Request(code, bytes) => Raw::new(*code).payload(&b"/data/f?x=y"[..].repeat(4)[..*bytes]),
        Event::EndSession(true) => Raw::new(ENDSESS).at(4, &OWN_ID),
        Event::EndSession(false) => Raw::new(ENDSESS).at(4, b"another session."),
    }
}

/// Reports whether a task makes the driver use anything besides the connection itself.
fn is_use(todo: &DriverTask) -> bool {
    !matches!(
        todo,
        DriverTask::Nothing
            | DriverTask::Close
            | DriverTask::Authenticate(_)
            | DriverTask::StartTls
            | DriverTask::LoginRefused { .. }
    )
}

proptest! {
    #[test]
    fn nothing_passes_before_authentication(events in prop::collection::vec(event(), 1..40)) {
        let mut bench = Bench::greeted(guarded(&["gsi", "unix"], Vec::new()));
        // A model of the login: which steps were done.
        let (mut logged_in, mut identified) = (false, false);
        for event in &events {
            if bench.session.is_ending() {
                break;
            }
            let bytes = encode(event).bytes();
            let TakeResult::Took { todo, .. } =
                bench.session.take(&bytes, base::Charge::NONE, &mut bench.out)
            else {
                // The end of a list is not there.
                continue;
            };
            let bind = matches!(todo, DriverTask::Bind { .. });
            prop_assert!(!is_use(&todo) || identified || (bind && !logged_in), "{} for {event:?}", name(&todo));
            let mut todo = todo;
            while !matches!(todo, DriverTask::Nothing) && !is_use(&todo) {
                todo = match todo {
                    DriverTask::Authenticate(task) => {
                        prop_assert!(logged_in && !identified);
                        let result = task.run(SystemTime::UNIX_EPOCH);
                        identified |= format!("{result:?}").starts_with("authenticated");
                        bench.session.authenticated(result, &mut bench.out)
                    }
                    DriverTask::LoginRefused { .. } => {
                        bench.session.send_delayed_refusal(&mut bench.out);
                        DriverTask::Nothing
                    }
                    _ => DriverTask::Nothing,
                };
            }
            while let Some(next) = bench.session.next_todo() {
                prop_assert!(!is_use(&next) || identified || bench.session.is_ending());
            }
            logged_in |= bench.session.is_authenticating();
            prop_assert_eq!(bench.session.is_active(), identified && !bench.session.is_ending());
            prop_assert_eq!(bench.session.caller().entity().is_some(), identified);
            if !identified {
                prop_assert_eq!((bench.session.calls_in_flight(), bench.session.files_open()), (0, 0));
                prop_assert!(bench.session.bind(address(), false).is_err());
            }
        }
    }
}
