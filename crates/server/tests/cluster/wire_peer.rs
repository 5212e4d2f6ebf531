//! A peer that sends frames of the cluster protocol by hand, in the role of an XRootD daemon or a
//! hostile one, because the cluster driver cannot send invalid frames.

use crate::site::{Node, PATIENCE};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use wire::cms::flags::{Mode, SelectOptions as Options};
use wire::cms::message::Select;
use wire::cms::{
    CmsFrame, Code, Extensions, FramePhase, FrameSplitter, LoginAnswer, Message, NodeLogin, StreamId,
    ToRedirector,
};

/// A connection to the cluster port of a node.
pub struct Peer {
    stream: TcpStream,
    splitter: FrameSplitter,
}

impl Peer {
    pub fn connect(node: &Node) -> Self {
        let stream = TcpStream::connect(node.cluster_address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, splitter: FrameSplitter::new(FramePhase::Established) }
    }

    /// Logs in with the frames of an XRootD data server, and receives the reply.
    pub fn server(node: &Node, name: &str, data_port: u16) -> Self {
        let mut peer = Self::connect(node);
        peer.log_in(Mode::SERVER | Mode::BLREDIR | Mode::NOSTAGE, 3, Some(name.as_bytes()), data_port);
        peer.taken_in();
        peer
    }

    /// Logs in with the frames of a scalla data server, and receives the reply.
    pub fn own_server(node: &Node, name: &str, data_port: u16) -> Self {
        let mut peer = Self::connect(node);
        let mode = Mode::SERVER | Mode::BLREDIR | Mode::NOSTAGE;
        peer.log_in_with(mode, 3, Some(name.as_bytes()), data_port, b"myHN=localhost&scalla=7");
        peer.taken_in();
        peer
    }

    /// Logs in with the frames of an XRootD redirector, and receives the reply.
    pub fn redirector(node: &Node) -> Self {
        let mut peer = Self::connect(node);
        peer.log_in(Mode::DIRECTOR | Mode::BLREDIR, 0, None, 0);
        peer.taken_in();
        peer
    }

    pub fn log_in(&mut self, mode: Mode, version: u16, sid: Option<&[u8]>, data_port: u16) {
        self.log_in_with(mode, version, sid, data_port, b"myHN=localhost");
    }

    fn log_in_with(&mut self, mode: Mode, version: u16, sid: Option<&[u8]>, data_port: u16, env: &[u8]) {
        self.say(
            StreamId::NONE,
            Message::Login(NodeLogin {
                version,
                mode,
                pid: 1,
                total_mb: 1000,
                free_mb: 500,
                free_mb_min: 1,
                file_systems: 1,
                used_percent: 50,
                data_port,
                node_port: 0,
                sid,
                paths: Some(b"w /"),
                interfaces: None,
                env: Some(env),
            }),
        );
    }

    fn taken_in(&mut self) {
        let accepted = self.next(|frame| {
            let answer = LoginAnswer::decode(&frame.header, frame.payload).unwrap();
            matches!(answer, LoginAnswer::Accepted(_))
        });
        assert_eq!(accepted, Some(true));
    }

    pub fn say(&mut self, streamid: StreamId, message: Message<'_>) {
        let mut bytes = Vec::new();
        message.encode(streamid, Extensions::NONE, &mut bytes).unwrap();
        self.send(&bytes);
    }

    pub fn select(&mut self, number: u8, path: &[u8]) {
        self.select_for(number, path, Options::READ | Options::STAT);
    }

    /// Sends a select request with these options.
    pub fn select_for(&mut self, number: u8, path: &[u8], options: Options) {
        let select = Select { ident: b"", options, path, opaque: None, avoid: None };
        self.say(StreamId([number, 0, 0, 0]), Message::Select(select));
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Returns the next frame; `None` at the end of the connection.
    pub fn next<T>(&mut self, look: impl FnOnce(&CmsFrame<'_>) -> T) -> Option<T> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(frame) = self.splitter.next_frame().unwrap() {
                return Some(look(&frame));
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.splitter.push(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Returns the result of `take` for the next message of this code. Other messages are skipped.
    pub fn next_of<T>(&mut self, code: Code, take: impl Fn(&CmsFrame<'_>) -> T) -> Option<T> {
        loop {
            let found = self.next(|frame| (frame.header.code == code).then(|| take(frame)))?;
            if found.is_some() {
                return found;
            }
        }
    }

    /// Returns the next response to this redirector, as text.
    pub fn response(&mut self) -> (StreamId, bool, String) {
        use wire::cms::ResponseAnswer;
        loop {
            let said = self.next(|frame| match ToRedirector::decode(&frame.header, frame.payload).unwrap() {
                ToRedirector::Message(_) => None,
                ToRedirector::Response(response) => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let words = match response.answer {
                        ResponseAnswer::Redirect(to) => format!("{}:{}", text(to.text), to.port),
                        ResponseAnswer::Waitresp { id } => format!("later {id}"),
                        ResponseAnswer::Error { code, .. } => format!("error {}", code.0),
                        ResponseAnswer::Wait { seconds } => format!("wait {seconds}"),
                        ResponseAnswer::Data { text: data, .. } => text(data.unwrap_or_default()),
                        ResponseAnswer::Unknown(code) => format!("{code:?}"),
                    };
                    Some((frame.header.streamid, response.is_later(), words))
                }
            });
            match said {
                Some(Some(said)) => return said,
                Some(None) => {}
                None => panic!("the connection ended"),
            }
        }
    }

    /// Returns the next answer, deferred or not.
    pub fn answer(&mut self) -> String {
        loop {
            let (_, _, words) = self.response();
            if !words.starts_with("later") {
                return words;
            }
        }
    }
}
