//! An enrolled agent that does what an attack says: it speaks the real protocol over
//! real QUIC, with a certificate that a token gave it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use gleaner_common::id::{BootId, Fence, Incarnation, WorkstationId};
use gleaner_common::job::Outcome;
use gleaner_common::program::{Handover, HandoverReply};
use gleaner_common::usage::LoadAverages;
use gleaner_common::wire::{
    AgentFrame, AttemptEvent, CoordinatorFrame, Facts, Finished, Offer, Presence, Printed, Purpose,
};
use gleaner_lab::wait::PATIENCE;
use gleaner_shell::clock::Clock;
use gleaner_shell::endpoint::{
    AdmitPeer, Credentials, Link, PeerStanding, connect, dial_peer, listen_to_peers,
};
use gleaner_shell::identity::Identity;
use gleaner_shell::stream::{self, FrameReader, FrameWriter, read_opening};
use quinn::{Connection, Endpoint};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::world::runtime;

/// Where agents of the lab take each other's calls.
pub const PEERS_PORT: u16 = 4434;

/// A host's own address on the lab's network.
///
/// # Errors
/// There is no host of that number.
pub fn peers_port(host: usize) -> Result<SocketAddr> {
    let ip = gleaner_lab::network::address(host, 0);
    Ok(SocketAddr::new(ip.parse()?, PEERS_PORT))
}

/// An attacker speaks with whoever has a certificate.
pub fn anybody() -> Arc<AdmitPeer> {
    Arc::new(|_: &[u8]| PeerStanding::Good(Clock.wall()))
}

/// How often the coordinator hears of it.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// A stream that another agent has opened to this one.
#[derive(Debug)]
pub struct Opened {
    pub purpose: Purpose,
    pub writer: FrameWriter,
    pub reader: FrameReader,
}

/// The agent.
#[derive(Debug)]
pub struct Peer {
    pub runtime: Runtime,
    pub identity: Identity,
    pub link: Link,
    pub endpoint: Endpoint,
    pub workstation: WorkstationId,
    /// What it has to give, as it says.
    slots: Arc<AtomicU16>,
    orders: UnboundedSender<AgentFrame>,
    heard: Receiver<CoordinatorFrame>,
    opened: Receiver<Opened>,
}

/// With nobody at the keyboard, and so many cores to give.
pub fn presence(slots: u16) -> Presence {
    Presence {
        busy: slots == 0,
        reason: "nobody here".into(),
        lasted: Duration::from_secs(600),
        slots,
        load: LoadAverages::default(),
        users: 0,
    }
}

pub fn hello(facts: Facts, slots: u16) -> AgentFrame {
    AgentFrame::Hello {
        incarnation: Incarnation(7),
        boot: BootId([7; 16]),
        facts: Box::new(facts),
        presence: presence(slots),
        held: vec![],
        seen: gleaner_common::id::Fence::default(),
    }
}

/// The end of an attempt, as an agent tells it.
pub fn finished(fence: Fence, said: &str) -> Finished {
    Finished {
        fence,
        outcome: Outcome::Succeeded,
        cpu: Duration::from_millis(5),
        ran: Duration::from_millis(5),
        suspended: Duration::ZERO,
        suspensions: 0,
        stdout: Printed::Inline(said.into()),
        stderr: Printed::default(),
        outputs: vec![],
    }
}

impl Peer {
    /// Joins the lab as a workstation with so many cores to give, and that memory.
    ///
    /// # Errors
    /// The coordinator does not take it.
    pub fn join(identity: Identity, mut facts: Facts, slots: u16) -> Result<Self> {
        let runtime = runtime()?;
        let (orders, order) = unbounded_channel();
        let (tell, heard) = channel();
        let (open, opened) = channel();
        let given = Arc::new(AtomicU16::new(slots));
        let (endpoint, link, welcome) = runtime.block_on(async {
            let endpoint = listen_to_peers("0.0.0.0:0".parse()?, &identity, anybody())?;
            let ours = gleaner_lab::network::SWITCH_ADDRESS.parse()?;
            facts.addresses = vec![SocketAddr::new(ours, endpoint.local_addr()?.port())];
            facts.cores = 1;
            facts.places = 1;
            let credentials = Credentials::Identity(&identity);
            let link = connect(&identity.coordinator, credentials, None).await?;
            let (mut writer, mut reader) = stream::open(&link.connection, Purpose::Agent).await?;
            writer.send(&hello(facts, slots)).await?;
            let welcome = reader.expect::<CoordinatorFrame>().await?;
            tokio::spawn(speak((writer, reader), Arc::clone(&given), order, tell));
            tokio::spawn(take_calls(endpoint.clone(), open.clone()));
            tokio::spawn(take_streams(link.connection.clone(), open));
            Ok::<_, anyhow::Error>((endpoint, link, welcome))
        })?;
        let CoordinatorFrame::Welcome { workstation, .. } = welcome else {
            bail!("not welcome: {welcome:?}")
        };
        let slots = given;
        Ok(Self { runtime, identity, link, endpoint, workstation, slots, orders, heard, opened })
    }

    /// Says something to the coordinator.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn say(&self, frame: AgentFrame) -> Result<()> {
        if let AgentFrame::Presence(presence) = &frame {
            self.slots.store(presence.slots, Ordering::Relaxed);
        }
        self.orders.send(frame).context("the connection has ended")
    }

    /// Says something of an attempt.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn tell(&self, event: AttemptEvent) -> Result<()> {
        self.say(AgentFrame::Attempt(event))
    }

    /// The next frame that is wanted, others passed over.
    ///
    /// # Errors
    /// None comes.
    pub fn until<T>(&self, wanted: impl Fn(CoordinatorFrame) -> Option<T>) -> Result<T> {
        loop {
            let frame = self.heard.recv_timeout(PATIENCE).context("nothing was said")?;
            if let Some(found) = wanted(frame) {
                return Ok(found);
            }
        }
    }

    /// What it is offered next.
    ///
    /// # Errors
    /// Nothing is.
    pub fn offer(&self) -> Result<Offer> {
        self.until(|frame| match frame {
            CoordinatorFrame::Offer(offer) => Some(offer),
            _ => None,
        })
    }

    /// The end of an attempt, heard of by the coordinator and handled.
    ///
    /// # Errors
    /// It is not acknowledged.
    pub fn ends(&self, finished: Finished) -> Result<()> {
        let of = finished.fence;
        self.tell(AttemptEvent::Finished(finished))?;
        self.until(|frame| match frame {
            CoordinatorFrame::Acknowledge { fence } if fence == of => Some(()),
            _ => None,
        })
    }

    /// All that was said so far has been handled.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn is_heard(&self, sequence: u64) -> Result<()> {
        self.say(heartbeat(sequence, &self.slots))?;
        self.until(|frame| (frame == CoordinatorFrame::HeartbeatAck { sequence }).then_some(()))
    }

    /// The next stream that another agent opens.
    ///
    /// # Errors
    /// None comes.
    pub fn called(&self) -> Result<Opened> {
        self.opened.recv_timeout(PATIENCE).context("nobody calls")
    }

    /// Calls another agent.
    ///
    /// # Errors
    /// Nobody answers there under that name.
    pub fn dial(&self, name: &str, addresses: &[SocketAddr]) -> Result<Connection> {
        let dialled = dial_peer(&self.endpoint, &self.identity, name, addresses, anybody());
        Ok(self.runtime.block_on(dialled)?)
    }

    /// Hands an attempt over, with what is to be its image; the other's answer.
    ///
    /// # Errors
    /// There is none.
    pub fn hands_over(
        &self,
        connection: &Connection,
        (to, what): (WorkstationId, Handover),
        image: &[u8],
    ) -> Result<HandoverReply> {
        let purpose = Purpose::Handover { to, what: Box::new(what) };
        self.runtime.block_on(async {
            let (mut writer, mut reader) = stream::open(connection, purpose).await?;
            // Who has heard enough stops the stream, and says why.
            let _ = writer.send_raw(image).await;
            writer.finish();
            Ok(tokio::time::timeout(PATIENCE, reader.expect()).await??)
        })
    }
}

fn heartbeat(sequence: u64, slots: &AtomicU16) -> AgentFrame {
    let (slots, load) = (slots.load(Ordering::Relaxed), LoadAverages::default());
    AgentFrame::Heartbeat { sequence, slots, load }
}

async fn speak(
    (mut writer, mut reader): (FrameWriter, FrameReader),
    slots: Arc<AtomicU16>,
    mut orders: UnboundedReceiver<AgentFrame>,
    tell: Sender<CoordinatorFrame>,
) {
    let mut beat = tokio::time::interval(HEARTBEAT);
    loop {
        let frame = tokio::select! {
            frame = reader.next::<CoordinatorFrame>() => {
                let Ok(Some(frame)) = frame else { return };
                let _ = tell.send(frame);
                continue;
            }
            order = orders.recv() => order,
            _ = beat.tick() => Some(heartbeat(0, &slots)),
        };
        let Some(frame) = frame else { return };
        if writer.send(&frame).await.is_err() {
            return;
        }
    }
}

async fn take_calls(endpoint: Endpoint, open: Sender<Opened>) {
    while let Some(incoming) = endpoint.accept().await {
        if let Ok(connection) = incoming.await {
            tokio::spawn(take_streams(connection, open.clone()));
        }
    }
}

async fn take_streams(connection: Connection, open: Sender<Opened>) {
    while let Ok(stream) = connection.accept_bi().await {
        if let Ok((purpose, writer, reader)) = read_opening(stream).await {
            let _ = open.send(Opened { purpose, writer, reader });
        }
    }
}
