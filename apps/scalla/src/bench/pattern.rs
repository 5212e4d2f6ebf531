//! The content of test files. Each 8-byte word is a function of its offset, so misplaced data is
//! detected.

use anyhow::Context;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::printer::out;
use crate::quantity;

/// Bytes computed from one offset.
const WORD: u64 = 8;
/// Bytes written or compared by one call.
const PIECE: usize = 1 << 20;

/// Write files with the content that `--verify` expects.
#[derive(clap::Args, Debug)]
pub(crate) struct GenerateCommand {
    /// Path of the file; `%d` is replaced by its number if there are several.
    file: String,
    /// Size of each file in bytes.
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    size: u64,
    /// Number of files, which are numbered from 0.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    files: u32,
}

impl GenerateCommand {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if self.files != 1 && !self.file.contains("%d") {
            anyhow::bail!("`{}` has no %d, so it names one file, not {}", self.file, self.files);
        }
        for number in 0..self.files {
            let path = PathBuf::from(self.file.replace("%d", &number.to_string()));
            write(&path, self.size).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let size = quantity::show_bytes(self.size as f64);
        out().line(match self.files {
            1 => format!("{}: {size}", self.file),
            several => format!("{several} files of {size}: {}", self.file),
        });
        Ok(ExitCode::SUCCESS)
    }
}

fn write(path: &std::path::Path, size: u64) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < size {
        let length = usize::try_from(size - at).unwrap_or(PIECE).min(PIECE);
        fill(at, &mut piece[..length]);
        file.write_all(&piece[..length])?;
        at += length as u64;
    }
    Ok(())
}

/// Returns the bytes at offset `index * 8`: a hash of the index in which each bit depends on every
/// other bit.
fn word(index: u64) -> [u8; WORD as usize] {
    let mut mixed = index ^ 0x5ca1_1a00_5ca1_1a00;
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed ^ (mixed >> 32)).to_le_bytes()
}

/// Fills `out` with the content of a file at `offset`.
pub(super) fn fill(offset: u64, out: &mut [u8]) {
    let into_word = (offset % WORD) as usize;
    let lead = if into_word == 0 { 0 } else { (WORD as usize - into_word).min(out.len()) };
    let (first, rest) = out.split_at_mut(lead);
    first.copy_from_slice(&word(offset / WORD)[into_word..into_word + lead]);
    let next = (offset + lead as u64) / WORD;
    for (index, piece) in (next..).zip(rest.chunks_mut(WORD as usize)) {
        piece.copy_from_slice(&word(index)[..piece.len()]);
    }
}

/// Returns the index of the first byte in `data` that differs from the content of a file at
/// `offset`.
pub(super) fn first_wrong(offset: u64, data: &[u8]) -> Option<usize> {
    let mut expected = [0; 4096];
    let mut at = 0;
    for piece in data.chunks(expected.len()) {
        let expected = &mut expected[..piece.len()];
        fill(offset + at as u64, expected);
        if expected != piece {
            let within = expected.iter().zip(piece).position(|(expected, is)| expected != is);
            return Some(at + within.unwrap_or(0));
        }
        at += piece.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_the_same_wherever_it_is_cut() {
        let mut whole = vec![0; 5000];
        fill(0, &mut whole);
        for (from, length) in [(0, 0), (0, 1), (1, 3), (7, 9), (8, 8), (13, 4096), (4095, 905), (4999, 1)] {
            let mut piece = vec![0; length];
            fill(from as u64, &mut piece);
            assert!(piece == whole[from..from + length], "{from} {length}");
            assert_eq!(first_wrong(from as u64, &piece), None);
        }
    }

    #[test]
    fn a_wrong_byte_and_a_wrong_place_are_found() {
        let mut piece = vec![0; 9000];
        fill(3, &mut piece);
        piece[8000] ^= 1;
        assert_eq!(first_wrong(3, &piece), Some(8000));
        piece[8000] ^= 1;
        assert!(first_wrong(11, &piece).is_some_and(|at| at < 16), "shifted by a word");
        assert!(first_wrong(3 + 4096, &piece).is_some_and(|at| at < 16), "shifted by a page");
    }
}
