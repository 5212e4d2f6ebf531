//! Starts detailed monitoring (`xrootd.monitor`): its buffers in the front end, and a thread for each collector.

use crate::VERSION;
use crate::transfer_monitor;
use base::Supervisor;
use config::Effective;
use monitor::{MonitorStreams, RecordSender};
use std::io;

/// Adds detailed monitoring to the front end, if a collector is configured.
///
/// # Errors
/// The error of the system, if there are no threads.
pub(crate) fn start(
    door: &mut xroot::Config,
    effective: &Effective,
    port: u16,
    supervisor: &Supervisor,
) -> io::Result<()> {
    let Some(settings) = &effective.monitoring.detailed.value else { return Ok(()) };
    let sender = RecordSender { port, ..transfer_monitor::sender(effective) };
    let (streams, senders) = MonitorStreams::new(settings, &sender, VERSION);
    for sender in senders {
        supervisor.spawn("monitor", "detailed monitoring", move || sender.run())?;
    }
    door.streams = Some(streams);
    door.settings.has_monitoring = true;
    Ok(())
}
