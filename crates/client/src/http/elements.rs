//! XML in replies, read element by element while it arrives.
//!
//! The memory is that of one element: a text or a tag of more than 64 KiB is an error.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use quick_xml::NsReader;
use quick_xml::events::Event;
use quick_xml::name::ResolveResult;
use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};

use super::exchange::HttpBody;
use crate::failure::Cause;

/// Maximum size of a tag or a text.
const EVENT_BYTES_MAX: usize = 64 * 1024;
/// Maximum size of all of a listing.
const LISTING_BYTES_MAX: u64 = 4 << 30;

/// A format of listings: its elements, and their meaning.
pub(super) trait ElementHandler: Send {
    /// A known element, or any other one.
    type Element: Copy + Send;
    /// An entry of the listing.
    type Entry;
    /// Maximum depth of elements.
    const DEPTH_MAX: usize;
    /// Maximum size of the text of an element.
    const VALUE_BYTES_MAX: usize;

    /// Returns the element with this name.
    fn element(namespace: &ResolveResult<'_>, name: &str) -> Self::Element;

    /// Begins an element within those that are open.
    fn start(&mut self, open: &[Self::Element], element: Self::Element) -> Result<(), Cause>;

    /// Ends an element, whose text is that behind its last inner element. Returns an entry when it is complete.
    fn end(
        &mut self,
        open: &[Self::Element],
        element: Self::Element,
        text: String,
    ) -> Result<Option<Self::Entry>, Cause>;
}

pub(super) fn bad(why: &str) -> Cause {
    Cause::BadAnswer(format!("the listing in it is malformed: {why}"))
}

/// The elements that are open.
struct OpenElements<H: ElementHandler> {
    open: Vec<H::Element>,
    /// The text of the innermost element.
    text: String,
    has_root: bool,
}

impl<H: ElementHandler> OpenElements<H> {
    fn start(&mut self, handler: &mut H, element: H::Element) -> Result<(), Cause> {
        if self.open.len() >= H::DEPTH_MAX {
            return Err(bad("it is too deep"));
        }
        handler.start(&self.open, element)?;
        self.has_root = true;
        self.text.clear();
        self.open.push(element);
        Ok(())
    }

    fn add_text(&mut self, text: &str) -> Result<(), Cause> {
        if self.text.len() + text.len() > H::VALUE_BYTES_MAX {
            return Err(bad("a value is too long"));
        }
        self.text.push_str(text);
        Ok(())
    }

    fn end(&mut self, handler: &mut H) -> Result<Option<H::Entry>, Cause> {
        let Some(element) = self.open.pop() else { return Err(bad("an element ends twice")) };
        handler.end(&self.open, element, std::mem::take(&mut self.text))
    }
}

/// Reads a listing, and passes each entry to `found`.
pub(super) async fn read_elements<H: ElementHandler, R: EventReader>(
    reader: R,
    handler: &mut H,
    mut found: impl FnMut(H::Entry) -> Result<(), Cause> + Send,
) -> Result<(), Cause> {
    let mut reader = NsReader::from_reader(reader);
    let mut elements = OpenElements::<H> { open: Vec::new(), text: String::new(), has_root: false };
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        reader.get_mut().begin()?;
        let event = reader.read_resolved_event_into_async(&mut buffer).await;
        let (namespace, event) = event.map_err(|error| cause_of(&error))?;
        let is_end = matches!(event, Event::Empty(_) | Event::End(_));
        match event {
            Event::Start(tag) | Event::Empty(tag) => {
                elements.start(handler, H::element(&namespace, tag.local_name().as_ref()))?;
            }
            Event::Text(text) => elements.add_text(&text)?,
            Event::CData(text) => elements.add_text(&text)?,
            Event::GeneralRef(reference) => elements.add_text(&resolved(&reference)?)?,
            // An entity could stand for any number of bytes.
            Event::DocType(_) => return Err(bad("it has a document type")),
            Event::End(_) | Event::Comment(_) | Event::PI(_) | Event::Decl(_) => {}
            Event::Eof if elements.open.is_empty() && elements.has_root => return Ok(()),
            Event::Eof => return Err(bad("it is incomplete")),
        }
        if is_end && let Some(entry) = elements.end(handler)? {
            found(entry)?;
        }
    }
}

/// Reads a listing that is there as a whole, which never waits.
pub(super) fn read_whole<H: ElementHandler>(
    text: &[u8],
    handler: &mut H,
    found: impl FnMut(H::Entry) -> Result<(), Cause> + Send,
) -> Result<(), Cause> {
    let read = pin!(read_elements(text, handler, found));
    match read.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(bad("it is incomplete")),
    }
}

/// A reader that limits the bytes of one event.
pub(super) trait EventReader: AsyncBufRead + Unpin + Send {
    /// Begins a new event.
    fn begin(&mut self) -> Result<(), Cause>;
}

/// Returns the character of a reference.
fn resolved(reference: &str) -> Result<String, Cause> {
    let number = |digits: &str, base| u32::from_str_radix(digits, base).ok().and_then(char::from_u32);
    let character = match reference {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        other => match other.strip_prefix("#x") {
            Some(digits) => number(digits, 16),
            None => other.strip_prefix('#').and_then(|digits| number(digits, 10)),
        },
    };
    character.map(String::from).ok_or_else(|| bad("it has an unknown entity"))
}

fn cause_of(error: &quick_xml::Error) -> Cause {
    match error {
        quick_xml::Error::Io(error) => {
            match error.get_ref().and_then(|inner| inner.downcast_ref::<Cause>()) {
                Some(cause) => cause.clone(),
                None => Cause::Lost(error.to_string()),
            }
        }
        error => bad(&error.to_string().chars().take(200).collect::<String>()),
    }
}

/// The body of a reply, as the reader of XML needs it.
pub(super) struct BodyReader<'a> {
    body: &'a mut HttpBody,
    data: Bytes,
    /// Bytes that this event may still have.
    left: usize,
    total: u64,
    is_ended: bool,
}

impl<'a> BodyReader<'a> {
    pub(super) fn new(body: &'a mut HttpBody) -> Self {
        Self { body, data: Bytes::new(), left: 0, total: 0, is_ended: false }
    }
}

impl EventReader for BodyReader<'_> {
    fn begin(&mut self) -> Result<(), Cause> {
        self.left = EVENT_BYTES_MAX;
        if self.total > LISTING_BYTES_MAX {
            return Err(Cause::TooLarge(format!("{LISTING_BYTES_MAX} bytes")));
        }
        Ok(())
    }
}

impl AsyncBufRead for BodyReader<'_> {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        if this.left == 0 {
            return Poll::Ready(Err(io::Error::other(bad("an element is too long"))));
        }
        while this.data.is_empty() && !this.is_ended {
            match ready!(this.body.poll_chunk(context)) {
                Ok(Some(data)) => this.data = data,
                Ok(None) => this.is_ended = true,
                Err(cause) => return Poll::Ready(Err(io::Error::other(cause))),
            }
        }
        let length = this.data.len().min(this.left);
        Poll::Ready(Ok(this.data.get(..length).unwrap_or_default()))
    }

    fn consume(self: Pin<&mut Self>, count: usize) {
        let this = self.get_mut();
        this.data.advance(count.min(this.data.len()));
        this.left = this.left.saturating_sub(count);
        this.total += count as u64;
    }
}

impl AsyncRead for BodyReader<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let data = ready!(self.as_mut().poll_fill_buf(context))?;
        let count = data.len().min(into.remaining());
        into.put_slice(data.get(..count).unwrap_or_default());
        self.consume(count);
        Poll::Ready(Ok(()))
    }
}

impl EventReader for &[u8] {
    fn begin(&mut self) -> Result<(), Cause> {
        Ok(())
    }
}
