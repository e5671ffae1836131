//! Bare QUIC between two workstations of a lab, over its network and with the
//! settings and certificates that agents have among themselves: the floor of
//! whatever goes over it. An end has a thread of its own, because a thread is
//! in one network.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use gleaner_lab::Lab;
use gleaner_lab::network::{Namespace, address};
use gleaner_shell::clock::Clock;
use gleaner_shell::endpoint::{AdmitPeer, PeerStanding, dial_peer, listen_to_peers};
use gleaner_shell::identity::Identity;
use quinn::{Connection, Endpoint, RecvStream, SendStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::messages::What;

/// One end: an agent's identity, its name, and where its workstation is in
/// the lab's network.
pub(crate) struct End {
    identity: Identity,
    name: String,
    network: Option<Namespace>,
    ip: IpAddr,
}

impl End {
    pub(crate) fn of(lab: &Lab, number: usize) -> Result<Self> {
        let host = lab.hosts.get(number).context("so many hosts")?;
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
        Ok(listen_to_peers((self.ip, 0).into(), &self.identity, nobody_revoked())?)
    }
}

/// As if the coordinator had just said so.
fn nobody_revoked() -> Arc<AdmitPeer> {
    Arc::new(|_| PeerStanding::Good(Clock::new().wall()))
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Answers whatever comes with its first byte, until it is dropped.
pub(crate) struct Echo {
    name: String,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Echo {
    pub(crate) fn start(end: End) -> Result<Self> {
        let (name, (bound, address)) = (end.name.clone(), channel());
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || serve(&end, &bound, stopped));
        let Ok(address) = address.recv() else {
            let ended = thread.join().map_err(|_| anyhow::anyhow!("the echo panicked"))?;
            return Err(ended.err().context("the echo ended at once")?);
        };
        Ok(Self { name, address, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // What it found wrong, whoever asked it has found already.
            let _ = thread.join();
        }
    }
}

fn serve(end: &End, bound: &Sender<SocketAddr>, stop: oneshot::Receiver<()>) -> Result<()> {
    runtime()?.block_on(async {
        let endpoint = end.listen()?;
        bound.send(endpoint.local_addr()?)?;
        let accept = async {
            while let Some(incoming) = endpoint.accept().await {
                tokio::spawn(async { answer(incoming.await?).await });
            }
        };
        tokio::select! {
            () = accept => {}
            _ = stop => endpoint.close(0_u32.into(), b""),
        }
        Ok(())
    })
}

async fn answer(connection: Connection) -> Result<()> {
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
    Ok(())
}

/// Asks an echo from the calling thread, which it takes to its end's network.
pub(crate) struct Asker {
    end: End,
    runtime: Runtime,
    endpoint: Endpoint,
}

/// An open stream to an echo.
pub(crate) struct Asked(Connection, SendStream, RecvStream);

impl Asker {
    pub(crate) fn new(end: End) -> Result<Self> {
        let runtime = runtime()?;
        let endpoint = runtime.block_on(async { end.listen() })?;
        Ok(Self { end, runtime, endpoint })
    }

    /// One round trip.
    pub(crate) fn dial(&self, echo: &Echo) -> Result<Asked> {
        self.runtime.block_on(async {
            let Self { end, endpoint, .. } = self;
            let addresses = [echo.address];
            let connection =
                dial_peer(endpoint, &end.identity, &echo.name, &addresses, nobody_revoked())
                    .await?;
            let (send, receive) = connection.open_bi().await?;
            Ok(Asked(connection, send, receive))
        })
    }

    /// Another one.
    pub(crate) fn ask(&self, asked: &mut Asked, bytes: &[u8]) -> Result<()> {
        self.runtime.block_on(async {
            asked.1.write_all(bytes).await?;
            asked.2.read_exact(&mut [0]).await?;
            Ok(())
        })
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.close(0_u32.into(), b"");
    }
}
