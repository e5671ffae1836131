//! The eight models of Phalen 1994, Table 1, live: what a program of each does
//! when owners return, when owners leave, and when it asks for more or less
//! itself. `program/examples/README.md` has the same commands.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_lab::{Lab, cgroup};
use gleaner_tests::{
    answer, host_of, lab_or_skip, options, owner_comes as comes, owner_leaves as leaves,
    submit_example, subprograms,
};
use serde_json::Value;

/// 32 tasks that last half a second each, and hardly need a core: guests get
/// next to none on a loaded machine.
const MANDELBROT: [&str; 8] = ["--size", "256", "--rows", "8", "--depth", "8000", "--linger", "40"];
/// What a worker writes for the result of one of them, at the least: its rank
/// and eight rows.
const RESULT_BYTES: u64 = 100;

/// Few tasks that last seconds, of rows that are soon done: who is to retreat
/// has some of them ready, is not at its last, and hears of it in time.
fn long_tasks(size: &'static str) -> [&'static str; 8] {
    ["--size", size, "--rows", "64", "--depth", "2000", "--linger", "40"]
}

/// A job on a lab.
struct Run {
    lab: Lab,
    job: u64,
}

/// Workstations of which the last is its owner's at first.
fn lab_with_an_owner(hosts: usize, places: u16) -> Result<Option<Lab>> {
    let lab = idle_lab(hosts, places)?;
    if let Some(lab) = &lab {
        comes(lab, hosts - 1)?;
        until("one is busy", PATIENCE, || Ok(is_busy(lab, hosts - 1)?.then_some(())))?;
    }
    Ok(lab)
}

fn idle_lab(hosts: usize, places: u16) -> Result<Option<Lab>> {
    let mut options = options(hosts)?;
    options.host.places = places;
    let Some(lab) = lab_or_skip(options)? else { return Ok(None) };
    lab.wait_for_idle(hosts)?;
    Ok(Some(lab))
}

fn is_busy(lab: &Lab, host: usize) -> Result<bool> {
    let rows = lab.rows::<Value>(&["workstations", "--json"])?;
    let row = rows.iter().find(|row| row["name"] == lab.hosts[host].name.as_str());
    Ok(row.is_some_and(|row| row["state"] == "busy"))
}

impl Run {
    fn submit(lab: Lab, options: &[&str], name: &str, own: &[&str]) -> Result<Self> {
        let job = submit_example(&lab, options, name, own)?;
        Ok(Self { lab, job })
    }

    fn told(&self) -> String {
        let job = self.job.to_string();
        let asked = |of: &[&str]| self.lab.text(of).unwrap_or_else(|error| format!("{error:#}"));
        let mut said = asked(&["job", &job]) + &asked(&["why", &job]);
        for host in &self.lab.hosts {
            let log = std::fs::read_to_string(host.dir.join("agent.log")).unwrap_or_default();
            let of_moves = |line: &&str| line.contains("move") || line.contains("taken");
            for line in log.lines().filter(of_moves) {
                said += &host.name;
                said += ": ";
                said += line;
                said += "\n";
            }
        }
        said
    }

    /// Waits for a fact about the ranks while the program runs.
    fn until<T>(&self, fact: &str, mut ask: impl FnMut(&[Value]) -> Option<T>) -> Result<T> {
        let found = until(fact, PATIENCE, || {
            if let Some(answer) = ask(&subprograms(&self.lab, self.job)?) {
                return Ok(Some(answer));
            }
            let row = self.lab.job(self.job)?;
            ensure!(row["summary"]["state"] == "running", "it ended before this: {fact}");
            Ok(None)
        });
        found.with_context(|| self.told())
    }

    fn until_all_run(&self, ranks: usize) -> Result<()> {
        let fact = format!("{ranks} ranks run");
        self.until(&fact, |rows| {
            (rows.len() == ranks && rows.iter().all(|row| row["state"] == "running")).then_some(())
        })
    }

    /// A workstation with ranks at work, rank 0 not among them.
    fn somewhere_else(&self) -> Result<usize> {
        let rows = subprograms(&self.lab, self.job)?;
        let first = host_of(&self.lab, &rows[0]);
        let mut others = rows.iter().filter_map(|row| host_of(&self.lab, row));
        let host = others.find(|host| Some(*host) != first).context("all are with rank 0")?;
        self.until_it_computes(host)?;
        Ok(host)
    }

    /// All ranks at a workstation have begun, and have something in hand.
    fn until_it_computes(&self, host: usize) -> Result<()> {
        let place = &self.lab.hosts[host];
        let guests = place.cgroup.as_ref().map(|path| path.join("guests")).context("no cgroup")?;
        self.until("all ranks there have begun", |rows| {
            let there = rows.iter().filter(|row| host_of(&self.lab, row) == Some(host)).count();
            (place.guests().len() >= there).then_some(())
        })?;
        // More than it takes to begin.
        let before = cgroup::cpu_us(&guests);
        self.until("they compute", |_| (cgroup::cpu_us(&guests) > before + 15_000).then_some(()))
    }

    /// Everybody there has handed in a result: what else they write, their
    /// questions for tasks, is far shorter.
    fn until_results_come_from(&self, host: usize) -> Result<()> {
        let place = &self.lab.hosts[host];
        let written = || -> BTreeMap<u32, u64> {
            place.guests().into_iter().filter_map(|pid| Some((pid, bytes_written(pid)?))).collect()
        };
        let before = written();
        self.until("all there have handed in a result", |_| {
            let now = written();
            let has = |(pid, bytes): (&u32, &u64)| now.get(pid) > Some(&(bytes + RESULT_BYTES));
            before.iter().all(has).then_some(())
        })
    }

    /// How many ranks did not hand in what they had, because they got no core
    /// in time.
    fn unheeded(&self) -> Result<usize> {
        let row = self.lab.job(self.job)?;
        let notes = row["notes"].as_array().context("no notes")?;
        let is_one = |note: &&Value| note.to_string().contains("did not heed its retreat");
        Ok(notes.iter().filter(is_one).count())
    }

    /// The ranks that are at a workstation.
    fn ranks_at(&self, host: usize) -> Result<BTreeSet<usize>> {
        let rows = subprograms(&self.lab, self.job)?;
        let at = |rank: &usize| host_of(&self.lab, &rows[*rank]) == Some(host);
        Ok((0..rows.len()).filter(at).collect())
    }

    fn until_nobody_is_at(&self, host: usize) -> Result<()> {
        until("nobody is left with the owner", PATIENCE, || {
            Ok(self.lab.hosts[host].guests().is_empty().then_some(()))
        })
    }

    /// Ranks have gone on elsewhere.
    fn until_moved(&self, ranks: &BTreeSet<usize>, from: usize) -> Result<()> {
        self.until("they have moved", |rows| {
            let has_moved = |rank: &usize| {
                let Some(row) = rows.get(*rank) else { return false };
                let at = host_of(&self.lab, row);
                row["moves"].as_u64() >= Some(1) && at.is_some() && at != Some(from)
            };
            ranks.iter().all(has_moved).then_some(())
        })
    }

    /// The right answer, of one life; and only these ranks have moved.
    fn ends_well(&self, moved: &BTreeSet<usize>) -> Result<String> {
        let said = answer(&self.lab, self.job)?;
        ensure!(said.contains("answer ok"), "{said}");
        let row = self.lab.job(self.job)?;
        ensure!(row["life"] == 1, "nothing begins again when an owner comes: {}", self.told());
        for (rank, row) in subprograms(&self.lab, self.job)?.iter().enumerate() {
            let times = row["moves"].as_u64();
            ensure!((times >= Some(1)) == moved.contains(&rank), "rank {rank}: {}", self.told());
        }
        Ok(said)
    }

    fn total(&self) -> Result<u64> {
        Ok(self.lab.job(self.job)?["summary"]["total"].as_u64().unwrap_or(0))
    }
}

fn bytes_written(pid: u32) -> Option<u64> {
    let counts = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    counts.lines().find_map(|line| line.strip_prefix("wchar: "))?.parse().ok()
}

/// `.. by 5 ranks: 1 2 3 4 5`: who did the tasks.
fn workers(said: &str) -> BTreeSet<usize> {
    let named = said.split_once(" ranks: ").map_or("", |(_, rest)| rest);
    let line = named.lines().next().unwrap_or_default();
    line.split(' ').filter_map(|word| word.parse().ok()).collect()
}

/// `.. 34 tasks by 5 ranks`: both numbers.
fn tasks_and_ranks(said: &str) -> Result<(u32, u32)> {
    let words: Vec<&str> = said.split_whitespace().collect();
    let before = |word: &str| -> Result<u32> {
        let at = words
            .iter()
            .position(|one| one.trim_end_matches([',', ':']) == word)
            .context(said.to_owned())?;
        Ok(words[at - 1].parse()?)
    };
    Ok((before("tasks")?, before("ranks")?))
}

// ── adaptive: work goes back to the bag ────────────────────────────────────────

#[test]
fn model_1_returns_work_to_the_bag_and_takes_no_more_than_it_began_with() -> Result<()> {
    let Some(lab) = lab_with_an_owner(3, 2)? else { return Ok(()) };
    let options = ["--ranks", "4", "--on-busy", "retreat"];
    // So many that they are not done before the owner has come and left.
    let mut run = Run::submit(lab, &options, "mandelbrot", &long_tasks("1024"))?;
    run.until_all_run(4)?;
    let owners = run.somewhere_else()?;
    let gone = run.ranks_at(owners)?;
    // Each has had one task, and some of the next is ready.
    run.until_results_come_from(owners)?;
    run.until_it_computes(owners)?;
    // By a key: who pauses takes the workstation without a word to the ranks.
    run.lab.hosts[owners].type_key()?;
    run.until_nobody_is_at(owners)?;
    comes(&run.lab, owners)?;
    leaves(&run.lab, 2)?;
    run.until_moved(&gone, owners)?;
    let (tasks, _) = tasks_and_ranks(&run.ends_well(&gone)?)?;
    // A task of which a part is handed in makes two: that part, and the rest.
    let heeded = run.unheeded()? < gone.len();
    assert!(tasks >= 1024 / 64 + u32::from(heeded), "{tasks} tasks: {}", run.told());
    assert_eq!(run.total()?, 4);
    Ok(())
}

#[test]
fn who_has_nowhere_to_go_begins_again_when_its_owner_has_left() -> Result<()> {
    let Some(lab) = idle_lab(2, 1)? else { return Ok(()) };
    let options = ["--ranks", "2", "--on-busy", "retreat"];
    let mut run = Run::submit(lab, &options, "mandelbrot", &long_tasks("512"))?;
    run.until_all_run(2)?;
    let owners = run.somewhere_else()?;
    let gone = run.ranks_at(owners)?;
    run.until_results_come_from(owners)?;
    run.lab.hosts[owners].type_key()?;
    run.until_nobody_is_at(owners)?;
    comes(&run.lab, owners)?;
    leaves(&run.lab, owners)?;
    run.until("it works there again", |rows| {
        let is_back = rows.iter().all(|row| row["state"] == "running");
        (is_back && !run.lab.hosts[owners].guests().is_empty()).then_some(())
    })?;
    run.until_results_come_from(owners)?;
    let said = run.ends_well(&BTreeSet::new())?;
    assert!(workers(&said).is_superset(&gone), "{said}");
    Ok(())
}

/// Ranks that came later work there, go when its owner comes, and had a part in
/// the right answer.
fn work_until_their_owner_comes(run: &Run, later: &BTreeSet<usize>, host: usize) -> Result<()> {
    run.until_it_computes(host)?;
    run.until_results_come_from(host)?;
    comes(&run.lab, host)?;
    run.until_nobody_is_at(host)?;
    let said = run.ends_well(later)?;
    assert!(workers(&said).is_superset(later), "the later ranks worked: {said}");
    Ok(())
}

#[test]
fn model_2_takes_what_an_owner_leaves_and_gives_it_back() -> Result<()> {
    let Some(lab) = lab_with_an_owner(3, 2)? else { return Ok(()) };
    let options = ["--ranks", "4", "--ranks-max", "6", "--grows", "--on-busy", "retreat"];
    let run = Run::submit(lab, &options, "mandelbrot", &MANDELBROT)?;
    run.until_all_run(4)?;
    leaves(&run.lab, 2)?;
    run.until_all_run(6)?;
    assert_eq!(run.ranks_at(2)?, BTreeSet::from([4, 5]), "{}", run.told());
    work_until_their_owner_comes(&run, &BTreeSet::from([4, 5]), 2)
}

#[test]
fn model_3_spawns_as_many_as_there_are_processors_once() -> Result<()> {
    let Some(lab) = lab_with_an_owner(3, 2)? else { return Ok(()) };
    let options = ["--ranks", "1", "--ranks-max", "6", "--spawns", "--on-busy", "retreat"];
    let own = [&MANDELBROT[..], &["--spawn", "5"]].concat();
    let run = Run::submit(lab, &options, "mandelbrot", &own)?;
    run.until_all_run(4)?;
    let owners = run.somewhere_else()?;
    let gone = run.ranks_at(owners)?;
    comes(&run.lab, owners)?;
    run.until_nobody_is_at(owners)?;
    leaves(&run.lab, 2)?;
    run.until_moved(&gone, owners)?;
    let said = run.ends_well(&gone)?;
    assert_eq!(run.total()?, 4, "an owner who leaves changes nothing");
    for rank in 1..4 {
        assert!(said.contains(&format!("rank {rank} has left")), "rank {rank} stayed: {said}");
    }
    Ok(())
}

#[test]
fn model_4_spawns_again_when_an_owner_leaves() -> Result<()> {
    let Some(lab) = lab_with_an_owner(3, 2)? else { return Ok(()) };
    let options =
        ["--ranks", "1", "--ranks-max", "6", "--spawns", "--grows", "--on-busy", "retreat"];
    let own = [&MANDELBROT[..], &["--spawn", "5", "--again"]].concat();
    let run = Run::submit(lab, &options, "mandelbrot", &own)?;
    run.until_all_run(4)?;
    leaves(&run.lab, 2)?;
    run.until_all_run(6)?;
    work_until_their_owner_comes(&run, &BTreeSet::from([4, 5]), 2)
}

// ── scheduled: ranks move, and need not know of it ─────────────────────────────
//
// The integral of models 7 and 8 has no answer unless every rank that was
// spawned is heard to have left by itself.

#[test]
fn model_5_goes_on_elsewhere_and_the_list_and_the_picture_tell_where() -> Result<()> {
    let Some(lab) = idle_lab(4, 6)? else { return Ok(()) };
    let options = ["--ranks", "17", "--on-busy", "migrate"];
    let run = Run::submit(lab, &options, "mesh", &["--size", "256"])?;
    run.until_all_run(17)?;
    let owners = run.somewhere_else()?;
    let gone = run.ranks_at(owners)?;
    comes(&run.lab, owners)?;
    run.until_moved(&gone, owners)?;
    let listed = run.lab.text(&["jobs"])?;
    assert!(listed.contains("(1 move)"), "{listed}");
    assert!(!listed.contains(&format!("{}:", run.lab.hosts[owners].name)), "{listed}");
    run.ends_well(&gone)?;
    let picture = run.lab.hosts[0].dir.join("gantt.svg");
    run.lab.text(&["job", &run.job.to_string(), "--gantt", &picture.display().to_string()])?;
    let drawn = std::fs::read_to_string(picture)?;
    let moves = format!("{} attempts, {} moves", 17 + gone.len(), gone.len());
    assert!(drawn.contains(&moves), "expected {moves}: {}", run.told());
    Ok(())
}

#[test]
fn model_6_stands_still_until_there_is_room_and_resumes_where_it_stood() -> Result<()> {
    let Some(lab) = lab_with_an_owner(4, 6)? else { return Ok(()) };
    let options = ["--ranks", "17", "--grows", "--on-busy", "suspend then migrate"];
    let run = Run::submit(lab, &options, "mesh", &["--size", "256"])?;
    run.until_all_run(17)?;
    let owners = run.somewhere_else()?;
    let gone = run.ranks_at(owners)?;
    comes(&run.lab, owners)?;
    run.until("they stand still", |rows| {
        gone.iter().any(|rank| rows[*rank]["state"] == "suspended").then_some(())
    })?;
    leaves(&run.lab, 3)?;
    run.until_moved(&gone, owners)?;
    run.ends_well(&gone)?;
    Ok(())
}

#[test]
fn model_6_goes_on_where_it_stood_when_its_owner_leaves_first() -> Result<()> {
    let Some(lab) = idle_lab(3, 6)? else { return Ok(()) };
    // With the program's ranks it leaves no place to move to.
    let other = lab.submit(&["--count", "1", "--", "sleep", "100000"])?;
    until("the other job has a place", PATIENCE, || {
        Ok((lab.job(other)?["summary"]["running"] == 1).then_some(()))
    })?;
    let options = ["--ranks", "17", "--grows", "--on-busy", "suspend then migrate"];
    let run = Run::submit(lab, &options, "mesh", &["--size", "256"])?;
    run.until_all_run(17)?;
    let owners = run.somewhere_else()?;
    let there = run.ranks_at(owners)?;
    let before = run.lab.hosts[owners].guests();
    comes(&run.lab, owners)?;
    run.until("they stand still", |rows| {
        there.iter().all(|rank| rows[*rank]["state"] == "suspended").then_some(())
    })?;
    leaves(&run.lab, owners)?;
    run.until_all_run(17)?;
    // The same processes, and so what they had computed.
    assert_eq!(run.lab.hosts[owners].guests(), before, "{}", run.told());
    run.ends_well(&BTreeSet::new()).map(drop)
}

#[test]
fn model_7_spawns_and_leaves_and_its_ranks_go_on_elsewhere() -> Result<()> {
    let Some(lab) = idle_lab(3, 2)? else { return Ok(()) };
    let options = ["--ranks", "1", "--ranks-max", "4", "--spawns", "--on-busy", "migrate"];
    // Each part computes for longer than it takes to begin, and all of them wait for long.
    let own = ["--halvings", "5", "--points", "4000000", "--linger", "400"];
    let run = Run::submit(lab, &options, "quadrature", &own)?;
    run.until("it has spawned", |rows| (rows.len() >= 3).then_some(()))?;
    let owners = run.somewhere_else()?;
    let gone = run.ranks_at(owners)?;
    comes(&run.lab, owners)?;
    run.until_moved(&gone, owners)?;
    let (_, ranks) = tasks_and_ranks(&run.ends_well(&gone)?.replace("parts", "tasks"))?;
    assert!(ranks >= 3, "{ranks}");
    Ok(())
}

#[test]
fn model_8_spawns_and_leaves_and_goes_on_where_an_owner_leaves() -> Result<()> {
    let Some(lab) = lab_with_an_owner(3, 2)? else { return Ok(()) };
    let options = [
        "--ranks",
        "1",
        "--ranks-max",
        "4",
        "--spawns",
        "--grows",
        "--on-busy",
        "suspend then migrate",
    ];
    // Each part computes for longer than it takes to begin, and all of them wait for long.
    let own = ["--halvings", "5", "--points", "4000000", "--linger", "400"];
    let run = Run::submit(lab, &options, "quadrature", &own)?;
    run.until("it has spawned", |rows| (rows.len() >= 4).then_some(()))?;
    let owners = run.somewhere_else()?;
    let gone = run.ranks_at(owners)?;
    comes(&run.lab, owners)?;
    run.until("they stand still", |rows| {
        gone.iter().any(|rank| rows[*rank]["state"] == "suspended").then_some(())
    })?;
    leaves(&run.lab, 2)?;
    run.until_moved(&gone, owners)?;
    run.ends_well(&gone)?;
    Ok(())
}
