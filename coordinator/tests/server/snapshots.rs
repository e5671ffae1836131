//! What a program goes back to when a workstation dies, over the wire.

use std::time::Duration;

use gleaner_common::id::{ContentHash, JobId};
use gleaner_common::program::{Life, ProgramSpec};
use gleaner_common::wire::{AgentFrame, CoordinatorFrame, GuestState, Offer, Role};
use gleaner_program_core::address::Snapshot;
use gleaner_program_core::wire::{FromRank, ToRank};
use gleaner_shell::client::Client;
use gleaner_shell::identity::Identity;

use crate::agent::{Agent, finished, hello};
use crate::coordinator::{Coordinator, submit, watch};
use crate::ranks::{job_row, program};

/// A program of two ranks, each on a workstation of its own.
struct Lab {
    coordinator: Coordinator,
    ada: Client,
    agents: [Agent; 2],
    /// For what they stage, and fetch.
    stores: [Client; 2],
    identities: [Identity; 2],
    job: JobId,
    offers: [Offer; 2],
    dir: tempfile::TempDir,
}

impl Lab {
    async fn new(checkpoint_every: Option<Duration>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let coordinator = Coordinator::start(dir.path()).await;
        let ada = coordinator.client(Role::User, "ada").await;
        let one = coordinator.enrol(Role::Agent, "one").await;
        let two = coordinator.enrol(Role::Agent, "two").await;
        let mut agents = [Agent::connect(&one, 1, 1).await, Agent::connect(&two, 2, 1).await];
        let mut spec = program(2);
        let ranks_max = 2;
        spec.program = Some(ProgramSpec { ranks_max, checkpoint_every, ..ProgramSpec::default() });
        let job = submit(&ada, spec).await;
        let offers = begin(&mut agents).await;
        let stores = [
            Client::connect(&one, None).await.unwrap(),
            Client::connect(&two, None).await.unwrap(),
        ];
        Self { coordinator, ada, agents, stores, identities: [one, two], job, offers, dir }
    }

    /// All take part in the next snapshot; what they staged.
    async fn save(&mut self) -> (u32, [ContentHash; 2]) {
        let mut parts = [ContentHash([0; 32]); 2];
        let mut number = 0;
        for ((agent, store), offer) in self.agents.iter_mut().zip(&self.stores).zip(&self.offers) {
            agent.renews_its_lease().await;
            let snapshot = agent.until(|frame| cut_of(&frame)).await;
            number = snapshot.0;
            let content = content(offer.subprogram.index, snapshot);
            let part = store.put_bytes(&content).await.unwrap();
            let size_bytes = content.len() as u64;
            agent.say(cut(offer, &FromRank::Cut { snapshot, part, size_bytes })).await;
            parts[offer.subprogram.index as usize] = part;
        }
        (number, parts)
    }

    /// The next one begins when the last one is whole.
    async fn is_saved(&mut self) {
        self.agents[0].until(|frame| cut_of(&frame)).await;
    }

    /// The agent of a workstation is killed, and its next life is back.
    async fn dies(&mut self, which: usize, incarnation: u64) {
        let hello = hello(incarnation, 1, vec![]);
        self.agents[which] = Agent::with(&self.identities[which], hello).await;
        self.offers = begin(&mut self.agents).await;
    }

    /// The rank that is at the first, or second, workstation.
    fn rank_at(&self, which: usize) -> u32 {
        self.offers[which].subprogram.index
    }

    async fn check_ends_well(mut self, lives: u32) {
        for (agent, offer) in self.agents.iter_mut().zip(&self.offers) {
            agent.say(finished(offer.fence, "done\n")).await;
        }
        assert_eq!(watch(&self.ada, self.job).await.counts.succeeded, 2);
        assert_eq!(job_row(&self.ada, self.job).await.life, lives);
        self.coordinator.stop().await;
    }

    async fn last_note(&self) -> String {
        job_row(&self.ada, self.job).await.notes.pop().unwrap_or_default()
    }
}

fn cut(offer: &Offer, said: &FromRank) -> AgentFrame {
    let bytes = postcard::to_stdvec(said).unwrap();
    AgentFrame::FromRank { fence: offer.fence, life: offer.rank.as_ref().unwrap().life, bytes }
}

fn content(rank: u32, snapshot: Snapshot) -> Vec<u8> {
    format!("rank {rank} at {snapshot}").into_bytes()
}

fn cut_of(frame: &CoordinatorFrame) -> Option<Snapshot> {
    let CoordinatorFrame::ToRank { bytes, .. } = frame else { return None };
    match postcard::from_bytes(bytes).unwrap() {
        ToRank::Cut(snapshot) => Some(snapshot),
        _ => None,
    }
}

/// Each takes what it is offered, and begins it.
async fn begin(agents: &mut [Agent; 2]) -> [Offer; 2] {
    let [one, two] = agents;
    let offers = tokio::join!(one.offer(), two.offer());
    let offers = [offers.0, offers.1];
    for (agent, offer) in agents.iter_mut().zip(&offers) {
        agent.started(offer.fence).await;
    }
    offers
}

fn cuts(offers: &[Offer; 2]) -> Vec<(u32, Option<ContentHash>)> {
    let of = |offer: &Offer| (offer.subprogram.index, offer.rank.as_ref().unwrap().cut);
    let mut cuts: Vec<_> = offers.iter().map(of).collect();
    cuts.sort_unstable_by_key(|(rank, _)| *rank);
    cuts
}

const EVERY: Option<Duration> = Some(Duration::from_secs(1));

#[tokio::test]
async fn a_dead_workstation_takes_a_program_back_to_where_it_was_last_saved() {
    let mut lab = Lab::new(EVERY).await;
    lab.save().await;
    let (number, parts) = lab.save().await;
    lab.is_saved().await;
    let lost = lab.rank_at(1);
    lab.dies(1, 7).await;
    let ranks = lab.offers.each_ref().map(|offer| offer.rank.as_deref().unwrap().life);
    assert_eq!(ranks, [Life(2); 2]);
    assert_eq!(cuts(&lab.offers), [(0, Some(parts[0])), (1, Some(parts[1]))]);
    // The agent that begins a rank has its part, whichever had staged it.
    for (offer, store) in lab.offers.iter().zip(&lab.stores) {
        let part = offer.rank.as_ref().unwrap().cut.unwrap();
        let content = content(offer.subprogram.index, Snapshot(number));
        assert_eq!(store.get_bytes(part).await.unwrap(), content);
    }
    let note = lab.last_note().await;
    let expected = format!("begins again from snapshot {number}: rank {lost} was lost on two: ");
    assert!(note.starts_with(&expected), "{note}");
    lab.check_ends_well(2).await;
}

#[tokio::test]
async fn a_program_that_is_not_saved_goes_back_to_its_start_and_says_so() {
    let mut lab = Lab::new(None).await;
    let lost = lab.rank_at(0);
    lab.dies(0, 7).await;
    assert_eq!(cuts(&lab.offers), [(0, None), (1, None)]);
    let note = lab.last_note().await;
    let expected = format!("begins again from its start: rank {lost} was lost on one: ");
    assert!(note.starts_with(&expected), "{note}");
    lab.check_ends_well(2).await;
}

#[tokio::test]
async fn the_coordinator_goes_back_to_the_same_after_a_restart() {
    let mut lab = Lab::new(EVERY).await;
    let (_, parts) = lab.save().await;
    lab.is_saved().await;
    lab.coordinator.stop().await;
    lab.coordinator = Coordinator::start(lab.dir.path()).await;
    for identity in &mut lab.identities {
        identity.coordinator = lab.coordinator.address.to_string();
    }
    lab.ada = lab.coordinator.client(Role::User, "ada").await;
    for (which, incarnation) in [(0, 1), (1, 2)] {
        let held = vec![(lab.offers[which].fence, GuestState::Running)];
        let hello = hello(incarnation, 1, held);
        lab.agents[which] = Agent::with(&lab.identities[which], hello).await;
        assert_eq!(lab.agents[which].keep, [lab.offers[which].fence]);
    }
    lab.dies(0, 7).await;
    assert_eq!(cuts(&lab.offers), [(0, Some(parts[0])), (1, Some(parts[1]))]);
    lab.check_ends_well(2).await;
}

/// To know a hash is no permission: what is somebody else's is no rank's past.
#[tokio::test]
async fn a_part_that_is_anothers_file_ends_the_attempt_that_names_it() {
    let mut lab = Lab::new(EVERY).await;
    let grace = lab.coordinator.client(Role::User, "grace").await;
    let part = grace.put_bytes(b"grace's own").await.unwrap();
    let (agent, offer) = (&mut lab.agents[0], lab.offers[0].clone());
    agent.renews_its_lease().await;
    let snapshot = agent.until(|frame| cut_of(&frame)).await;
    agent.say(cut(&offer, &FromRank::Cut { snapshot, part, size_bytes: 11 })).await;
    agent.acknowledged(offer.fence).await;
    let note = lab.last_note().await;
    assert!(note.contains("names files that its agent has not staged"), "{note}");
    assert!(lab.stores[0].get_bytes(part).await.is_err(), "it is grace's");
    lab.coordinator.stop().await;
}
