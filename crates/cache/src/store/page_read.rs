//! [`PageRead`]: a read of stored bytes that verifies its pages.

use super::CacheDiskFile;
use digest::{crc32c, pages::PAGE_BYTES};
use std::io::IoSliceMut;
use std::ops::Range;

const PAGE: u64 = PAGE_BYTES as u64;

/// A read of a range that is in memory. Whole pages go to their place. A page of which only a part is wanted, at the
/// begin or the end of the range, is read beside it, because all of it is verified.
pub(super) struct PageRead {
    offset: u64,
    end: u64,
    /// Size of the file, with which the last page ends.
    size: u64,
}

impl PageRead {
    /// Prepares a read of `length` bytes within a file of `size` bytes; `None` for no bytes and those beyond the end.
    pub(super) fn new(offset: u64, length: usize, size: u64) -> Option<Self> {
        let end = offset.checked_add(length as u64)?;
        (offset < end && end <= size).then_some(Self { offset, end, size })
    }

    /// Returns the numbers of the pages.
    pub(super) const fn pages(&self) -> Range<u64> {
        self.offset / PAGE..(self.end - 1) / PAGE + 1
    }

    fn bytes_of(&self, page: u64) -> Range<u64> {
        page * PAGE..(page + 1).saturating_mul(PAGE).min(self.size)
    }

    /// Returns the part of a page that is wanted, relative to the page and to the read; `None` if all of it is.
    fn part_of(&self, page: u64) -> Option<(Range<usize>, Range<usize>)> {
        let bytes = self.bytes_of(page);
        let (begin, end) = (bytes.start.max(self.offset), bytes.end.min(self.end));
        let relative = |to: u64| (begin - to) as usize..(end - to) as usize;
        ((begin..end) != bytes).then(|| (relative(bytes.start), relative(self.offset)))
    }

    /// Reads into `into` and compares the pages with these checksums. Returns whether all bytes were read and are
    /// right.
    pub(super) fn run(&self, data: &dyn CacheDiskFile, into: &mut [u8], expected: &[u32]) -> bool {
        let pages = self.pages();
        let (first, last) = (pages.start, pages.end - 1);
        let head_part = self.part_of(first);
        let tail_part = self.part_of(last).filter(|_| last > first);
        let (mut head, mut tail) = ([0; PAGE_BYTES], [0; PAGE_BYTES]);
        let room = |part: &Option<_>, page| {
            let bytes = self.bytes_of(page);
            if part.is_some() { (bytes.end - bytes.start) as usize } else { 0 }
        };
        let (head_length, tail_length) = (room(&head_part, first), room(&tail_part, last));
        let (head, tail) = (&mut head[..head_length], &mut tail[..tail_length]);
        let head_wanted = head_part.as_ref().map_or(0, |(_, wanted)| wanted.len());
        let tail_wanted = tail_part.as_ref().map_or(0, |(_, wanted)| wanted.len());
        let whole = head_wanted..into.len().saturating_sub(tail_wanted);
        let Some(body) = into.get_mut(whole) else { return false };
        let mut parts = [IoSliceMut::new(&mut *head), IoSliceMut::new(body), IoSliceMut::new(&mut *tail)];
        if !data.read_now(first * PAGE, &mut parts) {
            return false;
        }
        let found = parts.iter().flat_map(|part| part.chunks(PAGE_BYTES)).map(crc32c);
        if !found.eq(expected.iter().copied()) {
            return false;
        }
        for (page, part) in [(&*head, head_part), (&*tail, tail_part)] {
            let Some((within, wanted)) = part else { continue };
            match (into.get_mut(wanted), page.get(within)) {
                (Some(target), Some(source)) => target.copy_from_slice(source),
                _ => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::CacheDisk;
    use crate::store::memory_disk::MemoryDisk;
    use base::LogicalPath;

    #[test]
    fn each_range_is_read_and_compared_with_the_pages_it_touches() {
        let size = 3 * PAGE + 100;
        let content: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        let disk = MemoryDisk::default();
        let path = LogicalPath::parse(b"/f").unwrap();
        let file = disk.create(&path).unwrap();
        file.write_at(0, &content).unwrap();
        let checksums: Vec<u32> = content.chunks(PAGE_BYTES).map(crc32c).collect();
        let points = [
            0,
            1,
            99,
            PAGE - 1,
            PAGE,
            PAGE + 1,
            2 * PAGE,
            3 * PAGE - 1,
            3 * PAGE,
            3 * PAGE + 1,
            size - 1,
            size,
        ];
        for (offset, end) in
            points.iter().flat_map(|begin| points.map(|end| (*begin, end))).filter(|(begin, end)| begin < end)
        {
            let read = PageRead::new(offset, (end - offset) as usize, size).unwrap();
            let pages = read.pages();
            let expected = &checksums[pages.start as usize..pages.end as usize];
            let mut into = vec![0; (end - offset) as usize];
            assert!(read.run(&*file, &mut into, expected), "{offset} to {end}");
            assert_eq!(into, content[offset as usize..end as usize], "{offset} to {end}");
            for page in 0..expected.len() {
                let mut wrong = expected.to_vec();
                wrong[page] ^= 1;
                assert!(!read.run(&*file, &mut into, &wrong), "page {page} of {offset} to {end}");
            }
        }
        for (offset, length) in [(0, 0), (size, 1), (size - 1, 2), (u64::MAX, 1)] {
            assert!(PageRead::new(offset, length, size).is_none(), "{offset} {length}");
        }
    }
}
