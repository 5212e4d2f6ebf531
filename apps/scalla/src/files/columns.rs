//! Names in columns, and tables whose columns are aligned.

use unicode_width::UnicodeWidthStr;

/// Blanks between columns.
const GAP: usize = 2;

/// Lays names out in as many columns as fit, downwards. Each has the text to show beside what its width is measured by.
pub(super) fn lay_out(names: &[(String, String)], width: usize) -> String {
    let widths: Vec<usize> = names.iter().map(|(plain, _)| plain.width()).collect();
    let mut rows = 1;
    let columns = loop {
        let columns: Vec<usize> =
            widths.chunks(rows).map(|column| column.iter().copied().max().unwrap_or(0) + GAP).collect();
        if rows >= names.len() || columns.iter().sum::<usize>() <= width + GAP {
            break columns;
        }
        rows += 1;
    };
    let mut out = String::new();
    for row in 0..rows.min(names.len()) {
        for (column, wide) in columns.iter().enumerate() {
            let index = column * rows + row;
            let (Some((_, shown)), Some(own)) = (names.get(index), widths.get(index)) else { continue };
            out.push_str(shown);
            if index + rows < names.len() {
                out.push_str(&" ".repeat(wide - own));
            }
        }
        out.push('\n');
    }
    out
}

/// How a column is aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Align {
    Left,
    Right,
}

/// Rows with columns as wide as their widest cell; the last column is as it is.
pub(super) fn table(aligns: &[Align], rows: &[Vec<String>]) -> String {
    let widest = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..aligns.len()).map(widest).collect();
    let mut out = String::new();
    for row in rows {
        for (index, cell) in row.iter().enumerate() {
            let pad = widths.get(index).map_or(0, |width| width.saturating_sub(cell.width()));
            let pad = " ".repeat(pad);
            let last = index + 1 == row.len();
            match aligns.get(index) {
                Some(Align::Right) => out.extend([pad.as_str(), cell]),
                _ if last => out.push_str(cell),
                _ => out.extend([cell, pad.as_str()]),
            }
            if !last {
                out.push_str(&" ".repeat(GAP));
            }
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_columns_as_fit() {
        let names: Vec<(String, String)> =
            ["a", "bb", "ccc", "日本", "e"].iter().map(|name| ((*name).into(), (*name).into())).collect();
        assert_eq!(lay_out(&names, 80), "a  bb  ccc  日本  e\n");
        assert_eq!(lay_out(&names, 13), "a   ccc   e\nbb  日本\n");
        assert_eq!(lay_out(&names, 1), "a\nbb\nccc\n日本\ne\n");
        assert_eq!(lay_out(&[], 80), "");
    }

    #[test]
    fn cells_stand_below_each_other() {
        let rows = [vec!["a".into(), "1".into(), "x".into()], vec!["bcd".into(), "100".into(), "yy".into()]];
        assert_eq!(table(&[Align::Left, Align::Right, Align::Left], &rows), "a      1  x\nbcd  100  yy\n");
    }
}
