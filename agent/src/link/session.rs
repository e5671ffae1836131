//! One connection to the coordinator: frames both ways, as they come.

use std::net::SocketAddr;
use std::sync::Arc;

use gleaner_agent_core::desk::Event;
use gleaner_common::wire::{AgentFrame, CoordinatorFrame, Purpose};
use gleaner_shell::stream::{self, FrameReader, FrameWriter, StreamError};
use quinn::Connection;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, watch};

use super::{LinkEvent, ToDesk};

/// How many frames leave with one write.
const BATCH: usize = 256;

/// Why a connection is no more.
#[derive(Debug)]
pub(super) enum End {
    /// We were told to stop, and all is said.
    Stopped,
    /// It had been a good one.
    Welcomed(String),
    Lost(String),
}

/// Which connection it is, and where other agents may reach us meanwhile.
#[derive(Debug)]
pub(super) struct Greeting {
    pub(super) session: u64,
    pub(super) addresses: Vec<SocketAddr>,
}

pub(super) async fn serve(
    connection: &Connection,
    Greeting { session, addresses }: Greeting,
    desk: &ToDesk,
    outgoing: &mut UnboundedReceiver<(u64, AgentFrame)>,
    stopped: &mut watch::Receiver<bool>,
    wake: &Arc<Notify>,
) -> End {
    let (writer, reader) = match stream::open(connection, Purpose::Agent).await {
        Ok(ends) => ends,
        Err(error) => return End::Lost(error.to_string()),
    };
    desk.tell(LinkEvent::Up { session, addresses });
    let mut welcomed = false;
    let why = tokio::select! {
        Err(error) = listen(reader, desk, &mut welcomed) => error.to_string(),
        said = speak(writer, session, outgoing) => match said {
            // The desk has no more to say: it is over.
            Ok(()) => return End::Stopped,
            Err(error) => error.to_string(),
        },
        () = wake.notified() => "the machine has slept".to_owned(),
        () = gone(stopped) => return End::Stopped,
    };
    if welcomed { End::Welcomed(why) } else { End::Lost(why) }
}

/// Resolves a while after the stop, if the queue's end has not told before.
async fn gone(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
}

async fn listen(
    mut reader: FrameReader,
    desk: &ToDesk,
    welcomed: &mut bool,
) -> Result<(), StreamError> {
    loop {
        let first: CoordinatorFrame = reader.expect().await?;
        let mut batch = vec![first];
        while let Some(frame) = reader.try_next()? {
            batch.push(frame);
        }
        *welcomed |= batch.iter().any(|frame| matches!(frame, CoordinatorFrame::Welcome { .. }));
        desk.tell_all(batch.into_iter().map(|frame| LinkEvent::Core(Event::Frame(frame))));
    }
}

async fn speak(
    mut writer: FrameWriter,
    session: u64,
    outgoing: &mut UnboundedReceiver<(u64, AgentFrame)>,
) -> Result<(), StreamError> {
    let mut batch = Vec::new();
    loop {
        if outgoing.recv_many(&mut batch, BATCH).await == 0 {
            writer.finish();
            return Ok(());
        }
        for (of, frame) in batch.drain(..) {
            // Said to a connection that is gone: the next one's Hello tells anew.
            if of == session {
                writer.queue(&frame)?;
            }
        }
        writer.flush().await?;
    }
}
