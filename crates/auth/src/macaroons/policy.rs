//! [`MacaroonPolicy`]: the site name and the secret in force, verification, and the renewal of the
//! secret.

use super::caveats::Caveat;
use super::fault::MacaroonFault;
use super::issue::{MacaroonRequest, MacaroonRequestError, NamedMacaroon, random_uuid};
use super::packets::{CAVEATS_MAX, Macaroon};
use super::secret::{MacaroonSecret, MacaroonSecretError};
use super::verified::{MacaroonVerdict, VerifiedMacaroon};
use crate::access::AuthdbCheck;
use crate::secret::Secret;
use crate::tokens::OnMissing;
use base::Rng;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};
use subtle::ConstantTimeEq;

/// The settings of macaroons.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MacaroonSettings {
    /// The file with the secret.
    pub secret: PathBuf,
    /// The users that may own the file.
    pub check: AuthdbCheck,
    /// The site name: the location in the macaroons of this site.
    pub site: String,
    /// Maximum time until the expiry; `None` for no limit.
    pub lifetime_max: Option<Duration>,
    /// The decision about requests without a macaroon.
    pub on_missing: OnMissing,
}

/// The result of a renewal of the secret.
#[derive(Debug)]
pub enum SecretRefresh {
    /// The secret has not changed.
    Unchanged,
    /// A new secret is in force.
    Replaced,
    /// The file is not usable. The earlier secret stays in force.
    Kept(MacaroonSecretError),
}

/// The macaroons of a site. Verification computes for a few microseconds and never blocks; renewals
/// block.
pub struct MacaroonPolicy {
    settings: MacaroonSettings,
    site: Arc<str>,
    secret: RwLock<Arc<MacaroonSecret>>,
    /// Held during a whole renewal, so that a secret that was read earlier never replaces a later one.
    renewal: Mutex<()>,
    /// The reason why the present file is not in force, if it is not.
    failure: Mutex<Option<String>>,
}

impl MacaroonPolicy {
    /// Loads the secret. Blocks.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn load(settings: MacaroonSettings) -> Result<Self, MacaroonSecretError> {
        let secret = MacaroonSecret::load(&settings.secret, settings.check)?;
        Ok(Self::new(settings, secret))
    }

    /// Takes a secret that was loaded before.
    #[must_use]
    pub fn new(settings: MacaroonSettings, secret: MacaroonSecret) -> Self {
        Self {
            site: settings.site.as_str().into(),
            settings,
            secret: RwLock::new(Arc::new(secret)),
            renewal: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    fn secret(&self) -> Arc<MacaroonSecret> {
        self.secret.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the file with the secret.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.settings.secret
    }

    /// Returns the site name.
    #[must_use]
    pub fn site(&self) -> &str {
        &self.site
    }

    /// Returns the decision about requests without a macaroon.
    #[must_use]
    pub fn on_missing(&self) -> OnMissing {
        self.settings.on_missing
    }

    /// Returns the maximum time until the expiry of a macaroon; `None` for no limit.
    #[must_use]
    pub fn lifetime_max(&self) -> Option<Duration> {
        self.settings.lifetime_max
    }

    /// Issues a macaroon of this site with the secret in force. The caller limits its rights and its expiry.
    ///
    /// # Errors
    /// [`MacaroonRequestError`].
    pub fn issue(
        &self,
        request: &MacaroonRequest,
        rng: &mut dyn Rng,
    ) -> Result<NamedMacaroon, MacaroonRequestError> {
        let identifier = random_uuid(rng);
        let text = request.issue_as(identifier.clone(), &self.secret(), &self.site)?;
        Ok(NamedMacaroon { identifier, text: Secret::new(text.into_bytes()) })
    }

    /// Verifies a credential.
    #[must_use]
    pub fn verify(&self, text: &[u8], now: SystemTime) -> MacaroonVerdict {
        let macaroon = match Macaroon::decode(text) {
            Ok(macaroon) => macaroon,
            Err(reason) => return MacaroonVerdict::NotRecognized(MacaroonFault::Malformed(reason)),
        };
        if macaroon.location != self.site.as_bytes() {
            return MacaroonVerdict::OtherSite;
        }
        match self.check(&macaroon, now) {
            Ok(verified) => MacaroonVerdict::Valid(Arc::new(verified)),
            Err(fault) => {
                tracing::debug!("nothing is allowed with a macaroon: {fault}");
                MacaroonVerdict::Refused(fault)
            }
        }
    }

    /// Verifies a macaroon of this site. The caveats are read only after the signature is found right.
    fn check(&self, macaroon: &Macaroon, now: SystemTime) -> Result<VerifiedMacaroon, MacaroonFault> {
        if macaroon.has_third_party {
            return Err(MacaroonFault::ThirdParty);
        }
        if macaroon.caveats.len() > CAVEATS_MAX {
            return Err(MacaroonFault::TooMany);
        }
        let expected = self.secret().signature(&macaroon.identifier, &macaroon.caveats);
        if !bool::from(expected.as_slice().ct_eq(&macaroon.signature)) {
            return Err(MacaroonFault::Signature);
        }
        VerifiedMacaroon::new(self.site.clone(), macaroon, now, self.settings.lifetime_max)
    }

    /// Reads the secret again. A file with errors changes nothing. Blocks, also for the end of another
    /// renewal.
    pub fn refresh(&self) -> SecretRefresh {
        let _renewal = self.renewal.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = MacaroonSecret::load(&self.settings.secret, self.settings.check);
        let failure = loaded.as_ref().err().map(ToString::to_string);
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        match loaded {
            Ok(secret) if secret.is_equal(&self.secret()) => SecretRefresh::Unchanged,
            Ok(secret) => {
                *self.secret.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(secret);
                SecretRefresh::Replaced
            }
            Err(error) => SecretRefresh::Kept(error),
        }
    }

    /// Returns the reason why the present secret is not in force, if it is not.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Describes the macaroons that are accepted.
    #[must_use]
    pub fn state(&self) -> String {
        let state =
            format!("macaroons of {} with the secret in {}", self.site, self.settings.secret.display());
        match self.failure() {
            Some(failure) => format!("{state}, as read earlier; the present file is not in force: {failure}"),
            None => state,
        }
    }
}

/// Returns the first expiry that a macaroon claims, without verification. `None` if the text is not a
/// macaroon.
pub(crate) fn claimed_expiry(text: &[u8]) -> Option<Option<SystemTime>> {
    let macaroon = Macaroon::decode(text).ok()?;
    let times = macaroon.caveats.iter().filter_map(|caveat| match Caveat::parse(caveat) {
        Ok(Caveat::Before(time)) => Some(time),
        _ => None,
    });
    Some(times.min())
}
