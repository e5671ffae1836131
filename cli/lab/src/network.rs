//! Network namespaces, joined by a bridge: one for each lab host, and one,
//! the switch, where the coordinator and the collector live.

use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustix::thread::LinkNameSpaceType;

use crate::wait;

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
        self.ask(arguments).map(drop)
    }

    fn ask(&self, arguments: &[&str]) -> Result<String> {
        let mut all = vec!["-n", self.name.as_str()];
        all.extend(arguments);
        ip(&all)
    }

    /// Does this device carry what is sent? Until the kernel has seen its other
    /// end, a moment after both are set up, all is lost.
    fn carries(&self, device: &str) -> Result<bool> {
        Ok(self.ask(&["link", "show", "dev", device])?.contains(" state UP "))
    }

    /// Sets what the kernel does in this network: files below `/proc/sys/net`.
    fn configure(&self, settings: &[(String, &str)]) -> std::io::Result<Vec<std::io::Result<()>>> {
        let write = || {
            self.enter()?;
            let set = |(name, value): &(String, &str)| {
                std::fs::write(format!("/proc/sys/net/{name}"), value)
            };
            Ok(settings.iter().map(set).collect())
        };
        let done = std::thread::scope(|scope| scope.spawn(write).join());
        done.unwrap_or_else(|_| Err(std::io::Error::other("a thread died")))
    }

    /// A switch looks into no packet; where the kernel can filter what a bridge
    /// passes on, it would for each.
    fn ask_no_firewall(&self) -> std::io::Result<()> {
        // Where it may not be switched off, it only takes longer.
        let off = FIREWALLS.map(|of| (format!("bridge/bridge-nf-call-{of}"), "0"));
        self.configure(&off).map(drop)
    }

    /// A second address outlives the first, which some kernels' defaults let it not.
    fn keep_second_addresses(&self) -> std::io::Result<()> {
        let on = ("ipv4/conf/eth0/promote_secondaries".to_owned(), "1");
        self.configure(&[on])?.into_iter().collect()
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

/// The kernel's, which it may ask of what a bridge passes on.
const FIREWALLS: [&str; 3] = ["iptables", "ip6tables", "arptables"];

/// The bridge and the hosts plugged into it.
#[derive(Debug)]
pub struct Network {
    pub switch: Namespace,
}

/// The coordinator's address on the bridge.
pub const SWITCH_ADDRESS: &str = "10.77.0.1";

/// What the loopback device has, nearly: these hosts are one machine.
const MTU: &str = "65535";

/// The bridge's own. Without one it takes the lowest of those plugged into it,
/// which the next host's may be; hosts that know the former one are then not
/// heard until they ask again, for up to a minute.
const SWITCH_HARDWARE_ADDRESS: &str = "02:00:0a:4d:00:01";

impl Network {
    /// Needs a mount namespace of the caller's own.
    ///
    /// # Errors
    /// The kernel or `ip` refuses.
    pub fn create() -> Result<Self> {
        let switch = Namespace::create("switch")?;
        let hardware = SWITCH_HARDWARE_ADDRESS;
        switch.ip(&["link", "add", "lab", "address", hardware, "type", "bridge"])?;
        switch.ip(&["addr", "add", &format!("{SWITCH_ADDRESS}/16"), "dev", "lab"])?;
        switch.ip(&["link", "set", "lab", "up"])?;
        switch.ask_no_firewall().context("cannot set up the switch")?;
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
        host.keep_second_addresses().context("cannot set up a host's network")?;
        host.ip(&["addr", "add", &format!("{}/16", address(number, 0)), "dev", "eth0"])?;
        host.ip(&["link", "set", "eth0", "up"])?;
        wait::until(&format!("{name} is plugged in"), wait::PATIENCE, || {
            Ok((host.carries("eth0")? && self.switch.carries(name)?).then_some(()))
        })?;
        Ok(host)
    }
}

/// The address of a host; `generation` counts its changes of address.
pub fn address(number: usize, generation: u8) -> String {
    format!("10.77.{}.{}", generation + 1, number + 1)
}

/// Gives a host another address of the bridge's.
///
/// # Errors
/// The kernel or `ip` refuses.
pub(crate) fn change_address(host: &Namespace, from: &str, to: &str) -> Result<()> {
    host.ip(&["addr", "add", &format!("{to}/16"), "dev", "eth0"])?;
    host.ip(&["addr", "del", &format!("{from}/16"), "dev", "eth0"])
}

fn ip(arguments: &[&str]) -> Result<String> {
    let output = Command::new("ip").args(arguments).output().context("cannot run `ip`")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("ip {}: {}", arguments.join(" "), said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_changes_its_address_has_the_new_one() {
        if crate::lab::own_mounts().is_err() {
            return gleaner_skip::without_lab("namespaces need root");
        }
        let network = Network::create().unwrap();
        let host = network.plug("host1", 1).unwrap();
        change_address(&host, &address(1, 0), &address(1, 1)).unwrap();
        let shown = host.ask(&["addr", "show", "dev", "eth0"]).unwrap();
        assert!(shown.contains("10.77.2.2/16") && !shown.contains("10.77.1.2/16"), "{shown}");
    }

    #[test]
    fn the_switch_is_known_by_one_address_whoever_is_plugged_in() {
        if crate::lab::own_mounts().is_err() {
            return gleaner_skip::without_lab("namespaces need root");
        }
        let network = Network::create().unwrap();
        let mut hosts = vec![];
        for number in 1..=4 {
            hosts.push(network.plug(&format!("host{number}"), number).unwrap());
            let shown = network.switch.ask(&["link", "show", "dev", "lab"]).unwrap();
            assert!(shown.contains(SWITCH_HARDWARE_ADDRESS), "{shown}");
        }
    }
}
