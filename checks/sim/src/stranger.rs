//! A peer that connects to managers and orders changes of names, as a redirector or without a
//! login.

use std::time::Duration;

use cluster::tree::{Address, ConnectionId, LoginMessage, Mode, NodeAction, NodeEvent, NodeMessage};

use crate::messages::{ChangeOrder, FileMessage, ProcessAction};
use crate::sim_rng::SimRng;

/// The time between two connections.
const EVERY: Duration = Duration::from_millis(200);

/// The login of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StrangerLogin {
    /// No login.
    Visitor,
    /// That of a redirector.
    Redirector,
    /// That of a child; a server or supervisor of the tree sends the order itself.
    Child,
}

/// A peer with orders, one for each connection.
pub struct Stranger {
    nodes: Vec<Address>,
    login: LoginMessage,
    orders: Vec<ChangeOrder>,
    rng: SimRng,
    links: u64,
    due: Option<Duration>,
    /// The order of each connection.
    given: Vec<(ConnectionId, ChangeOrder)>,
    /// The sent orders, with their logins.
    pub(crate) sent: Vec<(StrangerLogin, ChangeOrder)>,
}

impl Stranger {
    /// Creates a peer with these orders for these nodes.
    pub(crate) fn new(
        nodes: Vec<Address>,
        login: LoginMessage,
        orders: Vec<ChangeOrder>,
        rng: SimRng,
    ) -> Self {
        let (given, sent) = (Vec::new(), Vec::new());
        Self { nodes, login, orders, rng, links: 0, due: Some(Duration::ZERO), given, sent }
    }

    /// Returns the time of the next connection.
    pub(crate) const fn deadline(&self) -> Option<Duration> {
        self.due
    }

    /// Opens the next connection.
    pub(crate) fn tick(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        let at = self.rng.below(self.nodes.len() as u64) as usize;
        let (Some(order), Some(address)) = (self.orders.pop(), self.nodes.get(at).cloned()) else {
            self.due = None;
            return;
        };
        self.due = Some(now + EVERY);
        self.links += 1;
        let link = ConnectionId::outward(self.links);
        self.given.push((link, order));
        out.push(NodeAction::Connect { link, address });
    }

    /// Logs in and sends the order on a new connection, without waiting for the reply.
    pub(crate) fn handle(&mut self, event: &NodeEvent, out: &mut Vec<ProcessAction>) {
        let NodeEvent::Connected { link } = *event else { return };
        let Some(at) = self.given.iter().position(|(given, _)| *given == link) else { return };
        let (_, order) = self.given.swap_remove(at);
        let guise =
            if self.rng.happens(300_000) { StrangerLogin::Visitor } else { StrangerLogin::Redirector };
        if guise == StrangerLogin::Redirector {
            let login = LoginMessage { mode: Mode::DIRECTOR, version: 0, ..self.login.clone() };
            let message = NodeMessage::Login(Box::new(login));
            out.push(ProcessAction::Tree(NodeAction::Send { link, message }));
        }
        out.push(ProcessAction::Files(link, FileMessage::Order(order.clone())));
        self.sent.push((guise, order));
    }
}
