//! The page on performance in `docs`, in which this program replaces only the results.

use anyhow::{Context, bail};
use std::fs;
use std::path::Path;

use crate::report::{BenchResults, markdown};

/// The lines around the part that this program writes.
const BEGIN: &str =
    "<!-- Measured by `make bench`; written by `make bench BENCH=--write-docs`. Do not edit: -->";
const END: &str = "<!-- End of what was measured. -->";

/// Writes the results into the page.
pub(crate) fn write(page: &Path, results: &BenchResults) -> anyhow::Result<()> {
    let text = fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let text = filled(&text, &markdown(results)).with_context(|| page.display().to_string())?;
    fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
}

/// Returns the page with the part between the two lines replaced.
fn filled(page: &str, content: &str) -> anyhow::Result<String> {
    let around = page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, behind)) = around else {
        bail!("the page needs these two lines, between which the results go:\n{BEGIN}\n{END}");
    };
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{END}{behind}", content.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_outside_of_the_marks_is_kept() {
        let page = format!("# Title\n\n{BEGIN}\nold\n{END}\n\n## More\n");
        let once = filled(&page, "new\n").unwrap();
        assert_eq!(once, format!("# Title\n\n{BEGIN}\n\nnew\n\n{END}\n\n## More\n"));
        assert_eq!(filled(&once, "new\n").unwrap(), once);
        assert!(filled("# Title\n", "new").is_err());
        assert!(filled(&format!("{END}{BEGIN}"), "new").is_err());
    }

    #[test]
    fn the_page_in_docs_contains_the_marks() {
        filled(include_str!("../../../docs/performance.md"), "new").unwrap();
    }
}
