//! The floor of encrypted loads: the cipher alone, over the bytes of an operation.
//!
//! A server that did nothing but encrypt its replies would need this processor time. It is measured with
//! the library and the cipher that our server and its client agree on.

use anyhow::anyhow;
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

use crate::figures::{Figure, Figures};

/// Maximum number of bytes of content of a record of TLS.
const RECORD_BYTES: usize = 16 * 1024;
/// Header of a reply, which is encrypted with its data.
const REPLY_HEADER_BYTES: usize = 8;
/// Processor time of a measurement.
const TIME: Duration = Duration::from_millis(200);
/// Number of operations between two looks at the clock.
const BATCH_BYTES: usize = 1 << 20;

/// Measures the encryption of replies with this number of bytes of data.
pub(crate) fn measure(data_bytes: usize) -> anyhow::Result<Figures> {
    let key = UnboundKey::new(&AES_128_GCM, &[7; 16]).map_err(|_| anyhow!("the cipher has no key"))?;
    let key = LessSafeKey::new(key);
    let mut reply = vec![5; data_bytes + REPLY_HEADER_BYTES];
    let batch = (BATCH_BYTES / reply.len()).max(1);
    let (mut operations, mut number) = (0_u32, 0_u64);
    let begun = processor_time();
    loop {
        for _ in 0..batch {
            for record in reply.chunks_mut(RECORD_BYTES) {
                number += 1;
                let mut nonce = [0; NONCE_LEN];
                nonce.iter_mut().zip(number.to_be_bytes()).for_each(|(place, byte)| *place = byte);
                let nonce = Nonce::assume_unique_for_key(nonce);
                let sealed = key.seal_in_place_separate_tag(nonce, Aad::from([23, 3, 3, 0, 0]), record);
                let _tag = sealed.map_err(|_| anyhow!("the cipher does not encrypt"))?;
            }
            operations += 1;
        }
        let spent = processor_time().saturating_sub(begun);
        if spent >= TIME {
            let microseconds = spent.as_secs_f64() * 1e6 / f64::from(operations);
            return Ok(Figures::from([(Figure::Cpu, microseconds)]));
        }
    }
}

/// Returns the processor time of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The machine may be busy, but processor time counts, and 512 times as many bytes differ by far.
    #[test]
    fn more_bytes_take_longer() {
        let of = |bytes| measure(bytes).unwrap()[&Figure::Cpu];
        let (short, long) = (of(2 << 10), of(1 << 20));
        assert!(short > 0.0 && long > 20.0 * short, "{short} {long}");
    }
}
