//! [`OpenFileTotals`]: what went through one open file.

use wire::monitoring::{FileOperations, FileSquares, FileTotals};

/// What went through one open file.
#[derive(Default)]
pub(super) struct OpenFileTotals {
    /// The id of the file.
    pub(super) id: u32,
    /// Bytes.
    pub(super) totals: FileTotals,
    operations: FileOperations,
    squares: FileSquares,
    /// Something went through the file since the last record about it.
    pub(super) is_changed: bool,
}

impl OpenFileTotals {
    pub(super) fn new(id: u32) -> Self {
        Self { id, ..Self::default() }
    }

    pub(super) fn read(&mut self, bytes: u32) {
        self.is_changed = true;
        self.totals.read += u64::from(bytes);
        self.squares.read += square(bytes);
        count(&mut self.operations.reads, &mut self.operations.read_sizes, bytes);
    }

    pub(super) fn write(&mut self, bytes: u32) {
        self.is_changed = true;
        self.totals.written += u64::from(bytes);
        self.squares.written += square(bytes);
        count(&mut self.operations.writes, &mut self.operations.write_sizes, bytes);
    }

    pub(super) fn read_vector(&mut self, bytes: u32, elements: u16) {
        self.is_changed = true;
        let operations = &mut self.operations;
        self.totals.vector_read += u64::from(bytes);
        self.squares.vector_read += square(bytes);
        self.squares.elements += square(elements.into());
        operations.all_elements += u64::from(elements);
        let (least, most) = &mut operations.elements;
        *least = if operations.vector_reads == 0 { elements } else { elements.min(*least) };
        *most = elements.max(*most);
        count(&mut operations.vector_reads, &mut operations.vector_sizes, bytes);
    }

    /// Returns the numbers of operations.
    pub(super) fn operations(&self) -> FileOperations {
        self.operations
    }

    /// Returns the sums of squares.
    pub(super) fn squares(&self) -> FileSquares {
        self.squares
    }
}

fn count(number: &mut u32, (least, most): &mut (u32, u32), bytes: u32) {
    *least = if *number == 0 { bytes } else { bytes.min(*least) };
    *most = bytes.max(*most);
    *number = number.saturating_add(1);
}

fn square(value: u32) -> f64 {
    f64::from(value) * f64::from(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_counted_with_their_least_and_largest_sizes() {
        let mut file = OpenFileTotals::new(3);
        assert!(!file.is_changed);
        for bytes in [10, 3, 20] {
            file.read(bytes);
        }
        file.write(0);
        file.write(5);
        file.read_vector(100, 4);
        file.read_vector(50, 7);
        assert!(file.is_changed);
        assert_eq!(file.totals, FileTotals { read: 33, vector_read: 150, written: 5 });
        let expected = FileOperations {
            reads: 3,
            vector_reads: 2,
            writes: 2,
            elements: (4, 7),
            all_elements: 11,
            read_sizes: (3, 20),
            vector_sizes: (50, 100),
            write_sizes: (0, 5),
        };
        assert_eq!(file.operations(), expected);
        let squares = FileSquares { read: 509.0, vector_read: 12_500.0, elements: 65.0, written: 25.0 };
        assert_eq!(file.squares(), squares);
    }
}
