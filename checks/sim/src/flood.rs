//! Somebody hostile who storms the managers: connections that never log in, logins without a name, logins under the name
//! of a node that is there, and chatter of others' roles.

use std::time::Duration;

use cluster::tree::{Action, Address, Event, LinkId, Login, Message, Mode};

use crate::lot::Lot;

/// Between two connections.
const EVERY: Duration = Duration::from_millis(40);

/// A stormer of managers.
pub struct Flood {
    managers: Vec<Address>,
    login: Login,
    lot: Lot,
    links: u64,
    due: Duration,
}

impl Flood {
    /// Storms these managers.
    pub fn new(managers: Vec<Address>, login: Login, lot: Lot) -> Self {
        Self { managers, login, lot, links: 0, due: Duration::ZERO }
    }

    /// When the next connection is due.
    pub fn deadline(&self) -> Duration {
        self.due
    }

    /// Connects once more.
    pub fn tick(&mut self, now: Duration, out: &mut Vec<Action>) {
        if now < self.due {
            return;
        }
        self.due = now + EVERY;
        self.links += 1;
        let at = self.lot.below(self.managers.len() as u64) as usize;
        if let Some(address) = self.managers.get(at).cloned() {
            out.push(Action::Connect { link: LinkId::outward(self.links), address });
        }
    }

    /// Says something wrong on a new connection.
    pub fn handle(&mut self, event: &Event, _now: Duration, out: &mut Vec<Action>) {
        let Event::Connected { link } = *event else { return };
        let say = match self.lot.below(6) {
            0 => return,
            1 => Message::Login(Box::new(Login { id: String::new(), ..self.login.clone() })),
            2 => {
                // The name of another node, from another address.
                let host = self.lot.below(64);
                let id = format!("s-anon@n{host} 1213n0");
                Message::Login(Box::new(Login { id, ..self.login.clone() }))
            }
            3 => Message::Login(Box::new(Login { mode: Mode::NONE, ..self.login.clone() })),
            4 => Message::Login(Box::new(Login { paths: "q /".to_owned(), ..self.login.clone() })),
            _ => Message::Pong,
        };
        out.push(Action::Send { link, message: say });
        if self.lot.happens(500_000) {
            out.push(Action::Close { link });
        }
    }
}
