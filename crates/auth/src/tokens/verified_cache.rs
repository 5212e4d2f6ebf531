//! Tokens that were verified recently. Most requests of a client have the same token, and the
//! verification of a signature takes longer than the operation that it authorizes.
//!
//! Tokens are compared by their SHA-256, so the cache contains no token. Refused tokens are not kept,
//! because a client that sends many of them would displace those of others.

use super::verified::VerifiedToken;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// Number of independently locked parts of the cache.
const SHARDS: usize = 16;
/// Maximum size of one part in bytes.
const SHARD_BYTES_MAX: usize = 512 * 1024;
/// Maximum size of a token that is kept, in bytes. Larger ones are verified for each request.
const TOKEN_BYTES_MAX: usize = SHARD_BYTES_MAX / 8;
/// Maximum time for which a verified token is kept.
const KEPT: Duration = Duration::from_secs(60);

/// The SHA-256 of a token.
type TokenHash = [u8; 32];

struct CachedToken {
    token: Arc<VerifiedToken>,
    /// Time after which the token is verified again.
    until: SystemTime,
    /// The issuers and keys with which it was verified.
    generation: u64,
    bytes: usize,
}

#[derive(Default)]
struct CacheShard {
    tokens: HashMap<TokenHash, CachedToken>,
    bytes: usize,
}

impl CacheShard {
    fn retain(&mut self, keep: impl Fn(&CachedToken) -> bool) {
        self.tokens.retain(|_, cached| keep(cached));
        self.bytes = self.tokens.values().map(|cached| cached.bytes).sum();
    }
}

#[derive(Default)]
pub(super) struct VerifiedCache([Mutex<CacheShard>; SHARDS]);

impl VerifiedCache {
    fn shard(&self, hash: &TokenHash) -> Option<MutexGuard<'_, CacheShard>> {
        let number = usize::from(*hash.first()?) % SHARDS;
        Some(self.0.get(number)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a token that was verified with these issuers and keys.
    pub(super) fn get(&self, text: &[u8], generation: u64, now: SystemTime) -> Option<Arc<VerifiedToken>> {
        let hash: TokenHash = Sha256::digest(text).into();
        let shard = self.shard(&hash)?;
        let cached = shard.tokens.get(&hash)?;
        (cached.generation == generation && now < cached.until).then(|| cached.token.clone())
    }

    /// Keeps a verified token.
    pub(super) fn insert(&self, text: &[u8], token: Arc<VerifiedToken>, generation: u64, now: SystemTime) {
        let hash: TokenHash = Sha256::digest(text).into();
        let until = token.expires().min(now + KEPT);
        let bytes = size_of::<TokenHash>() + size_of::<CachedToken>() + token.bytes();
        if bytes > TOKEN_BYTES_MAX {
            return;
        }
        let Some(mut shard) = self.shard(&hash) else { return };
        if shard.bytes + bytes > SHARD_BYTES_MAX {
            shard.retain(|cached| cached.generation == generation && now < cached.until);
        }
        if shard.bytes + bytes > SHARD_BYTES_MAX {
            shard.retain(|_| false);
        }
        let cached = CachedToken { token, until, generation, bytes };
        let replaced = shard.tokens.insert(hash, cached).map_or(0, |replaced| replaced.bytes);
        shard.bytes = shard.bytes + bytes - replaced;
    }

    /// Returns the number of tokens and their size in bytes.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        let lock = |shard: &Mutex<CacheShard>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            (shard.tokens.len(), shard.bytes)
        };
        self.0.iter().map(lock).fold((0, 0), |sum, shard| (sum.0 + shard.0, sum.1 + shard.1))
    }

    /// Maximum size of the cache in bytes.
    #[cfg(test)]
    pub(super) const BYTES_MAX: usize = SHARDS * SHARD_BYTES_MAX;
}
