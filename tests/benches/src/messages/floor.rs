//! The barest that does the same.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

use anyhow::{Context, Result};
use gleaner_lab::Lab;
use gleaner_lab::network::{Namespace, address};
use gleaner_shell::endpoint::{dial_peer, listen_to_peers};
use gleaner_shell::identity::Identity;
use quinn::Endpoint;
use tokio::runtime::{Builder, Runtime};

use super::rank::{Figures, What, measure};
use crate::own_binary;

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

/// One end of the bare stream: an agent's identity, its name, and where its
/// workstation is in the lab's network.
struct End {
    identity: Identity,
    name: String,
    network: Option<Namespace>,
    ip: IpAddr,
}

impl End {
    fn of(lab: &Lab, number: usize) -> Result<Self> {
        let host = lab.hosts.get(number).context("two hosts")?;
        let (network, name) = (host.network.clone(), host.name.clone());
        let ip = match network {
            Some(_) => address(host.number, 0).parse()?,
            None => Ipv4Addr::LOCALHOST.into(),
        };
        Ok(Self { identity: Identity::load(&host.identity())?, name, network, ip })
    }

    /// Goes there with the calling thread.
    fn listen(&self) -> Result<Endpoint> {
        if let Some(network) = &self.network {
            network.enter()?;
        }
        Ok(listen_to_peers((self.ip, 0).into(), &self.identity)?)
    }
}

/// Between two workstations of the lab, over its network and with the settings
/// that agents have among themselves; each end a thread of its own.
pub(super) fn quic(lab: &Lab, rounds: u32) -> Result<Figures> {
    let (theirs, ours) = (End::of(lab, 0)?, End::of(lab, 1)?);
    let name = theirs.name.clone();
    let (bound, address) = channel();
    std::thread::scope(|scope| {
        let echo = scope.spawn(move || serve(&theirs, |address| Ok(bound.send(address)?)));
        let figures = scope.spawn(move || {
            let address = address.recv().context("nobody listens")?;
            ask(&ours, &name, address, rounds)
        });
        let figures = figures.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the end panicked")));
        let echo = echo.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the echo panicked")));
        // Without an echo there is nothing to ask.
        echo.and(figures)
    })
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

fn serve(end: &End, bound: impl FnOnce(SocketAddr) -> Result<()>) -> Result<()> {
    runtime()?.block_on(async {
        let endpoint = end.listen()?;
        bound(endpoint.local_addr()?)?;
        let connection = endpoint.accept().await.context("nobody dials")?.await?;
        let (mut send, mut receive) = connection.accept_bi().await?;
        let (mut first, mut buffer) = ([0], vec![0; 256 << 10]);
        while receive.read_exact(&mut first).await.is_ok() {
            let mut left = What::rest(first[0]);
            while left > 0 {
                let most = left.min(buffer.len());
                left -= receive.read(&mut buffer[..most]).await?.context("cut short")?;
            }
            send.write_all(&first).await?;
        }
        connection.close(0_u32.into(), b"");
        endpoint.wait_idle().await;
        Ok(())
    })
}

fn ask(end: &End, name: &str, address: SocketAddr, rounds: u32) -> Result<Figures> {
    let runtime = runtime()?;
    let (endpoint, (mut send, mut receive)) = runtime.block_on(async {
        let endpoint = end.listen()?;
        let connection = dial_peer(&endpoint, &end.identity, name, &[address]).await?;
        anyhow::Ok((endpoint, connection.open_bi().await?))
    })?;
    let (one, block) = (What::One.spoken(), What::Block.spoken());
    let figures = measure(rounds, |what| {
        let bytes = if what == What::One { &one } else { &block };
        runtime.block_on(async {
            send.write_all(bytes).await?;
            receive.read_exact(&mut [0]).await?;
            anyhow::Ok(())
        })
    });
    runtime.block_on(async {
        let _ = send.finish();
        endpoint.wait_idle().await;
    });
    figures
}
