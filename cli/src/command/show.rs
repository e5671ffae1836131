//! Rows as people read them: pure, so that tests can look at them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gleaner_collector::wall::system_zone;
use gleaner_common::id::JobId;
use gleaner_common::job::{OnBusy, Patience, Reaction};
use gleaner_common::report::{
    AttemptRow, JobRow, JobSummary, ReplicaRow, ShareRow, SubprogramRow, TokenRow, UserRow,
    WorkstationRow,
};
use gleaner_common::time::{Spoken, WallTime};
use gleaner_common::units::spoken_size;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::output::{Listing, seconds};

/// Where a time is read.
pub(super) fn here() -> TimeZone {
    system_zone()
}

/// `2026-11-21 06:27:47`, in local time.
pub(super) fn time(at: WallTime, zone: &TimeZone) -> String {
    Timestamp::from_nanosecond(i128::from(at.0)).map_or_else(
        |_| at.0.to_string(),
        |at| at.to_zoned(zone.clone()).strftime("%F %T").to_string(),
    )
}

/// With a column of where ranks are, by job, if there is any to tell of.
pub(super) fn jobs(rows: &[JobRow], ranks: &BTreeMap<JobId, String>, zone: &TimeZone) -> Listing {
    let rows = Listing::of(rows)
        .column("job", 9, |row| row.job.to_string())
        .shortened("name", (8, 12), |row| row.name.clone())
        .shortened("user", (5, 12), |row| row.user.clone())
        .column("state", 9, |row| row.summary.state.name().to_owned())
        .column("done", 9, |row| format!("{}/{}", row.summary.counts.succeeded, row.summary.total))
        .column("failed", 7, |row| row.summary.counts.failed.to_string())
        .column("running", 6, |row| row.summary.running.to_string())
        .column("suspended", 4, |row| row.summary.suspended.to_string())
        .column("moves", 3, |row| row.summary.counts.moves.to_string())
        .column("retreats", 2, |row| row.summary.counts.retreats.to_string())
        .column("submitted", 3, |row| time(row.submitted, zone));
    if ranks.is_empty() {
        return rows.listing();
    }
    let whereabouts = |row: &JobRow| ranks.get(&row.job).cloned().unwrap_or_default();
    rows.wrapped("ranks", (7, 24), whereabouts).listing()
}

/// One job in lines of what and how much.
pub(super) fn job(row: &JobRow, zone: &TimeZone) -> Listing {
    let of = &row.summary;
    let took = row.ended.map(|ended| format!(", took {}", Spoken(ended.since(row.submitted))));
    let lines = [
        ("name", row.name.clone()),
        ("user", row.user.clone()),
        ("command", row.command.join(" ")),
        ("state", of.state.name().to_owned()),
        ("submitted", time(row.submitted, zone) + &took.unwrap_or_default()),
        ("on busy", on_busy(row.on_busy)),
        ("subprograms", progress(of)),
        (
            "setbacks",
            format!(
                "{} suspensions, {} retreats, {} lost with their workstation, {} retried of {} allowed each",
                of.counts.suspensions,
                of.counts.retreats,
                of.counts.lost,
                of.counts.retried,
                row.retries
            ),
        ),
        (
            "cpu",
            format!("{} useful, {} thrown away", seconds(row.cpu_s), seconds(row.wasted_cpu_s)),
        ),
    ];
    let number = ("number", row.job.to_string());
    let lines = [number]
        .into_iter()
        .chain(lines)
        .chain(program(row))
        .chain(replicated(row))
        .chain(moves(row));
    let lines: Vec<(&str, String)> = lines.chain(notes(row)).collect();
    Listing::of(&lines)
        .column("job", 9, |(what, _)| (*what).to_owned())
        .wrapped("", (9, 24), |(_, text)| text.clone())
        .listing()
}

/// What only a program of ranks has.
fn program(row: &JobRow) -> Option<(&'static str, String)> {
    let program = row.program?;
    let mut text = format!("{} ranks", row.summary.total);
    if program.ranks_max > row.summary.total {
        let _ = write!(text, ", at most {}", program.ranks_max);
    }
    match program.checkpoint_every {
        Some(every) => {
            let _ = write!(text, "; all are saved every {}", Spoken(every));
        }
        None => text += "; goes back to its start when a workstation dies",
    }
    if row.life > 1 {
        let _ = write!(text, "; began {} times", row.life);
    }
    Some(("program", text))
}

fn replicated(row: &JobRow) -> Option<(&'static str, String)> {
    let quorum = row.replicas / 2 + 1;
    let text =
        || format!("each on {} workstations; a result counts when {quorum} agree", row.replicas);
    (row.replicas > 1).then(|| ("replicas", text()))
}

fn moves(row: &JobRow) -> Option<(&'static str, String)> {
    let moves = row.summary.counts.moves;
    let text = || {
        let (bytes, frozen) = (spoken_size(row.moved_bytes), seconds(row.frozen_s));
        format!("{moves}, {bytes} carried, stood still for {frozen} in all")
    };
    (moves > 0).then(|| ("moves", text()))
}

fn notes(row: &JobRow) -> impl Iterator<Item = (&'static str, String)> + '_ {
    row.notes
        .iter()
        .enumerate()
        .map(|(at, note)| (if at == 0 { "notes" } else { "" }, note.clone()))
}

/// `240: 12 queued, 4 running, ..`, leaving out what there is none of.
pub(super) fn progress(of: &JobSummary) -> String {
    let parts: Vec<String> = [
        ("succeeded", of.counts.succeeded),
        ("failed", of.counts.failed),
        ("cancelled", of.counts.cancelled),
        ("running", of.running),
        ("suspended", of.suspended),
        ("queued", of.queued),
    ]
    .into_iter()
    .filter(|(_, many)| *many > 0)
    .map(|(what, many)| format!("{many} {what}"))
    .collect();
    format!("{}: {}", of.total, parts.join(", "))
}

fn on_busy(on_busy: OnBusy) -> String {
    let then = on_busy.then.name();
    match (on_busy.reaction, on_busy.patience) {
        (Reaction::Suspend, Patience::For(span)) => {
            format!("suspend, {then} after {}", Spoken(span))
        }
        (Reaction::Suspend, Patience::ByCost) => {
            format!("suspend, {then} after as long as that takes")
        }
        (Reaction::Suspend, Patience::Forever) => "suspend for as long as it takes".to_owned(),
        (other, _) => other.name().to_owned(),
    }
}

pub(super) fn subprograms(rows: &[SubprogramRow]) -> Listing {
    Listing::of(rows)
        .column("subprogram", 9, |row| row.subprogram.to_string())
        .column("state", 9, |row| row.state.name().to_owned())
        .shortened("workstation", (8, 12), |row| row.workstation.clone().unwrap_or_default())
        .column("attempts", 4, |row| row.attempts.to_string())
        .column("failures", 6, |row| row.failures.to_string())
        .column("retreats", 3, |row| row.retreats.to_string())
        .column("moves", 3, |row| row.moves.to_string())
        .column("lost", 2, |row| row.lost.to_string())
        .column("cpu", 5, |row| seconds(row.cpu_s))
        .shortened("last end", (7, 24), |row| row.outcome.clone().unwrap_or_default())
        .listing()
}

/// Answers that are equal agree.
pub(super) fn replicas(rows: &[ReplicaRow]) -> Listing {
    Listing::of(rows)
        .column("replica", 9, |row| row.replica.to_string())
        .column("state", 9, |row| row.state.name().to_owned())
        .shortened("workstation", (8, 12), |row| row.workstation.clone().unwrap_or_default())
        .column("answer", 7, |row| row.answer.clone().unwrap_or_default())
        .column("attempts", 4, |row| row.attempts.to_string())
        .shortened("last end", (6, 24), |row| row.outcome.clone().unwrap_or_default())
        .listing()
}

pub(super) fn attempts(rows: &[AttemptRow], zone: &TimeZone) -> Listing {
    let lasted = |row: &AttemptRow| Some(Spoken(row.ended?.since(row.placed)).to_string());
    let replicated = rows.iter().any(|row| row.replica > 1);
    let listing = Listing::of(rows).column("attempt", 9, |row| row.fence.to_string());
    let listing = if replicated {
        listing.column("replica", 8, |row| row.replica.to_string())
    } else {
        listing
    };
    listing
        .shortened("workstation", (8, 12), |row| row.workstation.clone())
        .column("placed", 5, |row| time(row.placed, zone))
        .column("lasted", 7, |row| lasted(row).unwrap_or_default())
        .shortened("end", (8, 24), |row| row.end.clone().unwrap_or_else(|| "goes on".to_owned()))
        .listing()
}

pub(super) fn workstations(rows: &[WorkstationRow]) -> Listing {
    let reason = |row: &WorkstationRow| match row.missing.as_slice() {
        [] => row.reason.clone(),
        missing => format!("{} (missing: {})", row.reason, missing.join("; ")),
    };
    Listing::of(rows)
        .column("number", 3, |row| row.workstation.to_string())
        .shortened("name", (9, 12), |row| row.name.clone())
        .column("state", 9, |row| row.state.name().to_owned())
        .column("for", 6, |row| seconds(row.lasted_s))
        .column("guests", 8, |row| format!("{}/{}", row.guests, row.places))
        .column("slots", 4, |row| row.slots.to_string())
        .column("cores", 3, |row| row.cores.to_string())
        .column("load", 5, |row| format!("{:.2}", row.load_1m))
        .column("memory", 2, |row| spoken_size(row.memory_bytes))
        .column("speed", 1, |row| format!("{:.0}", row.speed))
        .shortened("reason", (7, 24), reason)
        .listing()
}

pub(super) fn users(rows: &[UserRow], zone: &TimeZone) -> Listing {
    Listing::of(rows)
        .column("user", 9, |row| row.user.clone())
        .column("role", 8, |row| row.role.name().to_owned())
        .column("keys", 6, |row| row.keys.to_string())
        .column("enrolled", 7, |row| time(row.enrolled, zone))
        .listing()
}

pub(super) fn shares(rows: &[ShareRow]) -> Listing {
    Listing::of(rows)
        .column("user", 9, |row| row.user.clone())
        .shortened("group", (4, 8), |row| row.group.clone().unwrap_or_default())
        .column("share", 8, |row| format!("{:.1}%", row.share * 100.0))
        .column("usage", 8, |row| seconds(row.usage_s))
        .column("running", 7, |row| row.running.to_string())
        .column("queued", 7, |row| row.queued.to_string())
        .column("factor", 5, |row| format!("{:.0}", row.factor))
        .listing()
}

pub(super) fn tokens(rows: &[TokenRow], zone: &TimeZone) -> Listing {
    Listing::of(rows)
        .column("token", 9, |row| row.id.clone())
        .column("role", 8, |row| row.role.name().to_owned())
        .shortened("name", (6, 12), |row| row.name.clone().unwrap_or_default())
        .column("state", 9, |row| row.state.clone())
        .column("expires", 7, |row| time(row.expires, zone))
        .listing()
}

#[cfg(test)]
pub(super) mod tests {
    use gleaner_common::id::{Fence, SubprogramId, WorkstationId};
    use gleaner_common::machine::Machine;
    use gleaner_common::program::ProgramSpec;
    use gleaner_common::report::{Counts, JobState, SubprogramState, WorkstationState};
    use gleaner_common::wire::Role;

    use super::*;

    #[test]
    fn a_job_as_a_record_reads_back_as_what_it_is() {
        let record = serde_json::to_string(&a_job()).unwrap();
        assert!(record.contains(r#""suspended":2,"succeeded":134,"#), "{record}");
        assert_eq!(serde_json::from_str::<JobRow>(&record).unwrap(), a_job());
    }

    fn text(listing: &Listing) -> String {
        listing.fitted(None).0
    }

    pub(in crate::command) fn a_job() -> JobRow {
        JobRow {
            job: JobId(7),
            name: "primes".into(),
            user: "ada".into(),
            command: vec!["./primes".into(), "{i}".into()],
            submitted: WallTime::from_unix_s(1_795_000_000),
            ended: None,
            on_busy: OnBusy::default(),
            retries: 2,
            summary: JobSummary {
                job: JobId(7),
                state: JobState::Running,
                total: 240,
                queued: 100,
                running: 4,
                suspended: 2,
                counts: Counts {
                    succeeded: 134,
                    retreats: 9,
                    suspensions: 21,
                    lost: 1,
                    ..Counts::default()
                },
            },
            cpu_s: 512.0,
            wasted_cpu_s: 3.25,
            program: None,
            life: 0,
            moved_bytes: 0,
            frozen_s: 0.0,
            notes: vec![],
            public: false,
            replicas: 1,
        }
    }

    #[test]
    fn shares_are_a_table_of_use_beside_share() {
        let row = ShareRow {
            user: "ada".into(),
            group: Some("vision".into()),
            share: 0.25,
            usage_s: 90.0,
            running: 4,
            queued: 2_000_000,
            factor: 330.0,
        };
        let (text, dropped) = shares(&[row]).fitted(Some(60));
        assert!(dropped.is_empty(), "{dropped:?}");
        for part in ["ada", "vision", "25.0%", "90 s", "2000000", "330"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn jobs_are_a_table_and_one_job_is_its_lines() {
        insta::assert_snapshot!(text(&jobs(&[a_job()], &BTreeMap::new(), &TimeZone::UTC)), @r"
        JOB  NAME    USER  STATE    DONE     FAILED  RUNNING  SUSPENDED  MOVES  RETREATS  SUBMITTED
          7  primes  ada   running  134/240       0        4          2      0         9  2026-11-18 11:06:40
        ");
        insta::assert_snapshot!(text(&job(&a_job(), &TimeZone::UTC)), @r"
        JOB
        number       7
        name         primes
        user         ada
        command      ./primes {i}
        state        running
        submitted    2026-11-18 11:06:40
        on busy      suspend, retreat after 10 min
        subprograms  240: 134 succeeded, 4 running, 2 suspended, 100 queued
        setbacks     21 suspensions, 9 retreats, 1 lost with their workstation, 0 retried of 2 allowed each
        cpu          8 min useful, 3.2 s thrown away
        ");
    }

    #[test]
    fn jobs_tell_where_ranks_are_while_there_are_any() {
        let ranks = BTreeMap::from([(JobId(7), "host1: 0-3; host2: 4 (1 move)".to_owned())]);
        insta::assert_snapshot!(text(&jobs(&[a_job()], &ranks, &TimeZone::UTC)), @r"
        JOB  NAME    USER  STATE    DONE     FAILED  RUNNING  SUSPENDED  MOVES  RETREATS  SUBMITTED            RANKS
          7  primes  ada   running  134/240       0        4          2      0         9  2026-11-18 11:06:40  host1: 0-3; host2: 4 (1 move)
        ");
    }

    #[test]
    fn a_program_says_how_it_moved_and_what_its_user_should_know() {
        let mut row = a_job();
        row.program = Some(ProgramSpec { ranks_max: 250, ..ProgramSpec::default() });
        (row.life, row.summary.counts.moves, row.moved_bytes, row.frozen_s) = (2, 3, 5 << 20, 1.5);
        row.notes = vec!["rank 3 was lost on host2".into(), "rank 1 floods rank 0".into()];
        let shown = text(&job(&row, &TimeZone::UTC));
        let lines: Vec<&str> = shown.lines().skip(11).collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        program      240 ranks, at most 250; goes back to its start when a workstation dies; began 2 times
        moves        3, 5.0 MiB carried, stood still for 1.5 s in all
        notes        rank 3 was lost on host2
                     rank 1 floods rank 0
        ");
    }

    #[test]
    fn a_job_is_one_record_for_programs() {
        insta::assert_snapshot!(serde_json::to_string(&a_job()).unwrap(), @r#"
        {"job":7,"name":"primes","user":"ada","command":["./primes","{i}"],"submitted":1795000000000000000,"ended":null,"on_busy":{"reaction":"suspend","patience":{"for":{"secs":600,"nanos":0}},"then":"retreat"},"retries":2,"summary":{"job":7,"state":"running","total":240,"queued":100,"running":4,"suspended":2,"succeeded":134,"failed":0,"cancelled":0,"retreats":9,"suspensions":21,"lost":1,"retried":0,"moves":0},"cpu_s":512.0,"wasted_cpu_s":3.25,"program":null,"life":0,"moved_bytes":0,"frozen_s":0.0,"notes":[],"public":false,"replicas":1}
        "#);
    }

    #[test]
    fn subprograms_and_attempts_say_how_they_ended() {
        let subprogram = SubprogramId { job: JobId(7), index: 12 };
        let row = SubprogramRow {
            subprogram,
            state: SubprogramState::Suspended,
            workstation: Some("ws-042".into()),
            fence: Some(Fence::of(99)),
            attempts: 2,
            failures: 0,
            retreats: 1,
            lost: 0,
            outcome: Some("retreated: pts/3, 0.0 s ago".into()),
            cpu_s: 1.5,
            moves: 0,
        };
        insta::assert_snapshot!(text(&subprograms(&[row])), @r"
        SUBPROGRAM  STATE      WORKSTATION  ATTEMPTS  FAILURES  RETREATS  MOVES  LOST  CPU    LAST END
              7.12  suspended  ws-042              2         0         1      0     0  1.5 s  retreated: pts/3, 0.0 s ago
        ");
        let at = WallTime::from_unix_s;
        let rows = [
            AttemptRow {
                replica: 1,
                fence: Fence::of(51),
                subprogram,
                workstation: "ws-001".into(),
                placed: at(1_795_000_000),
                ended: Some(at(1_795_000_042)),
                end: Some("retreated: pts/3, 0.0 s ago".into()),
            },
            AttemptRow {
                replica: 1,
                fence: Fence::of(99),
                subprogram,
                workstation: "ws-042".into(),
                placed: at(1_795_000_050),
                ended: None,
                end: None,
            },
        ];
        insta::assert_snapshot!(text(&attempts(&rows, &TimeZone::UTC)), @r"
        ATTEMPT  WORKSTATION  PLACED               LASTED  END
        #51      ws-001       2026-11-18 11:06:40  42 s    retreated: pts/3, 0.0 s ago
        #99      ws-042       2026-11-18 11:07:30          goes on
        ");
    }

    #[test]
    fn a_workstation_says_why_and_what_it_lacks() {
        let row = WorkstationRow {
            workstation: WorkstationId(3),
            name: "ws-042".into(),
            state: WorkstationState::Busy,
            reason: "pts/3, 2 s ago".into(),
            lasted_s: 75.0,
            cores: 8,
            places: 8,
            slots: 6,
            guests: 1,
            load_1m: 0.1,
            speed: 812.4,
            memory_bytes: 16 << 30,
            kernel: "6.12".into(),
            missing: vec!["logind: no system bus".into()],
            machine: Machine::default(),
            troubles: vec![],
        };
        insta::assert_snapshot!(text(&workstations(&[row])), @r"
        NUMBER  NAME    STATE  FOR   GUESTS  SLOTS  CORES  LOAD  MEMORY    SPEED  REASON
        w3      ws-042  busy   75 s  1/8         6      8  0.10  16.0 GiB    812  pts/3, 2 s ago (missing: logind: no system bus)
        ");
    }

    /// A listing at the widths that people have, each line within it.
    fn at_every_width(listing: &Listing) -> String {
        let shown = [60, 80, 120].map(|width| {
            let (text, dropped) = listing.fitted(Some(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            format!("{width}, without {dropped:?}\n{text}")
        });
        shown.join("\n\n")
    }

    #[test]
    fn workstations_are_readable_at_every_width() {
        let row = |number: u16, name: &str, state, reason: &str, missing: &[&str]| WorkstationRow {
            workstation: WorkstationId(number.into()),
            name: name.into(),
            state,
            reason: reason.into(),
            lasted_s: 75.0 * f64::from(number),
            cores: 8,
            places: 8,
            slots: 6,
            guests: number,
            load_1m: 0.1,
            speed: 812.4,
            memory_bytes: 16 << 30,
            kernel: "6.12".into(),
            missing: missing.iter().map(|line| (*line).into()).collect(),
            machine: gleaner_common::machine::Machine::default(),
            troubles: vec![],
        };
        let rows = [
            row(1, "ws-001", WorkstationState::Busy, "pts/3, 2 s ago", &["logind: no system bus"]),
            row(2, "reading-room-12.library.example.org", WorkstationState::Idle, "idle", &[]),
            row(
                300,
                "ws-300",
                WorkstationState::Away,
                "the connection timed out",
                &["cgroup controllers: memory, io and pids are not available to us here"],
            ),
        ];
        insta::assert_snapshot!(at_every_width(&workstations(&rows)), @r#"
        60, without ["number", "for", "slots", "cores", "load", "memory", "speed"]
        NAME              STATE  GUESTS  REASON
        ws-001            busy   1/8     pts/3, 2 s ago (missing: l…
        reading-room-12…  idle   2/8     idle
        ws-300            away   300/8   the connection timed out (…

        80, without ["number", "cores", "memory", "speed"]
        NAME           STATE  FOR         GUESTS  SLOTS  LOAD  REASON
        ws-001         busy   75 s        1/8         6  0.10  pts/3, 2 s ago (missing:…
        reading-room…  idle   2 min       2/8         6  0.10  idle
        ws-300         away   6 h 15 min  300/8       6  0.10  the connection timed out…

        120, without []
        NUMBER  NAME               STATE  FOR         GUESTS  SLOTS  CORES  LOAD  MEMORY    SPEED  REASON
        w1      ws-001             busy   75 s        1/8         6      8  0.10  16.0 GiB    812  pts/3, 2 s ago (missing: log…
        w2      reading-room-12.…  idle   2 min       2/8         6      8  0.10  16.0 GiB    812  idle
        w300    ws-300             away   6 h 15 min  300/8       6      8  0.10  16.0 GiB    812  the connection timed out (mi…
        "#);
    }

    #[test]
    fn jobs_are_readable_at_every_width() {
        let mut program = a_job();
        program.name = "a-program-with-a-long-name-that-says-what-it-is".into();
        program.job = JobId(1_234);
        let ranks = [(JobId(1_234), "host1: 0-3, 7 (2 moves); host2: 4-6; waiting: 8".to_owned())];
        let rows = [program, a_job()];
        insta::assert_snapshot!(at_every_width(&jobs(&rows, &ranks.into(), &TimeZone::UTC)), @r#"
        60, without ["user", "running", "suspended", "moves", "retreats", "submitted", "ranks"]
         JOB  NAME                          STATE    DONE     FAILED
        1234  a-program-with-a-long-name-…  running  134/240       0
           7  primes                        running  134/240       0

        80, without ["user", "suspended", "moves", "retreats", "submitted"]
         JOB  NAME           STATE    DONE     FAILED  RUNNING  RANKS
        1234  a-program-wi…  running  134/240       0        4  host1: 0-3, 7 (2 moves);
                                                                host2: 4-6; waiting: 8
           7  primes         running  134/240       0        4

        120, without ["retreats", "submitted"]
         JOB  NAME                   USER  STATE    DONE     FAILED  RUNNING  SUSPENDED  MOVES  RANKS
        1234  a-program-with-a-lon…  ada   running  134/240       0        4          2      0  host1: 0-3, 7 (2 moves); host2:
                                                                                                4-6; waiting: 8
           7  primes                 ada   running  134/240       0        4          2      0
        "#);
        insta::assert_snapshot!(at_every_width(&job(&rows[0], &TimeZone::UTC)), @r"
        60, without []
        JOB
        number       1234
        name         a-program-with-a-long-name-that-says-what-it-is
        user         ada
        command      ./primes {i}
        state        running
        submitted    2026-11-18 11:06:40
        on busy      suspend, retreat after 10 min
        subprograms  240: 134 succeeded, 4 running, 2 suspended, 100
                     queued
        setbacks     21 suspensions, 9 retreats, 1 lost with their
                     workstation, 0 retried of 2 allowed each
        cpu          8 min useful, 3.2 s thrown away

        80, without []
        JOB
        number       1234
        name         a-program-with-a-long-name-that-says-what-it-is
        user         ada
        command      ./primes {i}
        state        running
        submitted    2026-11-18 11:06:40
        on busy      suspend, retreat after 10 min
        subprograms  240: 134 succeeded, 4 running, 2 suspended, 100 queued
        setbacks     21 suspensions, 9 retreats, 1 lost with their workstation, 0
                     retried of 2 allowed each
        cpu          8 min useful, 3.2 s thrown away

        120, without []
        JOB
        number       1234
        name         a-program-with-a-long-name-that-says-what-it-is
        user         ada
        command      ./primes {i}
        state        running
        submitted    2026-11-18 11:06:40
        on busy      suspend, retreat after 10 min
        subprograms  240: 134 succeeded, 4 running, 2 suspended, 100 queued
        setbacks     21 suspensions, 9 retreats, 1 lost with their workstation, 0 retried of 2 allowed each
        cpu          8 min useful, 3.2 s thrown away
        ");
    }

    #[test]
    fn a_token_is_listed_without_its_secret() {
        let row = TokenRow {
            id: "1f2e3d4c".into(),
            role: Role::Agent,
            name: None,
            expires: WallTime::from_unix_s(1_795_003_600),
            state: "open".into(),
        };
        insta::assert_snapshot!(text(&tokens(&[row], &TimeZone::UTC)), @r"
        TOKEN     ROLE   NAME  STATE  EXPIRES
        1f2e3d4c  agent        open   2026-11-18 12:06:40
        ");
    }
}
