//! A session as the hub of its loop uses it.
//!
//! The functions behind it have the same names; most are in `ending`.

use super::{SessionDriver, SessionHub};
use crate::hub::{HubTable, LoopSession, LoopTime};
use std::cell::RefCell;
use std::rc::Rc;
use std::thread::LocalKey;
use vfs::{Answer, DeferredReply};

thread_local! {
    static HUBS: RefCell<Vec<(usize, Rc<SessionHub>)>> = const { RefCell::new(Vec::new()) };
}

impl LoopSession for SessionDriver {
    fn hubs() -> &'static LocalKey<HubTable<Self>> {
        &HUBS
    }

    fn deliver(this: &Rc<RefCell<Self>>, call: u64, answer: Answer) {
        SessionDriver::deliver(this, call, answer);
    }

    fn defer(this: &Rc<RefCell<Self>>, call: u64, seconds: u32) {
        SessionDriver::defer(this, call, seconds);
    }

    fn check_time(this: &Rc<RefCell<Self>>, now: LoopTime, tick: u32) {
        SessionDriver::check_time(this, now, tick);
    }

    fn terminate(this: &Rc<RefCell<Self>>, reply: DeferredReply) {
        SessionDriver::terminate(this, reply);
    }

    fn abort(this: &Rc<RefCell<Self>>) {
        SessionDriver::abort(this);
    }

    fn stalled_for(&mut self, tick: u32) -> u32 {
        self.context.links.stalled_for(tick)
    }

    fn end_stalled(this: &Rc<RefCell<Self>>, seconds: u32) {
        SessionDriver::end_stalled(this, seconds);
    }

    fn wake_all(&self) {
        self.context.links.wake_all();
    }
}
