//! `seed DIRECTORY`: writes the seeds of every target to `DIRECTORY/<target>/`.
//!
//! libFuzzer reads its initial corpus from files, so the recorded exchanges must be exported first.

use std::path::Path;

use anyhow::Context;

fn main() -> anyhow::Result<()> {
    let directory = std::env::args().nth(1).context("usage: seed DIRECTORY")?;
    for (target, _) in fuzz::TARGETS {
        let directory = Path::new(&directory).join(target);
        std::fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        for (index, seed) in fuzz::seeds::of(target)?.iter().enumerate() {
            let path = directory.join(format!("seed-{index:04}"));
            std::fs::write(&path, seed).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}
