//! The barest that does the same.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use anyhow::Result;
use gleaner_lab::Lab;

use super::rank::{Figures, What, measure};
use crate::own_binary;
use crate::quic::{Asker, Echo, End};

/// Through a third process, as two ranks of one workstation through their agent.
pub(super) fn sockets(rounds: u32) -> Result<Figures> {
    let (mut own, relay_in) = UnixStream::pair()?;
    let (relay_out, echo) = UnixStream::pair()?;
    let program = own_binary()?;
    let part = |part: &str| {
        let mut command = Command::new(&program);
        command.args(["ping", "--part", part]);
        command
    };
    let ends = |end: UnixStream| Stdio::from(OwnedFd::from(end));
    let mut relay = part("relay").stdin(ends(relay_in)).stdout(ends(relay_out)).spawn()?;
    let mut echo = part("echo").stdin(ends(echo)).stdout(Stdio::null()).spawn()?;
    let (one, block) = (What::One.spoken(), What::Block.spoken());
    let figures = measure(rounds, |what| {
        own.write_all(if what == What::One { &one } else { &block })?;
        own.read_exact(&mut [0])?;
        anyhow::Ok(())
    });
    own.shutdown(std::net::Shutdown::Both)?;
    relay.wait()?;
    echo.wait()?;
    figures
}

/// Between two workstations of the lab.
pub(super) fn quic(lab: &Lab, rounds: u32) -> Result<Figures> {
    let echo = Echo::start(End::of(lab, 0)?)?;
    let end = End::of(lab, 1)?;
    let ask = || {
        let asker = Asker::new(end)?;
        let mut stream = asker.dial(&echo)?;
        let (one, block) = (What::One.spoken(), What::Block.spoken());
        measure(rounds, |what| {
            asker.ask(&mut stream, if what == What::One { &one } else { &block })
        })
    };
    std::thread::scope(|scope| scope.spawn(ask).join())
        .unwrap_or_else(|_| Err(anyhow::anyhow!("the end panicked")))
}
