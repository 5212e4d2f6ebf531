//! [`CatalogAnswer`]: the answer of a program that knows the names in mass storage.

use crate::ports::{OddChecksum, RemoteStatus};
use digest::{Algorithm, Checksum};
use std::io;

const NO_SUCH_FILE: i32 = 2;

/// The words of a status line behind its mode.
const STATUS_WORDS: usize = 9;
/// Behind them, a word of the form `TYPE:VALUE` is the checksum of the file.
const CHECKSUM_WORD: usize = STATUS_WORDS;
const MODIFIED_WORD: usize = 5;
const SIZE_WORD: usize = 6;

/// The answer to a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CatalogAnswer {
    /// The status of the file.
    Status(RemoteStatus),
    /// The number of an error.
    Error(i32),
}

impl CatalogAnswer {
    /// Parses the output of a program that was run for one question. What follows the answer is ignored. A status is
    /// complete only with the end of its line: a part of one can look like a status without a checksum.
    pub(crate) fn parse(output: &[u8]) -> io::Result<Self> {
        let output = String::from_utf8_lossy(output);
        let (first, rest) = output.split_once('\n').unwrap_or((&output, ""));
        let code = first.split_whitespace().next().and_then(|word| word.parse::<i32>().ok());
        match code {
            Some(0) => match rest.split_once('\n') {
                Some((line, _)) => parse_status(line),
                None => Err(malformed("its answer is not complete")),
            },
            Some(code) => Ok(Self::Error(code)),
            None => Err(malformed("its answer does not begin with a number")),
        }
    }

    /// Parses all that a process has written for one question, which must be one answer and nothing else.
    pub(crate) fn parse_exactly(output: &[u8]) -> io::Result<Self> {
        let mut lines = output.split_inclusive(|byte| *byte == b'\n');
        // A line without an end may be the begin of a longer one.
        let mut next = || match lines.next() {
            None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended without an answer")),
            Some(line) => line.strip_suffix(b"\n").ok_or_else(|| malformed("its answer is not complete")),
        };
        let answer = Self::read(|| next().map(<[u8]>::to_vec))?;
        match lines.next() {
            None => Ok(answer),
            Some(_) => Err(malformed("it writes more than its answer")),
        }
    }

    /// Reads an answer line by line. The first line has to be a number in decimal digits.
    pub(crate) fn read(mut next_line: impl FnMut() -> io::Result<Vec<u8>>) -> io::Result<Self> {
        let line = next_line()?;
        let code = line.trim_ascii();
        let is_number = code.iter().all(u8::is_ascii_digit);
        match str::from_utf8(code).ok().filter(|_| is_number).and_then(|code| code.parse().ok()) {
            Some(0) => parse_status(&String::from_utf8_lossy(&next_line()?)),
            Some(code) => Ok(Self::Error(code)),
            None => Err(malformed("its answer does not begin with a number")),
        }
    }

    /// Returns the status of the file; `None` if there is no such file.
    pub(crate) fn into_status(self) -> io::Result<Option<RemoteStatus>> {
        match self {
            Self::Status(status) => Ok(Some(status)),
            Self::Error(NO_SUCH_FILE) => Ok(None),
            Self::Error(code) => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

/// Returns the error of an answer that has not the form of one.
pub(crate) fn malformed(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn parse_status(line: &str) -> io::Result<CatalogAnswer> {
    let status = status(line.trim()).map(CatalogAnswer::Status);
    status.ok_or_else(|| malformed("its answer to statx has no status of a file"))
}

/// Parses `type and mode, links, user, group, accessed, changed, modified, size, block size, blocks`.
/// A blank may separate type and mode.
fn status(line: &str) -> Option<RemoteStatus> {
    let kind = line.chars().next()?;
    let rest = line.get(kind.len_utf8()..)?.trim_start();
    let mode = rest.get(..9)?;
    let words: Vec<&str> = rest.get(9..)?.split_whitespace().collect();
    if words.len() < STATUS_WORDS {
        return None;
    }
    let bits = mode.chars().fold(0, |bits, letter| bits << 1 | u32::from(letter != '-'));
    Some(RemoteStatus {
        checksum: checksum(words.get(CHECKSUM_WORD).copied()),
        is_directory: kind == 'd',
        size: words.get(SIZE_WORD)?.parse().ok()?,
        mode: bits,
        modified: words.get(MODIFIED_WORD)?.parse().ok()?,
    })
}

/// Parses the word behind the status. `None` means that the word is no checksum, as the name of a file. One that looks like
/// a checksum and cannot be read must not count as none.
fn checksum(word: Option<&str>) -> Result<Option<Checksum>, OddChecksum> {
    let Some((name, value)) = word.and_then(|word| word.split_once(':')) else { return Ok(None) };
    let Some(algorithm) = Algorithm::from_name(name) else { return Ok(None) };
    let digits = algorithm.bytes() * 2;
    let is_number = matches!(algorithm, Algorithm::Adler32 | Algorithm::Crc32 | Algorithm::Crc32c);
    let checksum = match value.is_empty() || !is_number {
        true => Checksum::from_hex(algorithm, value),
        // Many programs print it as a number, without zeros before it.
        false => Checksum::from_hex(algorithm, &format!("{value:0>digits$}")),
    };
    checksum.map(Some).ok_or(OddChecksum { algorithm, found: value.chars().count() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;

    const LINE: &str = "rw-r--r-- 1 0 0 11 12 13 5000 4096 10";
    const FILE: RemoteStatus =
        RemoteStatus { is_directory: false, size: 5000, mode: 0o644, modified: 13, checksum: Ok(None) };

    fn parse(output: &str) -> Result<Option<RemoteStatus>, String> {
        let answer = CatalogAnswer::parse(output.as_bytes()).and_then(CatalogAnswer::into_status);
        answer.map_err(|error| error.to_string())
    }

    #[test]
    fn a_status_has_its_type_beside_the_mode_or_before_it() {
        assert_eq!(parse(&format!("0\n-{LINE}\n")), Ok(Some(FILE)));
        assert_eq!(parse(&format!("0 ok\n- {LINE}\nmore")), Ok(Some(FILE)));
        // A name behind the status is ignored, as that of a file.
        for more in ["/tape/f", "f:1", "adler32", "crc64:1"] {
            assert_eq!(parse(&format!("0\n-{LINE} {more}\n")), Ok(Some(FILE)), "{more}");
        }
        assert_eq!(parse(&format!("0\nd{LINE}\n")), Ok(Some(RemoteStatus { is_directory: true, ..FILE })));
    }

    #[test]
    fn a_word_behind_the_status_is_the_checksum() {
        let with = |word: &str| parse(&format!("0\n-{LINE} {word}\n"));
        let checksum = Ok(Checksum::from_hex(Algorithm::Adler32, "0a1b2c3d"));
        assert_eq!(with("adler32:0A1b2c3d"), Ok(Some(RemoteStatus { checksum, ..FILE })));
        // A number without its zeros.
        assert_eq!(with("adler32:a1b2c3d"), Ok(Some(RemoteStatus { checksum, ..FILE })));
        let md5 = with("md5:900150983cd24fb0d6963f7d28e17f72 more").unwrap().unwrap().checksum;
        assert!(matches!(md5, Ok(Some(_))));
        // A checksum that cannot be read must not count as none. The rest of the status is known.
        for bad in
            ["adler32:", "adler32:00a1b2c3d", "adler32:0a1b2c3g", "adler32:+1", "md5:0a1b2c3d", "zcrc32:1"]
        {
            let found = with(bad).unwrap().unwrap();
            assert!(found.checksum.is_err() && found.size == FILE.size, "{bad}");
        }
        let text = with("adler32:x").unwrap().unwrap().checksum.unwrap_err().to_string();
        assert!(
            text.contains("adler32") && text.contains("1 characters") && text.contains("8 hex"),
            "{text}"
        );
    }

    #[test]
    fn other_answers_are_errors_and_a_missing_file_is_none() {
        assert_eq!(parse("2\n"), Ok(None));
        // The end of the line is missing, and may be that of a longer one.
        assert!(parse(&format!("0\n-{LINE}")).is_err());
        for bad in
            ["", "x", "0", "0\n", "0\n-rw-", "0\n-rw-r--r-- 1 2 3", "13", "0\n-rw-r--r-- 1 0 0 1 2 x 5 6 7"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse("13\n").unwrap_err().contains("denied"));
    }

    #[test]
    fn the_answer_of_a_process_is_all_that_it_writes() {
        let exactly = |output: &str| CatalogAnswer::parse_exactly(output.as_bytes()).ok();
        let file = format!("0\n-{LINE}\n");
        assert_eq!(exactly(&file), Some(CatalogAnswer::Status(FILE)));
        assert_eq!(exactly("2\n"), Some(CatalogAnswer::Error(2)));
        for bad in [
            String::new(),
            "\n".to_owned(),
            // It may be the begin of 21.
            "2".to_owned(),
            format!("0\n-{LINE}"),
            "2\n2\n".to_owned(),
            "2\n\n".to_owned(),
            "2\nno such file\n".to_owned(),
            "2 no such file\n".to_owned(),
            "99999999999\n".to_owned(),
            format!("{file}x"),
            format!("ready\n{file}"),
            format!("+{file}"),
            format!("-{file}"),
            "-2\n".to_owned(),
        ] {
            assert_eq!(exactly(&bad), None, "{bad:?}");
        }
    }
}
