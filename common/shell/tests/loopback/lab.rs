//! A small coordinator for the tests: real QUIC on loopback, a table of keys,
//! and just enough answers.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gleaner_common::id::ContentHash;
use gleaner_common::validity::{LIFE, Validity};
use gleaner_common::wire::{
    BlobReply, EnrolReply, EnrolRequest, Purpose, Reply, Request, Role, close,
};
use gleaner_shell::clock::Clock;
use gleaner_shell::endpoint::{self, Admission, Admit};
use gleaner_shell::identity::{Authority, Identity, Token};
use gleaner_shell::stream::{self, FrameReader, FrameWriter, OpeningError, StreamError};
use quinn::{Connection, Endpoint, VarInt};

pub(crate) const ANYWHERE: &str = "127.0.0.1:0";

type Keys = Arc<Mutex<BTreeMap<Vec<u8>, Admission>>>;
type Blobs = Arc<Mutex<BTreeMap<ContentHash, Vec<u8>>>>;

/// What outlives the coordinator's process.
pub(crate) struct Parts {
    authority: Arc<Authority>,
    keys: Keys,
}

impl Parts {
    pub(crate) fn again(&self, bind: SocketAddr) -> Lab {
        let Self { authority, keys } = self;
        let table = keys.clone();
        let admit: Arc<Admit> = Arc::new(move |spki| {
            table.lock().unwrap().get(spki).copied().unwrap_or(Admission::Unknown)
        });
        let endpoint = endpoint::serve(bind, authority, admit).unwrap();
        let (authority, keys) = (authority.clone(), keys.clone());
        let lab = Lab { authority, keys, blobs: Blobs::default(), endpoint };
        tokio::spawn(lab.clone().accept_connections());
        lab
    }
}

#[derive(Clone)]
pub(crate) struct Lab {
    pub(crate) authority: Arc<Authority>,
    pub(crate) keys: Keys,
    pub(crate) blobs: Blobs,
    pub(crate) endpoint: Endpoint,
}

impl Lab {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Arc::new(Authority::create(dir.path()).unwrap());
        let parts = Parts { authority, keys: Keys::default() };
        parts.again(ANYWHERE.parse().unwrap())
    }

    /// What outlives the coordinator's process.
    pub(crate) fn parts(&self) -> Parts {
        Parts { authority: self.authority.clone(), keys: self.keys.clone() }
    }

    pub(crate) fn address(&self) -> String {
        self.endpoint.local_addr().unwrap().to_string()
    }

    /// Signed by the authority, and in the table as said.
    pub(crate) fn identity(&self, admission: Admission) -> Identity {
        let identity = self.authority.issue_identity(Role::User, "ann", &self.address()).unwrap();
        self.keys.lock().unwrap().insert(identity.spki(), admission);
        identity
    }

    pub(crate) fn token(&self, admission: Admission) -> Token {
        let token = Token::create(self.authority.fingerprint()).unwrap();
        self.keys.lock().unwrap().insert(token.spki(), admission);
        token
    }

    async fn accept_connections(self) {
        while let Some(incoming) = self.endpoint.accept().await {
            let lab = self.clone();
            tokio::spawn(async move {
                let Ok(connection) = incoming.await else { return };
                while let Ok(pair) = connection.accept_bi().await {
                    tokio::spawn(lab.clone().answer_stream(connection.clone(), pair));
                }
            });
        }
    }

    async fn answer_stream(
        self,
        connection: Connection,
        pair: (quinn::SendStream, quinn::RecvStream),
    ) {
        let ended = match stream::read_opening(pair).await {
            Err(error) => return error.refuse(&connection),
            Ok((Purpose::Request, writer, reader)) => answer_requests(writer, reader).await,
            Ok((Purpose::Put { hash, .. }, writer, reader)) => {
                self.take_blob(hash, writer, reader).await
            }
            Ok((Purpose::Get { hash }, writer, _)) => self.give_blob(hash, writer).await,
            Ok((Purpose::Enrol, writer, reader)) => self.enrol(&connection, writer, reader).await,
            Ok(_) => {
                connection.close(VarInt::from_u32(close::FORBIDDEN), b"not in this test");
                Ok(())
            }
        };
        match ended {
            // Given up by the peer: that is the end of this stream only.
            Ok(()) | Err(StreamError::Reset { .. }) => {}
            Err(error) => OpeningError::Stream(error).refuse(&connection),
        }
    }

    async fn take_blob(
        &self,
        hash: ContentHash,
        mut writer: FrameWriter,
        mut reader: FrameReader,
    ) -> Result<(), StreamError> {
        let mut content = vec![];
        while let Some(bytes) = reader.next_raw().await? {
            content.extend(bytes);
            if content.starts_with(b"unwanted") {
                reader.stop(close::FORBIDDEN);
                let no = BlobReply::No { reason: "no space left".to_owned() };
                writer.send(&no).await?;
                writer.finish();
                return Ok(());
            }
        }
        let size_bytes = content.len() as u64;
        self.blobs.lock().unwrap().insert(hash, content);
        writer.send(&BlobReply::Have { size_bytes }).await?;
        writer.finish();
        Ok(())
    }

    async fn give_blob(
        &self,
        hash: ContentHash,
        mut writer: FrameWriter,
    ) -> Result<(), StreamError> {
        let content = self.blobs.lock().unwrap().get(&hash).cloned();
        match content {
            None => {
                let no = BlobReply::No { reason: format!("{hash} is not here") };
                writer.send(&no).await?;
            }
            Some(content) => {
                writer.queue(&BlobReply::Have { size_bytes: content.len() as u64 })?;
                writer.send_raw(&content).await?;
            }
        }
        writer.finish();
        Ok(())
    }

    async fn enrol(
        &self,
        connection: &Connection,
        mut writer: FrameWriter,
        mut reader: FrameReader,
    ) -> Result<(), StreamError> {
        let request: EnrolRequest = reader.expect().await?;
        let token = endpoint::peer_spki(connection).unwrap();
        let reply = if request.name.is_empty() {
            EnrolReply::Refused { reason: "the name is empty".to_owned() }
        } else {
            let mut keys = self.keys.lock().unwrap();
            assert_eq!(keys.remove(&token), Some(Admission::Token));
            keys.insert(request.public_key.clone(), Admission::Enrolled);
            EnrolReply::Enrolled {
                role: Role::Agent,
                certificate: self
                    .authority
                    .issue(
                        &request.public_key,
                        Role::Agent,
                        &request.name,
                        Validity::beginning(Clock.wall(), LIFE),
                    )
                    .unwrap(),
                authority: self.authority.certificate().to_vec(),
                name: request.name,
            }
        };
        writer.send(&reply).await?;
        writer.finish();
        Ok(())
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the tests ask for little")]
async fn answer_requests(
    mut writer: FrameWriter,
    mut reader: FrameReader,
) -> Result<(), StreamError> {
    while let Some(request) = reader.next::<Request>().await? {
        let row = |n: u32| Reply::Why(vec![format!("row {n}")]);
        match request {
            Request::Jobs => {
                (0..3).try_for_each(|n| writer.queue(&row(n)))?;
                writer.send(&Reply::End).await?;
            }
            // A listing that is cut short.
            Request::Workstations => writer.send(&row(0)).await?,
            Request::Cancel(_) => writer.send(&Reply::Cancelled).await?,
            _ => writer.send(&Reply::No { reason: "not in this test".to_owned() }).await?,
        }
    }
    writer.finish();
    Ok(())
}

/// Runs a test, which must end by itself well within a minute.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test hangs");
    });
}

/// The identity as if this authority had not signed it but that one is trusted.
pub(crate) fn trusting(identity: &Identity, trusted: &Identity) -> Identity {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    identity.store(one.path()).unwrap();
    trusted.store(other.path()).unwrap();
    let file = |dir: &Path| dir.join("authority.pem");
    std::fs::copy(file(other.path()), file(one.path())).unwrap();
    Identity::load(one.path()).unwrap()
}
