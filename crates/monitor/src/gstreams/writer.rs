//! [`GStreamWriter`]: fills packets of one stream and sends them.

use super::head::{GStreamHead, SEQUENCE_MAX};
use super::records::RECORD_ROOM;
use super::{GStreamMessage, GStreamQueueState, GStreamReceiver};
use crate::streams::{LossLog, Seconds, SequenceKind, now};
use crate::{MonitorStreams, ReportSender};
use config::{
    DetailedMonitoring, GStream, GStreamDestination, GStreamForm, GStreamHeader, GStreamSettings,
    MonitorEvent,
};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use wire::Encode;
use wire::monitoring::{GStreamRecords as PacketContents, MonitorPacketHeader, PacketCode, packet};

/// Time for which nothing is sent after a failure, because a look-up of a name can take long.
const FAILURE_PAUSE: Duration = Duration::from_secs(10);
/// Time for which a packet waits for room in the buffer of the socket. Meanwhile records wait in the queue.
const SEND_PATIENCE: Duration = Duration::from_secs(1);
/// Time without an order of its own, in which a writer only waits.
const LONG: Duration = Duration::from_secs(3600);
/// Interval of samples of a server that sends only full packets.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(600);
/// Bytes of a packet in the binary form before its records.
const BINARY_HEAD_BYTES: usize = packet::HEADER_BYTES + wire::monitoring::gstreams::GSTREAM_HEADER_BYTES;
/// Number by which a gap in the sequence numbers shows that records were lost before they had a packet.
const LOSS_GAP: u16 = 1;

/// Returns records about the whole server of at most this size, if there is something to tell.
pub(super) type TakeSample = Box<dyn FnMut(usize) -> Vec<String> + Send>;

/// Where the packets of a stream go.
pub(super) enum GStreamOutput {
    /// To a collector of the stream, as text.
    Text(Box<TextOutput>),
    /// To the collectors of `xrootd.monitor`, in the binary form.
    Collectors { streams: Arc<MonitorStreams>, event: MonitorEvent, sequence: u8 },
}

/// A collector of one stream.
pub(super) struct TextOutput {
    sender: ReportSender,
    form: GStreamForm,
    header: GStreamHeader,
    head: GStreamHead,
    sequence: u16,
    /// Interval of identifications; `None` if there are none.
    identification: Option<Duration>,
    /// Time of the next identification.
    due: Option<Instant>,
    paused_until: Option<Instant>,
    /// The last error of the system.
    failure: Option<String>,
}

impl TextOutput {
    pub(super) fn new(
        destination: &GStreamDestination,
        head: GStreamHead,
        identification: Option<Duration>,
    ) -> Self {
        let identification = identification.filter(|_| destination.is_identified);
        Self {
            sender: ReportSender::new(destination.address.clone()).waiting(SEND_PATIENCE),
            form: destination.form,
            header: destination.header,
            head,
            sequence: 1,
            identification,
            due: identification.map(|_| Instant::now()),
            paused_until: None,
            failure: None,
        }
    }

    /// Identifies the server if it is time, and again soon if that fails.
    fn identify(&mut self, now: Instant) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        let text = self.head.identification(self.form);
        let is_sent = self.send(&text, now);
        self.due = match self.identification {
            _ if !is_sent => Some(now + FAILURE_PAUSE),
            // An interval of zero means once.
            Some(interval) if !interval.is_zero() => Some(now + interval),
            _ => None,
        };
    }

    /// Returns a packet with these records.
    fn packet(&mut self, records: &[u8], times: (Seconds, Seconds)) -> Vec<u8> {
        let mut packet = self.head.line(self.form, self.header, self.sequence, times).into_bytes();
        packet.extend_from_slice(records);
        packet.push(0);
        self.skip(1);
        packet
    }

    fn skip(&mut self, numbers: u16) {
        self.sequence = self.sequence.saturating_add(numbers) % (SEQUENCE_MAX + 1);
    }

    /// Sends a packet. Returns `false` if it is lost.
    fn send(&mut self, packet: &[u8], now: Instant) -> bool {
        if self.paused_until.is_some_and(|until| now < until) {
            return false;
        }
        self.paused_until = None;
        let Err(error) = self.sender.try_send(packet) else { return true };
        // If the buffer of the socket is full, the packet is lost without an error.
        if error.kind() != ErrorKind::WouldBlock {
            self.failure = Some(error.to_string());
        }
        self.paused_until = self.sender.needs_look_up().then(|| now + FAILURE_PAUSE);
        false
    }
}

/// Fills packets of one stream and sends them. It needs a thread of its own, because it looks up the name of
/// the collector.
pub struct GStreamWriter {
    stream: GStream,
    messages: Receiver<GStreamMessage>,
    state: Arc<GStreamQueueState>,
    output: GStreamOutput,
    /// Maximum size of the records of a packet.
    records_max: usize,
    flush: Option<Duration>,
    /// The records of the next packet, separated by line feeds.
    buffer: Vec<u8>,
    /// Times of the first and the last record.
    times: (Seconds, Seconds),
    /// When the packet is sent even if it is not full.
    due: Option<Instant>,
    sample: Option<(TakeSample, Instant)>,
    /// Records lost before the last packet.
    counted: u64,
    losses: LossLog,
}

impl GStreamWriter {
    pub(super) fn new(
        stream: GStream,
        settings: &GStreamSettings,
        defaults: &DetailedMonitoring,
        output: GStreamOutput,
        (messages, state): GStreamReceiver,
    ) -> Self {
        let most = settings.packet_bytes_max.unwrap_or(defaults.plugin_buffer_bytes);
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(packet::PACKET_BYTES_MAX);
        let head_bytes = match &output {
            GStreamOutput::Text(output) => {
                let longest = (Seconds::MAX, Seconds::MAX);
                output.head.line(output.form, output.header, SEQUENCE_MAX, longest).len()
            }
            GStreamOutput::Collectors { .. } => BINARY_HEAD_BYTES,
        };
        // A NUL ends the records.
        let room = most.saturating_sub(head_bytes + 1);
        if room < RECORD_ROOM {
            tracing::warn!(
                "xrootd.mongstream: packets of {} are longer than {most} bytes, because their head has {head_bytes} \
                 and a record up to {RECORD_ROOM}",
                stream.name()
            );
        }
        Self {
            stream,
            messages,
            state,
            output,
            records_max: room.max(RECORD_ROOM),
            flush: settings.flush.or(defaults.flush),
            buffer: Vec::new(),
            times: (0, 0),
            due: None,
            sample: None,
            counted: 0,
            losses: LossLog::default(),
        }
    }

    /// Returns the stream.
    #[must_use]
    pub fn stream(&self) -> GStream {
        self.stream
    }

    /// Returns the maximum size of a record.
    pub(super) fn record_max(&self) -> usize {
        self.records_max
    }

    /// Adds records about the whole server whenever a packet is due.
    #[must_use]
    pub fn sampling(mut self, take: impl FnMut(usize) -> Vec<String> + Send + 'static) -> Self {
        self.sample = Some((Box::new(take), Instant::now() + self.flush.unwrap_or(SAMPLE_INTERVAL)));
        self
    }

    /// Sends packets until the server ends.
    pub fn run(mut self) {
        loop {
            let now = Instant::now();
            if let GStreamOutput::Text(output) = &mut self.output {
                output.identify(now);
            }
            self.send_due(now);
            self.log_losses(now);
            match self.messages.recv_timeout(self.wait(Instant::now())) {
                Ok(GStreamMessage::Record(record)) => {
                    let size = record.capacity();
                    self.add(&record, self::now(), Instant::now());
                    self.state.bytes.fetch_sub(size, Ordering::Release);
                }
                Ok(GStreamMessage::Flush(_done)) => self.flush_all(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.flush_all(),
            }
        }
    }

    /// Sends all records, with a last one about the whole server.
    fn flush_all(&mut self) {
        self.take_sample(Instant::now());
        self.flush();
    }

    /// Adds the records about the whole server. Reports whether there were any.
    fn take_sample(&mut self, now: Instant) -> bool {
        let Some((take, _)) = &mut self.sample else { return false };
        let records = take(self.records_max);
        records.iter().for_each(|record| self.add(record, self::now(), now));
        !records.is_empty()
    }

    /// Takes a sample and sends the packet, if it is time.
    pub(super) fn send_due(&mut self, now: Instant) {
        let interval = self.flush.unwrap_or(SAMPLE_INTERVAL);
        if let Some((_, due)) = &mut self.sample
            && now >= *due
        {
            *due = now + interval;
            if self.take_sample(now) {
                self.flush();
            }
        }
        if self.due.is_some_and(|due| now >= due) {
            self.flush();
        }
    }

    /// Adds a record to the packet.
    pub(super) fn add(&mut self, record: &str, time: Seconds, now: Instant) {
        if record.len() > self.records_max {
            self.state.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if self.buffer.len() + 1 + record.len() > self.records_max {
            self.flush();
        }
        match self.buffer.is_empty() {
            true => (self.times.0, self.due) = (time, self.flush.map(|flush| now + flush)),
            false => self.buffer.push(b'\n'),
        }
        self.times.1 = time;
        self.buffer.extend_from_slice(record.as_bytes());
    }

    /// Sends the packet, if it has records.
    pub(super) fn flush(&mut self) {
        self.due = None;
        let Some((packet, event)) = self.take_packet() else { return };
        match &mut self.output {
            GStreamOutput::Text(output) => {
                if !output.send(&packet, Instant::now()) {
                    self.state.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
            GStreamOutput::Collectors { streams, .. } => {
                streams.send(
                    |wanted| event.is_some_and(|event| wanted.has(event)),
                    SequenceKind::Own,
                    packet,
                );
            }
        }
    }

    /// Returns the packet and its event in the binary form; `None` if it has no records.
    pub(super) fn take_packet(&mut self) -> Option<(Vec<u8>, Option<MonitorEvent>)> {
        if self.buffer.is_empty() {
            return None;
        }
        // A packet keeps no spare memory, and neither does an idle stream.
        let records = std::mem::take(&mut self.buffer);
        let lost = self.state.lost.load(Ordering::Relaxed);
        let gap = if lost > self.counted { LOSS_GAP } else { 0 };
        self.counted = lost;
        let (begin, end) = self.times;
        match &mut self.output {
            GStreamOutput::Text(output) => {
                output.skip(gap);
                Some((output.packet(&records, (begin, end)), None))
            }
            GStreamOutput::Collectors { streams, event, sequence } => {
                *sequence = sequence.wrapping_add(u8::from(gap > 0));
                let mut packet = Vec::with_capacity(BINARY_HEAD_BYTES + records.len() + 1);
                let started = streams.started();
                MonitorPacketHeader { code: PacketCode::GSTREAM, sequence: 0, length: 0, started }
                    .encode(&mut packet);
                let (letter, server) = (self.stream.code(), streams.server());
                PacketContents { begin, end, letter, server, records: &records }.encode(&mut packet);
                MonitorPacketHeader::complete(&mut packet, *sequence);
                *sequence = sequence.wrapping_add(1);
                Some((packet, Some(*event)))
            }
        }
    }

    /// Returns the time without records after which there is something to do.
    fn wait(&self, now: Instant) -> Duration {
        let identification = match &self.output {
            GStreamOutput::Text(output) => output.due,
            GStreamOutput::Collectors { .. } => None,
        };
        let sample = self.sample.as_ref().map(|(_, due)| *due);
        let line = self.losses.next_line(self.state.lost.load(Ordering::Relaxed));
        let next = self.due.into_iter().chain(identification).chain(sample).chain(line).min();
        next.map_or(LONG, |next| next.saturating_duration_since(now))
    }

    /// Uses this look-up of names.
    #[cfg(test)]
    pub(super) fn look_up_by(&mut self, look_up: crate::sender::LookUp) {
        if let GStreamOutput::Text(output) = &mut self.output {
            output.sender.look_up_by(look_up);
        }
    }

    #[cfg(test)]
    pub(super) fn state_lost(&self) -> u64 {
        self.state.lost.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    fn log_losses(&mut self, now: Instant) {
        let lost = self.state.lost.load(Ordering::Relaxed);
        if let Some(new) = self.losses.due(lost, now) {
            let failure = match &mut self.output {
                GStreamOutput::Text(output) => output.failure.take(),
                GStreamOutput::Collectors { .. } => None,
            };
            tracing::warn!(
                "xrootd.mongstream: {new} records or packets of {} are lost, {lost} since the start: {}",
                self.stream.name(),
                failure.as_deref().unwrap_or("they cannot be sent fast enough")
            );
        }
    }
}
