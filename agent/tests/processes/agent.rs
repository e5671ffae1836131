//! A whole agent: offers become guests, and nothing outlives it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gleaner_agent::AgentConfig;
use gleaner_agent::owner::{self, Answer, Status};
use gleaner_common::id::{Fence, Incarnation, JobId, SubprogramId, WorkstationId};
use gleaner_common::job::{IndexRange, JobSpec, Limits, OnBusy, Outcome, Reaction, StagedFile};
use gleaner_common::usage::Cause;
use gleaner_common::wire::{AgentFrame, AttemptEvent, CoordinatorFrame, Finished, Offer, Printed};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::Test;
use crate::coordinator::{Coordinator, SHORT_LEASE};
use crate::machine::{is_root, processes_with, until};
use crate::sessions::Desktop;

pub(crate) const TESTS: &[Test] = &[
    ("an_offer_becomes_a_guest_and_its_end_is_told", offer_to_finished),
    ("inputs_are_staged_and_outputs_brought_back", staging),
    ("a_shared_directory_is_used_where_it_is_offered_and_refused_elsewhere", shared),
    ("a_guest_over_a_limit_is_told_as_such", over_limit),
    ("a_job_cancelled_or_timed_out_is_killed", cancelled),
    ("a_guest_of_a_place_that_is_made_anew_is_not_told_as_killed", made_anew),
    ("a_paused_workstation_freezes_its_guest_and_a_resume_thaws_it", paused),
    ("a_retreat_gives_the_work_back", retreats),
    ("a_pause_survives_a_restart", pause_survives),
    ("an_agent_told_to_stop_leaves_nothing", stops),
    ("a_worker_killed_leaves_no_guest_and_is_replaced", worker_killed),
    ("a_supervisor_killed_leaves_nothing", supervisor_killed),
    ("a_guest_unheard_for_a_lease_is_killed", lease_ends),
    ("usage_records_arrive_without_a_gap", usage_arrives),
    ("a_desktop_is_listened_to", desktop),
    ("a_session_whose_input_nothing_hears_is_busy", unheard_session),
    ("a_metered_network_closes_the_workstation", metered),
    ("whose_process_turns_it_busy_is_told", culprit),
    ("a_second_agent_on_the_same_data_is_refused", second_refused),
];

/// `processes agent CONFIG`: an agent, as the cli would start it.
pub(crate) fn main(path: &str) -> std::process::ExitCode {
    let config: AgentConfig = gleaner_shell::config::load(Path::new(path)).unwrap();
    let _ = gleaner_shell::log::init(Some(&config.log));
    match gleaner_agent::run(config) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::from(2)
        }
    }
}

pub(crate) struct Lab {
    pub(crate) coordinator: Coordinator,
    agent: Option<Child>,
    pub(crate) config: AgentConfig,
    pub(crate) cgroup: Option<PathBuf>,
    /// The address of a system bus of the test's own.
    pub(crate) bus: Option<String>,
    home: TempDir,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let mut lab = Self::without_agent();
        lab.start();
        lab
    }

    pub(crate) fn without_agent() -> Self {
        Self::of(WorkstationId(1), None)
    }

    /// A workstation of that number, whose agent is not started; perhaps of the
    /// same authority as another.
    pub(crate) fn of(workstation: WorkstationId, beside: Option<&Self>) -> Self {
        // Not below a guest's own scratch directories.
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = |name: &str| home.path().join(name);
        fs::create_dir(path("input")).unwrap();
        fs::create_dir(path("coordinator")).unwrap();
        let mut config = AgentConfig {
            identity: path("identity"),
            data: path("data"),
            runtime: path("run"),
            places: 2,
            log: "debug".into(),
            ..AgentConfig::default()
        };
        // An owner who is never here but by word.
        config.criteria.quiet = Duration::from_millis(50);
        config.criteria.load_quiet = Duration::ZERO;
        config.criteria.load_idle_max = 10_000.0;
        config.criteria.rise_cores = 10_000.0;
        config.criteria.required.clear();
        config.sensors.terminals = vec![];
        config.sensors.input = path("input");
        config.sensors.sessions = false;
        config.sensors.connections = false;
        config.sensors.slice = String::new();
        config.sensors.root = path("root");
        config.sensors.metered = gleaner_agent::config::Metered::No;
        config.guests.uid_base = 61_910;
        let cgroup = is_root().then(|| {
            let mount = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
                .into_iter()
                .find(|mount| Path::new(mount).join("cgroup.procs").exists())
                .unwrap();
            let name = home.path().file_name().unwrap().to_string_lossy().replace('.', "");
            Path::new(mount).join(format!("gleaner-agent-{name}"))
        });
        config.cgroup.directory.clone_from(&cgroup);
        let authority =
            beside.map_or(path("coordinator"), |lab| lab.home.path().join("coordinator"));
        let coordinator = Coordinator::start(&authority, &path("identity"), workstation);
        Self { coordinator, agent: None, config, cgroup, bus: None, home }
    }

    pub(crate) fn start(&mut self) {
        self.begin();
        self.wait_for_idle();
    }

    pub(crate) fn begin(&mut self) {
        self.agent = Some(self.spawn());
    }

    fn spawn(&self) -> Child {
        let path = self.home.path().join("agent.toml");
        fs::write(&path, toml::to_string(&self.config).unwrap()).unwrap();
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.home.path().join("log"))
            .unwrap();
        Command::new("/proc/self/exe")
            .arg("agent")
            .arg(path)
            .stdin(Stdio::null())
            .stderr(log)
            .envs(self.bus.as_ref().map(|bus| ("DBUS_SYSTEM_BUS_ADDRESS", bus)))
            .spawn()
            .unwrap()
    }

    /// Where the authority is that this one's coordinator has.
    pub(crate) fn authority(&self) -> PathBuf {
        self.home.path().join("coordinator")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    #[track_caller]
    fn hello(&self) -> Incarnation {
        self.coordinator.expect("a hello", |frame| match frame {
            AgentFrame::Hello { incarnation, .. } => Some(incarnation),
            _ => None,
        })
    }

    #[track_caller]
    pub(crate) fn wait_for_idle(&self) {
        self.coordinator.expect("idle", |frame| match frame {
            AgentFrame::Presence(presence) | AgentFrame::Hello { presence, .. } => {
                (!presence.busy && presence.slots > 0).then_some(())
            }
            _ => None,
        });
    }

    pub(crate) fn offer(&self, fence: u32, spec: JobSpec) {
        let job = JobId(fence);
        let index = spec.indexes.first;
        self.coordinator.say(CoordinatorFrame::Job { job, spec: Box::new(spec) });
        let subprogram = SubprogramId { job, index };
        self.coordinator.say(CoordinatorFrame::Offer(Offer {
            fence: Fence::of(fence),
            subprogram,
            rank: None,
            arrival: None,
        }));
    }

    #[track_caller]
    pub(crate) fn event<T>(&self, what: &str, want: impl Fn(AttemptEvent) -> Option<T>) -> T {
        self.coordinator.expect(what, |frame| match frame {
            AgentFrame::Attempt(event) => want(event),
            _ => None,
        })
    }

    #[track_caller]
    pub(crate) fn finished(&self) -> Finished {
        self.event("a finish", |event| match event {
            AttemptEvent::Finished(finished) => Some(finished),
            AttemptEvent::Refused { .. } | AttemptEvent::Retreated { .. } => panic!("{event:?}"),
            _ => None,
        })
    }

    #[track_caller]
    pub(crate) fn started(&self) {
        self.event("a start", |event| match event {
            AttemptEvent::Started { .. } => Some(()),
            AttemptEvent::Refused { .. } => panic!("{event:?}"),
            _ => None,
        });
    }

    pub(crate) fn ask(&self, command: &owner::Command) -> Answer {
        owner::ask(&self.config.owner_socket(), command).unwrap()
    }

    pub(crate) fn status(&self) -> Status {
        match self.ask(&owner::Command::Status) {
            Answer::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn supervisor(&self) -> Pid {
        Pid::from_child(self.agent.as_ref().unwrap())
    }

    pub(crate) fn worker(&self) -> Pid {
        let supervisor = self.supervisor();
        let children = format!("/proc/{0}/task/{0}/children", supervisor.as_raw_nonzero());
        let mut worker = None;
        until("a worker", || {
            let text = fs::read_to_string(&children).unwrap_or_default();
            worker = text.split_whitespace().next().and_then(|pid| pid.parse().ok());
            worker.is_some()
        });
        Pid::from_raw(worker.unwrap()).unwrap()
    }

    pub(crate) fn stop(&mut self) -> i32 {
        let Some(mut agent) = self.agent.take() else { return 0 };
        kill_process(Pid::from_child(&agent), Signal::TERM).unwrap();
        agent.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.log());
        }
        if self.freezes() > 0 {
            println!("measured: guests frozen for a late beat: {}", self.freezes());
        }
        self.stop();
        let Some(cgroup) = &self.cgroup else { return };
        let name = cgroup.file_name().unwrap();
        let legacy = ["memory", "pids", "cpu"]
            .map(|controller| Path::new("/sys/fs/cgroup").join(controller).join(name));
        for guests in legacy.into_iter().chain([cgroup.join("guests")]) {
            let _ = fs::remove_dir(guests.join("p0"));
            let _ = fs::remove_dir(guests.join("p1"));
            let _ = fs::remove_dir(guests);
        }
        let _ = fs::remove_dir(cgroup);
    }
}

pub(crate) fn job(command: &[&str]) -> JobSpec {
    let command = command.iter().map(ToString::to_string).collect();
    JobSpec::new(command, IndexRange { first: 7, last: 7, step: 1 })
}

pub(crate) fn script(text: &str) -> JobSpec {
    job(&["sh", "-c", text])
}

pub(crate) fn text(printed: &Printed) -> String {
    match printed {
        Printed::Inline(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Printed::Staged { .. } => panic!("staged: {printed:?}"),
    }
}

fn offer_to_finished() {
    let lab = Lab::new();
    let mut spec =
        script("echo $GLEAN_SUBPROGRAM $GLEAN_INDEX {i} $COLOUR; pwd; echo no >&2; exit 4");
    spec.environment.push(("COLOUR".into(), "red".into()));
    lab.offer(1, spec);
    let finished = lab.finished();
    assert_eq!(finished.outcome, Outcome::ExitCode(4));
    assert_eq!(text(&finished.stdout), "1.7 7 7 red\n/place/guest/work\n");
    assert_eq!(text(&finished.stderr), "no\n");
    lab.offer(2, job(&["/no/such/program"]));
    assert!(matches!(lab.finished().outcome, Outcome::CannotStart(_)));
    for fence in 3..40 {
        lab.offer(fence, job(&["/bin/true"]));
    }
    for _ in 3..40 {
        assert_eq!(lab.finished().outcome, Outcome::Succeeded);
    }
}

fn staging() {
    let lab = Lab::new();
    let mut spec = script(
        "data/run.sh < data/in.txt > $GLEAN_OUTPUT/out.txt; mkdir $GLEAN_OUTPUT/d; \
         cp data/run.sh $GLEAN_OUTPUT/d; ln -s /etc/passwd $GLEAN_OUTPUT/link; \
         head -c 100000 /dev/zero",
    );
    let run: &[u8] = b"#!/bin/sh\ntr a-z A-Z\n";
    for (path, bytes, executable) in
        [("data/in.txt", &b"hello"[..], false), ("data/run.sh", run, true)]
    {
        let hash = lab.coordinator.put(bytes);
        let size_bytes = bytes.len() as u64;
        spec.inputs.push(StagedFile { path: path.into(), hash, size_bytes, executable });
    }
    spec.collect_output = true;
    lab.offer(1, spec.clone());
    let finished = lab.finished();
    assert_eq!(finished.outcome, Outcome::Succeeded, "{}", text(&finished.stderr));
    let paths: Vec<_> = finished.outputs.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["d/run.sh", "out.txt"]);
    assert_eq!(lab.coordinator.blob(finished.outputs[0].hash), run);
    assert!(finished.outputs[0].executable);
    assert_eq!(lab.coordinator.blob(finished.outputs[1].hash), b"HELLO");
    let Printed::Staged { hash, size_bytes, truncated } = finished.stdout else {
        panic!("{:?}", finished.stdout)
    };
    assert_eq!(
        (lab.coordinator.blob(hash).len(), size_bytes, truncated),
        (100_000, 100_000, false)
    );
    // What was laid for a guest that cannot start is not there for the next.
    spec.command = vec!["/no/such/program".into()];
    lab.offer(2, spec.clone());
    assert!(matches!(lab.finished().outcome, Outcome::CannotStart(_)));
    for fence in [3, 4] {
        lab.offer(fence, script("ls -A; ls -A $GLEAN_OUTPUT $TMPDIR | grep -v : | tr -d '\\n'"));
        assert_eq!(text(&lab.finished().stdout), "");
    }
    // What is not to be had anywhere ends the attempt with the reason.
    spec.inputs[0].hash = gleaner_common::id::ContentHash([9; 32]);
    lab.offer(5, spec);
    let outcome = lab.finished().outcome;
    assert!(matches!(&outcome, Outcome::CannotStart(why) if why.contains("in.txt")), "{outcome}");
}

fn shared() {
    let mut lab = Lab::without_agent();
    let offered = lab.home.path().join("offered");
    fs::create_dir(&offered).unwrap();
    fs::set_permissions(&offered, fs::Permissions::from_mode(0o777)).unwrap();
    lab.config.guests.shared_directories = vec![offered.clone()];
    lab.start();
    let mut spec = script("pwd; echo result > left");
    spec.shared_directory = Some(offered.to_string_lossy().into_owned());
    lab.offer(1, spec.clone());
    let finished = lab.finished();
    assert_eq!(finished.outcome, Outcome::Succeeded);
    assert_eq!(text(&finished.stdout).trim(), offered.to_string_lossy());
    assert_eq!(fs::read_to_string(offered.join("left")).unwrap(), "result\n");

    let gone = offered.join("gone").to_string_lossy().into_owned();
    spec.shared_directory = Some(gone.clone());
    lab.offer(2, spec.clone());
    let Outcome::CannotStart(why) = lab.finished().outcome else { panic!("it is not there") };
    assert!(why.starts_with(&format!("cannot enter {gone}: No such file")), "{why}");

    spec.shared_directory = Some("/var".into());
    lab.offer(3, spec);
    let reason = lab.event("a refusal", |event| match event {
        AttemptEvent::Refused { reason, .. } => Some(reason),
        _ => None,
    });
    assert!(reason.contains("/var is not offered here"), "{reason}");
}

fn over_limit() {
    let lab = Lab::new();
    if lab.cgroup.is_none() {
        gleaner_skip::without_lab("cgroups are not writable here");
        return;
    }
    let mut spec = script("head -c 300000000 /dev/zero | tail -c 290000000");
    spec.limits = Limits { memory_bytes_max: 32 << 20, ..Limits::default() };
    lab.offer(1, spec);
    assert_eq!(lab.finished().outcome, Outcome::OverLimit("memory: at most 32.0 MiB".into()));
    let mut spec = script("head -c 3000000 /dev/zero > big; exec sleep 4720.5");
    spec.limits = Limits { disk_bytes_max: 1 << 20, ..Limits::default() };
    lab.offer(2, spec);
    lab.event("over its disk limit", |event| match event {
        AttemptEvent::Finished(finished) => {
            assert!(!finished.outcome.is_success());
            Some(())
        }
        _ => None,
    });
    let many = "for n in 1 2 3 4 5; do head -c 900000 /dev/zero > f$n; done; exec sleep 4720.5";
    let mut spec = script(many);
    spec.limits = Limits { disk_bytes_max: 1 << 20, ..Limits::default() };
    lab.offer(3, spec);
    assert_eq!(lab.finished().outcome, Outcome::OverLimit("disk: at most 1.0 MiB".into()));
    assert_eq!(processes_with("sleep 4720.5"), Vec::<i32>::new());
}

fn cancelled() {
    let lab = Lab::new();
    lab.offer(1, script("exec sleep 4721.5"));
    lab.started();
    until("the guest runs", || !processes_with("sleep 4721.5").is_empty());
    lab.coordinator.say(CoordinatorFrame::Cancel { fence: Fence::of(1) });
    until("the guest is gone", || processes_with("sleep 4721.5").is_empty());
    let mut spec = script("echo said; exec sleep 4721.5");
    let mut heard = vec![];
    // On a machine that has other things to do it may say nothing in time.
    for (fence, timeout_s) in (2..).zip([1, 5, 25, 125]) {
        spec.timeout = Some(Duration::from_secs(timeout_s));
        lab.offer(fence, spec.clone());
        let finished = lab.finished();
        assert_eq!(finished.outcome, Outcome::TimedOut);
        assert_eq!(processes_with("sleep 4721.5"), Vec::<i32>::new());
        heard.push(text(&finished.stdout));
        if heard.last().is_some_and(|said| !said.is_empty()) {
            break;
        }
    }
    assert_eq!(heard.last().map(String::as_str), Some("said\n"), "{heard:?}");
    // The place is good for the next one.
    lab.offer(9, job(&["/bin/true"]));
    assert_eq!(lab.finished().outcome, Outcome::Succeeded);
}

const BUSY_LOOP: &str = "echo up; i=0; while :; do i=$((i+1)); done # 4722";

fn paused() {
    let lab = Lab::new();
    let mut spec = script(BUSY_LOOP);
    spec.on_busy = OnBusy::suspend(None, Reaction::Retreat);
    lab.offer(1, spec);
    lab.started();
    assert_eq!(lab.ask(&owner::Command::Pause { seconds: Some(600) }), Answer::Done);
    lab.event("a suspension", |event| {
        matches!(event, AttemptEvent::Suspended { .. }).then_some(())
    });
    let status = lab.status();
    assert!(status.busy && status.verdict.contains("paused"), "{status:?}");
    assert_eq!(status.guests[0].state, "suspended");
    if let Some(cgroup) = &lab.cgroup {
        // A moment after it was ordered.
        until("the guest is frozen", || {
            let events = fs::read_to_string(cgroup.join("guests/p0/cgroup.events")).unwrap();
            events.contains("frozen 1")
        });
    }
    assert_eq!(lab.ask(&owner::Command::Resume), Answer::Done);
    lab.event("a resume", |event| matches!(event, AttemptEvent::Resumed { .. }).then_some(()));
    assert_eq!(lab.ask(&owner::Command::Stop { fence: Fence::of(1) }), Answer::Done);
    lab.event("a retreat", |event| matches!(event, AttemptEvent::Retreated { .. }).then_some(()));
    until("the guest is gone", || processes_with("# 4722").is_empty());
    let nobody = lab.ask(&owner::Command::Stop { fence: Fence::of(99) });
    assert_eq!(nobody, Answer::No { reason: "no guest #99 is here".into() });
}

fn retreats() {
    let lab = Lab::new();
    let mut spec = script("exec sleep 4723.5");
    spec.on_busy = OnBusy::at_once(Reaction::Retreat);
    lab.offer(1, spec.clone());
    lab.started();
    lab.ask(&owner::Command::Pause { seconds: None });
    let reason = lab.event("a retreat", |event| match event {
        AttemptEvent::Retreated { reason, .. } => Some(reason),
        _ => None,
    });
    assert!(reason.contains("paused"), "{reason}");
    until("the guest is gone", || processes_with("sleep 4723.5").is_empty());
    lab.ask(&owner::Command::Resume);
    lab.wait_for_idle();
    spec.on_busy = OnBusy::suspend(Some(Duration::from_millis(100)), Reaction::Retreat);
    lab.offer(2, spec);
    lab.started();
    lab.ask(&owner::Command::Pause { seconds: None });
    let suspensions = lab.event("a retreat after its patience", |event| match event {
        AttemptEvent::Retreated { suspensions, .. } => Some(suspensions),
        _ => None,
    });
    assert_eq!(suspensions, 1);
    until("the frozen guest is gone", || processes_with("sleep 4723.5").is_empty());
}

/// What a guest left cannot be moved to another file system; the next guest is
/// launched with the same batch of effects.
fn made_anew() {
    let mut lab = Lab::without_agent();
    lab.config.places = 1;
    lab.start();
    lab.offer(1, job(&["sleep", "4731.5"]));
    lab.started();
    lab.offer(2, job(&["/no/such/program"]));
    lab.offer(3, job(&["/bin/true"]));
    until("both wait", || lab.status().guests.len() == 3);
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let outgoing = lab.config.data.join("outgoing");
    fs::remove_dir_all(&outgoing).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), &outgoing).unwrap();
    until("the first computes", || !processes_with("sleep 4731.5").is_empty());
    let first = processes_with("sleep 4731.5");
    kill_process(Pid::from_raw(first[0]).unwrap(), Signal::KILL).unwrap();
    assert_eq!(lab.finished().outcome, Outcome::Signal(9));
    assert!(matches!(lab.finished().outcome, Outcome::CannotStart(_)));
    assert_eq!(lab.finished().outcome, Outcome::Succeeded);
    assert!(lab.log().contains("cannot clear a place"), "{}", lab.log());
}

fn pause_survives() {
    let mut lab = Lab::new();
    lab.ask(&owner::Command::Pause { seconds: Some(3_600) });
    until("a pause", || lab.status().pause.is_some());
    assert_eq!(lab.stop(), 0);
    lab.agent = Some(lab.spawn());
    until("the owner's socket", || {
        owner::ask(&lab.config.owner_socket(), &owner::Command::Status).is_ok()
    });
    let status = lab.status();
    assert!(status.busy);
    assert!(status.pause.is_some_and(|pause| pause.until.is_some()));
    lab.ask(&owner::Command::Resume);
    lab.wait_for_idle();
    assert!(!lab.config.data.join("pause.toml").exists());
}

fn stops() {
    let mut lab = Lab::new();
    lab.offer(1, script("trap '' TERM; (setsid sleep 4724.5 &); sleep 4724.5"));
    until("the guest runs", || processes_with("sleep 4724.5").len() >= 2);
    assert_eq!(lab.stop(), 0, "{}", lab.log());
    assert_eq!(processes_with("sleep 4724.5"), Vec::<i32>::new());
    lab.coordinator
        .expect("leave", |frame| matches!(frame, AgentFrame::Leaving { .. }).then_some(()));
    let spool = lab.config.data.join("usage.spool");
    until("its end is recorded", || {
        let told = lab.coordinator.records();
        told.last().is_some_and(|record| record.cause == Cause::Finish)
            || spool.metadata().unwrap().len() > 0
    });
}

fn culprit() {
    let mut lab = Lab::without_agent();
    let Some(machine) = lab.cgroup.as_ref().map(|path| path.with_extension("machine")) else {
        return gleaner_skip::without_lab("control groups are root's only");
    };
    fs::create_dir(&machine).unwrap();
    lab.config.cgroup.load = Some(machine.clone());
    lab.config.criteria.rise_cores = 0.05;
    lab.start();
    let script = format!("echo 0 > {}/cgroup.procs; while :; do :; done", machine.display());
    let mut owner = Command::new("sh").args(["-c", &script]).spawn().unwrap();
    let named = lab.coordinator.expect("who it is", |frame| match frame {
        AgentFrame::Presence(presence) if presence.reason.contains(" of uid ") => Some(presence),
        _ => None,
    });
    let is_named = named.busy && named.reason.ends_with(", `sh` of uid 0");
    assert!(is_named, "{named:?}");
    owner.kill().unwrap();
    owner.wait().unwrap();
    until("an empty group", || fs::remove_dir(&machine).is_ok());
}

fn worker_killed() {
    let lab = Lab::new();
    lab.offer(1, script("(setsid sleep 4725.5 &); sleep 4725.5"));
    until("the guest runs", || processes_with("sleep 4725.5").len() >= 2);
    kill_process(lab.worker(), Signal::KILL).unwrap();
    until("its guests are gone", || processes_with("4725.5").is_empty());
    lab.hello();
    lab.wait_for_idle();
    lab.offer(2, job(&["/bin/true"]));
    assert_eq!(lab.finished().outcome, Outcome::Succeeded);
}

fn supervisor_killed() {
    let mut lab = Lab::new();
    lab.offer(1, script("(setsid sleep 4726.5 &); sleep 4726.5"));
    until("the guest runs", || processes_with("sleep 4726.5").len() >= 2);
    let worker = lab.worker();
    kill_process(lab.supervisor(), Signal::KILL).unwrap();
    lab.agent.take().unwrap().wait().unwrap();
    until("everything is gone", || {
        processes_with("4726.5").is_empty() && rustix::process::test_kill_process(worker).is_err()
    });
    // A new agent finds its house in order.
    lab.start();
    lab.offer(2, job(&["/bin/true"]));
    assert_eq!(lab.finished().outcome, Outcome::Succeeded);
}

fn lease_ends() {
    let mut lab = Lab::without_agent();
    lab.coordinator.grant(SHORT_LEASE);
    lab.start();
    lab.offer(1, script("exec sleep 4727.5"));
    lab.started();
    until("the guest runs", || !processes_with("sleep 4727.5").is_empty());
    lab.coordinator.mute(true);
    until("the guest is killed", || processes_with("sleep 4727.5").is_empty());
    let reason = lab.event("a retreat", |event| match event {
        AttemptEvent::Retreated { reason, .. } => Some(reason),
        _ => None,
    });
    assert!(reason.starts_with("the lease ended "), "{reason}");
}

fn usage_arrives() {
    let lab = Lab::new();
    for _ in 0..3 {
        lab.ask(&owner::Command::Pause { seconds: None });
        until("busy", || lab.status().busy);
        lab.ask(&owner::Command::Resume);
        until("idle", || !lab.status().busy);
    }
    until("records", || lab.coordinator.records().len() >= 8);
    let records = lab.coordinator.records();
    assert_eq!(records[0].cause, Cause::Start);
    let sequences: Vec<_> = records.iter().map(|record| record.sequence).collect();
    assert!(sequences.is_sorted_by(|a, b| a + 1 == *b), "{sequences:?}");
}

fn second_refused() {
    let lab = Lab::new();
    let mut second = lab.spawn();
    assert_eq!(second.wait().unwrap().code(), Some(2));
    assert!(lab.log().contains("another agent runs with the data directory"), "{}", lab.log());
}

/// A workstation with a system bus; its agent is still to be started.
fn at_desktop() -> Option<(Desktop, Lab)> {
    let Some(desktop) = Desktop::start() else {
        gleaner_skip::without_lab("no dbus-daemon");
        return None;
    };
    let mut lab = Lab::without_agent();
    lab.bus = Some(desktop.address.clone());
    Some((desktop, lab))
}

fn desktop() {
    let Some((desktop, mut lab)) = at_desktop() else { return };
    lab.config.sensors.sessions = true;
    lab.start();
    let busy = |reason: &str| {
        lab.coordinator.expect(reason, |frame| match frame {
            AgentFrame::Presence(presence) => {
                (presence.busy && presence.reason.contains(reason)).then_some(())
            }
            _ => None,
        });
    };
    until("logind is heard", || {
        lab.status().sensors.iter().any(|of| of.sensor == "sessions" && of.health == "well")
    });
    assert_eq!(desktop.delays(), 1);
    desktop.inhibit("sleep", Some("updater"));
    desktop.inhibit("idle:sleep", Some("player"));
    busy("player");
    desktop.inhibit("", None);
    lab.wait_for_idle();
    desktop.lock(true);
    desktop.lock(false);
    busy("session c1 of ann");
    lab.wait_for_idle();
    // Sleep waits until the guests are stopped, and not longer.
    lab.offer(1, script("exec sleep 4728.5"));
    lab.started();
    desktop.sleep(true);
    until("nobody delays sleep", || desktop.delays() == 0);
    assert!(lab.status().busy);
    desktop.sleep(false);
    until("sleep is delayed again", || desktop.delays() == 1);
    lab.wait_for_idle();
}

fn metered() {
    let Some((desktop, mut lab)) = at_desktop() else { return };
    lab.config.sensors.metered = gleaner_agent::config::Metered::Ask;
    lab.start();
    until("NetworkManager is heard", || {
        lab.status().sensors.iter().any(|of| of.sensor == "network" && of.health == "well")
    });
    desktop.metered(1);
    until("closed", || lab.status().verdict == "busy: the network is metered, says NetworkManager");
    desktop.metered(4);
    lab.wait_for_idle();
}

/// A keyboard's device, as far as the sensor sees one.
fn plug_in(lab: &Lab) {
    let path = lab.config.sensors.input.join("event0");
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

fn unheard_session() {
    let Some((desktop, mut lab)) = at_desktop() else { return };
    lab.config.sensors.sessions = true;
    desktop.screen("x11", "seat0", false);
    lab.begin();
    until("it answers", || owner::ask(&lab.config.owner_socket(), &owner::Command::Status).is_ok());
    let verdict = |text: &str| until(text, || lab.status().verdict.contains(text));
    verdict("session c1 of ann (seat0), x11: nothing hears its input");
    assert_eq!(lab.status().users, 1, "she is counted without a terminal");
    plug_in(&lab);
    verdict("idle for");
    lab.coordinator.expect("the sensor as it is now", |frame| match frame {
        AgentFrame::Missing(missing) => {
            missing.iter().all(|line| !line.starts_with("input:")).then_some(())
        }
        _ => None,
    });
    // A keyboard does not hear who works from elsewhere.
    desktop.screen("wayland", "", false);
    verdict("nothing hears its input");
    desktop.screen("wayland", "", true);
    verdict("idle for");
    desktop.screen("wayland", "", false);
    verdict("is idle no more");
    desktop.screen("tty", "", false);
    verdict("idle for");
}
