//! Random numbers of the kernel, for [`base::Rng`].

use base::Rng;

/// Unpredictable random numbers, for secrets and for the key of the location cache.
pub(crate) struct OsRng;

impl Rng for OsRng {
    fn fill(&mut self, into: &mut [u8]) {
        // No supported kernel lacks random numbers.
        if rustix::rand::getrandom(&mut *into, rustix::rand::GetRandomFlags::empty()) != Ok(into.len()) {
            tracing::error!("no random numbers");
            std::process::abort();
        }
    }
}
