use super::*;
use gleaner_common::usage::REASON_BYTES_MAX;
use proptest::prelude::*;

fn at(s: u64) -> Moment {
    Moment::ZERO + Duration::from_secs(s)
}

fn at_ms(ms: u64) -> Moment {
    Moment::ZERO + Duration::from_millis(ms)
}

fn health(sensor: Sensor, health: Health) -> Observation {
    Observation::Health { sensor, health }
}

fn typed() -> Observation {
    Observation::Input { source: "pts/3".into(), ago: Duration::ZERO }
}

fn culprit() -> Observation {
    Observation::Culprit(Culprit { name: "matlab".into(), uid: 1_000 })
}

/// The owner's load, as the kernel would tell it.
fn load(one: f32) -> Observation {
    let kernel = Some(LoadAverages { one, five: one, fifteen: one });
    Observation::Load(LoadSample { kernel, ..LoadSample::default() })
}

/// Watches with required sensors well since second 0.
fn watching() -> Occupancy {
    let (mut occupancy, start) = Occupancy::new(at(0), 4, Criteria::default());
    assert_eq!(start.cause, Cause::Start);
    assert_eq!(occupancy.observe(at(0), health(Sensor::Terminals, Health::Well)), None);
    assert_eq!(occupancy.observe(at(0), load(0.05)), None);
    occupancy
}

/// Idle since second 61, with a load sample of second 60.
fn idle() -> Occupancy {
    let mut occupancy = watching();
    for s in (5..=60).step_by(5) {
        assert_eq!(occupancy.observe(at(s), load(0.05)), None);
    }
    assert_eq!(occupancy.wake(at(61)).map(|record| record.cause), Some(Cause::Idle));
    occupancy
}

#[track_caller]
fn check(record: Option<Transition>, cause: Cause, reason: &str) {
    let record = record.expect("a record");
    assert_eq!((record.cause, record.reason.as_str()), (cause, reason));
}

#[test]
fn idle_needs_a_quiet_period_and_busy_needs_nothing() {
    let mut occupancy = watching();
    occupancy.observe(at(30), load(0.05));
    occupancy.observe(at(50), load(0.05));
    assert_eq!(occupancy.deadline(), Some(at_ms(60_250)));
    assert_eq!(occupancy.wake(at_ms(60_249)), None);
    check(occupancy.wake(at_ms(60_250)), Cause::Idle, "no input seen, load 0.05");
    assert_eq!(occupancy.verdict(at(70)), "idle for 9.8 s");
    check(occupancy.observe(at(71), typed()), Cause::Tty, "pts/3, 0.0 s ago");
    assert_eq!(occupancy.verdict(at(73)), "busy: pts/3, 2.0 s ago");
    assert_eq!(occupancy.deadline(), Some(at_ms(131_250)));
}

#[test]
fn every_key_begins_the_quiet_period_anew() {
    let mut occupancy = idle();
    occupancy.observe(at(62), typed()).unwrap();
    for s in 63..=100 {
        assert_eq!(occupancy.observe(at(s), typed()), None);
        occupancy.observe(at(s), load(0.05));
    }
    assert_eq!(occupancy.deadline(), Some(at_ms(160_250)));
}

#[test]
fn the_three_busy_causes_are_told_apart() {
    check(idle().observe(at(62), load(1.73)), Cause::Load, "load 1.73, over 0.25");
    check(idle().observe(at(62), typed()), Cause::Tty, "pts/3, 0.0 s ago");
    // An agent that starts on a machine in use.
    let (mut both, _) = Occupancy::new(at(0), 4, Criteria::default());
    assert_eq!(both.observe(at(0), load(1.73)), None);
    assert_eq!(both.observe(at(0), typed()), None);
    let record = both.observe(at(0), health(Sensor::Terminals, Health::Well));
    check(record, Cause::Both, "pts/3, 0.0 s ago; load 1.73, over 0.25");
}

#[test]
fn who_loads_it_is_asked_for_once_and_named_while_it_loads() {
    let mut occupancy = idle();
    let turned = occupancy.observe(at(62), load(2.1)).unwrap();
    assert!(turned.by_load);
    let quiet = occupancy.told(at(62));
    assert_eq!(occupancy.observe(at(63), culprit()), None);
    assert_eq!(occupancy.verdict(at(63)), "busy: load 2.10, over 0.25, `matlab` of uid 1000");
    assert_ne!(occupancy.told(at(63)), quiet, "others hear of it");
    assert!(!occupancy.observe(at(130), load(3.0)).unwrap().by_load, "it was busy before");
    // Another's load, after a pause, is not its.
    occupancy.observe(at(131), load(0.05));
    occupancy.observe(at(140), typed());
    occupancy.observe(at(150), load(0.05));
    occupancy.observe(at(201), load(2.0));
    assert_eq!(occupancy.verdict(at(210)), "busy: load 2.00, over 0.25");
    // What is found out too late is nobody's.
    let mut idle = idle();
    assert!(!idle.observe(at(62), typed()).unwrap().by_load);
    let mut idle = self::idle();
    idle.observe(at(62), culprit());
    assert!(idle.observe(at(63), load(2.1)).unwrap().by_load);
    assert_eq!(idle.verdict(at(63)), "busy: load 2.10, over 0.25");
}

#[test]
fn a_sudden_rise_is_busy_long_before_the_average_is() {
    let mut occupancy = idle();
    let sample = |cpu_ms| {
        let cpu = Some(Duration::from_millis(cpu_ms));
        Observation::Load(LoadSample { cpu, guests: true, ..LoadSample::default() })
    };
    assert_eq!(occupancy.observe(at(62), sample(0)), None);
    assert_eq!(occupancy.observe(at(63), sample(20)), None);
    let record = occupancy.observe(at(64), sample(900));
    check(record, Cause::Load, "load rising from 0.06, 0.9 cores in use");
}

#[test]
fn a_load_close_to_the_criterion_does_not_flap() {
    let mut occupancy = idle();
    occupancy.observe(at(62), load(0.26)).unwrap();
    assert_eq!(occupancy.observe(at(67), load(0.24)), None);
    assert_eq!(occupancy.reason(at(67)), "load was over 0.25 5.0 s ago");
    assert_eq!(occupancy.observe(at(72), load(0.26)), None);
    assert_eq!(occupancy.observe(at(77), load(0.24)), None);
    assert_eq!(occupancy.deadline(), Some(at(87)));
    assert_eq!(occupancy.wake(at(87)).map(|record| record.cause), Some(Cause::Idle));
}

#[test]
fn a_changed_load_is_recorded_while_busy_and_not_too_often() {
    let mut occupancy = idle();
    occupancy.observe(at(62), load(1.0)).unwrap();
    assert_eq!(occupancy.observe(at(67), load(2.0)), None, "too soon");
    assert_eq!(occupancy.observe(at(127), load(1.09)), None, "within a tenth");
    check(occupancy.observe(at(132), load(1.2)), Cause::Change, "load 1.20, over 0.25");
    assert_eq!(occupancy.observe(at(140), load(0.2)), None, "under the criterion");
}

#[test]
fn a_sick_sensor_and_a_missing_required_one_are_busy_and_named() {
    let mut occupancy = idle();
    let sick = Health::Sick("event2: permission denied".into());
    let record = occupancy.observe(at(62), health(Sensor::Input, sick));
    check(record, Cause::Tty, "the input sensor is sick: event2: permission denied");
    assert_eq!(occupancy.deadline(), None);
    assert_eq!(occupancy.slots(at(62)), 0);
    let absent = Health::Absent("no such directory".into());
    occupancy.observe(at(63), health(Sensor::Input, absent.clone())).expect("idle again");
    assert!(!occupancy.is_busy(), "nobody requires it");
    occupancy.observe(at(64), health(Sensor::Terminals, absent)).unwrap();
    assert!(occupancy.reason(at(64)).starts_with("the terminals sensor is absent"));
    let degraded = Health::Degraded("pts/2 is looked at every 4 s".into());
    occupancy.observe(at(65), health(Sensor::Terminals, degraded)).expect("idle again");
}

#[test]
fn a_load_sensor_that_falls_silent_does_not_vouch() {
    let mut occupancy = idle();
    assert_eq!(occupancy.deadline(), Some(at(90)));
    let record = occupancy.wake(at(90));
    check(record, Cause::Load, "the load sensor has been silent for 30 s");
    assert_eq!(occupancy.deadline(), None, "only a sample helps; no deadline stays behind");
    occupancy.observe(at(91), load(0.05)).expect("idle again");
}

#[test]
fn a_film_is_busy_until_it_ends_and_then_quiet_is_awaited() {
    let mut occupancy = idle();
    let held = Observation::Held { id: "7".into(), what: "vlc: a film".into() };
    check(occupancy.observe(at(62), held), Cause::Tty, "vlc: a film");
    assert_eq!(occupancy.deadline(), None);
    occupancy.observe(at(3_000), load(0.05));
    assert_eq!(occupancy.observe(at(3_000), Observation::Released { id: "7".into() }), None);
    assert_eq!(occupancy.reason(at(3_000)), "end of vlc: a film, 0.0 s ago");
    assert_eq!(occupancy.deadline(), Some(at_ms(3_060_250)));
}

#[test]
fn a_lock_says_nothing_and_an_unlock_is_input() {
    let mut occupancy = idle();
    let locked = |locked| Observation::Locked { session: "session 2".into(), locked };
    assert_eq!(occupancy.observe(at(62), locked(true)), None);
    check(occupancy.observe(at(63), locked(false)), Cause::Tty, "session 2 unlocked, 0.0 s ago");
}

#[test]
fn a_pause_is_busy_until_it_ends() {
    let mut occupancy = idle();
    let until = Some(PauseEnd { at: at(100), said: "17:40".into() });
    let pause = Observation::Paused(Pause { by: "ada".into(), until });
    check(occupancy.observe(at(62), pause), Cause::Tty, "paused by ada until 17:40");
    assert!(occupancy.is_claimed());
    occupancy.observe(at(90), load(0.05));
    assert_eq!(occupancy.deadline(), Some(at(100)));
    assert_eq!(occupancy.wake(at(100)).map(|record| record.cause), Some(Cause::Idle));
}

#[test]
fn sleep_ends_the_records_and_waking_begins_them_and_the_quiet_period() {
    let mut occupancy = idle();
    let record = occupancy.observe(at(62), Observation::AboutToSleep);
    check(record, Cause::Finish, "the machine is about to sleep");
    assert_eq!(occupancy.observe(at(62), Observation::AboutToSleep), None);
    assert_eq!((occupancy.deadline(), occupancy.is_busy()), (None, true));
    check(occupancy.observe(at(4_000), Observation::Woke), Cause::Start, "the machine woke");
    assert_eq!(occupancy.observe(at(4_001), Observation::Woke), None);
    occupancy.observe(at(4_001), load(0.05));
    assert_eq!(occupancy.deadline(), Some(at_ms(4_060_250)));
}

#[test]
fn slots_are_the_cores_that_the_owner_leaves() {
    let mut occupancy = idle();
    assert_eq!(occupancy.slots(at(62)), 4);
    occupancy.observe(at(62), typed());
    assert_eq!(occupancy.slots(at(62)), 3, "one for whoever types");
    occupancy.observe(at(63), load(2.3));
    assert_eq!(occupancy.slots(at(63)), 1);
    occupancy.observe(at(64), load(99.0));
    assert_eq!(occupancy.slots(at(64)), 0);
}

#[test]
fn an_input_of_long_ago_is_remembered_and_is_not_busy() {
    let mut occupancy = idle();
    let ago = Duration::from_secs(600);
    let old = Observation::Input { source: "tty1".into(), ago };
    assert_eq!(occupancy.observe(at(1_000), load(0.05)), None);
    assert_eq!(occupancy.observe(at(1_000), old), None);
    assert_eq!(occupancy.reason(at(1_000)), "no input for 10 min, load 0.05");
}

#[test]
fn what_other_programs_say_can_neither_fill_a_record_nor_move_a_cursor() {
    let mut occupancy = idle();
    let what = format!("evil\u{1b}[2J{}", "\u{fc}".repeat(300));
    let held = Observation::Held { id: "7".into(), what };
    let record = occupancy.observe(at(62), held).unwrap();
    assert!(record.reason.len() <= REASON_BYTES_MAX && !record.reason.contains('\u{1b}'));
}

#[derive(Clone, Debug)]
enum Step {
    See(Observation),
    Wake,
    Rest(Duration),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let sensor = prop_oneof![
        Just(Sensor::Terminals),
        Just(Sensor::Input),
        Just(Sensor::Load),
        Just(Sensor::Sessions)
    ];
    let state = prop_oneof![
        3 => Just(Health::Well),
        1 => Just(Health::Degraded("slow".into())),
        1 => Just(Health::Sick("blind".into())),
        1 => Just(Health::Absent("none".into())),
    ];
    let step = prop_oneof![
        3 => (0u64..100).prop_map(|s| Step::See(Observation::Input {
            source: "pts/1".into(),
            ago: Duration::from_secs(s),
        })),
        6 => (0u8..40).prop_map(|hundredths| Step::See(load(f32::from(hundredths) / 100.0))),
        2 => (sensor, state).prop_map(|(sensor, state)| Step::See(health(sensor, state))),
        1 => Just(Step::See(Observation::Held { id: "a".into(), what: "film".into() })),
        1 => Just(Step::See(Observation::Released { id: "a".into() })),
        1 => Just(Step::See(culprit())),
        1 => Just(Step::See(Observation::Unpaused)),
        1 => Just(Step::See(Observation::Paused(Pause { by: "ada".into(), until: None }))),
        1 => Just(Step::See(Observation::AboutToSleep)),
        1 => Just(Step::See(Observation::Woke)),
        1 => Just(Step::See(remote(None))),
        1 => Just(Step::See(Observation::Screen { id: "4".into(), screen: None })),
        2 => (0u64..100).prop_map(|s| Step::See(word(s))),
        1 => any::<bool>().prop_map(|discharging| {
            let power = Power { mains: None, discharging, percent: None };
            Step::See(Observation::Power(power))
        }),
        6 => Just(Step::Wake),
        6 => (0u64..29_000).prop_map(|ms| Step::Rest(Duration::from_millis(ms))),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    /// Whatever happens in whatever order, idle is only ever said when
    /// everything that must vouch does, and after the quiet period.
    #[test]
    fn idle_is_never_said_too_early(steps in steps()) {
        let (mut occupancy, _) = Occupancy::new(at(1_000), 4, Criteria::default());
        let mut now = at(1_000);
        // What a person beside the machine knows.
        let (mut touched, mut sick, mut held, mut paused, mut asleep) =
            (at(1_000), BTreeSet::from([Sensor::Terminals, Sensor::Load]), false, false, false);
        let (mut high, mut screen, mut word, mut closed) = (false, false, None, false);
        let mut records = vec![Cause::Start];
        for step in steps {
            let record = match step {
                Step::Rest(span) => {
                    now = now + span;
                    None
                }
                Step::Wake => occupancy.wake(now),
                Step::See(seen) => {
                    match &seen {
                        Observation::Input { ago, .. } => touched = touched.max(now - *ago),
                        Observation::Load(sample) => {
                            high = sample.kernel.unwrap().one > 0.25;
                            if !occupancy.health.contains_key(&Sensor::Load) {
                                sick.remove(&Sensor::Load);
                            }
                        }
                        Observation::Health { sensor, health } => {
                            let required = occupancy.criteria.required.contains(sensor);
                            let blind = match health {
                                Health::Well | Health::Degraded(_) => false,
                                Health::Sick(_) => true,
                                Health::Absent(_) => required,
                            };
                            if matches!(health, Health::Sick(_) | Health::Absent(_)) {
                                closed &= *sensor != Sensor::Power;
                            }
                            if blind { sick.insert(*sensor); } else { sick.remove(sensor); }
                        }
                        Observation::Held { .. } => held = true,
                        Observation::Released { .. } => held = false,
                        Observation::Paused(_) => paused = true,
                        Observation::Unpaused => paused = false,
                        Observation::AboutToSleep => asleep = true,
                        Observation::Woke => asleep = false,
                        Observation::Screen { screen: it, .. } => screen = it.is_some(),
                        Observation::Word(said) => {
                            touched = touched.max(now - said.idle);
                            word = Some(now);
                        }
                        Observation::Power(power) => closed = power.discharging,
                        Observation::Culprit(_) => {}
                        Observation::Users { .. }
                        | Observation::WordsEnd { .. }
                        | Observation::Connections(_)
                        | Observation::Slice { .. }
                        | Observation::Pressed { .. }
                        | Observation::Metered { .. }
                        | Observation::Heat(_)
                        | Observation::Locked { .. } => unreachable!("no step sees it"),
                    }
                    let record = occupancy.observe(now, seen);
                    if let Some(record) = &record && record.cause == Cause::Idle {
                        prop_assert!(!high);
                    }
                    record
                }
            };
            let was_recorded = record.is_some();
            if let Some(record) = record {
                prop_assert!(!record.reason.is_empty());
                if record.cause == Cause::Idle {
                    prop_assert!(now.since(touched) >= Criteria::default().quiet);
                    prop_assert!(sick.is_empty(), "{sick:?} vouched");
                    prop_assert!(!held && !paused && !asleep && !closed);
                    let heard = word.is_some_and(|at| now < at + WORD_LASTS);
                    prop_assert!(!screen || heard, "a screen that nobody hears");
                    prop_assert!(!occupancy.is_busy());
                }
                records.push(record.cause);
            }
            // Immediately, not at the next wake.
            if held || paused || asleep || (!sick.is_empty() && was_recorded) {
                prop_assert!(occupancy.is_busy());
            }
            prop_assert!(occupancy.slots(now) <= 4);
            if let Some(deadline) = occupancy.deadline() {
                // Acting on a deadline moves it or the verdict: no busy loop.
                let mut later = occupancy.clone();
                let late = now.max(deadline);
                let turned = later.wake(late).is_some();
                prop_assert!(turned || later.deadline().is_none_or(|next| next > late));
            }
        }
        // The log reads well: idle and busy alternate, but for CHANGE.
        let mut idle = false;
        for cause in records {
            match cause.says_busy() {
                Some(false) => {
                    prop_assert!(!idle, "idle twice");
                    idle = true;
                }
                Some(true) | None => idle = false,
            }
        }
    }
}

fn remote(hint: Option<Duration>) -> Observation {
    let what = "session 4 of ann (x11, remote)".to_owned();
    let screen = Some(Screen { uid: 1_000, what, seat: false, hint });
    Observation::Screen { id: "4".into(), screen }
}

fn word(idle_s: u64) -> Observation {
    let idle = Duration::from_secs(idle_s);
    let (session, display) = (Some("4".to_owned()), "x11 :10".to_owned());
    Observation::Word(Word { helper: 1, uid: 1_000, session, display, idle })
}

#[test]
fn a_screen_that_nothing_hears_is_busy_until_a_helper_or_its_own_hint_speaks() {
    let mut occupancy = idle();
    let deaf = "session 4 of ann (x11, remote): nothing hears its input, not even a \
                `glean presence` in it";
    check(occupancy.observe(at(62), remote(None)), Cause::Tty, deaf);
    assert_eq!(occupancy.deadline(), None);
    let record = occupancy.observe(at(63), word(600));
    assert_eq!(record.map(|record| record.cause), Some(Cause::Idle));
    // Its word is forgotten when it says no more.
    assert_eq!(occupancy.observe(at(140), load(0.05)), None);
    assert_eq!(occupancy.deadline(), Some(at(63) + WORD_LASTS));
    check(occupancy.wake(at(63) + WORD_LASTS), Cause::Tty, deaf);
    let hinting = occupancy.observe(at(160), remote(Some(Duration::from_secs(9))));
    assert_eq!(hinting.map(|record| record.cause), Some(Cause::Idle));
    let used = "session 4 of ann (x11, remote) is idle no more, 0.0 s ago";
    check(occupancy.observe(at(161), remote(None)), Cause::Tty, used);
}

#[test]
fn a_screen_at_a_seat_without_keyboards_that_are_heard_is_busy() {
    let mut occupancy = idle();
    let what = "session 2 of ann (wayland, seat0)".to_owned();
    let screen = Some(Screen { uid: 1_000, what, seat: true, hint: None });
    let absent = Health::Absent("/dev/input: no keyboard or pointer".into());
    assert_eq!(occupancy.observe(at(62), health(Sensor::Input, absent)), None);
    let id = "2".to_owned();
    let record = occupancy.observe(at(63), Observation::Screen { id, screen }).unwrap();
    assert!(record.reason.starts_with("session 2 of ann"), "{}", record.reason);
    let idle = occupancy.observe(at(64), health(Sensor::Input, Health::Well));
    assert_eq!(idle.map(|record| record.cause), Some(Cause::Idle));
}

#[test]
fn a_helper_tells_when_its_session_was_used() {
    let mut occupancy = idle();
    check(occupancy.observe(at(62), word(3)), Cause::Tty, "x11 :10, 3.0 s ago");
    // It cannot take away what others have seen.
    occupancy.observe(at(70), typed());
    assert_eq!(occupancy.observe(at(71), word(100_000)), None);
    assert_eq!(occupancy.reason(at(71)), "pts/3, 1.0 s ago");
}

#[test]
fn what_comes_over_a_connection_is_input() {
    let mut occupancy = idle();
    let allowance = Allowance { burst_bytes: 12, bytes_per_minute: 30 };
    let connection = |received_bytes| {
        let silent = Duration::from_millis(500);
        let what = "VNC from 192.0.2.7".to_owned();
        Observation::Connections(vec![Connection {
            id: 7,
            what,
            received_bytes,
            silent,
            allowance,
        }])
    };
    assert_eq!(occupancy.observe(at(62), connection(4_000)), None);
    check(
        occupancy.observe(at(64), connection(4_016)),
        Cause::Tty,
        "VNC from 192.0.2.7, 0.5 s ago",
    );
}

#[test]
fn battery_heat_and_a_metered_network_close_and_send_guests_away() {
    let power = |mains| {
        let power = Power { mains: Some(mains), discharging: !mains, percent: Some(57) };
        Observation::Power(power)
    };
    let heat = |celsius| Observation::Heat(Heat { zone: "cpu".into(), celsius });
    let metered = |by: Option<&str>| Observation::Metered { by: by.map(str::to_owned) };
    let cases = [
        (power(false), power(true), "on battery, 57 %"),
        (heat(95.0), heat(60.0), "cpu has 95 °C, over 90"),
        (
            metered(Some("NetworkManager")),
            metered(None),
            "the network is metered, says NetworkManager",
        ),
    ];
    for (closes, opens, reason) in cases {
        let mut occupancy = idle();
        check(occupancy.observe(at(62), closes), Cause::Tty, reason);
        assert!(occupancy.is_claimed());
        assert_eq!((occupancy.slots(at(62)), occupancy.deadline()), (0, None));
        let idle = occupancy.observe(at(63), opens).expect("idle again at once");
        assert_eq!(idle.cause, Cause::Idle);
        assert!(!occupancy.is_claimed());
    }
}

#[test]
fn people_who_wait_or_work_in_their_slice_are_busy_for_a_while() {
    let mut occupancy = idle();
    let slice = |ms| Observation::Slice { used: Duration::from_millis(ms) };
    assert_eq!(occupancy.observe(at(62), slice(9_000)), None);
    assert_eq!(occupancy.observe(at(64), slice(9_900)), None, "0.45 cores");
    check(
        occupancy.observe(at(66), slice(11_500)),
        Cause::Load,
        "people's processes use 0.8 cores",
    );
    assert_eq!(occupancy.deadline(), Some(at(81)));
    assert_eq!(occupancy.wake(at(81)).map(|record| record.cause), Some(Cause::Idle));
    let what = "user.slice waits for memory".to_owned();
    check(
        occupancy.observe(at(82), Observation::Pressed { what }),
        Cause::Load,
        "user.slice waits for memory",
    );
}

#[test]
fn one_person_seen_by_two_sensors_is_one() {
    let mut occupancy = idle();
    let users = |by, uids: &[u32]| Observation::Users { by, uids: uids.iter().copied().collect() };
    occupancy.observe(at(62), users(Sensor::Terminals, &[1_000, 1_001]));
    occupancy.observe(at(62), users(Sensor::Sessions, &[1_001, 1_002]));
    assert_eq!(occupancy.presence(at(62)).users, 3);
    occupancy.observe(at(63), users(Sensor::Terminals, &[]));
    assert_eq!(occupancy.presence(at(63)).users, 2);
}
