//! Nothing is left from one guest to the next, and none gets further than its
//! place: each of these has been tried by a guest that meant harm.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use gleaner_agent::container::keeper::{GuestLimits, StartGuest};
use gleaner_common::job::{Limits, Outcome};

use crate::Test;
use crate::agent::{Lab, job, script, text};
use crate::machine::{GUEST, KEEPER, Place, is_root};

pub(crate) const TESTS: &[Test] = &[
    ("a_guest_cannot_touch_the_keeper_that_the_next_one_gets", keeper_is_not_theirs),
    ("a_keeper_of_its_guests_own_user_is_used_once", used_once),
    ("queues_and_shared_memory_end_with_their_guest", queues_end),
    ("keys_end_with_their_guest", keys_end),
    ("what_a_guest_changed_of_its_ground_is_laid_anew", ground_is_laid_anew),
    ("a_guest_has_so_many_descriptors_and_no_more", descriptors),
    ("a_guest_that_cannot_move_is_kept_from_ways_out", ways_out),
    ("a_guest_sees_nothing_of_the_owners_files", sees_nothing),
    ("directories_deeper_than_a_stack_harm_nobody", deep_directories),
    ("files_deeper_than_any_path_count_to_the_disk_limit", deep_files_count),
    ("deleted_files_that_are_open_or_mapped_count_to_the_disk_limit", deleted_files_count),
];

/// A place whose guests have a user of their own.
fn place(change: impl FnOnce(&mut gleaner_agent::container::keeper::Sandbox)) -> Option<Place> {
    if !is_root() {
        gleaner_skip::without_lab("guests have a user of their own with root only");
        return None;
    }
    Some(Place::with(change))
}

fn says(place: &mut Place, script: &str) -> String {
    let ended = place.shell(script);
    let (out, err) = (ended.stdout, ended.stderr);
    format!("{}{}", String::from_utf8_lossy(&out), String::from_utf8_lossy(&err))
}

/// What can be changed of a process from outside.
fn settings_of(pid: i32) -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
    let status = read("status");
    let allowed = status.lines().filter(|line| line.starts_with("Cpus_allowed"));
    let stat = read("stat");
    let nice = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(16).unwrap();
    format!("{}{:?}{nice}", read("limits"), allowed.collect::<Vec<_>>())
}

fn keeper_is_not_theirs() {
    let Some(mut place) = place(|_| {}) else { return };
    let keeper = place.keeper().pid().as_raw_nonzero().get();
    let uids = format!("Uid:\t{KEEPER}\t{KEEPER}\t{KEEPER}\t{GUEST}");
    assert!(fs::read_to_string(format!("/proc/{keeper}/status")).unwrap().contains(&uids));
    let before = settings_of(keeper);
    for attempt in [
        "prlimit --pid 1 --nofile=3:3",
        "prlimit --pid 1 --nproc=1:1",
        "prlimit --pid 1 --data=4096:4096",
        "prlimit --pid 1 --fsize=1:1",
        "taskset -p 1 1",
        "ionice -c 3 -p 1",
        "chrt -b -p 0 1",
        "renice -n 19 -p 1",
        // pidfd_open and pidfd_getfd: its descriptors; ptrace attach.
        "perl -e '$p = syscall(434, 1, 0); exit(syscall(438, $p, 3, 0) < 0)'",
        "perl -e 'exit(syscall(101, 16, 1, 0, 0) < 0)'",
        "cat /proc/1/environ",
        "echo 19 > /proc/1/autogroup",
    ] {
        let ended = place.shell(attempt);
        assert_ne!(ended.status, 0, "{attempt}");
        assert!(!ended.last, "{attempt}");
    }
    assert_eq!(settings_of(keeper), before);
    assert_eq!(says(&mut place, "id -u; id -G"), format!("{GUEST}\n{GUEST}\n"));
    let none = "grep -c '^Cap[IPEA].*0000000000000000' /proc/self/status";
    assert_eq!(says(&mut place, none), "4\n", "it has no right of its keeper's");
}

fn used_once() {
    let Some(mut place) = place(|sandbox| sandbox.uid = None) else { return };
    assert!(place.shell("true").last);
}

fn queues_end() {
    let Some(mut place) = place(|_| {}) else { return };
    // mq_open(name, flags, mode, 0): O_CREAT | O_RDWR, or O_RDONLY. Landlock lets
    // nobody open what has been made, but it is there.
    let queue = |flags: &str| {
        format!("perl -e '$n = \"left\"; syscall(240, $n, {flags}, 0666, 0); print $! + 0'")
    };
    let make = "ipcmk -Q -p 666 && ipcmk -S 2 -p 666 && ipcmk -M 1000000 -p 666";
    let make = format!("({make}; {}) > made; cat /proc/sysvipc/* | wc -l", queue("0102"));
    assert_eq!(says(&mut place, &format!("{make}; {}", queue("0"))), "6\n13");
    let look = format!("cat /proc/sysvipc/* | wc -l; {}", queue("0"));
    assert_eq!(says(&mut place, &look), "3\n2", "headlines alone, and ENOENT");
}

fn keys_end() {
    // A guest with a filter can keep none.
    let Some(mut place) = place(|sandbox| sandbox.filter = false) else { return };
    let keep = |ring: i32| {
        format!(
            "perl -e '($t, $n, $v) = (\"user\", \"left\", \"secret\"); \
             exit(syscall(248, $t, $n, $v, 6, {ring}) < 0)'"
        )
    };
    let find = |ring: i32| {
        format!(
            "perl -e '($t, $n) = (\"user\", \"left\"); exit(syscall(250, 10, {ring}, $t, $n, 0) < 0)'"
        )
    };
    // The user's, the user's session's, and the session's.
    for ring in [-4, -5, -3] {
        let both = format!("{} && {}", keep(ring), find(ring));
        let ended = place.shell(&both);
        assert_eq!(ended.status, 0, "ring {ring}: {ended:?}");
        assert_ne!(place.shell(&find(ring)).status, 0, "ring {ring}");
    }
    // The one that outlives its user's processes for days.
    let persistent = "$p = syscall(250, 22, -1, -2);";
    let keep = format!(
        "perl -e '{persistent} ($t, $n, $v) = (\"user\", \"left\", \"x\"); exit(syscall(248, $t, $n, $v, 1, $p) < 0)'"
    );
    let find = format!(
        "perl -e '{persistent} ($t, $n) = (\"user\", \"left\"); exit(syscall(250, 10, $p, $t, $n, 0) < 0)'"
    );
    if place.shell(&keep).status == 0 {
        assert_ne!(place.shell(&find).status, 0);
    }
}

fn ground_is_laid_anew() {
    let Some(mut place) = place(|_| {}) else { return };
    assert!(place.shell("touch x; rm x").clean);
    for (change, of) in [
        ("chmod 777 .", "guest/work"),
        ("chmod 0 .", "guest/work"),
        ("chmod 777 ../../tmp", "tmp"),
        ("chmod 666 /proc/self/fd/1", "stdout"),
    ] {
        assert!(!place.shell(change).clean, "{change}");
        let path = place.directory.join(of);
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(place.shell("true").clean, "after {change}");
    }
}

fn descriptors() {
    let Some(mut place) = place(|_| {}) else { return };
    let limits = GuestLimits { descriptors_max: 4_096, ..GuestLimits::default() };
    let open = "perl -e 'while (open($f[@f], \"<\", \"/dev/null\")) {} print scalar(@f), \"\\n\"'";
    let script = format!("ulimit -n; ulimit -Hn; ulimit -n 4096; {open}; ulimit -Hn 20000");
    let command = ["sh", "-c", &script].map(str::to_owned).to_vec();
    place.start_as(StartGuest { command, limits, ..place.order() });
    let ended = place.ended();
    assert_ne!(ended.status, 0, "it cannot have more");
    let said = String::from_utf8(ended.stdout).unwrap();
    let numbers: Vec<u32> = said.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(numbers[..2], [1_024, 4_096]);
    assert!((4_000..4_096).contains(&numbers[2]), "{said}");
    // The next one has what it is given, not what was left.
    let limits = GuestLimits { descriptors_max: 5_000, ..GuestLimits::default() };
    let command = ["sh", "-c", "ulimit -Hn"].map(str::to_owned).to_vec();
    place.start_as(StartGuest { command, limits, ..place.order() });
    assert_eq!(place.ended().stdout, b"5000\n");
}

/// System calls of this kind of machine, what they are asked, and what is to be
/// answered: EPERM is 1, ENOSYS is 38.
const WAYS_OUT: &[(&str, &str, u32)] = &[
    ("a socket to the hypervisor", "41, 40, 1, 0", 1),
    ("a packet socket", "41, 17, 2, 0", 1),
    ("a socket to kernel ciphers", "41, 38, 5, 0", 1),
    ("netlink that tells of sockets", "41, 16, 3, 4", 1),
    ("a user namespace", "272, 0x10000000", 1),
    ("a user namespace with a mount namespace", "272, 0x10020000", 1),
    ("a child in a user namespace", "56, 0x10000011, 0, 0, 0, 0", 1),
    ("clone3", "435, 0, 0", 38),
    ("io_uring", "425, 8, 0", 38),
    ("a key", "248, 0, 0, 0, 0, -4", 1),
    ("a keyring", "250, 0, -4, 0", 1),
    ("userfaultfd", "323, 0", 1),
    ("bpf", "321, 0, 0, 0", 1),
    ("perf events", "298, 0, 0, -1, -1, 0", 1),
    ("mount", "165, 0, 0, 0, 0, 0", 1),
    ("open_tree", "428, -100, 0, 1", 1),
    ("a call by the numbers of x32", "0x40000027", 38),
];

fn ways_out() {
    if !cfg!(target_arch = "x86_64") {
        gleaner_skip::without_lab("the numbers of system calls are another machine's");
        return;
    }
    let Some(mut place) = place(|_| {}) else { return };
    for (what, call, errno) in WAYS_OUT {
        let attempt = format!("perl -e '$r = syscall({call}); print \"$r \", $! + 0'");
        assert_eq!(says(&mut place, &attempt), format!("-1 {errno}"), "{what}");
    }
    // What honest programs do.
    let honest = "perl -MSocket -e 'socket(A, AF_UNIX, SOCK_STREAM, 0) or die; \
         socket(B, AF_INET, SOCK_STREAM, 0) or die; socketpair(C, D, AF_UNIX, SOCK_STREAM, 0) or die; \
         socket(E, 16, 3, 0) or die; defined(fork) or die; syscall(272, 0x200) and die' \
         && getent hosts localhost > /dev/null && (sleep 0 | cat) && echo well";
    assert_eq!(says(&mut place, honest), "well\n");
}

fn sees_nothing() {
    let Some(mut place) = place(|_| {}) else { return };
    // Open to everybody: nothing but the view stands between a guest and that.
    let owners = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(owners.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (file, socket) = (owners.path().join("file"), owners.path().join("socket"));
    fs::write(&file, "the owner's").unwrap();
    let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    for path in [&file, &socket, &owners.path().to_path_buf(), &place.directory.clone()] {
        let said = says(&mut place, &format!("stat {}", path.display()));
        assert!(said.contains("No such file"), "{said}");
    }
    let connect = format!(
        "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); \
         connect(S, sockaddr_un(\"{}\")) and print \"connected\"; print $! + 0'",
        socket.display()
    );
    assert_eq!(says(&mut place, &connect), "2", "it is not there");
    for path in ["/root", "/home", "/var", "/run", "/boot", "/mnt", "/srv"] {
        assert_ne!(place.shell(&format!("stat {path}")).status, 0, "{path}");
    }
    assert_eq!(says(&mut place, "pwd"), "/place/guest/work\n");
}

/// Makes so many directories, one in the other, with a file of so much in each.
fn nest(depth: u32, bytes: u32) -> String {
    format!(
        "$d = \"d\" x 100; for (1 .. {depth}) {{ mkdir $d; chdir $d; \
         if ({bytes}) {{ open F, \">\", \"f\"; print F \"x\" x {bytes}; close F }} }}"
    )
}

fn deep_directories() {
    let lab = Lab::new();
    let worker = lab.worker();
    for (fence, place) in (1..).zip(["$GLEAN_OUTPUT", ".", "$TMPDIR", "/tmp"]) {
        let mut spec = script(&format!("cd {place} && perl -e '{}'", nest(1_500, 1)));
        spec.collect_output = true;
        lab.offer(fence, spec);
        let finished = lab.finished();
        assert_eq!(finished.outcome, Outcome::Succeeded, "{place}: {}", text(&finished.stderr));
    }
    lab.offer(9, job(&["/bin/true"]));
    assert_eq!(lab.finished().outcome, Outcome::Succeeded);
    assert_eq!(lab.worker(), worker, "nobody died of it");
    let outgoing = lab.config.data.join("outgoing");
    crate::machine::until("what was left is removed", || {
        fs::read_dir(&outgoing).is_ok_and(|entries| entries.count() == 0)
    });
}

fn disk_limit_ends(perl: &str) {
    let lab = Lab::new();
    let mut spec = script(&format!("exec perl -e '{perl}; sleep 1 while 1'"));
    spec.limits = Limits { disk_bytes_max: 8 << 20, ..Limits::default() };
    lab.offer(1, spec);
    assert_eq!(lab.finished().outcome, Outcome::OverLimit("disk: at most 8.0 MiB".into()));
}

fn deep_files_count() {
    // 200 levels of 100 letters are beyond any path.
    disk_limit_ends(&nest(200, 100_000));
}

fn deleted_files_count() {
    if !is_root() {
        gleaner_skip::without_lab("without a control group nobody knows a guest's processes");
        return;
    }
    let open = "for (1 .. 4) { open $f[$_], \"+>\", \"f\"; unlink \"f\"; \
                $h = select($f[$_]); $| = 1; print \"x\" x 3000000; select $h }";
    disk_limit_ends(open);
    // mmap(0, length, PROT_READ, MAP_SHARED, descriptor, 0), then closed.
    let mapped = "for (1 .. 4) { open $f, \"+>\", \"f\"; unlink \"f\"; $h = select($f); $| = 1; \
                  print \"x\" x 3000000; select $h; \
                  syscall(9, 0, 3000000, 1, 1, fileno($f), 0) > 0 or die; close $f }";
    disk_limit_ends(mapped);
}
