//! Who may look at what: jobs, what they print and the files that they name.
//!
//! The promise: a job's name, command, output and files are its user's, their
//! group's and the admins', unless it is public; and a workstation gets files of
//! the jobs that were offered to it, and no others.

use std::collections::BTreeSet;
use std::sync::Arc;

use gleaner_common::id::{ContentHash, JobId};
use gleaner_common::report::JobRow;
use gleaner_common::wire::{Request, Role};

use super::request::Refusal;
use super::{Peer, Shared, listing};

impl Peer {
    pub(super) fn may_see(&self, shared: &Shared, user: &str, public: bool) -> bool {
        public
            || self.identity.role == Role::Admin
            || user == self.name()
            || shared.shares.are_in_one_group(user, self.name())
    }

    /// A job's row, or its outline.
    pub(super) fn sees(&self, shared: &Shared, row: JobRow) -> JobRow {
        if self.may_see(shared, &row.user, row.public) { row } else { row.outline() }
    }
}

/// Refuses a request about a job that is somebody else's.
pub(super) async fn check(
    shared: &Arc<Shared>,
    peer: &Peer,
    request: &Request,
) -> Result<(), Refusal> {
    let Some(job) = asked_about(request) else { return Ok(()) };
    if peer.identity.role == Role::Admin {
        return Ok(());
    }
    // Whoever asks hears first that there is none.
    let row = match listing::job_row(shared, job).await {
        Ok(row) => row,
        Err(Refusal::UnknownJob(_) | Refusal::LaterJob(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    if peer.may_see(shared, &row.user, row.public) {
        return Ok(());
    }
    Err(Refusal::NotToSee { job, owner: row.user })
}

fn asked_about(request: &Request) -> Option<JobId> {
    match request {
        Request::Watch(job) | Request::WhyJob(job) | Request::Subprograms { job, .. } => Some(*job),
        Request::Output(subprogram)
        | Request::Replicas(subprogram)
        | Request::ReplicaOutput { subprogram, .. }
        | Request::WhySubprogram(subprogram)
        | Request::Attempts(subprogram) => Some(subprogram.job),
        Request::Missing(_)
        | Request::Submit(_)
        | Request::Ask(_)
        // Their rows say only what may be seen.
        | Request::Jobs
        | Request::Job(_)
        | Request::Cancel(_)
        | Request::Workstations
        | Request::WhyWorkstation(_)
        | Request::TokenCreate { .. }
        | Request::Tokens
        | Request::TokenRevoke { .. }
        | Request::Health
        | Request::Shares
        | Request::Users
        | Request::UserRemove { .. }
        | Request::WorkstationRemove { .. }
        | Request::WorkstationDrain { .. }
        | Request::Rotate { .. } => None,
    }
}

/// Which of these files the peer may be told to be here: those that they have
/// sent themselves, and those of jobs that they may see. To know a hash is no
/// permission to have what it names, nor to learn that it is here.
pub(super) async fn known(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    hashes: Vec<ContentHash>,
) -> Result<BTreeSet<ContentHash>, Refusal> {
    if peer.identity.role == Role::Admin {
        return Ok(hashes.into_iter().collect());
    }
    // The brain answers after everything that it may know is in the store.
    shared.brain.look(|_, _| ()).await?;
    let (asked, who, sender) = (shared.clone(), peer.clone(), sender(peer));
    let known = shared.reader.read(move |tables| {
        let mut known = BTreeSet::new();
        for hash in hashes {
            let is_theirs = tables.was_sent(&sender, hash)?;
            let jobs = if is_theirs { vec![] } else { tables.jobs_of_file(hash)? };
            let is_seen = |(_, user, public): &(_, String, _)| who.may_see(&asked, user, *public);
            if is_theirs || jobs.iter().any(is_seen) {
                known.insert(hash);
            }
        }
        Ok(known)
    });
    Ok(known.await?)
}

/// Under which name a peer's files are remembered. No name holds a slash: no
/// user is taken for anybody else.
pub(super) fn sender(peer: &Peer) -> String {
    match peer.identity.role {
        Role::User => peer.name().to_owned(),
        role @ (Role::Admin | Role::Agent | Role::Collector) => {
            format!("{}/{}", role.name(), peer.name())
        }
    }
}

/// Those of these files that the peer has not sent.
pub(super) async fn not_sent(
    shared: &Arc<Shared>,
    peer: &Peer,
    hashes: Vec<ContentHash>,
) -> Result<Vec<ContentHash>, Refusal> {
    let sender = sender(peer);
    let not_sent = shared.reader.read(move |tables| {
        let mut not_sent = vec![];
        for hash in hashes {
            if !tables.was_sent(&sender, hash)? {
                not_sent.push(hash);
            }
        }
        Ok(not_sent)
    });
    Ok(not_sent.await?)
}

/// May the peer have this file?
pub(super) async fn may_get(
    shared: &Arc<Shared>,
    peer: &Peer,
    hash: ContentHash,
) -> Result<bool, Refusal> {
    if peer.identity.role == Role::Admin {
        return Ok(true);
    }
    // The brain answers after everything that it may know is in the store.
    shared.brain.look(|_, _| ()).await?;
    let jobs = shared.reader.read(move |tables| tables.jobs_of_file(hash)).await?;
    let Some(workstation) = peer.identity.workstation else {
        return Ok(jobs.iter().any(|(_, user, public)| peer.may_see(shared, user, *public)));
    };
    let jobs: Vec<JobId> = jobs.into_iter().map(|(job, ..)| job).collect();
    Ok(shared.brain.look(move |core, _| core.was_offered(&jobs, workstation)).await?)
}
