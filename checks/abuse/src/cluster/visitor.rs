//! Connections to the cluster port of a manager, by the frames of the cms protocol.

use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use wire::cms::flags::{Mode, StatsModifier, StatusModifier};
use wire::cms::message::Status;
use wire::cms::{CmsFrame, Code, Extensions, FramePhase, FrameSplitter, Message, NodeLogin, StreamId};

/// Longest wait for a frame.
const FRAME_MAX: Duration = Duration::from_secs(30);

/// A connection that has logged in.
pub(crate) struct Visitor {
    stream: TcpStream,
    splitter: FrameSplitter,
}

impl Visitor {
    /// Logs in as a redirector, which asks.
    pub(crate) fn redirector(port: u16) -> Result<Self> {
        Self::login(
            port,
            &NodeLogin::redirector(std::process::id(), b"myHN=localhost"),
            FramePhase::Redirector,
        )
    }

    /// Logs in as a server of the old protocol that never answers a question.
    pub(crate) fn node(port: u16, number: u16) -> Result<Self> {
        let sid = format!("s-abuse{number}@nowhere nowhere");
        let login = NodeLogin {
            version: 3,
            mode: Mode::SERVER | Mode::BLREDIR,
            pid: std::process::id(),
            total_mb: 1_000_000,
            free_mb: 500_000,
            free_mb_min: 10,
            file_systems: 1,
            used_percent: 50,
            data_port: 3000 + number,
            node_port: 3000 + number,
            sid: Some(sid.as_bytes()),
            paths: Some(b"w /"),
            env: Some(b"myHN=localhost"),
            ..NodeLogin::default()
        };
        let mut node = Self::login(port, &login, FramePhase::Established)?;
        let status = Status { modifier: StatusModifier::RESUME, port: Some(login.data_port) };
        node.send(&encoded(&Message::Status(status), StreamId::NONE)?)?;
        Ok(node)
    }

    fn login(port: u16, login: &NodeLogin<'_>, phase: FramePhase) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("cannot connect to the cluster port")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(FRAME_MAX))?;
        let mut visitor = Self { stream, splitter: FrameSplitter::new(FramePhase::Login) };
        visitor.send(&encoded(&Message::Login(*login), StreamId::NONE)?)?;
        let is_accepted = visitor.next(|frame| frame.header.code == Code::LOGIN)?;
        anyhow::ensure!(is_accepted, "the login was not accepted");
        visitor.splitter.enter(phase);
        Ok(visitor)
    }

    /// A second handle of the connection, to send while another thread receives.
    pub(crate) fn sender(&self) -> Result<TcpStream> {
        Ok(self.stream.try_clone()?)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Waits for the next frame, and returns what `take` makes of it.
    pub(crate) fn next<T>(&mut self, take: impl FnOnce(&CmsFrame<'_>) -> T) -> Result<T> {
        let mut buffer = [0; 16 * 1024];
        loop {
            if let Some(frame) = self.splitter.next_frame()? {
                return Ok(take(&frame));
            }
            let count = self.stream.read(&mut buffer)?;
            if count == 0 {
                bail!("the manager closed the connection");
            }
            self.splitter.push(buffer.get(..count).unwrap_or_default());
        }
    }

    /// Answers pings, until the manager closes the connection.
    pub(crate) fn answer_pings(mut self) -> Result<()> {
        let pong = encoded(&Message::Pong, StreamId::NONE)?;
        loop {
            if self.next(|frame| frame.header.code == Code::PING)? {
                self.send(&pong)?;
            }
        }
    }
}

fn encoded(message: &Message<'_>, streamid: StreamId) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    message.encode(streamid, Extensions::NONE, &mut bytes)?;
    Ok(bytes)
}

/// A request for the state of the manager and its children.
pub(crate) fn stats() -> Result<Vec<u8>> {
    encoded(&Message::Stats(StatsModifier::NONE), StreamId([0, 0, 0, 1]))
}

/// Requires the manager to ask again for all that it knows of the node.
pub(crate) fn reset() -> Result<Vec<u8>> {
    encoded(&Message::Status(Status { modifier: StatusModifier::RESET, port: None }), StreamId::NONE)
}
