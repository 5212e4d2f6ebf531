//! [`ContentWriter`]: escapes file content for a terminal.

use std::io::{self, Write};

use super::{OutputText, Printer};

/// Escapes file content piece by piece. Line ends and tabs are kept, a carriage return before a
/// line end is removed, and bytes that are not UTF-8 become `\xNN`.
#[derive(Default, Debug)]
pub(super) struct Escaped {
    /// An incomplete character or a carriage return at the end of the previous piece.
    held: Vec<u8>,
}

impl Escaped {
    /// Adds a piece to a text.
    pub(super) fn add(&mut self, piece: &[u8], text: &mut OutputText) {
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(piece);
        let held = bytes.len() - unfinished(&bytes);
        self.held = bytes.split_off(held);
        add_whole(&bytes, text);
    }

    /// Adds the bytes that were held back, at the end of the content.
    pub(super) fn end(&mut self, text: &mut OutputText) {
        add_whole(&std::mem::take(&mut self.held), text);
    }
}

/// Returns the number of bytes at the end that may begin an incomplete character or line end.
fn unfinished(bytes: &[u8]) -> usize {
    if bytes.ends_with(b"\r") {
        return 1;
    }
    match bytes.utf8_chunks().last() {
        // An incomplete character has at most three bytes. Other invalid bytes are errors at any
        // position.
        Some(chunk)
            if std::str::from_utf8(chunk.invalid()).is_err_and(|error| error.error_len().is_none()) =>
        {
            chunk.invalid().len()
        }
        _ => 0,
    }
}

fn add_whole(bytes: &[u8], text: &mut OutputText) {
    for chunk in bytes.utf8_chunks() {
        let mut lines = chunk.valid().split('\n').peekable();
        while let Some(line) = lines.next() {
            let is_last = lines.peek().is_none();
            let line = if is_last { line } else { line.strip_suffix('\r').unwrap_or(line) };
            for (index, part) in line.split('\t').enumerate() {
                if index > 0 {
                    text.literal("\t");
                }
                text.add(part);
            }
            if !is_last {
                text.literal("\n");
            }
        }
        text.add(base::shown(chunk.invalid()));
    }
}

/// Writes file content to a stream. On a terminal it is escaped, except for line ends and tabs.
pub(crate) struct ContentWriter {
    printer: Printer,
    escaped: Escaped,
}

impl ContentWriter {
    pub(crate) fn new(printer: Printer) -> Self {
        Self { printer, escaped: Escaped::default() }
    }
}

impl Write for ContentWriter {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.printer.escapes() {
            let mut text = self.printer.text();
            self.escaped.add(piece, &mut text);
            self.printer.try_write(&text.as_bytes())?;
        } else {
            self.printer.try_write(piece)?;
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut text = self.printer.text();
        self.escaped.end(&mut text);
        self.printer.try_write(&text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the terminal output for these pieces.
    fn shown(pieces: &[&[u8]]) -> String {
        let (mut escaped, mut text) = (Escaped::default(), OutputText::new(true));
        pieces.iter().for_each(|piece| escaped.add(piece, &mut text));
        escaped.end(&mut text);
        String::from_utf8(text.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn contents_cannot_drive_a_terminal() {
        let content = b"a\tb\r\nc\rd\x1b[2J\xff\xc3\xa9\xe2\x80\xae\xe2\x82\n\r\n\0\r";
        let expected = "a\tb\nc\\rd\\u001b[2J\\xffé\\u202e\\xe2\\x82\n\n\\u0000\\r";
        assert_eq!(shown(&[content]), expected);
        for at in 0..content.len() {
            let (one, other) = content.split_at(at);
            assert_eq!(shown(&[one, other]), expected, "{at}");
        }
        let bytes: Vec<&[u8]> = content.chunks(1).collect();
        assert_eq!(shown(&bytes), expected);
    }
}
