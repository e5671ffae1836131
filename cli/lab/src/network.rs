//! Network namespaces, joined by a bridge: one for each lab host, and one,
//! the switch, where the coordinator and the collector live.

use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustix::thread::LinkNameSpaceType;

/// A network namespace that lives as long as this.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: String,
    fd: Arc<OwnedFd>,
}

impl Namespace {
    /// # Errors
    /// The kernel or `ip` refuses.
    fn create(name: &str) -> Result<Self> {
        ip(&["netns", "add", name])?;
        let path = format!("/run/netns/{name}");
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, rustix::fs::Mode::empty())
            .with_context(|| format!("cannot open {path}"))?;
        let namespace = Self { name: name.to_owned(), fd: Arc::new(fd) };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Runs `ip` in this namespace.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn ip(&self, arguments: &[&str]) -> Result<()> {
        let mut all = vec!["-n", self.name.as_str()];
        all.extend(arguments);
        ip(&all)
    }

    /// Moves the calling thread here; usable between fork and exec.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn enter(&self) -> std::io::Result<()> {
        rustix::thread::move_into_link_name_space(
            self.fd.as_fd(),
            Some(LinkNameSpaceType::Network),
        )?;
        Ok(())
    }
}

/// The bridge and the hosts plugged into it.
#[derive(Debug)]
pub struct Network {
    pub switch: Namespace,
}

/// The coordinator's address on the bridge.
pub const SWITCH_ADDRESS: &str = "10.77.0.1";

/// What the loopback device has, nearly: these hosts are one machine.
const MTU: &str = "65535";

impl Network {
    /// Needs a mount namespace of the caller's own.
    ///
    /// # Errors
    /// The kernel or `ip` refuses.
    pub fn create() -> Result<Self> {
        let switch = Namespace::create("switch")?;
        switch.ip(&["link", "add", "lab", "type", "bridge"])?;
        switch.ip(&["addr", "add", &format!("{SWITCH_ADDRESS}/16"), "dev", "lab"])?;
        switch.ip(&["link", "set", "lab", "up"])?;
        Ok(Self { switch })
    }

    /// Plugs a new host in: `eth0` there, `NAME` on the switch.
    ///
    /// # Errors
    /// The kernel or `ip` refuses.
    pub fn plug(&self, name: &str, number: usize) -> Result<Namespace> {
        let host = Namespace::create(name)?;
        let cable = ["link", "add", name, "mtu", MTU, "type", "veth"];
        let plug = ["peer", "name", "eth0", "mtu", MTU, "netns", name];
        self.switch.ip(&[&cable[..], &plug].concat())?;
        self.switch.ip(&["link", "set", name, "master", "lab", "up"])?;
        host.ip(&["addr", "add", &format!("{}/16", address(number, 0)), "dev", "eth0"])?;
        host.ip(&["link", "set", "eth0", "up"])?;
        Ok(host)
    }
}

/// The address of a host; `generation` counts its changes of address.
pub fn address(number: usize, generation: u8) -> String {
    format!("10.77.{}.{}", generation + 1, number + 1)
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output().context("cannot run `ip`")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("ip {}: {}", arguments.join(" "), said.trim());
    }
    Ok(())
}
