//! Ranges of a file that lie near each other, joined into few requests.

use client::Bytes;

/// Maximum number of bytes between two ranges that are read with one request.
const GAP_MAX: u64 = 16 * 1024;
/// Maximum size of a request for several ranges, as a multiple of their bytes, beside one gap. The bytes between
/// ranges are in memory until the last one has arrived, and no limit of a client counts them.
const JOINED_FACTOR_MAX: u64 = 2;
/// Maximum size of a request for several ranges.
const JOINED_BYTES_MAX: u64 = 4 << 20;

/// Ranges that are read with one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct JoinedRange {
    pub(crate) offset: u64,
    pub(crate) length: usize,
    /// Their numbers.
    pub(crate) members: Vec<usize>,
}

/// Joins ranges that are near each other, and those that overlap.
pub(crate) fn join(ranges: &[(u64, usize)]) -> Vec<JoinedRange> {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by_key(|&number| ranges.get(number).copied());
    let mut joined: Vec<JoinedRange> = Vec::new();
    // The bytes that the members of the last one want.
    let mut wanted = 0_u64;
    for number in order {
        let Some(&(offset, length)) = ranges.get(number) else { continue };
        let end = offset.saturating_add(length as u64);
        if let Some(last) = joined.last_mut() {
            let last_end = last.offset.saturating_add(last.length as u64);
            let whole = last_end.max(end) - last.offset;
            let with_this = wanted.saturating_add(length as u64);
            let whole_max = with_this.saturating_mul(JOINED_FACTOR_MAX).saturating_add(GAP_MAX);
            if offset <= last_end.saturating_add(GAP_MAX)
                && (whole <= JOINED_BYTES_MAX.min(whole_max) || end <= last_end)
                && let Ok(whole) = usize::try_from(whole)
            {
                last.length = whole;
                last.members.push(number);
                wanted = with_this;
                continue;
            }
        }
        wanted = length as u64;
        joined.push(JoinedRange { offset, length, members: vec![number] });
    }
    joined
}

/// Returns the data of each range from that of the joined ones. What lies behind the end of the file is
/// missing.
pub(crate) fn split(ranges: &[(u64, usize)], joined: &[(JoinedRange, Bytes)]) -> Vec<Bytes> {
    let mut found = vec![Bytes::new(); ranges.len()];
    for (range, data) in joined {
        for &number in &range.members {
            let Some(&(offset, length)) = ranges.get(number) else { continue };
            let from = usize::try_from(offset - range.offset).unwrap_or(usize::MAX).min(data.len());
            let to = from.saturating_add(length).min(data.len());
            if let Some(place) = found.get_mut(number) {
                *place = data.slice(from..to);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_ranges_are_one_request() {
        let far = 10 * GAP_MAX;
        let ranges = [(far, 10), (0, 10), (5, 10), (15 + GAP_MAX, 1), (far + 2, 3), (10 * far, 0)];
        let joined = join(&ranges);
        let plain: Vec<_> =
            joined.iter().map(|range| (range.offset, range.length, range.members.as_slice())).collect();
        let first = usize::try_from(GAP_MAX).unwrap() + 16;
        assert_eq!(plain, [(0, first, &[1, 2, 3][..]), (far, 10, &[0, 4][..]), (10 * far, 0, &[5][..])]);
        let data: Vec<u8> = (0..first).map(|at| at.to_le_bytes()[0]).collect();
        let parts = [
            (joined[0].clone(), Bytes::from(data.clone())),
            // The file ends here.
            (joined[1].clone(), Bytes::from_static(b"abcd")),
        ];
        let found = split(&ranges, &parts);
        assert_eq!(
            (&found[1][..], &found[2][..], &found[3][..]),
            (&data[..10], &data[5..15], &data[first - 1..])
        );
        assert_eq!((&found[0][..], &found[4][..], &found[5][..]), (&b"abcd"[..], &b"cd"[..], &b""[..]));
    }

    #[test]
    fn joined_ranges_are_limited() {
        let piece = 1 << 20;
        let ranges: Vec<_> = (0..16).map(|number| (number * piece, 1 << 20)).collect();
        assert_eq!(join(&ranges).len(), 4);
        assert_eq!(join(&[(0, 64 << 20), (5, 10)]).len(), 1, "a large range has those within it");
        // Ranges of one byte do not have the gaps between them fetched.
        let sparse: Vec<_> = (0..1000).map(|number| (number * GAP_MAX, 1)).collect();
        let bytes: usize = join(&sparse).iter().map(|range| range.length).sum();
        assert!(bytes <= 2 * sparse.len() + 500 * usize::try_from(GAP_MAX).unwrap(), "{bytes}");
        assert_eq!(join(&[(0, 8000), (12_000, 8000), (24_000, 8000), (36_000, 8000)]).len(), 1);
        assert_eq!(join(&[(u64::MAX - 1, 5), (u64::MAX - 1, 5)]).len(), 1);
    }
}
