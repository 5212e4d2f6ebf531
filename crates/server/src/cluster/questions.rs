//! Where a client shall go, and who has a file: questions to the location machine, and how the answers travel back.
//!
//! Clients of this process wait in silence. Redirectors are promised an answer by number, because real ones take silence of
//! a few seconds for a lost manager.

use super::askers::Asker;
use super::engine::Engine;
use super::line::Stage;
use cluster::tree::LinkId;
use cluster::{Answer, ErrorCode, LocateOptions, SelectOptions};
use std::time::Duration;
use wire::cms::StreamId;
use wire::cms::response::{Answer as WireAnswer, MessageId, Redirect, Response};

/// What is asked.
#[derive(Debug)]
pub(super) enum Wish {
    /// A node to go to.
    Select {
        /// For what.
        options: SelectOptions,
        /// Where the client was already.
        tried: Box<[u8]>,
    },
    /// Who has it.
    Locate(LocateOptions),
}

impl Engine {
    /// Asks the machine.
    pub(super) fn ask(&mut self, path: &[u8], wish: &Wish, asker: Asker) {
        if self.suspended {
            let wait = self.settings.policy.waits.service;
            return self.deliver(asker, Answer::Wait(wait));
        }
        let token = self.askers.token();
        let answer = self.resolve(|resolver, now, out| match wish {
            Wish::Select { options, tried } => resolver.select(token, path, *options, tried, now, out),
            Wish::Locate(options) => resolver.locate(token, path, *options, now, out),
        });
        match answer {
            Some(Some(answer)) => self.deliver(asker, answer),
            Some(None) => {
                let asker = self.promise(asker);
                self.askers.wait(token, asker);
            }
            None => {
                self.deliver(asker, Answer::Error(ErrorCode::INVALID, "This node has no children.".into()))
            }
        }
    }

    /// Tells a redirector that its answer will come by itself; real ones wait for one only a few seconds.
    fn promise(&mut self, asker: Asker) -> Asker {
        let Asker::Redirector { link, streamid, promised: None } = asker else { return asker };
        let id = match self.line(link) {
            Some(line) if !streamid.is_none() => line.promises.one_more(),
            _ => None,
        };
        if let Some(id) = id {
            let promise = Response::now(WireAnswer::Waitresp { id: id.value() });
            self.put(link, |_, out| promise.encode(streamid, out));
        }
        Asker::Redirector { link, streamid, promised: id }
    }

    /// Brings an answer to whoever asked.
    pub(super) fn deliver(&mut self, asker: Asker, answer: Answer) {
        match asker {
            Asker::Client(tell) => tell(answer),
            Asker::Order(order) => self.ordered(*order, answer),
            Asker::Redirector { link, streamid, promised } => {
                self.respond(link, streamid, promised, &answer);
            }
        }
    }

    fn respond(&mut self, link: LinkId, streamid: StreamId, promised: Option<MessageId>, answer: &Answer) {
        if promised.is_some()
            && let Some(line) = self.line(link)
        {
            line.promises.kept();
        }
        let text;
        let answer = match answer {
            Answer::Redirect { host, port, .. } => {
                WireAnswer::Redirect(Redirect { port: i32::from(*port), text: host.as_bytes() })
            }
            Answer::Wait(time) => WireAnswer::Wait { seconds: whole_seconds(*time) },
            Answer::Located(list) => {
                text = cluster::Located::text(list);
                WireAnswer::Data { value: 0, text: Some(&text) }
            }
            Answer::Error(code, why) => WireAnswer::Error { code: *code, text: why.as_bytes() },
        };
        self.respond_with(link, streamid, promised, answer);
    }

    /// Sends a response to a redirector, unless it wants none.
    pub(super) fn respond_with(
        &mut self,
        link: LinkId,
        streamid: StreamId,
        promised: Option<MessageId>,
        answer: WireAnswer<'_>,
    ) {
        if streamid.is_none() || self.stage(link) != Some(Stage::Redirector) {
            return;
        }
        match promised {
            Some(id) => self.put(link, |_, out| Response::later(answer).encode(id.streamid(), out)),
            None => self.put(link, |_, out| Response::now(answer).encode(streamid, out)),
        }
    }
}

/// At least one second: real redirectors take 0 for success.
pub(super) fn whole_seconds(time: Duration) -> u32 {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    u32::try_from(seconds).unwrap_or(u32::MAX).clamp(1, i32::MAX as u32)
}
