//! [`AppearingFile`]: a file that is to appear at an origin that speaks HTTP.

use client::http::{HttpUpload, ObjectUpload, PartsId};
use client::{Error, RequestPacing, Url};
use std::sync::Arc;

/// A file that is to appear. Clones are the same one.
#[derive(Clone)]
pub(crate) enum AppearingFile {
    /// An object of a store.
    Object(ObjectUpload),
    /// A file of a web server.
    Web(HttpUpload),
}

/// The data of an unfinished file at its origin.
pub(crate) enum AppearingRest {
    /// Parts of an object.
    Parts(PartsId),
    /// A file with a temporary name.
    Temporary,
}

impl AppearingFile {
    pub(crate) fn paced(&self, pacing: Arc<dyn RequestPacing>) -> Self {
        match self {
            Self::Object(object) => Self::Object(object.paced(pacing)),
            Self::Web(file) => Self::Web(file.paced(pacing)),
        }
    }

    pub(crate) fn url(&self) -> &Url {
        match self {
            Self::Object(object) => object.url(),
            Self::Web(file) => file.url(),
        }
    }

    /// Removes an unfinished file from its origin.
    pub(crate) async fn remove(&self, unfinished: &AppearingRest) -> Result<(), Error> {
        match (self, unfinished) {
            (Self::Object(object), AppearingRest::Parts(id)) => object.abort(id).await,
            (Self::Web(file), AppearingRest::Temporary) => file.discard().await,
            _ => Ok(()),
        }
    }
}
