//! [`SystemRng`]: random numbers of the kernel for keys, challenges and identifiers.

use base::Rng;

/// Unpredictable random numbers of the operating system.
#[derive(Clone, Copy, Debug)]
pub struct SystemRng;

impl Rng for SystemRng {
    fn fill(&mut self, into: &mut [u8]) {
        let mut filled = 0;
        while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                // No supported kernel lacks random numbers, and to go on without them would make
                // secrets that can be guessed.
                Err(error) => {
                    tracing::error!("no random numbers: {error}");
                    std::process::abort();
                }
            }
        }
    }
}
