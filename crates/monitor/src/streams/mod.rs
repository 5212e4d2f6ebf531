//! Detailed monitoring (`xrootd.monitor`): records about clients, files and redirects for collectors.
//!
//! ```text
//!  session ─▶ SessionStreams ─▶ LoopStreams ─▶ MonitorStreams ─▶ queue ─▶ StreamSender ─▶ collector
//!             ids of files      buffers and    ids               one for each collector
//!                               totals
//! ```
//!
//! Each event loop has its own buffers and totals, so records need no locks. A packet is passed to a thread
//! when its buffer is full or its time has come. A queue that is full drops packets: nothing waits for a
//! collector.
//!
//! | file | contents |
//! |---|---|
//! | `shared` | [`MonitorStreams`]: ids, the queues of the collectors |
//! | `sender` | [`StreamSender`]: sends the packets of one collector, and numbers them |
//! | `loop_streams` | [`LoopStreams`]: buffers of one event loop |
//! | `session` | [`SessionStreams`]: the records of one client |
//! | `open_file` | totals of one open file |
//! | `file_buffer`, `trace_buffer`, `redirect_buffer` | packets that are being filled |
//! | `user` | [`MonitoredUser`]: the texts about a client |

mod file_buffer;
mod loop_streams;
mod open_file;
mod redirect_buffer;
mod sender;
mod session;
mod shared;
mod trace_buffer;
mod user;

pub(crate) use sender::{LossLog, SequenceKind};
pub(crate) use shared::now;

pub use loop_streams::LoopStreams;
pub use sender::StreamSender;
pub use session::SessionStreams;
pub use shared::MonitorStreams;
pub use user::{AuthenticatedUser, MonitoredUser};

/// A time in seconds since the epoch, as packets have it.
pub(crate) type Seconds = u32;

#[cfg(test)]
mod tests;
