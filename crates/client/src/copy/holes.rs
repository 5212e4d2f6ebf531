//! Zeros that become holes of a local file.

/// Zeros of this size, at a multiple of it, become a hole.
pub(super) const HOLE_BYTES: usize = 64 * 1024;

/// Returns the length of the next run, and whether it consists of zeros that a hole can hold.
pub(super) fn next_run(offset: u64, data: &[u8]) -> (usize, bool) {
    let to_grain = |at: u64| HOLE_BYTES - (at % HOLE_BYTES as u64) as usize;
    let mut end = to_grain(offset).min(data.len());
    let zero = end == HOLE_BYTES && is_zero(data.get(..end).unwrap_or_default());
    while end < data.len() {
        let next = data.get(end..data.len().min(end + HOLE_BYTES)).unwrap_or_default();
        if (next.len() == HOLE_BYTES && is_zero(next)) != zero {
            break;
        }
        end += next.len();
    }
    (end, zero)
}

/// Reports whether all bytes are zero. Data mostly differs within its first bytes.
pub(super) fn is_zero(data: &[u8]) -> bool {
    let (words, rest) = data.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}
