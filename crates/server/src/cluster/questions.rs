//! Where a client shall go, and who has a file: questions, and those that have to wait until enough nodes are here.
//!
//! Right after its start a manager knows nobody, and when a node is lost its files are for a moment. What the machine says
//! then ("come again in 15 seconds") is put off: the question is asked again when a node comes or goes, and the client is
//! answered at once when it can be, or told to wait after [`HOLD`].

use super::askers::{Asker, Tell};
use super::engine::Engine;
use super::line::Stage;
use cluster::tree::LinkId;
use cluster::{Answer, ErrorCode, LocateOptions, SelectOptions};
use std::time::Duration;
use wire::cms::StreamId;
use wire::cms::response::{Answer as WireAnswer, MessageId, Redirect, Response};

/// How long a question is put off. Clients drop a connection that says nothing for a minute.
const HOLD: Duration = Duration::from_secs(10);

/// Questions put off at once; those beyond are told to wait.
const HELD_MAX: usize = 1 << 16;

/// A longer wait than this has other reasons than a node that is coming.
const WAIT_HELD_MAX: Duration = Duration::from_secs(30);

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

/// A question about a path.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) path: Box<[u8]>,
    pub(super) wish: Wish,
    /// When it was asked first.
    pub(super) asked: Duration,
}

struct Held {
    question: Question,
    asker: Asker,
    answer: Answer,
}

/// Questions put off.
#[derive(Default)]
pub(super) struct Questions {
    held: Vec<Held>,
    /// Counts what may change an answer.
    pub(super) changes: u64,
    seen: (u64, bool),
}

impl Questions {
    /// When the first of them is put off no longer.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.held.iter().map(|held| held.question.asked + HOLD).min()
    }
}

impl Engine {
    /// A client of this process asks.
    pub(super) fn client_asks(&mut self, path: Box<[u8]>, wish: Wish, tell: Tell) {
        let question = Question { path, wish, asked: self.now() };
        self.ask(question, Asker::Client(tell));
    }

    /// Asks the machine.
    pub(super) fn ask(&mut self, question: Question, asker: Asker) {
        if self.suspended {
            let wait = self.settings.policy.waits.service;
            return self.deliver(asker, Answer::Wait(wait));
        }
        let token = self.askers.token();
        let answer = self.resolve(|resolver, now, out| match &question.wish {
            Wish::Select { options, tried } => {
                resolver.select(token, &question.path, *options, tried, now, out)
            }
            Wish::Locate(options) => resolver.locate(token, &question.path, *options, now, out),
        });
        match answer {
            Some(Some(answer)) => self.conclude(question, asker, answer),
            Some(None) => {
                let asker = self.promise(asker);
                self.askers.wait(token, question, asker);
            }
            None => {
                self.deliver(asker, Answer::Error(ErrorCode::INVALID, "This node has no children.".into()))
            }
        }
    }

    /// An answer of the machine: it is delivered, or put off.
    pub(super) fn conclude(&mut self, mut question: Question, asker: Asker, answer: Answer) {
        if self.is_premature(&question, &answer) {
            // What it knows was forgotten once; to forget it again and again would ask everybody each time.
            match &mut question.wish {
                Wish::Select { options, .. } => options.refresh = false,
                Wish::Locate(options) => options.refresh = false,
            }
            let asker = self.promise(asker);
            self.questions.held.push(Held { question, asker, answer });
            self.rearm.notify_one();
        } else {
            self.deliver(asker, answer);
        }
    }

    fn is_premature(&self, question: &Question, answer: &Answer) -> bool {
        let quorum = self.resolver.as_ref().is_none_or(|resolver| resolver.cell().quorum());
        let negative = match answer {
            Answer::Wait(time) => *time <= WAIT_HELD_MAX,
            Answer::Error(code, _) => !quorum && *code == ErrorCode::NO_ENTRY,
            Answer::Redirect { .. } | Answer::Located(_) => false,
        };
        negative
            && !self.suspended
            && self.now() < question.asked + HOLD
            && self.questions.held.len() < HELD_MAX
    }

    /// Asks again what was put off, when something has changed; what waited long enough gets the answer there was.
    pub(super) fn ask_again(&mut self) {
        if self.questions.held.is_empty() {
            return;
        }
        let now = self.now();
        let quorum = self.resolver.as_ref().is_some_and(|resolver| resolver.cell().quorum());
        let seen = (self.questions.changes, quorum);
        let changed = std::mem::replace(&mut self.questions.seen, seen) != seen;
        for held in std::mem::take(&mut self.questions.held) {
            if now >= held.question.asked + HOLD {
                let answer = match held.answer {
                    // "Nowhere" of a manager that does not know enough nodes yet is not said.
                    Answer::Error(..) if !quorum => Answer::Wait(self.settings.policy.waits.service),
                    answer => answer,
                };
                self.deliver(held.asker, answer);
            } else if changed {
                self.ask(held.question, held.asker);
            } else {
                self.questions.held.push(held);
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
