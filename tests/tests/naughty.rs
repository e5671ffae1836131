//! Programs that do what they must not, live: each gets a clear word that
//! names the rank and the cause, disturbs no other job, and leaves nothing.

use anyhow::Result;
use gleaner_lab::Lab;
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_tests::{answer, lab_or_skip, options, submit_example};

fn lab() -> Result<Option<Lab>> {
    let mut options = options(2)?;
    options.host.places = 4;
    let Some(lab) = lab_or_skip(options)? else { return Ok(None) };
    lab.wait_for_idle(2)?;
    Ok(Some(lab))
}

/// The two ranks of a naughty program.
fn submit(lab: &Lab, mode: &str, options: &[&str]) -> Result<u64> {
    let mut all = vec!["--ranks", "2", "--retries", "0"];
    all.extend(options);
    submit_example(lab, &all, "naughty", &[mode])
}

/// Everything that a user is shown of a job.
fn told(lab: &Lab, job: u64) -> Result<String> {
    let job = job.to_string();
    let shown = lab.text(&["job", &job])?;
    Ok(shown + &lab.text(&["logs", &job, "--stderr"]).unwrap_or_default())
}

fn is_empty(lab: &Lab) -> Result<()> {
    for host in &lab.hosts {
        until(&format!("{} is empty", host.name), PATIENCE, || {
            Ok(host.guests().is_empty().then_some(()))
        })?;
    }
    Ok(())
}

#[test]
fn each_wrong_is_told_with_its_rank_and_cause_and_harms_nobody_else() -> Result<()> {
    let Some(lab) = lab()? else { return Ok(()) };
    let cases = [
        ("stranger", "failed", "rank 9999 of 2"),
        ("stranger-raw", "failed", "rank 1 sends to rank 9999: the program has ranks 0 to 1"),
        ("failing", "failed", "exit code 3"),
        ("crashing", "failed", "signal 6"),
        ("flood", "failed", "rank 1 floods rank 0"),
        ("corrupt", "failed", "rank 1 broke the protocol of its pipes"),
        ("version", "failed", "speaks version"),
        ("deadlock", "failed", "deadlock"),
        ("quitter", "failed", "rank 1"),
        ("deaf", "succeeded", "rank 1 ended without receiving 1 messages of rank 0, tag 7"),
        ("forker", "succeeded", "succeeded"),
    ];
    for (mode, state, cause) in cases {
        let good = submit(&lab, "good", &[])?;
        let job = submit(&lab, mode, &[])?;
        let row = lab.wait_for_job(job)?;
        let said = told(&lab, job)?;
        assert_eq!(row["summary"]["state"], state, "{mode}: {said}");
        assert!(said.contains(cause), "{mode}: expected `{cause}` in {said}");
        let unharmed = answer(&lab, good)?;
        assert!(unharmed.contains("rounds went round"), "beside {mode}: {unharmed}");
        is_empty(&lab)?;
    }
    Ok(())
}

#[test]
fn who_ignores_its_retreat_is_ended_and_the_owner_does_not_wait() -> Result<()> {
    let Some(mut lab) = lab()? else { return Ok(()) };
    let job = submit(&lab, "stubborn", &["--on-busy", "retreat"])?;
    let host = until("a rank runs", PATIENCE, || {
        Ok(lab.hosts.iter().position(|host| !host.guests().is_empty()))
    })?;
    lab.hosts[host].type_key()?;
    until("nobody is left with the owner", PATIENCE, || {
        Ok(lab.hosts[host].guests().is_empty().then_some(()))
    })?;
    lab.text(&["cancel", &job.to_string()])?;
    is_empty(&lab)
}

#[test]
fn what_holds_something_that_cannot_be_carried_stays_and_its_user_is_told_what() -> Result<()> {
    let Some(mut lab) = lab()? else { return Ok(()) };
    let options = ["--on-busy", "migrate"];
    let program = ["--rounds", "100000"];
    let mut all = vec!["--ranks", "2", "--retries", "0"];
    all.extend(options);
    let job = submit_example(&lab, &all, "naughty", &[&["socket"], &program[..]].concat())?;
    until("both ranks run", PATIENCE, || {
        let here: usize = lab.hosts.iter().map(|host| host.guests().len()).sum();
        Ok((here >= 2).then_some(()))
    })?;
    until("its user is told", PATIENCE, || {
        for host in &mut lab.hosts {
            host.type_key()?;
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
        let said = told(&lab, job)?;
        Ok((said.contains("rank 1 cannot leave") && said.contains("socket")).then_some(()))
    })?;
    lab.text(&["cancel", &job.to_string()])?;
    is_empty(&lab)
}
