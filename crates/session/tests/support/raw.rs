//! Encoder of requests byte by byte, and decoder of replies, both independent of `wire`.

use super::{ERROR, STATUS};

/// A request. Offsets count from byte 0 of the header, as in the tables of the protocol.
#[derive(Clone)]
pub struct Raw {
    header: [u8; 24],
    payload: Vec<u8>,
    data: Vec<u8>,
}

impl Raw {
    /// Returns a request on stream 1 whose fields are zero.
    pub fn new(code: u16) -> Self {
        let raw = Self { header: [0; 24], payload: Vec::new(), data: Vec::new() };
        raw.stream(1).u16(2, code)
    }

    pub fn stream(self, id: u16) -> Self {
        self.u16(0, id)
    }

    pub fn at(mut self, at: usize, bytes: &[u8]) -> Self {
        self.header[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub fn u8(self, at: usize, value: u8) -> Self {
        self.at(at, &[value])
    }

    pub fn u16(self, at: usize, value: u16) -> Self {
        self.at(at, &value.to_be_bytes())
    }

    pub fn i32(self, at: usize, value: i32) -> Self {
        self.at(at, &value.to_be_bytes())
    }

    pub fn i64(self, at: usize, value: i64) -> Self {
        self.at(at, &value.to_be_bytes())
    }

    /// Sets a handle at its usual position.
    pub fn handle(self, handle: u32) -> Self {
        self.at(4, &handle.to_le_bytes())
    }

    /// Sets the payload that the header counts.
    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        let length = i32::try_from(payload.len()).unwrap();
        self.dlen(length)
    }

    /// Sets the length field of the header independent of the payload.
    pub fn dlen(self, length: i32) -> Self {
        self.i32(20, length)
    }

    /// Sets the bytes after the counted ones.
    pub fn data(mut self, data: &[u8]) -> Self {
        self.data = data.to_vec();
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        [&self.header[..], &self.payload, &self.data].concat()
    }

    pub fn header(&self) -> [u8; 24] {
        self.header
    }
}

/// Abbreviated because a payload may be megabytes.
impl std::fmt::Debug for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let payload = &self.payload[..self.payload.len().min(60)];
        write!(f, "{:02x?} {:?}", self.header, String::from_utf8_lossy(payload))
    }
}

/// Encodes one element of readv, writev or a pre-read list.
pub fn segment(handle: u32, length: i32, offset: i64) -> Vec<u8> {
    [&handle.to_le_bytes()[..], &length.to_be_bytes(), &offset.to_be_bytes()].concat()
}

/// One frame of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    pub stream: u16,
    pub status: u16,
    pub body: Vec<u8>,
    /// Data after a kXR_status body.
    pub data: Vec<u8>,
}

impl Reply {
    /// Splits output into frames. The output must end with a complete one.
    pub fn all(mut bytes: &[u8]) -> Vec<Self> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let (reply, rest) = Self::first(bytes);
            all.push(reply);
            bytes = rest;
        }
        all
    }

    fn first(bytes: &[u8]) -> (Self, &[u8]) {
        let number = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let length = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) as usize;
        let (body, mut rest) = bytes[8..].split_at(length);
        let (stream, status) = (number(0), number(2));
        let mut data = Vec::new();
        if status == STATUS {
            let length = u32::from_be_bytes([body[12], body[13], body[14], body[15]]) as usize;
            let (found, behind) = rest.split_at(length);
            data = found.to_vec();
            rest = behind;
        }
        (Self { stream, status, body: body.to_vec(), data }, rest)
    }

    /// Returns code and text of an error, which must end with a NUL.
    pub fn error(&self) -> (u16, String) {
        assert_eq!(self.status, ERROR, "{self:?}");
        let code = u32::from_be_bytes([self.body[0], self.body[1], self.body[2], self.body[3]]);
        let (end, text) = self.body[4..].split_last().unwrap();
        assert_eq!(*end, 0);
        (u16::try_from(code).unwrap(), String::from_utf8(text.to_vec()).unwrap())
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// Returns the reply inside a kXR_attn frame.
    pub fn embedded(&self) -> Self {
        assert_eq!((self.stream, self.status), (0, super::ATTN), "{self:?}");
        assert_eq!(self.body[..8], [0, 0, 0x13, 0x90, 0, 0, 0, 0]);
        let (reply, rest) = Self::first(&self.body[8..]);
        assert!(rest.is_empty());
        reply
    }
}
