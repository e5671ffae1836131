//! An agent that does what the test says.

use std::time::Duration;

use gleaner_common::id::{BootId, Fence, Incarnation};
use gleaner_common::job::Outcome;
use gleaner_common::usage::LoadAverages;
use gleaner_common::wire::{
    AgentFrame, AttemptEvent, CoordinatorFrame, Facts, Finished, GuestState, Offer, Presence,
    Printed, Purpose,
};
use gleaner_shell::endpoint::{Credentials, Link, connect};
use gleaner_shell::identity::Identity;
use gleaner_shell::stream::{self, FrameReader, FrameWriter, StreamError};
use tokio::time::timeout;

use crate::coordinator::PATIENCE;

/// The connection stands also while the test has nothing to say on it.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

pub struct Agent {
    /// Kept open as long as the agent.
    pub link: Link,
    writer: FrameWriter,
    reader: FrameReader,
    /// What the coordinator still wants of what was held.
    pub keep: Vec<Fence>,
}

pub fn hello(incarnation: u64, places: u16, held: Vec<(Fence, GuestState)>) -> AgentFrame {
    AgentFrame::Hello {
        incarnation: Incarnation(incarnation),
        boot: BootId([7; 16]),
        facts: Box::new(Facts { cores: places, places, ..Facts::default() }),
        presence: presence(places),
        held,
        seen: Fence::default(),
    }
}

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

pub fn finished(fence: Fence, stdout: &str) -> AgentFrame {
    AgentFrame::Attempt(AttemptEvent::Finished(Finished {
        fence,
        outcome: Outcome::Succeeded,
        cpu: Duration::from_millis(5),
        ran: Duration::from_millis(6),
        suspended: Duration::ZERO,
        suspensions: 0,
        stdout: Printed::Inline(stdout.into()),
        stderr: Printed::default(),
        outputs: vec![],
    }))
}

impl Agent {
    pub async fn connect(identity: &Identity, incarnation: u64, places: u16) -> Self {
        Self::with(identity, hello(incarnation, places, vec![])).await
    }

    /// Another life of an agent: it is let in when nothing of the one before can run.
    pub async fn follows(identity: &Identity, incarnation: u64, places: u16) -> Self {
        loop {
            match Self::dials(identity, hello(incarnation, places, vec![])).await {
                Ok(agent) => return agent,
                Err(reason) => assert!(reason.contains("has to end first"), "{reason}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await; // Until a lease has ended.
        }
    }

    pub async fn with(identity: &Identity, hello: AgentFrame) -> Self {
        Self::dials(identity, hello).await.unwrap()
    }

    /// # Errors
    /// If it is refused, and why.
    async fn dials(identity: &Identity, hello: AgentFrame) -> Result<Self, String> {
        let held: Vec<Fence> = match &hello {
            AgentFrame::Hello { held, .. } => held.iter().map(|(fence, _)| *fence).collect(),
            _ => vec![],
        };
        let credentials = Credentials::Identity(identity);
        let link = connect(&identity.coordinator, credentials, Some(KEEP_ALIVE)).await.unwrap();
        let (mut writer, reader) = stream::open(&link.connection, Purpose::Agent).await.unwrap();
        writer.send(&hello).await.unwrap();
        let mut agent = Self { link, writer, reader, keep: vec![] };
        match agent.next().await.unwrap() {
            CoordinatorFrame::Welcome { keep, .. } => agent.keep = keep,
            CoordinatorFrame::Refused { reason } => return Err(reason),
            other => panic!("{other:?}"),
        }
        let told = agent.next().await.unwrap();
        assert!(matches!(told, CoordinatorFrame::Revoked { all: true, .. }), "{told:?}");
        let kept = agent.keep.clone();
        for fence in held.into_iter().filter(|fence| !kept.contains(fence)) {
            agent.say(AgentFrame::Stopped { fence }).await;
        }
        Ok(agent)
    }

    /// What is cancelled stops, and that is said.
    pub async fn next(&mut self) -> Result<CoordinatorFrame, StreamError> {
        let frame = timeout(PATIENCE, self.reader.expect()).await.expect("nothing was said");
        if let Ok(CoordinatorFrame::Cancel { fence }) = frame {
            let _ = self.writer.send(&AgentFrame::Stopped { fence }).await;
        }
        frame
    }

    /// The next frame that the test waits for, others passed over.
    pub async fn until<T>(&mut self, mut wanted: impl FnMut(CoordinatorFrame) -> Option<T>) -> T {
        loop {
            if let Some(found) = wanted(self.next().await.unwrap()) {
                return found;
            }
        }
    }

    pub async fn offer(&mut self) -> Offer {
        self.until(|frame| match frame {
            CoordinatorFrame::Offer(offer) => Some(offer),
            _ => None,
        })
        .await
    }

    /// An offer that comes later than a lease ends, which it renews until then.
    pub async fn late_offer(&mut self, lease: Duration) -> Offer {
        loop {
            self.renews_its_lease().await;
            let mut soon = std::pin::pin!(tokio::time::sleep(lease / 3));
            loop {
                let frame = tokio::select! {
                    frame = self.reader.expect() => frame.unwrap(),
                    () = &mut soon => break,
                };
                if let CoordinatorFrame::Offer(offer) = frame {
                    return offer;
                }
            }
        }
    }

    pub async fn acknowledged(&mut self, wanted: Fence) {
        self.until(|frame| match frame {
            CoordinatorFrame::Acknowledge { fence } if fence == wanted => Some(()),
            _ => None,
        })
        .await;
    }

    pub async fn say(&mut self, frame: AgentFrame) {
        self.writer.send(&frame).await.unwrap();
    }

    pub async fn renews_its_lease(&mut self) {
        let load = LoadAverages::default();
        self.say(AgentFrame::Heartbeat { sequence: 1, slots: 1, load }).await;
    }

    pub async fn started(&mut self, fence: Fence) {
        let waited = Duration::ZERO;
        self.say(AgentFrame::Attempt(AttemptEvent::Started { fence, waited })).await;
    }

    /// Runs what is offered until the connection ends.
    pub async fn work(mut self) -> u32 {
        let mut done = 0;
        while let Ok(Some(frame)) = self.reader.next::<CoordinatorFrame>().await {
            if let CoordinatorFrame::Offer(Offer { fence, .. }) = frame {
                let waited = Duration::ZERO;
                let started = AgentFrame::Attempt(AttemptEvent::Started { fence, waited });
                let said = self.writer.queue(&started).is_ok()
                    && self.writer.queue(&finished(fence, "done\n")).is_ok()
                    && self.writer.flush().await.is_ok();
                if !said {
                    break;
                }
                done += 1;
            }
        }
        done
    }
}
