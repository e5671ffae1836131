//! `cargo run --release -p gleaner-move --example moves -- MIB [ROUNDS]`: how
//! long a guest of so many MiB is away, as root.

#![allow(clippy::print_stdout, reason = "its answer")]

use std::error::Error;
use std::path::{Path, PathBuf};

use gleaner_move::Engine;
use gleaner_move::bench::sample;
use gleaner_move::trial::Site;

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let mib = numbers.next().unwrap_or(Ok(64))?;
    let rounds = numbers.next().unwrap_or(Ok(5))?;
    let home = tempfile::tempdir()?;
    std::fs::set_permissions(home.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let unified = Path::new("/sys/fs/cgroup/unified");
    let mount = if unified.is_dir() { unified } else { Path::new("/sys/fs/cgroup") };
    let groups: PathBuf = mount.join(format!("gleaner-moves-{}", std::process::id()));
    let site = Site::new(Engine::find(None)?, &groups, home.path())?;
    for _ in 0..rounds {
        println!("{:?}", sample(&site, mib)?);
    }
    std::fs::remove_dir(&groups)?;
    Ok(())
}
