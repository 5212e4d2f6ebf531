//! `seed FOLDER`: writes the seeds of every target to `FOLDER/<target>/`.
//!
//! libFuzzer reads its initial corpus from files, so the recorded exchanges must be exported first.

use std::path::Path;

use anyhow::Context;

fn main() -> anyhow::Result<()> {
    let folder = std::env::args().nth(1).context("usage: seed FOLDER")?;
    for (target, _) in fuzz::TARGETS {
        let folder = Path::new(&folder).join(target);
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        for (index, seed) in fuzz::seeds::of(target)?.iter().enumerate() {
            let path = folder.join(format!("seed-{index:04}"));
            std::fs::write(&path, seed).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}
