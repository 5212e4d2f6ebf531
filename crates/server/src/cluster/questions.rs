//! Where a client shall go, and who has a file: questions to the location machine, and how the answers travel back.
//!
//! Clients of this process wait in silence. Redirectors do so for a moment; real ones would take more of it for a lost manager.
//! Then they are promised an answer by number if it is for a status or a list of holders, and told to come again else: what
//! is promised for other requests they wait for, but do not hand on to their client.

use super::askers::Asker;
use super::engine::Engine;
use super::line::Stage;
use cluster::tree::LinkId;
use cluster::{Answer, ErrorCode, LocateOptions, SelectOptions};
use std::time::Duration;
use wire::cms::StreamId;
use wire::cms::response::{Answer as WireAnswer, MessageId, Redirect, Response};

/// After so long without an answer a real redirector would soon give up: it waits for 2 s. Source: cms protocol 3, section
/// "redirector behaviour".
const SILENCE_MAX: Duration = Duration::from_millis(1500);

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
            Some(None) => match &asker {
                Asker::Redirector { .. } => {
                    let until = self.now() + SILENCE_MAX;
                    let gone = self.askers.wait_with_deadline(token, asker, until);
                    self.abandon(gone);
                    self.check_alarm();
                }
                _ => {
                    let gone = self.askers.wait(token, asker);
                    self.abandon(gone);
                }
            },
            None => {
                self.deliver(asker, Answer::Error(ErrorCode::INVALID, "This node has no children.".into()))
            }
        }
    }

    /// Redirectors whose answers are not known soon: they are promised one by number, or told to come again.
    pub(super) fn answer_overdue(&mut self) {
        let now = self.now();
        while let Some((token, asker)) = self.askers.next_overdue(now) {
            let Asker::Redirector { link, streamid, takes_later, .. } = asker else { continue };
            let id = match self.line(link) {
                Some(line) if takes_later && !streamid.is_none() => line.promises.one_more(),
                _ => None,
            };
            if let Some(id) = id {
                let promise = Response::now(WireAnswer::Waitresp { id: id.value() });
                self.put(link, |_, out| promise.encode(streamid, out));
                let asker = Asker::Redirector { link, streamid, takes_later, promised: Some(id) };
                let gone = self.askers.wait(token, asker);
                self.abandon(gone);
            } else {
                let wait = self.settings.policy.waits.lookup.saturating_sub(SILENCE_MAX);
                self.respond_with(link, streamid, None, WireAnswer::Wait { seconds: whole_seconds(wait) });
            }
        }
    }

    /// Brings an answer to whoever asked.
    pub(super) fn deliver(&mut self, asker: Asker, answer: Answer) {
        match asker {
            Asker::Client(_, tell) => tell(answer),
            Asker::Order(order) => self.ordered(*order, answer),
            Asker::Redirector { link, streamid, promised, .. } => {
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
