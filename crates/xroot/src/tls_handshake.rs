//! The switch of a connection to TLS: a task for the time of the handshake.
//!
//! The task of the connection ends before and starts again afterwards, because a connection does
//! this at most once and its task must be small.

use crate::connection::{ConnectionCount, linger, resume};
use crate::connections::CloseState;
use crate::driver::SessionDriver;
use base::{Error, ErrorKind};
use net::{HANDSHAKE_BYTES_MAX, Socket};
use session::PathId;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// Performs the handshake, then continues the connection. `received` are bytes that came after the
/// last request.
pub(crate) fn start(
    driver: Rc<RefCell<SessionDriver>>,
    link: PathId,
    mut socket: Socket,
    received: Vec<u8>,
    place: Option<ConnectionCount>,
) {
    tokio::task::spawn_local(async move {
        match handshake(&driver, link, &mut socket, received).await {
            Ok(()) => resume(driver, link, socket, place),
            Err(error) => {
                {
                    let driver = driver.borrow();
                    driver.hub().stats.failed_handshakes.add(1);
                    let text = format!("TLS handshake: {error}");
                    driver.note_failure(&Error::new(ErrorKind::TlsRequired, text));
                    driver.hub().stats.disconnections.add(1);
                }
                SessionDriver::link_lost(&driver, link);
                linger(&mut socket).await;
                drop(place);
            }
        }
    });
}

/// Performs the handshake, unless the session ends meanwhile. It counts as a login of its host until
/// it ends. A client of a host at its limit receives an alert.
async fn handshake(
    driver: &Rc<RefCell<SessionDriver>>,
    link: PathId,
    socket: &mut Socket,
    received: Vec<u8>,
) -> io::Result<()> {
    let (server, slot, _charge) = {
        let driver = driver.borrow();
        let config = &driver.hub().shared.config;
        let slot = config.settings.pending_logins.enter(driver.peer_address());
        (config.tls.clone(), slot, driver.links().account().charge(HANDSHAKE_BYTES_MAX))
    };
    let Some(server) = server else {
        socket.refuse_tls();
        return Err(io::Error::other("the server has no certificate"));
    };
    let slot = match slot {
        Ok(slot) => slot,
        Err(limit) => {
            socket.refuse_tls();
            return Err(io::Error::other(limit.to_string()));
        }
    };
    let mut accepted = pin!(socket.accept_tls(&server, slot.owner(), received));
    poll_fn(|context| {
        let mut session = driver.borrow_mut();
        let is_open = session.begin_turn(link, context.waker())
            && session.links_mut().get(link).is_some_and(|state| state.closing != CloseState::Now);
        drop(session);
        if !is_open {
            return Poll::Ready(Err(io::Error::other("the session has ended")));
        }
        accepted.as_mut().poll(context)
    })
    .await
}
