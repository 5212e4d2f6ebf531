//! `occupancy` (225): the slots in the cells of supervisors, several cells in one frame.
//!
//! An extension of Scalla.
//!
//! It exists so that the root knows every cell and can send a new node directly to its final place,
//! instead of along a chain of supervisors.
//!
//! For each cell:
//!
//! | argument | type   | meaning                                                                  |
//! |----------|--------|--------------------------------------------------------------------------|
//! | level    | u16    | 0: the sender's own cell; 1: that of a child supervisor; and so on       |
//! | id       | u64    | a hash of the supervisor's system id, identical on all nodes             |
//! | gone     | u16    | 1: the cell is unreachable for the sender; the next numbers are invalid  |
//! | free     | u16    | free slots, at most 64                                                   |
//! | parents  | u16    | slots of nodes with children, at most 64                                 |
//! | leaves   | u16    | slots of other nodes, at most 64                                         |
//! | cell     | text   | `host:port` for logins; absent at level 0, where it is known             |
//! | joined   | binary | ids of nodes that joined since the last report, 8 bytes each, big-endian |
//!
//! A node sends it after login for all cells, and later for changed cells, batched over a short
//! time. A supervisor relays the reports of its children with the level increased and `cell` filled
//! in. The joined nodes inform the root which of the redirected nodes have arrived. Direction: node
//! to parent. Sent only to peers with [`Extensions::OCCUPANCY`].
//!
//! [`Extensions::OCCUPANCY`]: crate::cms::Extensions::OCCUPANCY

use crate::cms::error::EncodeError;
use crate::cms::limits::PAYLOAD_BYTES_MAX;
use crate::cms::pup::{Arguments, Packer, Unpacker};
use crate::error::WireError;

/// Size in bytes of the id of a node.
const ID_BYTES: usize = 8;

/// The slots of several cells; see [`Occupancy::cells`] and [`CellBatch`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occupancy<'a> {
    cells: &'a [u8],
}

/// The slots of one cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CellPlaces<'a> {
    /// Depth of its supervisor below the sender; 0 is the sender itself.
    pub level: u16,
    /// Id of its supervisor.
    pub id: u64,
    /// The cell is unreachable for the sender.
    pub gone: bool,
    /// Free slots.
    pub free: u16,
    /// Slots of nodes with children.
    pub parents: u16,
    /// Slots of nodes without children.
    pub leaves: u16,
    /// `host:port` for logins; `None` at level 0.
    pub cell: Option<&'a [u8]>,
    /// Ids of nodes that have joined, in encoded form: see [`CellPlaces::joined`].
    /// [`CellBatch::push`] receives them separately and ignores this field.
    pub joined: &'a [u8],
}

impl<'a> Arguments<'a> for Occupancy<'a> {
    fn unpack(_modifier: u8, arguments: &mut Unpacker<'a>) -> Result<Self, WireError> {
        Ok(Self { cells: arguments.take_rest() })
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.bytes(self.cells);
        Ok(())
    }
}

impl<'a> Occupancy<'a> {
    /// Returns the cells. The iterator ends after an error, because the position of the next cell
    /// is unknown then.
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

    /// Returns the ids of the nodes that have joined. An incomplete id at the end is ignored.
    pub fn joined(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.joined.as_chunks::<ID_BYTES>().0.iter().map(|id| u64::from_be_bytes(*id))
    }
}

/// A builder that collects cells until a frame is full.
#[derive(Clone, Debug, Default)]
pub struct CellBatch {
    bytes: Vec<u8>,
}

impl CellBatch {
    /// Adds a cell and the nodes that have joined it. Returns `false` if the frame has no space for
    /// it; the caller then sends this batch, [clears](Self::clear) it and adds the cell again.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] for too many nodes for one frame or a cell name that is too long;
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

    /// Reports whether the batch contains no cell.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Removes all cells but keeps the allocated memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Returns the message with these cells.
    #[must_use]
    pub fn message(&self) -> Occupancy<'_> {
        Occupancy { cells: &self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_encode_and_decode() {
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
    fn a_batch_accepts_cells_up_to_one_frame() {
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
    fn an_incomplete_cell_ends_the_iterator_with_an_error() {
        let mut batch = CellBatch::default();
        batch.push(&CellPlaces::default(), &[5]).unwrap();
        let whole = batch.bytes.clone();
        for cut in 1..whole.len() {
            let bytes = [&whole[..], &whole[..cut]].concat();
            let cells: Vec<_> = Occupancy { cells: &bytes }.cells().collect();
            assert_eq!((cells.len(), cells[0].is_ok(), cells[1].is_err()), (2, true, true), "{cut}");
        }
        assert_eq!(Occupancy { cells: b"" }.cells().count(), 0);
    }
}
