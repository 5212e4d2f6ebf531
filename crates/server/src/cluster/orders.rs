//! What redirectors and parents order: changes of names, preparing, totals; and what the administrator orders.

use super::engine::Engine;
use cluster::tree::{Event, LinkId, Message};
use wire::cms::{Frame, Message as Wire};

impl Engine {
    /// An order of a redirector, or of a parent.
    pub(super) fn order(&mut self, link: LinkId, frame: &Frame<'_>, message: &Wire<'_>) {
        tracing::debug!("{} orders what nobody here does: {}", self.name_of(link), message.code());
        self.refuse_request(link, frame.header.streamid);
    }

    /// Takes no clients any more, or takes them again.
    pub(super) fn suspend(&mut self, suspended: bool) {
        self.suspended = suspended;
        if self.resolver.is_some() {
            self.drive(|node, now, out| node.suspend(suspended, now, out));
        } else {
            let login = self.node.memberships().first().map(|membership| membership.login().clone());
            let Some(login) = login else { return };
            let stages = !login.mode.contains(cluster::tree::Mode::NOSTAGE);
            self.drive(|node, _, out| node.set_condition(!suspended, stages, login.data_port, out));
        }
    }

    /// Leaves the cluster: parents need not wait for this node's silence to grow long.
    pub(super) fn leave(&mut self) {
        for link in self.parents() {
            self.put(link, |peer, out| cluster::tree::encode(&Message::Disc, peer, out));
        }
        let links: Vec<LinkId> = self.lines.keys().copied().collect();
        for link in links {
            if let Some(line) = self.lines.remove(&link) {
                line.close();
            }
            self.node.handle(Event::Closed { link }, self.now(), &mut Vec::new());
        }
    }
}
