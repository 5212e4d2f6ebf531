//! The admin socket: one JSON object per line in each direction, between `scalla admin` and a
//! running server.
//!
//! ```text
//! -> {"command":"log-level","levels":"info,net=debug"}
//! <- {"ok":true,"levels":"info,net=debug"}
//! -> {"command":"reload"}
//! <- {"ok":false,"error":"/etc/xrootd/x.cfg:3:10: error: …"}
//! ```
//!
//! | file | content |
//! |---|---|
//! | `message` | [`AdminRequest`] and [`AdminResponse`] |
//! | `socket` | the server side: the socket of mode 0600 and its connections |
//! | `client` | the client side: [`ask`] |

mod client;
mod message;
mod socket;

pub use client::{AdminError, LiveServer, ask, live_servers, running_servers};
pub use message::{
    AdminFailure, AdminRequest, AdminResponse, CacheStatus, CachedPin, EvictionAnswer, FileList, FileState,
    LevelsAnswer, ListedTransfer, OrderAnswer, PinOrder, ReloadAnswer, ResidencyStatus, ServerStatus,
    TransferCounts, TransferList, TransferOrder, TransferPhase, TransferState, UnreadablePath, VolumeStatus,
};
pub use socket::{AdminCall, AdminSocket};
