//! Ranks that leave an agent whose owner comes, and go on at another.

use std::time::Duration;

use gleaner_agent::owner;
use gleaner_common::job::{OnBusy, Outcome, Reaction};
use gleaner_common::reaction::Keep;
use gleaner_common::time::WallTime;
use gleaner_shell::clock::Clock;

use crate::Test;
use crate::machine::is_root;
use crate::ranks::{MARKED, STEPS, Site, printed};

pub(crate) const TESTS: &[Test] = &[
    ("a_rank_goes_on_at_another_agent_and_its_neighbour_never_learns_of_it", migrates),
    ("a_rank_that_is_not_taken_elsewhere_goes_on_where_it_was", comes_back),
    ("a_rank_begins_elsewhere_from_its_last_subtask", rolls_back),
    ("a_rank_goes_back_to_its_image_elsewhere_and_does_again_what_came_after", goes_back),
    ("ranks_go_back_to_their_images_wherever_owners_come", go_back_again),
    ("a_rank_whose_owner_comes_while_its_image_is_taken_loses_no_message", meets_its_owner),
    ("an_image_that_is_too_big_is_not_kept_and_its_rank_goes_on", too_big),
    ("a_rank_that_retreats_begins_elsewhere_with_what_it_had_not_received", retreats),
];

/// Rank 0 at the first workstation; rank 1 at the second, whose owner comes.
fn owner_comes(program: &str, reaction: Reaction) -> Option<Site> {
    if !is_root() {
        gleaner_skip::without_lab("guests can be moved by root only");
        return None;
    }
    let mut site = Site::new();
    site.on_busy = OnBusy::at_once(reaction);
    site.addresses = site.labs.iter().map(|lab| lab.coordinator.addresses()).collect();
    site.offer(program, 2, |rank| rank as usize);
    site.until("it is in the middle", |site| site.asked > 0);
    site.labs[1].ask(&owner::Command::Pause { seconds: None });
    site.until("rank 1 wants away", |site| site.leaving.contains_key(&1));
    Some(site)
}

/// Rank 1, to the first workstation.
fn goes(site: &mut Site) -> (u64, Duration) {
    goes_to(site, 1, 0)
}

fn goes_to(site: &mut Site, rank: u32, lab: usize) -> (u64, Duration) {
    let to = site.send_to(rank, lab);
    site.until("it has arrived", |site| {
        assert!(site.stuck.is_empty(), "{:?}", site.stuck);
        site.arrived.contains_key(&to.fence)
    });
    let moved = site.arrived[&to.fence];
    site.settle(&to);
    moved
}

#[track_caller]
fn end_well(site: &mut Site) -> Vec<String> {
    site.until("both have finished", |site| site.finished.len() == 2);
    assert_eq!(site.complaints, Vec::<String>::new());
    let well = |finished: &gleaner_common::wire::Finished| finished.outcome == Outcome::Succeeded;
    assert!(site.finished.values().all(well), "{:?}", site.finished);
    site.finished.values().map(printed).collect()
}

fn migrates() {
    let Some(mut site) = owner_comes("steps", Reaction::Migrate) else { return };
    assert_eq!(site.leaving[&1], Keep::State);
    let (bytes, frozen) = goes(&mut site);
    println!("moved {bytes} bytes; it stood still for {frozen:?}");
    assert_eq!(end_well(&mut site), ["from 0\n", "from 0\n"], "it never began again");
}

fn comes_back() {
    let Some(mut site) = owner_comes("steps", Reaction::Migrate) else { return };
    // Nobody is there.
    site.addresses = vec![vec!["127.0.0.1:9".parse().unwrap()]; 2];
    site.send_to(1, 0);
    site.labs[1].ask(&owner::Command::Resume);
    let fence = site.at[&1].fence;
    site.labs[1].coordinator.say(gleaner_common::wire::CoordinatorFrame::Stay { fence });
    site.enough = true;
    assert_eq!(end_well(&mut site), ["from 0\n", "from 0\n"]);
}

fn rolls_back() {
    let Some(mut site) = owner_comes("steps", Reaction::Rollback) else { return };
    assert_eq!(site.leaving[&1], Keep::SubtaskStart);
    goes(&mut site);
    let printed = end_well(&mut site);
    assert_eq!(printed[0], "from 0\n");
    let from: u32 = printed[1].trim().strip_prefix("from ").unwrap().parse().unwrap();
    assert!(from > 1, "it began from {from}");
}

fn goes_back() {
    let Some(mut site) = owner_comes("marks", Reaction::Rollback) else { return };
    let came = Clock.wall();
    assert_eq!(site.leaving[&1], Keep::SubtaskStart);
    let (bytes, frozen) = goes(&mut site);
    println!("moved {bytes} bytes; it stood still for {frozen:?}");
    let printed = end_well(&mut site);
    check_done_again(&printed[1], came);
}

/// Rank 1 twice, rank 0 with it.
fn go_back_again() {
    let Some(mut site) = owner_comes("marks", Reaction::Rollback) else { return };
    goes(&mut site);
    site.labs[1].ask(&owner::Command::Resume);
    site.leaving.clear();
    site.labs[0].ask(&owner::Command::Pause { seconds: None });
    site.until("both want away", |site| site.leaving.len() == 2);
    let came = Clock.wall();
    goes_to(&mut site, 0, 1);
    goes_to(&mut site, 1, 1);
    for said in end_well(&mut site) {
        check_done_again(&said, came);
    }
}

/// It goes back to that image, or to its start if its owner was faster.
fn meets_its_owner() {
    let Some(mut site) = owner_comes("asks-and-marks", Reaction::Rollback) else { return };
    let (bytes, frozen) = goes(&mut site);
    println!("moved {bytes} bytes; it stood still for {frozen:?}");
    end_well(&mut site);
}

fn too_big() {
    if !is_root() {
        gleaner_skip::without_lab("images can be taken by root only");
        return;
    }
    let mut site = Site::new();
    site.on_busy = OnBusy::at_once(Reaction::Rollback);
    site.limits.disk_bytes_max = 200 << 10;
    site.offer("marks", 2, |rank| rank as usize);
    site.until("both have finished", |site| site.finished.len() == 2);
    assert!(site.finished.values().all(|it| it.outcome == Outcome::Succeeded));
    site.complaints.sort();
    let told = |rank: u32| {
        format!(
            "no image of rank {rank} was taken to go back to: it is too big to be kept: at most \
             200.0 KiB"
        )
    };
    assert_eq!(site.complaints, [told(0), told(1)]);
}

/// Each step was done once, and those after the boundary since then.
#[track_caller]
pub(crate) fn check_done_again(said: &str, came: WallTime) {
    let sum: u32 = (0..STEPS).sum();
    assert!(said.ends_with(&format!("sum {sum}\n")), "{said}");
    let steps: Vec<(u32, i64)> = said
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(step, at)| Some((step.parse().ok()?, at.parse().ok()?)))
        .collect();
    assert!(steps.iter().map(|(step, _)| *step).eq(0..STEPS), "each is done once: {steps:?}");
    for (step, at) in steps {
        assert_eq!(
            at < came.0,
            step <= MARKED,
            "step {step} was done {at}, its owner came {came:?}"
        );
    }
}

fn retreats() {
    let Some(mut site) = owner_comes("late", Reaction::Retreat) else { return };
    assert_eq!(site.leaving[&1], Keep::Nothing);
    goes(&mut site);
    end_well(&mut site);
}
