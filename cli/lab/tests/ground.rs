//! The ground the labs stand on: terminals that are read, cgroups that end.

use std::process::{Command, Stdio};

use anyhow::Result;
use gleaner_lab::cgroup::{self, Cgroup, FrozenWatch};
use gleaner_lab::daemon::Home;
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_lab::{Terminal, network};
use rustix::fs::inotify;

#[test]
fn a_key_is_read_the_moment_it_is_typed() -> Result<()> {
    let mut terminal = Terminal::open(None)?;
    terminal.attach(Command::new("cat"), || Ok(()))?;
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK)?;
    inotify::add_watch(&watch, &terminal.path, inotify::WatchFlags::ACCESS)?;
    terminal.type_keys("x")?;
    until("the terminal is read", PATIENCE, || {
        let mut buffer = [0_u8; 512];
        Ok(rustix::io::read(&watch, &mut buffer).ok().filter(|read| *read > 0))
    })?;
    Ok(())
}

#[test]
fn nothing_outlives_a_labs_cgroup() -> Result<()> {
    let Some(group) = Cgroup::at_top(&format!("glean-ground-{}", std::process::id())) else {
        gleaner_skip::without_lab("cgroups are not writable here");
        return Ok(());
    };
    let path = group.create("below/deep")?;
    let home = Home { network: None, cgroup: Some(path.clone()) };
    let mut command = Command::new("sleep");
    command.arg("1000").stdin(Stdio::null());
    home.settle(&mut command)?;
    let mut child = command.spawn()?;
    assert_eq!(cgroup::processes(&group.path), [child.id()]);
    let mut watch = FrozenWatch::new(&path)?;
    std::fs::write(path.join("cgroup.freeze"), "1")?;
    until("it is frozen", PATIENCE, || Ok(watch.is_frozen().then_some(())))?;
    let top = group.path.clone();
    let reaper = std::thread::spawn(move || child.wait());
    drop(group);
    assert!(!top.exists(), "{} is gone", top.display());
    reaper.join().unwrap()?;
    Ok(())
}

#[test]
fn no_two_hosts_share_an_address() {
    let all = (1..=16).flat_map(|host| (0..3).map(move |change| network::address(host, change)));
    let mut all: Vec<_> = all.collect();
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count);
    assert!(!all.contains(&network::SWITCH_ADDRESS.to_owned()));
}
