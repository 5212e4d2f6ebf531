//! `occupancy` (225): the places in the cells of supervisors, several cells in a frame, one of our own messages.
//!
//! For each cell:
//!
//! | argument | type   | meaning                                                                              |
//! |----------|--------|--------------------------------------------------------------------------------------|
//! | level    | u16    | 0: the sender's own cell; 1: that of a supervisor that is its child; and so on       |
//! | id       | u64    | a number for the supervisor's system id that all nodes compute alike                 |
//! | gone     | u16    | 1: the cell is out of the sender's reach, and the numbers that follow mean nothing   |
//! | free     | u16    | places it can still give away, at most 64                                            |
//! | parents  | u16    | places of nodes with children, at most 64                                            |
//! | leaves   | u16    | places of other nodes, at most 64                                                    |
//! | cell     | text   | `host:port` where it takes logins; absent at level 0, where it is known              |
//! | joined   | binary | the numbers of nodes that have joined since the last report, 8 bytes each, big endian |
//!
//! Sent after login for all cells and then for those that changed, gathered for a moment. A supervisor relays the reports
//! of its children with the level increased and the cell filled in, so the root knows every cell and sends a newcomer to
//! its final place; the joined nodes tell it which of those it sent have arrived. Direction: node to parent. A real parent
//! never gets it (see [`Extensions::OCCUPANCY`]), and would skip it.
//!
//! [`Extensions::OCCUPANCY`]: crate::cms::Extensions::OCCUPANCY

use crate::cms::error::EncodeError;
use crate::cms::limits::PAYLOAD_BYTES_MAX;
use crate::cms::pup::{Packer, Unpacker};
use crate::error::WireError;

/// Bytes of a number of a node.
const ID_BYTES: usize = 8;

/// The places in cells; see [`Occupancy::cells`] and [`CellBatch`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occupancy<'a> {
    cells: &'a [u8],
}

/// The places in one cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CellPlaces<'a> {
    /// How far below the sender its supervisor is; 0: it is the sender.
    pub level: u16,
    /// The number of its supervisor.
    pub id: u64,
    /// Whether it is out of reach.
    pub gone: bool,
    /// Places it can still give away.
    pub free: u16,
    /// Places of nodes with children.
    pub parents: u16,
    /// Places of nodes without.
    pub leaves: u16,
    /// `host:port` where it takes logins; `None` at level 0.
    pub cell: Option<&'a [u8]>,
    /// The numbers of nodes that have joined, as they came: see [`CellPlaces::joined`]. [`CellBatch::push`] takes them
    /// beside the cell and ignores these.
    pub joined: &'a [u8],
}

impl<'a> Occupancy<'a> {
    pub(super) const fn decode(payload: &'a [u8]) -> Self {
        Self { cells: payload }
    }

    pub(super) fn pack(&self, packer: &mut Packer<'_>) {
        packer.bytes(self.cells);
    }

    /// The cells. An error ends them: what follows cannot be read.
    pub fn cells(&self) -> impl Iterator<Item = Result<CellPlaces<'a>, WireError>> + use<'a> {
        let mut arguments = Some(Unpacker::new(self.cells));
        std::iter::from_fn(move || {
            let mut rest = arguments.take().filter(|rest| !rest.is_empty())?;
            let cell = CellPlaces::decode(&mut rest);
            arguments = cell.is_ok().then_some(rest);
            Some(cell)
        })
    }
}

impl<'a> CellPlaces<'a> {
    fn decode(arguments: &mut Unpacker<'a>) -> Result<Self, WireError> {
        Ok(Self {
            level: arguments.u16("level")?,
            id: arguments.u64("id")?,
            gone: arguments.u16("gone")? != 0,
            free: arguments.u16("free")?,
            parents: arguments.u16("parents")?,
            leaves: arguments.u16("leaves")?,
            cell: arguments.optional("cell")?,
            joined: arguments.binary("joined")?,
        })
    }

    /// The numbers of the nodes that have joined. Bytes behind the last whole one are ignored.
    pub fn joined(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.joined.as_chunks::<ID_BYTES>().0.iter().map(|id| u64::from_be_bytes(*id))
    }
}

/// Collects cells until a frame is full.
#[derive(Clone, Debug, Default)]
pub struct CellBatch {
    bytes: Vec<u8>,
}

impl CellBatch {
    /// Adds a cell with the nodes that have joined it; `false` when it does not fit any more: send this batch,
    /// [`clear`](Self::clear) it, add the cell again.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] for more nodes than a frame can name or a name that is too long,
    /// [`EncodeError::Malformed`] for a name with a NUL.
    pub fn push(&mut self, cell: &CellPlaces<'_>, joined: &[u64]) -> Result<bool, EncodeError> {
        let start = self.bytes.len();
        let pushed = self.append(cell, joined);
        if pushed != Ok(true) {
            self.bytes.truncate(start);
        }
        pushed
    }

    fn append(&mut self, cell: &CellPlaces<'_>, joined: &[u64]) -> Result<bool, EncodeError> {
        let bytes = joined.len().saturating_mul(ID_BYTES);
        let too_long = EncodeError::TooLong { field: "joined", limit: PAYLOAD_BYTES_MAX / 2, bytes };
        let length = u16::try_from(bytes).ok().filter(|_| bytes <= PAYLOAD_BYTES_MAX / 2);
        let mut packer = Packer::new(&mut self.bytes);
        packer.u16(cell.level);
        packer.u64(cell.id);
        packer.u16(cell.gone.into());
        for number in [cell.free, cell.parents, cell.leaves] {
            packer.u16(number);
        }
        packer.optional("cell", cell.cell)?;
        packer.bytes(&length.ok_or(too_long)?.to_be_bytes());
        for id in joined {
            packer.bytes(&id.to_be_bytes());
        }
        Ok(self.bytes.len() <= PAYLOAD_BYTES_MAX)
    }

    /// Whether it holds no cell.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Empties it; its memory is kept.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The message with these cells.
    #[must_use]
    pub fn message(&self) -> Occupancy<'_> {
        Occupancy { cells: &self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_both_ways() {
        let own = CellPlaces { id: u64::MAX, free: 3, parents: 1, leaves: 60, ..CellPlaces::default() };
        let below =
            CellPlaces { level: 1, id: 7, gone: true, cell: Some(b"sup:1213"), ..CellPlaces::default() };
        let mut batch = CellBatch::default();
        assert_eq!(batch.push(&own, &[1, u64::MAX]), Ok(true));
        assert_eq!(batch.push(&below, &[]), Ok(true));
        let cells: Vec<_> = batch.message().cells().collect::<Result<_, _>>().unwrap();
        assert_eq!(
            cells.iter().map(|cell| cell.joined().collect()).collect::<Vec<Vec<_>>>(),
            [vec![1, u64::MAX], vec![]]
        );
        let bare: Vec<_> = cells.into_iter().map(|cell| CellPlaces { joined: b"", ..cell }).collect();
        assert_eq!(bare, [own, below]);
    }

    #[test]
    fn a_batch_takes_what_fits_a_frame() {
        let mut batch = CellBatch::default();
        let joined = [0; 500];
        let fitted = (0..100).take_while(|_| batch.push(&CellPlaces::default(), &joined).unwrap()).count();
        assert_eq!(fitted, 4);
        assert_eq!(batch.message().cells().filter(Result::is_ok).count(), fitted);
        assert!(matches!(batch.push(&CellPlaces::default(), &[0; 1025]), Err(EncodeError::TooLong { .. })));
        batch.clear();
        assert!(batch.is_empty());
    }

    #[test]
    fn what_cannot_be_read_ends_the_cells() {
        let mut batch = CellBatch::default();
        batch.push(&CellPlaces::default(), &[5]).unwrap();
        let whole = batch.bytes.clone();
        for cut in 1..whole.len() {
            let bytes = [&whole[..], &whole[..cut]].concat();
            let cells: Vec<_> = Occupancy::decode(&bytes).cells().collect();
            assert_eq!((cells.len(), cells[0].is_ok(), cells[1].is_err()), (2, true, true), "{cut}");
        }
        assert_eq!(Occupancy::decode(b"").cells().count(), 0);
    }
}
