//! The bytes of every frame: no change of format passes unseen. A line that
//! has to change is a new [`VERSION`](super::VERSION).

use super::*;
use crate::frame;
use crate::job::{IndexRange, Reaction, StagedFile};
use crate::machine::{Disk, Temperature};
use crate::program::Ticket;
use crate::report::{Counts, JobState, ReplicaState};
use crate::requirement::Value;
use crate::shape::{Class, Millionths, Shape, SpeedupSpec};
use crate::sizes::Allowed;
use crate::usage::Cause;

#[track_caller]
fn check<T: Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(
    message: &T,
    hex: &str,
) {
    let mut bytes = vec![];
    frame::encode(message, &mut bytes).unwrap();
    let payload = &bytes[4..];
    let written = payload.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    assert_eq!(written, hex, "{message:?}");
    assert_eq!(&frame::decode_payload::<T>(payload).unwrap(), message);
}

const HASH: ContentHash = ContentHash([0xab; 32]);
const TICKET: Ticket = Ticket([0xab; 16]);

fn ab(count: usize) -> String {
    "ab".repeat(count)
}

fn presence() -> Presence {
    Presence {
        busy: true,
        reason: "pts/3".into(),
        lasted: Duration::from_millis(1_500),
        slots: 3,
        load: LoadAverages { one: 1.0, five: 0.5, fifteen: 0.25 },
        users: 2,
    }
}

const PRESENCE: &str = "01057074732f330180cab5ee01030000803f0000003f0000803e02";

/// A host, a system and a processor of one letter each, a disk, a sensor.
/// And after it one shared directory.
const MACHINE: &str = "0168016f01700101012fac02010101740000803f0001022f73";

fn spec() -> JobSpec {
    let indexes = IndexRange { first: 1, last: 300, step: 1 };
    let mut spec = JobSpec::new(vec!["a".into(), "{i}".into()], indexes);
    spec.timeout = Some(Duration::from_secs(60));
    spec.environment = vec![("K".into(), "V".into())];
    spec.inputs =
        vec![StagedFile { path: "f".into(), hash: HASH, size_bytes: 5, executable: true }];
    spec.shared_directory = Some("/s".into());
    spec.on_busy = OnBusy::at_once(Reaction::Retreat);
    spec
}

fn spec_hex() -> String {
    format!(
        "016102016103{}01ac020102013c0001014b01560101{}{}",
        "7b697d", // {i}
        "66",     // f
        format_args!("{}0501000102{}040004000000000000010000000000000000000100", ab(32), "2f73")
    )
}

#[test]
fn openings() {
    check(&Opening::new(Purpose::Agent), "0900");
    check(&Opening::new(Purpose::Usage), "0901");
    check(&Opening::new(Purpose::Request), "0902");
    let put = Purpose::Put { hash: HASH, size_bytes: 300 };
    check(&Opening::new(put), &format!("0903{}ac02", ab(32)));
    check(&Opening::new(Purpose::Get { hash: HASH }), &format!("0904{}", ab(32)));
    check(&Opening::new(Purpose::Enrol), "0905");
    let relay = Purpose::Relay { workstation: WorkstationId(7), name: "w".into() };
    check(&Opening::new(relay), "0906070177");
    check(&Opening::new(Purpose::Packets), "0907");
    let what = Box::new(Handover {
        subprogram: SubprogramId { job: JobId(6), index: 300 },
        old: Fence::of(3),
        new: Fence::of(4),
        ticket: TICKET,
        keep: Keep::SubtaskStart,
        endpoint_bytes: 300,
        frozen: Duration::from_secs(1),
    });
    let handover = Purpose::Handover { to: WorkstationId(7), what };
    let expected = format!("09080706ac020304{}01ac020100", ab(16));
    check(&Opening::new(handover), &expected);
}

#[test]
fn what_agents_say() {
    let facts = Facts {
        cores: 2,
        places: 2,
        memory_bytes: 1_024,
        speed: 1.0,
        kernel: "6".into(),
        missing: vec!["x".into()],
        addresses: vec![([127, 0, 0, 1], 300).into()],
        fingerprint: None,
        machine: Box::new(Machine {
            hostname: "h".into(),
            os: "o".into(),
            processor: "p".into(),
            physical_cores: 1,
            disks: vec![Disk { path: "/".into(), total_bytes: 300, free_bytes: 1 }],
            temperatures: vec![Temperature {
                label: "t".into(),
                celsius: 1.0,
                critical_celsius: None,
            }],
        }),
        shared_directories: vec!["/s".into()],
        attributes: [("a".to_owned(), Value::Flag(true))].into(),
        memory_lent_bytes: 300,
        disk_lent_bytes: 1,
        gpus: 2,
        machine_id: Some(MachineId([0xcd; 16])),
        unready: Some("d".into()),
    };
    let hello = AgentFrame::Hello {
        incarnation: Incarnation(9),
        boot: BootId([0xab; 16]),
        facts: Box::new(facts),
        presence: presence(),
        held: vec![(Fence::of(300), GuestState::Suspended)],
        seen: Fence { generation: Generation(2), number: 5 },
    };
    let expected = format!(
        "0009{}020280080000803f013601017801007f000001ac0200{MACHINE}0101610001ac02010201{}010164{PRESENCE}01ac02028580808020",
        ab(16),
        "cd".repeat(16)
    );
    check(&hello, &expected);
    let load = LoadAverages::default();
    let heartbeat = AgentFrame::Heartbeat { sequence: 5, slots: 2, load };
    check(&heartbeat, &format!("010502{}", "00".repeat(12)));
    check(&AgentFrame::Presence(presence()), &format!("02{PRESENCE}"));
    check(&AgentFrame::Leaving { reason: "s".into() }, "040173");
    check(&AgentFrame::Relay { to: WorkstationId(7), bytes: vec![0xab] }, "050701ab");
    let from_rank = AgentFrame::FromRank { fence: Fence::of(4), life: Life(2), bytes: vec![0xab] };
    check(&from_rank, "06040201ab");
    check(&AgentFrame::Missing(vec!["x".into()]), "07010178");
    check(&AgentFrame::Unready(Some("x".into())), "08010178");
    check(&AgentFrame::Stopped { fence: Fence::of(4) }, "0904");
    let subprogram = SubprogramId { job: JobId(3), index: 2 };
    check(&AgentFrame::Unknown(vec![(Fence::of(4), subprogram)]), "0a01040302");
}

#[test]
fn what_becomes_of_attempts() {
    let fence = Fence::of(4);
    let said = |event| AgentFrame::Attempt(event);
    let waited = Duration::from_nanos(3);
    check(&said(AttemptEvent::Started { fence, waited }), "0300040003");
    check(&said(AttemptEvent::Suspended { fence }), "030104");
    check(&said(AttemptEvent::Demoted { fence }), "030204");
    check(&said(AttemptEvent::Resumed { fence }), "030304");
    let finished = Finished {
        fence,
        outcome: Outcome::ExitCode(3),
        cpu: Duration::from_secs(1),
        ran: Duration::from_secs(2),
        suspended: Duration::ZERO,
        suspensions: 1,
        stdout: Printed::Inline(vec![0x68]),
        stderr: Printed::Staged { hash: HASH, size_bytes: 9, truncated: true },
        outputs: vec![OutputFile {
            path: "o".into(),
            hash: HASH,
            size_bytes: 1,
            executable: false,
        }],
    };
    let expected =
        format!("030404010601000200000001000168{}", format_args!("01{0}090101016f{0}0100", ab(32)));
    check(&said(AttemptEvent::Finished(finished)), &expected);
    let reason = String::from("r");
    let retreated = AttemptEvent::Retreated { fence, reason: reason.clone(), suspensions: 2 };
    check(&said(retreated), "030504017202");
    let lost = AttemptEvent::Lost { fence, reason: reason.clone(), suspensions: 2 };
    check(&said(lost), "030b04017202");
    check(&said(AttemptEvent::Refused { fence, reason, blame: Blame::Job }), "030604017201");
    let keep = Keep::SubtaskStart;
    check(&said(AttemptEvent::WantsAway { fence, keep, image_bytes: 300 }), "03070401ac02");
    let frozen = Duration::from_secs(1);
    check(&said(AttemptEvent::Arrived { fence, bytes: 300, frozen }), "030804ac020100");
}

#[test]
fn what_the_coordinator_says() {
    let welcome = CoordinatorFrame::Welcome {
        workstation: WorkstationId(7),
        name: "w".into(),
        lease: Duration::from_secs(10),
        heartbeat: Duration::from_secs(3),
        heartbeat_without_guests: Duration::from_secs(15),
        keep: vec![Fence::of(4)],
        generation: Generation(2),
        newest: Fence { generation: Generation(1), number: 5 },
    };
    check(&welcome, "000701770a0003000f000104028580808010");
    check(&CoordinatorFrame::HeartbeatAck { sequence: 5 }, "0105");
    let job = CoordinatorFrame::Job { job: JobId(6), spec: Box::new(spec()) };
    check(&job, &format!("0206{}", spec_hex()));
    check(&CoordinatorFrame::Forget { job: JobId(6) }, "0306");
    let subprogram = SubprogramId { job: JobId(6), index: 300 };
    let offer = Offer { fence: Fence::of(4), subprogram, rank: None, arrival: None };
    check(&CoordinatorFrame::Offer(offer), "040406ac020000");
    let (from, name) = (WorkstationId(7), String::from("w"));
    let arrival = Some(Arrival { from, name, old: Fence::of(3), ticket: TICKET });
    let offer = Offer { fence: Fence::of(4), subprogram, rank: None, arrival };
    check(&CoordinatorFrame::Offer(offer), &format!("040406ac02000107017703{}", ab(16)));
    let rank = Some(Box::new(RankOffer {
        life: Life(2),
        ranks: 16,
        first: 0,
        members: 16,
        parent: Some(1),
        snapshot: 5,
        floor: Fence::of(3),
        cut: None,
    }));
    let offer = Offer { fence: Fence::of(4), subprogram, rank, arrival: None };
    check(&CoordinatorFrame::Offer(offer), "040406ac020102100010010105030000");
    check(&CoordinatorFrame::Cancel { fence: Fence::of(4) }, "0504");
    check(&CoordinatorFrame::Acknowledge { fence: Fence::of(4) }, "0604");
    check(&CoordinatorFrame::Refused { reason: "r".into() }, "070172");
}

#[test]
fn what_the_coordinator_says_of_ranks() {
    let addresses = vec![([127, 0, 0, 1], 300).into()];
    let name = String::from("w");
    let to =
        RankAt { rank: 3, fence: Fence::of(5), workstation: WorkstationId(7), name, addresses };
    let there = "030507017701007f000001ac02";
    let ranks = CoordinatorFrame::Ranks { job: JobId(6), life: Life(2), at: vec![to.clone()] };
    check(&ranks, &format!("08060201{there}"));
    let relayed = CoordinatorFrame::Relayed { from: WorkstationId(7), bytes: vec![0xab] };
    check(&relayed, "090701ab");
    let to = Destination { at: to, ticket: TICKET, ordered: false };
    let depart = CoordinatorFrame::Depart { fence: Fence::of(4), keep: Keep::State, to };
    check(&depart, &format!("0a0400{there}{}00", ab(16)));
    check(&CoordinatorFrame::Stay { fence: Fence::of(4) }, "0b04");
    let to_rank =
        CoordinatorFrame::ToRank { fence: Fence::of(4), life: Life(2), bytes: vec![0xab] };
    check(&to_rank, "0c040201ab");
    check(&CoordinatorFrame::GoOn { fence: Fence::of(4) }, "0d04");
    let keys = vec![KeyHash([0xab; 16])];
    check(&CoordinatorFrame::GiveBack { fence: Fence::of(4) }, "0f04");
    check(&CoordinatorFrame::Riders { fences: vec![Fence::of(4), Fence::of(5)] }, "10020405");
    let revoked = CoordinatorFrame::Revoked { all: true, keys, now: WallTime(-1) };
    check(&revoked, &format!("0e0101{}01", ab(16)));
}

#[test]
fn usage_streams() {
    let (life, boot) = (SpoolLife([0xcd; 16]), BootId([0xab; 16]));
    let record = UsageRecord {
        life,
        boot,
        sequence: 300,
        at: WallTime(-1),
        since_boot: Duration::from_secs(1),
        cause: Cause::Tty,
        load: LoadAverages::default(),
        users: 1,
        input_idle: Some(Duration::ZERO),
        slots: 2,
        reason: "r".into(),
    };
    let (cd, zeros) = ("cd".repeat(16), "00".repeat(12));
    let expected = format!("0001{cd}{}ac0201010001{zeros}01010000020172", ab(16));
    check(&UsageFrame::Records(vec![record.clone()]), &expected);
    for load in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.01] {
        let mut bytes = vec![];
        let mut unbelievable = record.clone();
        unbelievable.load.five = load;
        frame::encode(&UsageFrame::Records(vec![unbelievable]), &mut bytes).unwrap();
        assert!(frame::decode_payload::<UsageFrame>(&bytes[4..]).is_err(), "a load of {load}");
    }
    let (at, since_boot) = (WallTime(-1), Duration::from_secs(1));
    let account = LifeAccount { life, boot, given: 300, saved: 4, confirmed: 3, at, since_boot };
    check(&UsageFrame::Lives(vec![account]), &format!("0101{cd}{}ac020403010100", ab(16)));
    check(&UsageReply::Confirmed { life, sequence: 300 }, &format!("00{cd}ac02"));
    let kept = LifeKept { life, records: 3, last: 4, ranges: vec![(1, 2), (4, 4)] };
    check(&UsageReply::Kept(vec![kept]), &format!("0201{cd}03040201020404"));
    check(&UsageReply::Deferred { reason: "r".into() }, "010172");
}

#[test]
fn enrolment_and_files() {
    check(&EnrolRequest { name: "n".into(), public_key: vec![1] }, "016e0101");
    let enrolled = EnrolReply::Enrolled {
        role: Role::User,
        name: "n".into(),
        certificate: vec![1],
        authority: vec![2],
    };
    check(&enrolled, "0001016e01010102");
    check(&EnrolReply::Refused { reason: "r".into() }, "010172");
    check(&BlobReply::Have { size_bytes: 300 }, "00ac02");
    check(&BlobReply::No { reason: "r".into() }, "010172");
}

#[test]
fn shapes() {
    let shape = Shape {
        class: Some(Class::Malleable),
        min: Some(2),
        preferred: None,
        max: Some(300),
        allowed: Allowed::List(vec![2, 4]),
        estimate: Some(Duration::from_secs(60)),
        speedup: SpeedupSpec::Amdahl(Millionths(1)),
    };
    check(&shape, "0102010200 01ac02 03020204 013c00 0101".replace(' ', "").as_str());
    let table = SpeedupSpec::Table(vec![(1, Millionths(2))]);
    check(&table, "03010102");
    check(&SpeedupSpec::Downey(Millionths(1), Millionths(2)), "020102");
    check(&[Allowed::Any, Allowed::PowersOfTwo, Allowed::MultiplesOf(3)], "00010203");
}

#[test]
fn requests() {
    let subprogram = SubprogramId { job: JobId(6), index: 2 };
    check(&Request::Missing(vec![HASH]), &format!("0001{}", ab(32)));
    check(&Request::Submit(Box::new(spec())), &format!("01{}", spec_hex()));
    check(&Request::Jobs, "02");
    check(&Request::Job(JobId(6)), "0306");
    check(&Request::Subprograms { job: JobId(6), first: 300, count: 7 }, "0406ac0207");
    check(&Request::Watch(JobId(6)), "0506");
    check(&Request::Output(subprogram), "060602");
    check(&Request::Cancel(JobId(6)), "0706");
    check(&Request::Workstations, "08");
    check(&Request::WhySubprogram(subprogram), "090602");
    check(&Request::WhyJob(JobId(6)), "0a06");
    check(&Request::WhyWorkstation("w".into()), "0b0177");
    check(&Request::Attempts(subprogram), "0c0602");
    let lifetime = Duration::from_secs(60);
    check(&Request::TokenCreate { role: Role::Agent, lifetime, name: None }, "0d003c0000");
    check(&Request::Tokens, "0e");
    check(&Request::TokenRevoke { id: "i".into() }, "0f0169");
    check(&Request::Health, "10");
    let name = || "n".to_owned();
    check(&Request::UserRemove { name: name(), keep_jobs: true }, "13016e01");
    let drain = Request::WorkstationDrain { name: name(), drained: true, now: false };
    check(&drain, "15016e0100");
    check(&Request::Replicas(subprogram), "170602");
    check(&Request::ReplicaOutput { subprogram, replica: 3 }, "18060203");
    check(&Request::Ask(Box::new(spec())), &format!("19{}", spec_hex()));
}

#[test]
fn replies() {
    check(&Reply::Missing(vec![]), "0000");
    check(&Reply::Submitted(JobId(6)), "0106");
    let summary = JobSummary {
        job: JobId(6),
        state: JobState::Failed,
        total: 1,
        queued: 2,
        running: 3,
        suspended: 4,
        counts: Counts {
            succeeded: 5,
            failed: 6,
            cancelled: 7,
            retreats: 8,
            suspensions: 9,
            lost: 10,
            retried: 11,
            moves: 12,
        },
    };
    check(&Reply::Summary(summary), "0406020102030405060708090a0b0c");
    check(&Reply::Cancelled, "06");
    check(&Reply::Why(vec!["w".into()]), "08010177");
    let expires = WallTime(1);
    check(&Reply::Token { text: "t".into(), id: "i".into(), expires }, "0a0174016902");
    check(&Reply::TokenRevoked, "0c");
    check(&Reply::End, "0e");
    check(&Reply::No { reason: "r".into() }, "0f0172");
    let row = ReplicaRow {
        subprogram: SubprogramId { job: JobId(6), index: 2 },
        replica: 3,
        state: ReplicaState::Answered,
        workstation: Some("w".into()),
        fence: Some(Fence::of(4)),
        attempts: 5,
        outcome: None,
        answer: Some("a".into()),
    };
    check(&Reply::Replica(Box::new(row)), "140602030501017701040500010161");
    check(&Reply::UserRemoved { cancelled: 1, kept: 2 }, "150102");
    check(&Reply::WouldTake { taken: true, reason: "n".into() }, "1601016e");
}
