//! A hostile program that floods the managers.
//!
//! It opens connections without a login, logs in without an id or under the id of a connected node,
//! and sends messages of other roles.

use std::time::Duration;

use cluster::tree::{Address, ConnectionId, LoginMessage, Mode, NodeAction, NodeEvent, NodeMessage};

use crate::sim_rng::SimRng;

/// The time between two connections.
const EVERY: Duration = Duration::from_millis(40);

/// The hostile program.
pub struct Flood {
    managers: Vec<Address>,
    login: LoginMessage,
    rng: SimRng,
    links: u64,
    due: Duration,
}

impl Flood {
    /// Creates a program that floods these managers.
    pub fn new(managers: Vec<Address>, login: LoginMessage, rng: SimRng) -> Self {
        Self { managers, login, rng, links: 0, due: Duration::ZERO }
    }

    /// Returns the time of the next connection.
    pub fn deadline(&self) -> Duration {
        self.due
    }

    /// Opens the next connection.
    pub fn tick(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        if now < self.due {
            return;
        }
        self.due = now + EVERY;
        self.links += 1;
        let at = self.rng.below(self.managers.len() as u64) as usize;
        if let Some(address) = self.managers.get(at).cloned() {
            out.push(NodeAction::Connect { link: ConnectionId::outward(self.links), address });
        }
    }

    /// Sends an invalid message on a new connection.
    pub fn handle(&mut self, event: &NodeEvent, _now: Duration, out: &mut Vec<NodeAction>) {
        let NodeEvent::Connected { link } = *event else { return };
        let say = match self.rng.below(6) {
            0 => return,
            1 => NodeMessage::Login(Box::new(LoginMessage { id: String::new(), ..self.login.clone() })),
            2 => {
                // The id of another node, from another address.
                let host = self.rng.below(64);
                let id = format!("s-anon@n{host} 1213n0");
                NodeMessage::Login(Box::new(LoginMessage { id, ..self.login.clone() }))
            }
            3 => NodeMessage::Login(Box::new(LoginMessage { mode: Mode::NONE, ..self.login.clone() })),
            4 => NodeMessage::Login(Box::new(LoginMessage { paths: "q /".to_owned(), ..self.login.clone() })),
            _ => NodeMessage::Pong,
        };
        out.push(NodeAction::Send { link, message: say });
        if self.rng.happens(500_000) {
            out.push(NodeAction::Close { link });
        }
    }
}
