//! Layout of names in columns, and tables with aligned columns.

use unicode_width::UnicodeWidthStr;

use crate::printer::{Colour, OutputText, out};

/// Number of blanks between columns.
const GAP: usize = 2;

/// Arranges names in as many columns as fit, top to bottom, each in its colour.
pub(super) fn lay_out(names: &[(&str, Option<Colour>)], width: usize) -> OutputText {
    let mut text = out().text();
    let widths: Vec<usize> = names.iter().map(|(name, _)| text.shown(name).width()).collect();
    let mut rows = 1;
    let columns = loop {
        let columns: Vec<usize> =
            widths.chunks(rows).map(|column| column.iter().copied().max().unwrap_or(0) + GAP).collect();
        if rows >= names.len() || columns.iter().sum::<usize>() <= width + GAP {
            break columns;
        }
        rows += 1;
    };
    for row in 0..rows.min(names.len()) {
        for (column, wide) in columns.iter().enumerate() {
            let index = column * rows + row;
            let (Some((name, colour)), Some(own)) = (names.get(index), widths.get(index)) else { continue };
            text.add_coloured(name, *colour);
            if index + rows < names.len() {
                text.blanks(wide - own);
            }
        }
        text.literal("\n");
    }
    text
}

/// The alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Align {
    Left,
    Right,
}

/// Formats rows with columns as wide as their widest cell. The last column is not padded.
pub(super) fn table(aligns: &[Align], rows: &[Vec<String>]) -> OutputText {
    let (mut table, mut text) = (AlignedTable::new(aligns), out().text());
    rows.iter().for_each(|row| table.measure(row));
    rows.iter().for_each(|row| table.add(&mut text, row, None));
    text
}

/// A table whose rows are generated twice, first to be measured, then to be printed. The whole
/// table is therefore never in memory.
pub(super) struct AlignedTable<'a> {
    aligns: &'a [Align],
    widths: Vec<usize>,
}

impl<'a> AlignedTable<'a> {
    pub(super) fn new(aligns: &'a [Align]) -> Self {
        Self { aligns, widths: vec![0; aligns.len()] }
    }

    /// Widens the columns to the cells of a row.
    pub(super) fn measure(&mut self, row: &[String]) {
        let text = out().text();
        for (widest, cell) in self.widths.iter_mut().zip(row) {
            *widest = (*widest).max(text.shown(cell).width());
        }
    }

    /// Adds a row. The last cell is coloured.
    pub(super) fn add(&self, text: &mut OutputText, row: &[String], colour: Option<Colour>) {
        for (index, cell) in row.iter().enumerate() {
            let cell = text.shown(cell).into_owned();
            let pad = self.widths.get(index).map_or(0, |width| width.saturating_sub(cell.width()));
            let is_last = index + 1 == row.len();
            match self.aligns.get(index) {
                Some(Align::Right) => text.blanks(pad).add_coloured(&cell, colour.filter(|_| is_last)),
                _ if is_last => text.add_coloured(&cell, colour),
                _ => text.add(&cell).blanks(pad),
            };
            if !is_last {
                text.blanks(GAP);
            }
        }
        text.literal("\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_columns_as_fit() {
        let names = ["a", "bb", "ccc", "日本", "e"].map(|name| (name, None));
        assert_eq!(lay_out(&names, 80).to_string(), "a  bb  ccc  日本  e\n");
        assert_eq!(lay_out(&names, 13).to_string(), "a   ccc   e\nbb  日本\n");
        assert_eq!(lay_out(&names, 1).to_string(), "a\nbb\nccc\n日本\ne\n");
        assert_eq!(lay_out(&[], 80).to_string(), "");
    }

    #[test]
    fn cells_stand_below_each_other() {
        let rows = [vec!["a".into(), "1".into(), "x".into()], vec!["bcd".into(), "100".into(), "yy".into()]];
        let text = table(&[Align::Left, Align::Right, Align::Left], &rows).to_string();
        assert_eq!(text, "a      1  x\nbcd  100  yy\n");
    }
}
