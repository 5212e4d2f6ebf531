//! [`TokenPolicy`]: the issuers in force, the verification of tokens, and the renewal of the issuer
//! file and of the keys.

use super::claims::{self, Claims};
use super::fault::TokenFault;
use super::issuer_file::{Issuer, IssuerFile, IssuerFileError, OnMissing};
use super::jwt::{UnverifiedToken, is_token_text};
use super::keys::KeySet;
use super::missing_keys::{KeyWaiter, KeyWaiterOwner, MissingKeys};
use super::verified::{TokenVerdict, VerifiedToken};
use super::verified_cache::VerifiedCache;
use crate::access::AuthdbCheck;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

/// The result of a renewal of the issuers.
#[derive(Debug)]
pub enum IssuersRefresh {
    /// The files have not changed.
    Unchanged,
    /// New issuers are in force; their number.
    Replaced(usize),
    /// The files are not usable. The earlier issuers stay in force.
    Kept(IssuerFileError),
}

/// Where the issuers come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenPolicySource {
    /// The issuer file.
    pub path: PathBuf,
    /// The users that may have written it.
    pub check: AuthdbCheck,
}

/// The issuers in force and their keys.
#[derive(Debug)]
struct IssuersInForce {
    file: IssuerFile,
    /// Keys from the addresses of issuers.
    fetched: HashMap<String, Arc<KeySet>>,
    /// Increases with each change.
    generation: u64,
}

impl IssuersInForce {
    fn keys<'a>(&'a self, issuer: &'a Issuer) -> Option<&'a Arc<KeySet>> {
        match &issuer.keys {
            Some(keys) => Some(keys),
            None => self.fetched.get(&issuer.url),
        }
    }
}

/// The issuers in force. Recalling a token never blocks; verification computes, renewals block.
pub struct TokenPolicy {
    source: TokenPolicySource,
    issuers: RwLock<Arc<IssuersInForce>>,
    /// Held during a whole renewal, so that a file that was read earlier never replaces a later one.
    renewal: Mutex<()>,
    /// The reason why the present file is not in force, if it is not.
    failure: Mutex<Option<String>>,
    /// The reasons why the keys of issuers could not be fetched the last time.
    fetch_failures: Mutex<HashMap<String, String>>,
    missing_keys: MissingKeys,
    cache: VerifiedCache,
}

impl TokenPolicy {
    /// Loads the issuer file. Blocks.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn load(source: TokenPolicySource) -> Result<Self, IssuerFileError> {
        let file = IssuerFile::load(&source.path, source.check)?;
        Ok(Self::new(source, file))
    }

    /// Takes issuers that were loaded before.
    #[must_use]
    pub fn new(source: TokenPolicySource, file: IssuerFile) -> Self {
        let issuers = IssuersInForce { file, fetched: HashMap::new(), generation: 0 };
        Self {
            source,
            issuers: RwLock::new(Arc::new(issuers)),
            renewal: Mutex::default(),
            failure: Mutex::default(),
            fetch_failures: Mutex::default(),
            missing_keys: MissingKeys::default(),
            cache: VerifiedCache::default(),
        }
    }

    fn issuers(&self) -> Arc<IssuersInForce> {
        self.issuers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the issuers with a change of them.
    fn replace(&self, change: impl FnOnce(&IssuersInForce) -> (IssuerFile, HashMap<String, Arc<KeySet>>)) {
        let mut issuers = self.issuers.write().unwrap_or_else(PoisonError::into_inner);
        let (file, fetched) = change(&issuers);
        let generation = issuers.generation + 1;
        *issuers = Arc::new(IssuersInForce { file, fetched, generation });
    }

    /// Returns the issuer file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.source.path
    }

    /// Returns the decision about requests that no token authorizes.
    #[must_use]
    pub fn on_missing(&self) -> OnMissing {
        self.issuers().file.on_missing
    }

    /// Returns the addresses of issuers whose keys are fetched.
    #[must_use]
    pub fn remote_issuers(&self) -> Vec<String> {
        let issuers = self.issuers();
        let remote = issuers.file.issuers.iter().filter(|issuer| issuer.keys_file.is_none());
        remote.map(|issuer| issuer.url.clone()).collect()
    }

    /// Puts keys that were fetched from the address of an issuer into force, or removes them.
    pub fn set_keys(&self, issuer: &str, keys: Option<KeySet>) {
        let present = self.issuers().fetched.get(issuer).cloned();
        if present.as_deref() == keys.as_ref() {
            return;
        }
        self.replace(|issuers| {
            let mut fetched = issuers.fetched.clone();
            match keys.filter(|_| issuers.file.fetches_keys_of(issuer)) {
                Some(keys) => fetched.insert(issuer.to_owned(), Arc::new(keys)),
                None => fetched.remove(issuer),
            };
            (issuers.file.clone(), fetched)
        });
    }

    /// Records why the keys of an issuer could not be fetched; `None` after a success.
    pub fn set_fetch_failure(&self, issuer: &str, reason: Option<&str>) {
        let mut failures = self.fetch_failures.lock().unwrap_or_else(PoisonError::into_inner);
        match reason {
            Some(reason) => failures.insert(issuer.to_owned(), reason.to_owned()),
            None => failures.remove(issuer),
        };
    }

    /// Sets the function that is called when a token names a key of an issuer that is not in force. It
    /// must not block. The keys that are then fetched count after [`Self::set_keys`].
    pub fn on_missing_key(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.missing_keys.set_wake(wake);
    }

    /// Returns the issuers with such tokens, until [`Self::end_wait_for_keys`].
    #[must_use]
    pub fn issuers_of_missing_keys(&self) -> Vec<String> {
        self.missing_keys.list()
    }

    /// Lets the requests go on that wait for the keys of an issuer.
    pub fn end_wait_for_keys(&self, issuer: &str) {
        self.missing_keys.end(issuer);
    }

    /// Makes a request of a client wait for the keys of an issuer. `waiter` verifies its token again, once.
    ///
    /// # Errors
    /// `waiter`, if nobody fetches keys, or if too many requests wait.
    pub fn wait_for_keys(
        &self,
        issuer: &str,
        owner: KeyWaiterOwner,
        waiter: KeyWaiter,
    ) -> Result<(), KeyWaiter> {
        self.missing_keys.wait(issuer, owner, waiter)
    }

    /// Returns the issuer of a refused token, if a key that it has but this server does not could make
    /// the token valid.
    pub(crate) fn issuer_of_missing_key(&self, text: &[u8], fault: TokenFault) -> Option<String> {
        if !matches!(fault, TokenFault::UnknownKey | TokenFault::NoKeys) {
            return None;
        }
        claimed_issuer(text).filter(|issuer| self.issuers().file.fetches_keys_of(issuer))
    }

    /// Returns the result for a credential if it is known without computation.
    #[must_use]
    pub fn recall(&self, text: &[u8], now: SystemTime) -> Option<TokenVerdict> {
        if !is_token_text(text) {
            return Some(TokenVerdict::NotRecognized(NOT_A_TOKEN));
        }
        let generation = self.issuers.read().unwrap_or_else(PoisonError::into_inner).generation;
        self.cache.get(text, generation, now).map(TokenVerdict::Valid)
    }

    /// Verifies a credential. Computes for up to 1 ms.
    #[must_use]
    pub fn verify(&self, text: &[u8], now: SystemTime) -> TokenVerdict {
        if let Some(verdict) = self.recall(text, now) {
            return verdict;
        }
        let issuers = self.issuers();
        match verify(&issuers, text, now) {
            Ok(token) => {
                let token = Arc::new(token);
                self.cache.insert(text, token.clone(), issuers.generation, now);
                TokenVerdict::Valid(token)
            }
            Err(fault @ TokenFault::UnknownIssuer) => TokenVerdict::NotRecognized(fault),
            Err(fault) => {
                if let Some(issuer) = self.issuer_of_missing_key(text, fault) {
                    self.missing_keys.add(&issuer);
                }
                TokenVerdict::Refused(fault)
            }
        }
    }

    /// Reads the files again if one of them has changed, or with `always`. A file with errors changes
    /// nothing. Blocks, also for the end of another renewal.
    pub fn refresh(&self, always: bool) -> IssuersRefresh {
        let _renewal = self.renewal.lock().unwrap_or_else(PoisonError::into_inner);
        if !always && self.failure().is_none() && !self.issuers().file.has_changed() {
            return IssuersRefresh::Unchanged;
        }
        let loaded = IssuerFile::load(&self.source.path, self.source.check);
        let failure = loaded.as_ref().err().map(ToString::to_string);
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        match loaded {
            Ok(file) if file == self.issuers().file => IssuersRefresh::Unchanged,
            Ok(file) => {
                let count = file.issuers.len();
                self.replace(|issuers| {
                    // Keys of an issuer that returns later would be valid without end.
                    let mut fetched = issuers.fetched.clone();
                    fetched.retain(|url, _| file.fetches_keys_of(url));
                    (file, fetched)
                });
                IssuersRefresh::Replaced(count)
            }
            Err(error) => IssuersRefresh::Kept(error),
        }
    }

    /// Returns the reason why the present issuer file is not in force, if it is not.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Describes the issuers in force.
    #[must_use]
    pub fn state(&self) -> String {
        let issuers = self.issuers();
        let count = issuers.file.issuers.len();
        let failures = self.fetch_failures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut state = format!("{count} token issuers of {}", self.source.path.display());
        for issuer in &issuers.file.issuers {
            let url = &issuer.url;
            // A failure of an issuer that the file no longer has is of no interest.
            let failure = failures.get(url).filter(|_| issuers.file.fetches_keys_of(url));
            match (issuers.keys(issuer), failure) {
                (None, Some(reason)) => state.push_str(&format!(", no keys of {url} ({reason})")),
                (None, None) => state.push_str(&format!(", no keys of {url}")),
                (Some(_), Some(reason)) => {
                    state.push_str(&format!(", the keys of {url} are not renewed ({reason})"));
                }
                (Some(_), None) => {}
            }
        }
        if let Some(failure) = self.failure() {
            state.push_str(&format!(", as read earlier; the present file is not in force: {failure}"));
        }
        state
    }

    #[cfg(test)]
    pub(super) fn cache(&self) -> &VerifiedCache {
        &self.cache
    }
}

const NOT_A_TOKEN: TokenFault = TokenFault::Malformed("it is not a JSON Web Token");

/// Returns the issuer that a token names, without verification.
#[must_use]
pub fn claimed_issuer(text: &[u8]) -> Option<String> {
    let token = UnverifiedToken::parse(text).ok()?;
    claims::issuer(&token.claims).map(str::to_owned)
}

/// Returns the expiry that a token claims, without verification.
pub(crate) fn claimed_expiry(text: &[u8]) -> Result<Option<SystemTime>, TokenFault> {
    UnverifiedToken::parse(text).and_then(|token| claims::expiry(&token.claims))
}

/// Verifies a token. The checks that compute least come first.
fn verify(issuers: &IssuersInForce, text: &[u8], now: SystemTime) -> Result<VerifiedToken, TokenFault> {
    let token = UnverifiedToken::parse(text)?;
    let issuer = claims::issuer(&token.claims).ok_or(TokenFault::UnknownIssuer)?;
    let issuer = issuers.file.issuers.iter().find(|known| known.url == issuer);
    let issuer = issuer.ok_or(TokenFault::UnknownIssuer)?;
    let algorithm = token.algorithm.ok_or(TokenFault::Algorithm)?;
    let claims = Claims::check(token.claims, &issuers.file.audiences, now)?;
    let keys = issuers.keys(issuer).ok_or(TokenFault::NoKeys)?;
    keys.verify(algorithm, token.key_id.as_deref(), token.signed, &token.signature)?;
    VerifiedToken::new(issuer.clone(), &claims)
}
