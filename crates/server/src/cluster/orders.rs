//! Changes of names and requests to prepare on their way down: to all children that may write the path, once it is known
//! that nobody has the new name, or to the server that is chosen for a file.

use super::askers::{Asker, Wish};
use super::forward::Forward;
use super::location_driver::{LocationDriver, respond, respond_with};
use super::pending_order::{Client, Order};
use super::prepares;
use super::rights::Permit;
use super::tree_driver::TreeDriver;
use cluster::{Answer, ErrorCode, LocateOptions, Slot, SlotMask};
use wire::cms::response::Answer as WireAnswer;

/// Passes an order on to all it concerns, once it is known that nobody has the new name.
pub(super) fn change_names(
    location: &mut LocationDriver,
    tree: &mut TreeDriver,
    _permit: Permit,
    forward: Forward,
    client: Client,
) {
    match forward.must_be_free.clone() {
        Some(new) => {
            let wish = Wish::Locate(LocateOptions { asap: true, ..LocateOptions::default() });
            let asker = Asker::Order(Box::new(Order::Names { forward, client }));
            location.ask(tree, &new, &wish, asker);
        }
        None => pass_on(location, tree, &forward, client),
    }
}

/// Goes on with an order whose question is answered.
pub(super) fn go_on(location: &mut LocationDriver, tree: &mut TreeDriver, order: Order, answer: Answer) {
    match (order, answer) {
        (Order::Names { forward, client }, Answer::Error(ErrorCode::NO_ENTRY, _)) => {
            pass_on(location, tree, &forward, client);
        }
        (Order::Names { client, .. }, Answer::Located(_)) => {
            let text = "the new name is there already";
            outcome(tree, client, Err(Answer::Error(ErrorCode::RW_CONFLICT, text.into())));
        }
        (Order::Names { client, .. }, answer) => outcome(tree, client, Err(answer)),
        (Order::Prepare(preparation), answer) => prepares::server_chosen(tree, &preparation, answer),
    }
}

fn pass_on(location: &mut LocationDriver, tree: &mut TreeDriver, forward: &Forward, client: Client) {
    forward.forget.iter().for_each(|path| location.forget(path));
    let cell = location.resolver().cell();
    let slots = match &forward.path {
        None => cell.connected(),
        Some(path) => {
            cell.paths().rights(path).map(|rights| rights.write).unwrap_or_default() & cell.connected()
        }
    };
    if slots.is_empty() && forward.frame.is_some() {
        let text = "No server exports the path for writing.";
        return outcome(tree, client, Err(Answer::Error(ErrorCode::NO_ENTRY, text.into())));
    }
    // Servers that share their files do it once for all.
    let slots = if location.settings().policy.shared.is_some() { one_of(slots) } else { slots };
    if let Some(frame) = &forward.frame {
        tree.send_down(slots, frame, forward.own_only);
    }
    outcome(tree, client, Ok(()));
}

fn outcome(tree: &mut TreeDriver, client: Client, outcome: Result<(), Answer>) {
    match (client, outcome) {
        (Client::Here(tell), outcome) => tell(outcome),
        (Client::Redirector(link, streamid), Ok(())) => {
            respond_with(tree, link, streamid, None, WireAnswer::Data { value: 0, text: None });
        }
        (Client::Redirector(link, streamid), Err(answer)) => respond(tree, link, streamid, None, &answer),
        (Client::Nobody, Ok(())) => {}
        (Client::Nobody, Err(answer)) => tracing::debug!("an order of a parent was not done: {answer:?}"),
    }
}

/// One of several, always the same while they are there.
fn one_of(slots: SlotMask) -> SlotMask {
    slots.lowest().map(Slot::mask).unwrap_or_default()
}
