//! Bodies in chunks with their own frames (`aws-chunked`), whose chunks and trailers may be signed.
//!
//! ```text
//! 10000;chunk-signature=…CRLF  65536 bytes CRLF  …  0;chunk-signature=…CRLF  name:value CRLF  CRLF
//! ```

use auth::ChunkSignatures;
use bytes::{Buf, Bytes};
use digest::{Algorithm, RunningChecksum};

/// Maximum length of the head of a chunk, and of a trailer.
const LINE_BYTES_MAX: usize = 4096;
/// Maximum number of trailers.
const TRAILERS_MAX: usize = 16;
/// Maximum number of digits of the size of a chunk.
const SIZE_DIGITS_MAX: usize = 15;
/// The name of the signature of trailers.
const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";

/// The reason why a body is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkFault {
    /// It is not in chunks, or it ends early.
    Malformed,
    /// A signature is not that of the chunk.
    Signature,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DecoderState {
    /// In the head of a chunk.
    Head,
    /// So many bytes of the chunk follow.
    Data(u64),
    /// In the line end behind the data.
    DataEnd,
    /// In the trailers.
    Trailers,
    /// Behind the last line.
    End,
}

/// Decodes such a body.
pub struct ChunkDecoder {
    state: DecoderState,
    line: Vec<u8>,
    signatures: Option<ChunkSignatures>,
    /// The hash of the present chunk, and its signature.
    hash: RunningChecksum,
    signature: String,
    trailers: Vec<(String, String)>,
    allows_trailers: bool,
}

impl ChunkDecoder {
    /// Creates the decoder of a body whose chunks have signatures, or none.
    #[must_use]
    pub fn new(signatures: Option<ChunkSignatures>, allows_trailers: bool) -> Self {
        Self {
            state: DecoderState::Head,
            line: Vec::new(),
            signatures,
            hash: RunningChecksum::new(Algorithm::Sha256),
            signature: String::new(),
            trailers: Vec::new(),
            allows_trailers,
        }
    }

    /// Returns the next data of `input`, which loses what was decoded; `None` if it has no more.
    ///
    /// # Errors
    /// The body is malformed, or a signature is wrong.
    pub fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, ChunkFault> {
        while !input.is_empty() {
            match self.state {
                DecoderState::Data(left) => {
                    let length = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    let data = input.split_to(length);
                    if self.signatures.is_some() {
                        self.hash.update(&data);
                    }
                    let left = left - u64::try_from(length).map_err(|_| ChunkFault::Malformed)?;
                    self.state = if left == 0 { DecoderState::DataEnd } else { DecoderState::Data(left) };
                    return Ok(Some(data));
                }
                DecoderState::End => return Err(ChunkFault::Malformed),
                DecoderState::Head | DecoderState::DataEnd | DecoderState::Trailers => {
                    if self.take_line(input)? {
                        let line = std::mem::take(&mut self.line);
                        self.end_line(&line)?;
                    }
                }
            }
        }
        Ok(None)
    }

    /// Returns the trailers of a body that has ended.
    ///
    /// # Errors
    /// The body ends early.
    pub fn finish(self) -> Result<Vec<(String, String)>, ChunkFault> {
        match self.state {
            DecoderState::End => Ok(self.trailers),
            _ => Err(ChunkFault::Malformed),
        }
    }

    /// Adds the input up to a line end. Reports whether the line is complete.
    fn take_line(&mut self, input: &mut Bytes) -> Result<bool, ChunkFault> {
        let end = input.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(input.len(), |end| end + 1);
        if self.line.len() + length > LINE_BYTES_MAX {
            return Err(ChunkFault::Malformed);
        }
        self.line.extend_from_slice(input.get(..length).unwrap_or_default());
        input.advance(length);
        Ok(end.is_some())
    }

    fn end_line(&mut self, line: &[u8]) -> Result<(), ChunkFault> {
        let line = line.strip_suffix(b"\r\n").ok_or(ChunkFault::Malformed)?;
        let line = std::str::from_utf8(line).map_err(|_| ChunkFault::Malformed)?;
        match self.state {
            DecoderState::Head => self.begin_chunk(line),
            DecoderState::DataEnd if line.is_empty() => {
                self.verify_chunk()?;
                self.state = DecoderState::Head;
                Ok(())
            }
            DecoderState::Trailers if line.is_empty() => self.end(),
            DecoderState::Trailers if self.allows_trailers && self.trailers.len() < TRAILERS_MAX => {
                let (name, value) = line.split_once(':').ok_or(ChunkFault::Malformed)?;
                self.trailers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
                Ok(())
            }
            _ => Err(ChunkFault::Malformed),
        }
    }

    fn begin_chunk(&mut self, line: &str) -> Result<(), ChunkFault> {
        let (size, extension) = line.split_once(';').unwrap_or((line, ""));
        let is_size =
            (1..=SIZE_DIGITS_MAX).contains(&size.len()) && size.bytes().all(|b| b.is_ascii_hexdigit());
        let size = u64::from_str_radix(size, 16).ok().filter(|_| is_size).ok_or(ChunkFault::Malformed)?;
        let signature = extension.trim().strip_prefix("chunk-signature=").unwrap_or_default();
        self.signature = signature.to_owned();
        self.state = DecoderState::Data(size);
        if size == 0 {
            self.verify_chunk()?;
            self.state = DecoderState::Trailers;
        }
        Ok(())
    }

    fn verify_chunk(&mut self) -> Result<(), ChunkFault> {
        let Some(signatures) = &mut self.signatures else { return Ok(()) };
        let hash = std::mem::replace(&mut self.hash, RunningChecksum::new(Algorithm::Sha256)).finish();
        match signatures.verify_chunk(&hash.hex(), &self.signature) {
            true => Ok(()),
            false => Err(ChunkFault::Signature),
        }
    }

    /// Ends the trailers, which are signed if the chunks are.
    fn end(&mut self) -> Result<(), ChunkFault> {
        self.state = DecoderState::End;
        let (Some(signatures), true) = (&mut self.signatures, self.allows_trailers) else { return Ok(()) };
        let signature = self.trailers.pop().filter(|(name, _)| name == TRAILER_SIGNATURE);
        let (_, signature) = signature.ok_or(ChunkFault::Signature)?;
        let canonical: String =
            self.trailers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        match signatures.verify_trailers(&canonical, &signature) {
            true => Ok(()),
            false => Err(ChunkFault::Signature),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data and trailers.
    type DecodedBody = (Vec<u8>, Vec<(String, String)>);

    /// Decodes a body that arrives in pieces of a size.
    fn decode(body: &[u8], piece: usize, allows_trailers: bool) -> Result<DecodedBody, ChunkFault> {
        let mut decoder = ChunkDecoder::new(None, allows_trailers);
        let mut found = Vec::new();
        for piece in body.chunks(piece) {
            let mut input = Bytes::copy_from_slice(piece);
            while let Some(data) = decoder.decode(&mut input)? {
                found.extend_from_slice(&data);
            }
        }
        Ok((found, decoder.finish()?))
    }

    #[test]
    fn chunks_are_decoded_in_pieces_of_all_sizes() {
        let body = b"5\r\nhello\r\n6;chunk-signature=x\r\n world\r\n0\r\nX-Amz-Checksum-Crc32: aa==\r\n\r\n";
        for piece in 1..=body.len() {
            let (data, trailers) = decode(body, piece, true).unwrap();
            assert_eq!(data, b"hello world");
            assert_eq!(trailers, [("x-amz-checksum-crc32".to_owned(), "aa==".to_owned())]);
        }
        assert_eq!(decode(b"0\r\n\r\n", 2, false), Ok((Vec::new(), Vec::new())));
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for body in [
            &b""[..],
            b"5\r\nhello\r\n",
            b"5\r\nhello\r\n0\r\n",
            b"5\r\nhello0\r\n\r\n",
            b"5\nhello\r\n0\r\n\r\n",
            b"\r\nhello\r\n0\r\n\r\n",
            b"-5\r\nhello\r\n0\r\n\r\n",
            b"+5\r\nhello\r\n0\r\n\r\n",
            b"1000000000000000\r\nhello\r\n0\r\n\r\n",
            b"0\r\n\r\nmore",
            b"0\r\na:b\r\n\r\n",
            b"0\r\n\xff:b\r\n\r\n",
        ] {
            assert_eq!(
                decode(body, 3, false),
                Err(ChunkFault::Malformed),
                "{:?}",
                String::from_utf8_lossy(body)
            );
        }
        let long = [&b"5;"[..], &[b'x'; LINE_BYTES_MAX], b"\r\nhello\r\n0\r\n\r\n"].concat();
        assert_eq!(decode(&long, 1000, false), Err(ChunkFault::Malformed));
        let many = [&b"0\r\n"[..], &b"a:b\r\n".repeat(TRAILERS_MAX + 1), b"\r\n"].concat();
        assert_eq!(decode(&many, 1000, true), Err(ChunkFault::Malformed));
    }
}
