//! Guests that are written down by a real CRIU and brought to life at another
//! place of this machine, by the agent's own keepers. Left out, aloud, where that
//! cannot be had.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use gleaner_agent::config::GuestsConfig;
use gleaner_agent::container::cgroup::Tree;
use gleaner_agent::container::keeper::Program;
use gleaner_agent::probe::{Probe, ProbeError, ProbedGuest};
use gleaner_move::{
    Arrival, Dump, DumpError, Engine, GuestProcess, Header, Image, LearnError, Outlet, keep,
};

use crate::Test;
use crate::machine::{is_root, until};

pub(crate) const TESTS: &[Test] = &[
    ("a_guest_goes_on_elsewhere", a_guest_goes_on_elsewhere),
    ("a_moved_guest_is_shut_in_as_before", a_moved_guest_is_shut_in_as_before),
    ("what_lay_in_its_pipe_is_read_once", what_lay_in_its_pipe_is_read_once),
    ("its_tree_its_files_and_its_state_come_along", its_tree_its_files_and_its_state_come_along),
    ("all_of_a_large_memory_comes_along", all_of_a_large_memory_comes_along),
    (
        "whose_memory_does_not_come_is_not_brought_to_life",
        whose_memory_does_not_come_is_not_brought_to_life,
    ),
    ("its_clocks_go_on_from_where_they_stood", its_clocks_go_on_from_where_they_stood),
    ("never_two_run_and_the_old_one_can_go_on", never_two_run_and_the_old_one_can_go_on),
    ("a_receiver_that_goes_away_costs_nothing", a_receiver_that_goes_away_costs_nothing),
    ("a_connection_is_named", a_connection_is_named),
    ("who_has_queues_that_cannot_move_is_named", queues_are_named),
    ("a_device_is_named", a_device_is_named),
    ("who_was_left_behind_is_named", who_was_left_behind_is_named),
    ("a_guest_goes_back_to_what_was_kept", a_guest_goes_back_to_what_was_kept),
    ("a_place_that_lacks_a_file_takes_nobody", a_place_that_lacks_a_file_takes_nobody),
    ("who_was_not_started_to_move_is_let_be", who_was_not_started_to_move_is_let_be),
    ("what_criu_prints_is_told", what_criu_prints_is_told),
    ("a_real_image_with_one_thing_changed_is_refused", changed_images_are_refused),
    ("criu_has_no_more_rights_than_the_guest", criu_has_no_more_rights_than_the_guest),
    (
        "a_link_in_the_place_of_an_open_file_leads_to_nothing_that_a_guest_cannot_open",
        a_link_in_the_place_of_an_open_file_leads_to_nothing_that_a_guest_cannot_open,
    ),
    (
        "a_guest_with_all_that_it_may_have_open_goes_on_elsewhere",
        a_guest_with_all_that_it_may_have_open_goes_on_elsewhere,
    ),
];

/// A shell that does what it is told, and says `;` when it has.
const SHELL: [&str; 3] =
    ["/bin/sh", "-c", "while read -r line; do eval \"$line\" 2>&1; echo ';'; done"];

struct Lab {
    probe: Probe,
    tree: Tree,
    home: tempfile::TempDir,
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.tree.clone().remove();
    }
}

fn lab() -> Option<Lab> {
    if !is_root() {
        gleaner_skip::without_lab("guests can be moved by root only");
        return None;
    }
    let engine = match Engine::find(None) {
        Ok(engine) => engine,
        Err(error) => {
            gleaner_skip::without_lab(format!("{error}; {}", error.hint()));
            return None;
        }
    };
    // Not below a guest's own scratch directories.
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
    let mount = mounts.into_iter().find(|mount| mount.join("cgroup.procs").exists()).unwrap();
    let name = format!("gleaner-move-{}", std::process::id());
    let tree = Tree::claim(Some(&mount.join(name))).unwrap();
    let guests = GuestsConfig { uid_base: 71_000, ..GuestsConfig::default() };
    let places = home.path().join("places");
    let probe = Probe::new(engine, Program::own().unwrap(), &guests, &tree, places);
    let mut probe = match probe {
        Ok(probe) => probe,
        Err(ProbeError::Learn(error @ (LearnError::NoRight(_) | LearnError::Filtered))) => {
            gleaner_skip::without_lab(error);
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    // Everybody may write there: only Landlock keeps a guest from it.
    let open = home.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    probe.readable.push(open);
    Some(Lab { probe, tree, home })
}

/// Lets the shell do something; what it prints.
#[track_caller]
fn told(guest: &ProbedGuest, what: &str) -> Vec<String> {
    guest.say(what).unwrap();
    let mut lines = vec![];
    loop {
        let line = guest.hear().unwrap();
        if line == ";" {
            return lines;
        }
        lines.push(line);
    }
}

impl Lab {
    fn shell(&self, place: u16) -> ProbedGuest {
        self.probe.start(place, &SHELL).unwrap()
    }

    fn dump(&self, guest: &ProbedGuest, out: impl Outlet) -> Result<(), DumpError> {
        Dump::start(&self.probe.engine, &self.probe.fingerprint, &guest.process())?.run(out)?;
        Ok(())
    }

    fn image(&self, guest: &ProbedGuest) -> Image {
        let mut arrival = Arrival::new(1 << 30).unwrap();
        self.dump(guest, &mut arrival).unwrap();
        arrival.finish().unwrap()
    }

    /// Standing still.
    fn land(&self, image: &Image, header: &Header, place: u16) -> ProbedGuest {
        self.try_land(image, header, place).unwrap()
    }

    fn try_land(
        &self,
        image: &Image,
        header: &Header,
        place: u16,
    ) -> Result<ProbedGuest, ProbeError> {
        let expecting = self.probe.expect(place, header, image.memory())?;
        let stopped = image.adapt(&self.probe.terms(place))?;
        expecting.land(&stopped)
    }

    /// All that is sent of it.
    fn sent(&self, guest: &ProbedGuest) -> Vec<u8> {
        let mut sent = vec![];
        self.dump(guest, &mut sent).unwrap();
        sent
    }

    /// Brought to life as agents do it, while its memory comes, of which only so
    /// many bytes do; it stands still.
    fn landed(&self, sent: &[u8], bytes: usize, place: u16) -> Result<ProbedGuest, ProbeError> {
        let mut arrival = Arrival::new(1 << 30).unwrap();
        let mut pieces = sent.chunks(997);
        while !arrival.is_known() {
            arrival.take(pieces.next().unwrap()).unwrap();
        }
        let serving = arrival.serve().unwrap();
        let header = arrival.header().unwrap();
        let expecting = self.probe.expect(place, header, arrival.memory()).unwrap();
        let stopped = arrival.adapt(&self.probe.terms(place)).unwrap();
        let landed = thread::scope(|scope| {
            scope.spawn(|| {
                for piece in pieces.take(bytes.div_ceil(997)) {
                    arrival.take(piece).unwrap();
                }
                arrival.finish().is_ok()
            });
            expecting.land(&stopped)
        });
        drop(serving);
        landed
    }

    fn moved(&self, guest: ProbedGuest, place: u16) -> ProbedGuest {
        let new = self.landed(&self.sent(&guest), usize::MAX, place).unwrap();
        drop(guest);
        new.resume().unwrap();
        new
    }

    /// Why it cannot be written down, and that it is none the worse for it.
    #[track_caller]
    fn refused(&self, guest: &ProbedGuest) -> String {
        let error = self.dump(guest, io::sink()).unwrap_err();
        thaw(guest);
        assert_eq!(told(guest, "echo still here"), ["still here"], "after: {error}");
        error.to_string()
    }
}

fn thaw(guest: &ProbedGuest) {
    guest.group().thaw().unwrap();
}

fn freeze(guest: &ProbedGuest) {
    guest.group().freeze().unwrap();
    until("a stand", || guest.group().is_frozen());
}

fn a_guest_goes_on_elsewhere() {
    let Some(lab) = lab() else { return };
    let probed = lab.probe.run().unwrap();
    println!("moved {} bytes in {:?}", probed.image_bytes, probed.moving);
}

/// What guests try, and should not get further with after a move than before.
const ATTEMPTS: [&str; 21] = [
    "grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp)' /proc/self/status",
    "ulimit -H -f; ulimit -H -c; ulimit -H -n",
    "grep policy /proc/self/sched",
    "ls / /dev /run /place",
    "ls /proc | grep -c '^[0-9]'",
    "cat /proc/self/cgroup",
    "grep -c : /proc/net/dev",
    "(echo x > /usr/x) 2>&1; (echo x > /x) 2>&1; (echo x > /etc/x) 2>&1",
    "(echo x > OPEN/x) 2>&1; ls -l OPEN",
    "(cat /etc/shadow) 2>&1",
    "(cksum < /run/criu.kdat) 2>&1",
    "(kill -9 1) 2>&1; (kill -STOP 1) 2>&1",
    "(cat /proc/1/environ) 2>&1; (ls /proc/1/fd) 2>&1; (readlink /proc/1/root) 2>&1",
    "(echo x > /proc/sys/kernel/hostname) 2>&1",
    "(echo 0 > /proc/self/oom_score_adj) 2>&1; cat /proc/self/oom_score_adj",
    "(echo 2 > /proc/self/coredump_filter) 2>&1",
    "ls /proc/self/fd",
    "(ulimit -H -f unlimited) 2>&1",
    "ulimit -n; grep -E 'pending|queue|locked|nice|realtime' /proc/self/limits",
    "(prlimit --pid 1 --nofile=9) 2>&1; (taskset -p 1 1) 2>&1 | grep -c failed",
    "perl -e 'print syscall(165, 0, 0, 0, 0, 0), \" \", syscall(272, 0x20000), \"\\n\"' 2>&1",
];

fn a_moved_guest_is_shut_in_as_before() {
    let Some(lab) = lab() else { return };
    let open = lab.home.path().join("open");
    let attempts = |guest: &ProbedGuest, uid: &str, place: &str| -> Vec<String> {
        ATTEMPTS
            .iter()
            .map(|attempt| attempt.replace("OPEN", open.to_str().unwrap()))
            .flat_map(|attempt| {
                let said = told(guest, &attempt);
                [vec![format!("> {attempt}")], said].concat()
            })
            .map(|line| line.replace(uid, "USER").replace(place, "PLACE"))
            .collect()
    };
    let guest = lab.shell(0);
    let before = attempts(&guest, "71001", "/p0");
    let guest = lab.moved(guest, 1);
    let after = attempts(&guest, "71002", "/p1");
    for (was, is) in before.iter().zip(&after) {
        assert_eq!(was, is);
    }
    assert_eq!(before.len(), after.len());
    let text = after.join("\n");
    assert!(text.contains("Uid:\tUSER\tUSER\tUSER\tUSER"), "{text}");
    assert!(text.contains("CapEff:\t0000000000000000"), "{text}");
    assert!(text.contains("NoNewPrivs:\t1"), "{text}");
    assert!(text.contains("prlimit: failed to set the NOFILE"), "{text}");
    // Only Landlock stands between a guest and that.
    let denied = format!("cannot create {}/x: Permission denied", open.display());
    assert!(text.contains(&denied), "{text}");
    // And once more: what came by a move can move.
    let guest = lab.moved(guest, 2);
    let again = attempts(&guest, "71003", "/p2");
    assert_eq!(after, again);
}

fn what_lay_in_its_pipe_is_read_once() {
    let Some(lab) = lab() else { return };
    let guest = lab.shell(0);
    assert_eq!(told(&guest, "echo first"), ["first"]);
    freeze(&guest);
    guest.say("echo second").unwrap();
    let image = lab.image(&guest);
    assert_eq!(image.header.plugs[0].unread, b"echo second\n");
    let new = lab.land(&image, &image.header, 1);
    drop(guest);
    new.resume().unwrap();
    assert_eq!(new.hear().unwrap(), "second");
    assert_eq!(new.hear().unwrap(), ";");
    assert_eq!(told(&new, "echo third"), ["third"]);
}

fn its_tree_its_files_and_its_state_come_along() {
    let Some(lab) = lab() else { return };
    let guest = lab.shell(0);
    told(&guest, "x=41; sleep 1000 & child=$!");
    told(&guest, "mkdir -p d; echo kept > d/file; echo scratch > /tmp/t; umask 077");
    told(&guest, "exec 3<>gone; echo deleted >&3; rm gone; exec 4>>d/log; echo one >&4");
    let guest = lab.moved(guest, 1);
    assert_eq!(told(&guest, "echo $((x + 1)); umask"), ["42", "0077"]);
    assert_eq!(told(&guest, "kill -0 $child && echo lives"), ["lives"]);
    assert_eq!(told(&guest, "cat d/file /tmp/t"), ["kept", "scratch"]);
    assert_eq!(told(&guest, "cat /proc/$$/fd/3"), ["deleted"]);
    assert_eq!(told(&guest, "echo two >&4; cat d/log"), ["one", "two"]);
    assert_eq!(told(&guest, "stat -c %U:%u d/file"), ["UNKNOWN:71002"]);
    assert_eq!(told(&guest, "sleep 0.01 & echo $(($! > child + 500))"), ["1"], "no number twice");
}

/// More than goes out while CRIU still writes.
const LARGE: &str = "v=$(head -c 24000000 /dev/urandom | base64 -w 0)";

fn all_of_a_large_memory_comes_along() {
    let Some(lab) = lab() else { return };
    let guest = lab.shell(0);
    told(&guest, LARGE);
    // Its child shares its memory, until one of them writes.
    told(
        &guest,
        "(w=$v; until [ -e go ]; do sleep 0.01; done; echo \"$w\" | cksum > sum) & child=$!",
    );
    let before = told(&guest, "echo \"$v\" | cksum");
    let guest = lab.moved(guest, 1);
    assert_eq!(told(&guest, "echo \"$v\" | cksum"), before);
    assert_eq!(told(&guest, "touch go; wait $child; cat sum"), before);
}

fn whose_memory_does_not_come_is_not_brought_to_life() {
    let Some(lab) = lab() else { return };
    let guest = lab.shell(0);
    told(&guest, LARGE);
    let before = told(&guest, "echo \"$v\" | cksum");
    let sent = lab.sent(&guest);
    for bytes in [0, 1_000, 10_000_000] {
        let error = lab.landed(&sent, bytes, 1).unwrap_err().to_string();
        assert!(error.contains("criu cannot restore it"), "{bytes}: {error}");
    }
    thaw(&guest);
    assert_eq!(told(&guest, "echo \"$v\" | cksum"), before);
}

fn its_clocks_go_on_from_where_they_stood() {
    let Some(lab) = lab() else { return };
    let uptime = |guest: &ProbedGuest| -> f64 {
        told(guest, "cut -d' ' -f1 /proc/uptime")[0].parse().unwrap()
    };
    let guest = lab.shell(0);
    let before = uptime(&guest);
    let image = lab.image(&guest);
    // As of a machine that has been up for longer.
    let (monotonic, boottime) = image.header.clocks;
    let longer = Duration::from_secs(100_000);
    let header = Header { clocks: (monotonic + longer, boottime + longer), ..image.header.clone() };
    let new = lab.land(&image, &header, 1);
    drop(guest);
    new.resume().unwrap();
    let after = uptime(&new);
    assert!((100_000.0..100_060.0).contains(&(after - before)), "{before} {after}");
    // The next machine hears of its clocks, not of this one's.
    let image = lab.image(&new);
    assert!(image.header.clocks.1 > boottime + longer);
}

fn never_two_run_and_the_old_one_can_go_on() {
    let Some(lab) = lab() else { return };
    let guest = lab.shell(0);
    assert_eq!(told(&guest, "x=1; echo $x"), ["1"]);
    let image = lab.image(&guest);
    assert!(guest.group().is_frozen(), "the old one stands still");
    let new = lab.land(&image, &image.header, 1);
    let status = format!("/proc/{}/status", new.process().root);
    let waits = || fs::read_to_string(&status).unwrap().contains("State:\tT (stopped)");
    // Its stop is pending until it gets a core, the lowest of all as it is.
    until("the new one waits", waits);
    drop(new);
    thaw(&guest);
    assert_eq!(told(&guest, "echo $((x + 1))"), ["2"]);
}

fn a_receiver_that_goes_away_costs_nothing() {
    /// Takes so many bytes.
    struct Short(usize);
    impl Write for Short {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    impl Outlet for Short {}
    let Some(lab) = lab() else { return };
    let guest = lab.shell(0);
    told(&guest, "x=1");
    for taken in [0, 2_000, 40_000] {
        let error = lab.dump(&guest, Short(taken)).unwrap_err();
        assert!(matches!(error, DumpError::Send(_)), "{taken}: {error}");
        assert!(guest.group().is_frozen());
    }
    // Never run: CRIU gives up by itself.
    drop(Dump::start(&lab.probe.engine, &lab.probe.fingerprint, &guest.process()).unwrap());
    freeze(&guest);
    thaw(&guest);
    assert_eq!(told(&guest, "echo $((x + 1))"), ["2"]);
    let guest = lab.moved(guest, 1);
    assert_eq!(told(&guest, "echo $((x + 2))"), ["3"]);
}

fn a_connection_is_named() {
    let Some(lab) = lab() else { return };
    let script = "use Socket; $| = 1; socket(L, PF_INET, SOCK_STREAM, 0);
        bind(L, sockaddr_in(8123, INADDR_LOOPBACK)); listen(L, 1);
        socket(C, PF_INET, SOCK_STREAM, 0); connect(C, sockaddr_in(8123, INADDR_LOOPBACK));
        print \"connected\\n\"; while (<STDIN>) { s/^echo //; print; print \";\\n\"; }";
    let guest = lab.probe.start(0, &["/usr/bin/perl", "-e", script]).unwrap();
    assert_eq!(guest.hear().unwrap(), "connected");
    let error = lab.refused(&guest);
    assert!(error.contains("(perl) holds a TCP socket to 127.0.0.1:"), "{error}");
}

fn queues_are_named() {
    let Some(lab) = lab() else { return };
    for (make, what) in [
        ("ipcmk -Q > id", "a System V message queue"),
        ("ipcmk -S 3 > id", "System V semaphores"),
        ("ipcmk -M 4096 > id", "System V shared memory"),
        // mq_open(name, O_CREAT | O_RDWR, ..), closed at once: it stays.
        ("perl -e '$n = \"left\"; syscall(240, $n, 0102, 0600, 0)'", "a POSIX message queue"),
    ] {
        let guest = lab.shell(0);
        told(&guest, make);
        let error = lab.refused(&guest);
        assert!(error.ends_with(&format!("holds {what}")), "{error}");
    }
}

fn a_device_is_named() {
    let Some(mut lab) = lab() else { return };
    let device = lab.home.path().join("fuse");
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    let number = rustix::fs::makedev(10, 229);
    let kind = rustix::fs::FileType::CharacterDevice;
    rustix::fs::mknodat(rustix::fs::CWD, &device, kind, mode, number).unwrap();
    fs::set_permissions(&device, fs::Permissions::from_mode(0o666)).unwrap();
    if fs::File::open(&device).is_err() {
        gleaner_skip::without_lab("no file systems in user space here");
        return;
    }
    lab.probe.readable.push(device.clone());
    let guest = lab.shell(0);
    let device = device.display();
    assert_eq!(told(&guest, &format!("exec 3<{device}; echo open")), ["open"]);
    let error = lab.refused(&guest);
    assert!(error.ends_with(&format!("(sh) holds the device {device}")), "{error}");
}

fn who_was_left_behind_is_named() {
    let Some(lab) = lab() else { return };
    let guest = lab.shell(0);
    told(&guest, "(sleep 1000 &)");
    let error = lab.refused(&guest);
    assert!(error.ends_with(") was left behind by its parent"), "{error}");
}

fn a_guest_goes_back_to_what_was_kept() {
    let Some(lab) = lab() else { return };
    let guest = lab.shell(0);
    told(&guest, "x=1; echo one > file");
    let mut kept = tempfile::tempfile().unwrap();
    keep(&lab.probe.engine, &lab.probe.fingerprint, &guest.process(), &mut kept).unwrap();
    assert_eq!(told(&guest, "x=2; echo two > file; echo $x"), ["2"], "it goes on meanwhile");
    drop(guest);
    io::Seek::rewind(&mut kept).unwrap();
    let mut arrival = Arrival::new(1 << 30).unwrap();
    io::copy(&mut kept, &mut arrival).unwrap();
    let image = arrival.finish().unwrap();
    let back = lab.land(&image, &image.header, 1);
    back.resume().unwrap();
    assert_eq!(told(&back, "echo $x; cat file"), ["1", "one"]);
}

fn a_place_that_lacks_a_file_takes_nobody() {
    let Some(lab) = lab() else { return };
    let file = lab.home.path().join("open/file");
    fs::write(&file, "as it was").unwrap();
    let guest = lab.shell(0);
    told(&guest, &format!("x=1; exec 3<{}", file.display()));
    let image = lab.image(&guest);
    fs::write(&file, "another").unwrap();
    let error = lab.try_land(&image, &image.header, 1).unwrap_err().to_string();
    assert!(error.contains("criu cannot restore it: "), "{error}");
    assert!(error.contains("open/file"), "{error}");
    thaw(&guest);
    assert_eq!(told(&guest, "echo $((x + 1))"), ["2"]);
}

fn who_was_not_started_to_move_is_let_be() {
    let Some(lab) = lab() else { return };
    let group = lab.tree.guests().join("plain");
    fs::create_dir_all(&group).unwrap();
    let mut plain = std::process::Command::new("/bin/sleep").arg("1000").spawn().unwrap();
    fs::write(group.join("cgroup.procs"), plain.id().to_string()).unwrap();
    let root = i32::try_from(plain.id()).unwrap();
    let guest =
        GuestProcess { group: group.clone(), keeper: 0, root, plugs: vec![], left_out: vec![] };
    let error = Dump::start(&lab.probe.engine, &lab.probe.fingerprint, &guest).unwrap_err();
    assert!(error.to_string().ends_with("(sleep) uses the workstation's own network"), "{error}");
    assert!(plain.try_wait().unwrap().is_none(), "it lives");
    plain.kill().unwrap();
    plain.wait().unwrap();
    fs::remove_dir(&group).unwrap();
}

impl Lab {
    /// Has a program in the place of CRIU that says something and fails.
    fn replace_criu(&mut self, does: &str) {
        let program = self.home.path().join("open/criu");
        let version = "[ $1 = --version ] && exec echo 'Version: 4.2'";
        fs::write(&program, format!("#!/bin/sh\n{version}\n{does}\nexit 1\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        self.probe.engine = Engine::find(Some(&program)).unwrap();
    }
}

/// How the bytes of a file become others, as many.
type Change = fn(&mut Vec<u8>);

fn changed_images_are_refused() {
    let Some(lab) = lab() else { return };
    let guest = lab.shell(0);
    told(&guest, "echo deleted > gone; exec 3<gone; rm gone");
    let path: Change = |bytes| {
        let at = bytes.windows(5).position(|part| part == b"/usr/").unwrap();
        bytes[at..at + 5].copy_from_slice(b"/ssr/");
    };
    // Each field has a byte for its number and one for its value.
    let namespace: Change = |bytes| {
        let at = (12..bytes.len()).step_by(2).find(|at| bytes[*at] == 6 << 3).unwrap();
        bytes[at + 1] += 1;
    };
    // The mode's first bits say what kind of file it is: now a device.
    let device: Change = |bytes| {
        let regular = [3 << 3, 0xa4, 0x83, 0x02];
        let at = bytes.windows(4).position(|part| part == regular).unwrap();
        bytes[at + 1..at + 4].copy_from_slice(&[0xa4, 0xc3, 0x01]);
    };
    let no_rights: Change = |bytes| {
        // `no_new_privs`, before the ambient rights.
        let at = bytes.windows(5).position(|part| part == [0x90, 1, 1, 0x98, 1]).unwrap();
        bytes[at + 2] = 0;
    };
    let ids = |kind: &str, image: &Image| format!("{kind}-{}.img", image.header.root);
    let changes: [(&str, Change, &str); 4] = [
        ("files", path, "files.img: reg.name is /ssr/"),
        ("ids", namespace, "ns_id differs from the whole image's"),
        ("ghost-file-1", device, "mode is 24996: expected a regular file"),
        ("core", no_rights, "thread_core.creds.no_new_privs is 0: expected 1"),
    ];
    for (kind, change, wanted) in changes {
        let image = lab.image(&guest);
        let numbered = matches!(kind, "ids" | "core");
        let name = if numbered { ids(kind, &image) } else { format!("{kind}.img") };
        let file = format!("/proc/self/fd/{}/{name}", image.memory().as_fd().as_raw_fd());
        let mut bytes = fs::read(&file).unwrap();
        change(&mut bytes);
        fs::write(&file, bytes).unwrap();
        let error = image.adapt(&lab.probe.terms(1)).unwrap_err().to_string();
        assert!(error.starts_with("refused: ") && error.contains(wanted), "{name}: {error}");
    }
}

fn criu_has_no_more_rights_than_the_guest() {
    let Some(mut lab) = lab() else { return };
    let guest = lab.shell(0);
    told(&guest, "x=1");
    let image = lab.image(&guest);
    thaw(&guest);
    let fields = "^(Uid|Gid|Groups|CapPrm|CapEff|NoNewPrivs):";
    lab.replace_criu(&format!("echo $(grep -E '{fields}' /proc/self/status)"));
    let rights = |uid: u32| {
        format!(
            "Uid: {uid} {uid} {uid} {uid} Gid: {uid} {uid} {uid} {uid} Groups: \
             CapPrm: 0000010000000000 CapEff: 0000010000000000 NoNewPrivs: 1"
        )
    };
    let dumping = lab.refused(&guest);
    assert_eq!(dumping, format!("it cannot be written down: {}", rights(71_001)));
    let restoring = lab.try_land(&image, &image.header, 1).unwrap_err().to_string();
    assert!(restoring.ends_with(&rights(71_002)), "{restoring}");
}

/// As somebody could who shares a directory with the guest, while it is on its way.
fn a_link_in_the_place_of_an_open_file_leads_to_nothing_that_a_guest_cannot_open() {
    let Some(lab) = lab() else { return };
    let [file, secret] = ["file", "secret"].map(|name| lab.home.path().join("open").join(name));
    // Like what it is to lead to, but for its owner.
    for path in [&file, &secret] {
        fs::write(path, "nine bytes").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    std::os::unix::fs::chown(&file, Some(71_001), None).unwrap();
    let guest = lab.shell(0);
    told(&guest, &format!("exec 3<{}", file.display()));
    let image = lab.image(&guest);
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(&secret, &file).unwrap();
    let error = lab.try_land(&image, &image.header, 1).unwrap_err().to_string();
    assert!(error.contains("open/file") && error.contains("Permission denied"), "{error}");
}

/// Nothing of what programs are made of is taken for a stranger's. Internet sockets
/// are left out: CRIU 4.1.1 cannot write one down on Linux 6.16 or newer, whose
/// kernel has no `SO_PASSCRED` for them.
const HOLDS_MUCH: &str = "
import mmap, os, select, signal, socket, sys, tempfile, threading, time
work = os.getcwd()
shared = mmap.mmap(-1, 8192); shared[0:5] = b'share'
file = open(work + '/mapped', 'w+b'); file.truncate(4096)
mapped = mmap.mmap(file.fileno(), 4096); mapped[0:3] = b'map'
gone = tempfile.TemporaryFile(dir='/tmp'); gone.write(b'gone'); gone.flush()
read, write = os.pipe(); os.write(write, b'piped')
left, right = socket.socketpair(); left.send(b'paired')
near = socket.socket(socket.AF_UNIX); near.bind('/tmp/near'); near.listen(1)
poll = select.epoll(); poll.register(read, select.EPOLLIN)
memory = os.memfd_create('m'); os.write(memory, b'memory')
counter = os.eventfd(7) if hasattr(os, 'eventfd') else None
os.mkfifo(work + '/fifo'); fifo = os.open(work + '/fifo', os.O_RDWR); os.write(fifo, b'fifo')
status = open('/proc/self/status'); directory = os.open('/usr', os.O_RDONLY)
null = open('/dev/null', 'r+b', buffering=0); passwd = open('/etc/passwd')
import fcntl; fcntl.flock(file, fcntl.LOCK_EX)
signal.setitimer(signal.ITIMER_REAL, 1000)
thread = threading.Thread(target=time.sleep, args=(1000,), daemon=True); thread.start()
child = os.fork()
if child == 0: os._exit(3)
print('holds', flush=True)
for line in sys.stdin:
    shared[0:5], mapped[0:3]
    gone.seek(0); os.lseek(memory, 0, 0)
    said = [bytes(shared[0:5]), bytes(mapped[0:3]), gone.read(), os.read(read, 9),
        right.recv(9), os.read(memory, 9), os.read(fifo, 9)]
    said.append(str(os.waitpid(child, 0)[1] >> 8).encode())
    ready = near.getsockname(), passwd.readline()[:4], thread.is_alive()
    print(b' '.join(said).decode(), *ready, flush=True)
";

fn a_guest_with_all_that_it_may_have_open_goes_on_elsewhere() {
    let Some(lab) = lab() else { return };
    let Some(python) = ["/usr/bin/python3"].into_iter().find(|path| Path::new(path).exists())
    else {
        gleaner_skip::without_lab("no python3");
        return;
    };
    let guest = lab.probe.start(0, &[python, "-c", HOLDS_MUCH]).unwrap();
    assert_eq!(guest.hear().unwrap(), "holds");
    let guest = lab.moved(guest, 1);
    guest.say("and").unwrap();
    let wanted = "share map gone piped paired memory fifo 3 /tmp/near root True";
    assert_eq!(guest.hear().unwrap(), wanted);
}

/// A CRIU that fails before it has a log, as one that has lost its rights.
fn what_criu_prints_is_told() {
    let Some(mut lab) = lab() else { return };
    let guest = lab.shell(0);
    told(&guest, "x=1");
    let image = lab.image(&guest);
    lab.replace_criu("echo no rights");
    thaw(&guest);
    assert!(lab.refused(&guest).ends_with("it cannot be written down: no rights"));
    let error = lab.try_land(&image, &image.header, 1).unwrap_err().to_string();
    assert!(error.ends_with("criu cannot restore it: no rights"), "{error}");
}
