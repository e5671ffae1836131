//! Programs that do what they must not: who is named, and with what cause.

mod support;

use support::{Ran, example};

fn naughty(mode: &str) -> Ran {
    support::run(2, example("naughty").args([mode, "--rounds", "2"]))
}

#[track_caller]
fn complains(mode: &str, of: &[&str]) -> Ran {
    let ran = naughty(mode);
    let told = ran.complaints.iter().zip(of).all(|(complaint, of)| complaint.starts_with(of));
    assert!(told && ran.complaints.len() >= of.len(), "{mode}: {:?}", ran.complaints);
    ran
}

#[test]
fn a_good_program_is_not_complained_of() {
    let ran = naughty("good");
    assert_eq!(ran.complaints, [""; 0]);
    assert_eq!(ran.ranks[&0].output, "naughty: 2 rounds went round 2 ranks\n");
}

#[test]
fn the_library_refuses_to_send_to_nobody_and_says_why() {
    let ran = naughty("stranger");
    let told = "naughty: rank 1 failed: rank 9999 of 2: expected 0 to 1\n";
    assert_eq!(ran.ranks[&1].error, told);
}

#[test]
fn who_breaks_the_rules_of_the_pipes_is_named_with_the_cause() {
    complains("stranger-raw", &["rank 1 sends to rank 9999: the program has ranks 0 to 1"]);
    complains("flood", &["rank 1 floods rank 0: "]);
    complains("corrupt", &["rank 1 broke the protocol of its pipes: a frame of 4294967295 bytes"]);
    complains(
        "haggler",
        &["rank 1 broke the protocol of its pipes: 70000 of Processors: expected at least one"],
    );
    complains(
        "nagger",
        &["rank 1 broke the protocol of its pipes: it says more than 64 things in negotiations"],
    );
    let ran = naughty("version");
    let told = ["rank 0 speaks version 2 of the protocol", "rank 1 speaks version 2"];
    let all = told.iter().all(|told| ran.complaints.iter().any(|c| c.starts_with(told)));
    assert!(all, "{:?}", ran.complaints);
}

#[test]
fn what_is_never_received_is_named() {
    complains("deaf", &["rank 1 ended without receiving 1 messages of rank 0, tag 7"]);
}

#[test]
fn who_waits_for_a_rank_that_has_ended_is_told_of_it() {
    for mode in ["quitter", "failing", "crashing"] {
        let ran = naughty(mode);
        let told = "naughty: rank 0 failed: waited for a message of tag 7 from rank 1, but rank 1";
        assert!(ran.ranks[&0].error.starts_with(told), "{mode}: {}", ran.ranks[&0].error);
    }
}

#[test]
fn ranks_that_wait_for_each_other_are_named() {
    let ran = complains("deadlock", &["deadlock: rank 0 waits for a message of rank 1, tag 7"]);
    let told = "naughty: rank 0 failed: deadlock: every rank waits: rank 0 for";
    assert!(ran.ranks[&0].error.starts_with(told), "{}", ran.ranks[&0].error);
    assert_eq!(ran.ranks[&0].status.code(), Some(2));
}
