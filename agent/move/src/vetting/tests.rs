use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::wire::{Edit, put, rewrite};

type Files = BTreeMap<String, Vec<u8>>;
type Fields<'a> = &'a [(u32, Part<'a>)];

/// A field of a message that is put together.
#[derive(Clone)]
enum Part<'a> {
    Is(u64),
    Text(&'a [u8]),
    Of(Vec<u8>),
}

use Part::{Is, Of, Text};

fn message(parts: Fields<'_>) -> Vec<u8> {
    let mut out = vec![];
    for (number, part) in parts {
        let value = match part {
            Is(number) => Value::Varint(*number),
            Text(bytes) => Value::Bytes(bytes),
            Of(message) => Value::Bytes(message),
        };
        put(&mut out, *number, value);
    }
    out
}

/// Fields of these numbers that say nothing.
fn zeroes(numbers: std::ops::RangeInclusive<u32>) -> Vec<u8> {
    numbers.flat_map(|number| message(&[(number, Is(0))])).collect()
}

fn file(magic: u32, entries: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![];
    if magic != INVENTORY {
        out.extend_from_slice(&COMMON.to_le_bytes());
    }
    out.extend_from_slice(&magic.to_le_bytes());
    for entry in entries {
        out.extend_from_slice(&u32::try_from(entry.len()).unwrap().to_le_bytes());
        out.extend_from_slice(entry);
    }
    out
}

fn magic_of(name: &str) -> u32 {
    kind_of(name).unwrap().magic
}

fn ids() -> Vec<u8> {
    message(&[(1, Is(1)), (2, Is(1)), (3, Is(1)), (4, Is(1)), (5, Is(1)), (6, Is(2)), (9, Is(6))])
}

fn credentials() -> Vec<u8> {
    [zeroes(1..=8), message(&[(9, Is(0)), (12, Is(511)), (13, Is(0)), (18, Is(1)), (19, Is(0))])]
        .concat()
}

fn thread() -> Vec<u8> {
    let stack = message(&[(1, Is(0)), (2, Is(0)), (3, Is(2))]);
    let creds = Of(credentials());
    message(&[(1, Is(9)), (2, Is(24)), (3, Is(38)), (4, Is(5)), (7, Of(stack)), (10, creds)])
}

fn core(is_process: bool) -> Vec<u8> {
    let machine = if cfg!(target_arch = "x86_64") { 1 } else { 3 };
    let limit = message(&[(1, Is(8)), (2, Is(u64::MAX))]);
    let mut task = message(&[(1, Is(1)), (2, Is(0)), (3, Is(0)), (4, Is(0)), (5, Is(0))]);
    task.extend(message(&[(6, Text(b"sh")), (8, Of(message(&vec![(1, Of(limit)); 16])))]));
    let mut core = message(&[(1, Is(machine))]);
    if is_process {
        core.extend(message(&[(3, Of(task))]));
    }
    core.extend(message(&[(5, Of(thread()))]));
    core
}

fn regular(id: u64, flags: u64, path: &str) -> Vec<u8> {
    let nobody = Of(zeroes(1..=5));
    let name = Text(path.as_bytes());
    let reg =
        message(&[(1, Is(id)), (2, Is(flags)), (3, Is(0)), (5, nobody), (6, name), (8, Is(7))]);
    message(&[(1, Is(1)), (2, Is(id)), (3, Of(reg))])
}

fn socket_options() -> Vec<u8> {
    zeroes(1..=6)
}

fn unix(id: u64, name: &[u8]) -> Vec<u8> {
    let (nobody, options) = (Of(zeroes(1..=5)), Of(socket_options()));
    let kept = [(1, Is(id)), (2, Is(5)), (3, Is(1)), (4, Is(10)), (5, Is(2)), (6, Is(0))];
    let mut usk = message(&kept);
    usk.extend(message(&[(7, Is(1)), (8, Is(0)), (9, nobody), (10, options), (11, Text(name))]));
    message(&[(1, Is(5)), (2, Is(id)), (16, Of(usk))])
}

fn inet(id: u64) -> Vec<u8> {
    let kept = [(1, Is(id)), (2, Is(5)), (3, Is(2)), (4, Is(1)), (5, Is(6)), (6, Is(10))];
    let mut isk = message(&kept);
    isk.extend(message(&[(7, Is(80)), (8, Is(0)), (9, Is(2)), (10, Is(1)), (11, Is(0))]));
    isk.extend(message(&[(13, Of(zeroes(1..=5))), (14, Of(socket_options()))]));
    message(&[(1, Is(4)), (2, Is(id)), (4, Of(isk))])
}

fn area(status: u64, id: u64, opened: Option<u64>) -> Vec<u8> {
    let place = [(1, Is(0x1000)), (2, Is(0x2000)), (3, Is(0)), (4, Is(id)), (5, Is(3))];
    let mut area = message(&place);
    area.extend(message(&[(6, Is(2)), (7, Is(status)), (8, Is(1))]));
    if let Some(flags) = opened {
        area.extend(message(&[(10, Is(flags))]));
    }
    area
}

/// Two processes, one of two threads, with what guests have: files of their own
/// and of the machine, a deleted one, a pipe, sockets.
fn honest() -> Files {
    let pipe = message(&[(1, Is(5)), (2, Is(77)), (3, Is(1)), (4, Of(zeroes(1..=5)))]);
    let files = [
        regular(1, 0, "/usr/bin/dash"),
        regular(2, 0o200_000, "/"),
        regular(3, 0o200_000, "/place/guest/work"),
        regular(4, 2, "/place/guest/work/gone"),
        message(&[(1, Is(2)), (2, Is(5)), (18, Of(pipe))]),
        unix(6, b"\0abstract"),
        unix(7, b"/tmp/listener\0"),
        inet(8),
        regular(9, 2, "/shared/data"),
    ];
    let descriptor = |id, kind, fd| message(&[(1, Is(id)), (2, Is(0)), (3, Is(kind)), (4, Is(fd))]);
    let process = |pid, parent, threads: &[u64]| {
        let mut process = message(&[(1, Is(pid)), (2, Is(parent)), (3, Is(2)), (4, Is(2))]);
        for tid in threads {
            process.extend(message(&[(5, Is(*tid))]));
        }
        process
    };
    let mut memory = zeroes(1..=11);
    memory.extend(message(&[(12, Is(1)), (14, Of(area(0x41, 1, Some(0))))]));
    memory.extend(message(&[(14, Of(area(0x81, 9, Some(2)))), (14, Of(area(0x201, 0, None)))]));
    let ghost = message(&[(1, Is(5)), (2, Is(5)), (3, Is(0o100_600)), (10, Is(4))]);
    let root_ids = Of(ids());
    let inventory = message(&[(1, Is(2)), (2, Is(1)), (3, root_ids), (4, Is(1)), (6, Is(0))]);
    let map = message(&[(1, Is(0x1000)), (2, Is(1)), (4, Is(6))]);
    let queued = message(&[(1, Is(6)), (2, Is(3))]);
    let mut all = Files::new();
    let mut add = |name: &str, entries: &[Vec<u8>]| {
        all.insert(name.to_owned(), file(magic_of(name), entries));
    };
    add("inventory.img", &[inventory]);
    add("pstree.img", &[process(2, 0, &[2, 4]), process(3, 2, &[3])]);
    add("files.img", &files);
    add("seccomp.img", &[vec![]]);
    add("remap-fpath.img", &[message(&[(1, Is(4)), (2, Is(1)), (3, Is(1))])]);
    add("pagemap-2.img", &[message(&[(1, Is(1))]), map]);
    for pid in [2, 3] {
        add(&format!("core-{pid}.img"), &[core(true)]);
        add(&format!("ids-{pid}.img"), &[ids()]);
        add(&format!("mm-{pid}.img"), std::slice::from_ref(&memory));
        add(&format!("fs-{pid}.img"), &[message(&[(1, Is(3)), (2, Is(2)), (3, Is(0o22))])]);
        add(&format!("fdinfo-{pid}.img"), &[descriptor(5, 2, 0), descriptor(9, 1, 3)]);
    }
    add("core-4.img", &[core(false)]);
    add("ghost-file-1.img", &[ghost]);
    add("sk-queues.img", &[queued]);
    all.get_mut("ghost-file-1.img").unwrap().extend_from_slice(b"gone");
    all.get_mut("sk-queues.img").unwrap().extend_from_slice(b"abc");
    all
}

#[test]
fn what_a_process_was_called_by_is_not_asked_once_it_has_ended() {
    const GARBAGE: u64 = 2_436_317_680;
    let mut files = honest();
    let child = message(&[(1, Is(3)), (2, Is(2)), (3, Is(2)), (4, Is(2)), (5, Is(GARBAGE))]);
    let first = message(&[(1, Is(2)), (2, Is(0)), (3, Is(2)), (4, Is(2)), (5, Is(2)), (5, Is(4))]);
    let tree = |child: &[u8]| file(magic_of("pstree.img"), &[first.clone(), child.to_vec()]);
    files.insert("pstree.img".to_owned(), tree(&child));
    let refused = "pstree.img: threads is 2436317680: expected at most 4194304";
    assert_eq!(judged(&files), Err(refused.to_owned()), "it runs");
    let ended = edit(&core(true), &[3, 1], &|_| Edit::Varint(2));
    files.insert("core-3.img".to_owned(), file(magic_of("core-3.img"), &[ended]));
    assert_eq!(judged(&files), Ok(()));
    let two = [child, message(&[(5, Is(4))])].concat();
    files.insert("pstree.img".to_owned(), tree(&two));
    assert!(judged(&files).is_err(), "of an ended process there is one");
}

fn reach() -> Reach {
    Reach { readable: vec!["/usr".into(), "/etc".into()], writable: vec!["/shared".into()] }
}

fn judged(files: &Files) -> Result<(), String> {
    let names: Vec<String> = files.keys().cloned().collect();
    names.iter().try_for_each(|name| vet_name(name)).map_err(|refusal| refusal.to_string())?;
    let claims = Claims { root: 2, reach: &reach() };
    vet(&names, &mut |name| Ok(files[name].clone()), claims).map_err(|error| error.to_string())
}

/// Changes a field of an entry's, which the numbers lead to; `None` takes it away.
/// Of several, the first; none is added.
fn edit(message: &[u8], path: &[u32], to: &dyn Fn(Value<'_>) -> Edit) -> Vec<u8> {
    let mut done = false;
    rewrite(message, &mut |number, value| {
        if done || number != path[0] {
            return Ok(Edit::Keep);
        }
        done = true;
        Ok(match (path.len(), value) {
            (1, value) => to(value),
            (_, Value::Bytes(inner)) => Edit::Bytes(edit(inner, &path[1..], to)),
            (_, Value::Varint(_) | Value::Fixed(_)) => panic!("no message"),
        })
    })
    .unwrap()
}

/// Changes one entry of a file.
fn change(files: &mut Files, name: &str, at: usize, how: &dyn Fn(&[u8]) -> Vec<u8>) {
    let magic = magic_of(name);
    let begin = if magic == INVENTORY { 4 } else { 8 };
    let (mut entries, mut rest) = (vec![], &files[name][begin..]);
    while entries.len() <= at {
        let (entry, after) = take_entry(rest).unwrap();
        entries.push(entry.to_vec());
        rest = after;
    }
    entries[at] = how(&entries[at]);
    let changed = [file(magic, &entries), rest.to_vec()].concat();
    files.insert(name.to_owned(), changed);
}

/// What is said of the honest image when one field has another number.
fn with_number(name: &str, at: usize, path: &[u32], number: u64) -> String {
    let mut files = honest();
    let to = |_: Value<'_>| Edit::Varint(number);
    change(&mut files, name, at, &|entry| edit(entry, path, &to));
    said(&files)
}

fn with_text(name: &str, at: usize, path: &[u32], text: &str) -> String {
    let mut files = honest();
    let to = |_: Value<'_>| Edit::Bytes(text.as_bytes().to_vec());
    change(&mut files, name, at, &|entry| edit(entry, path, &to));
    said(&files)
}

/// With one more field in the message that the path leads to, or in the entry.
fn with_more(name: &str, at: usize, path: &[u32], more: Fields<'_>) -> String {
    let mut files = honest();
    let more = message(more);
    let append = |old: &[u8]| [old, &more].concat();
    change(&mut files, name, at, &|entry| match path {
        [] => append(entry),
        path => edit(entry, path, &|value| match value {
            Value::Bytes(old) => Edit::Bytes(append(old)),
            Value::Varint(_) | Value::Fixed(_) => panic!("no message"),
        }),
    });
    said(&files)
}

fn without(name: &str, at: usize, path: &[u32]) -> String {
    let mut files = honest();
    change(&mut files, name, at, &|entry| edit(entry, path, &|_| Edit::Drop));
    said(&files)
}

/// With one more entry at the end of a file, or in a new one.
fn with_entry(name: &str, entry: Vec<u8>) -> String {
    let mut files = honest();
    let there = files.entry(name.to_owned()).or_insert_with(|| file(magic_of(name), &[]));
    let more = file(0, &[entry]);
    there.extend_from_slice(&more[8..]);
    said(&files)
}

fn with_file(name: &str) -> String {
    let mut files = honest();
    files.insert(name.to_owned(), vec![]);
    said(&files)
}

fn said(files: &Files) -> String {
    judged(files).err().unwrap_or_else(|| "taken".to_owned())
}

#[test]
fn a_guests_own_image_is_taken() {
    judged(&honest()).unwrap();
}

const THREAD: u32 = 5;
const CREDENTIALS: u32 = 10;

/// A stranger's images, and what is said of each.
#[test]
#[expect(clippy::too_many_lines, reason = "a table: an attack on each line")]
fn hostile_images_are_refused_and_the_field_is_named() {
    let open = |path: &str| with_text("files.img", 3, &[3, 6], path);
    let out =
        |path: &str| format!("files.img: reg.name is {path}, which a guest may not have open");
    let refusals = [
        // Credentials where CRIU looks for them where they are missing.
        (
            without("core-2.img", 0, &[THREAD, CREDENTIALS]),
            "core-2.img: thread_core.creds is missing",
        ),
        (without("core-4.img", 0, &[THREAD]), "core-4.img: thread_core is missing"),
        (without("core-3.img", 0, &[3]), "core-3.img: tc is missing"),
        (with_file("creds-2.img"), "creds-2.img is in no guest's image"),
        // Limits, which are lowered where they are.
        (without("core-2.img", 0, &[3, 8]), "core-2.img: tc.rlimits is missing"),
        (without("core-2.img", 0, &[3, 8, 1]), "core-2.img: tc.rlimits.rlimits is missing"),
        (
            with_more("core-2.img", 0, &[THREAD], &[(10, Of(credentials()))]),
            "core-2.img: thread_core.creds is there more than 1 times",
        ),
        // Rights, and what keeps them.
        (
            with_number("core-2.img", 0, &[THREAD, CREDENTIALS, 13], 16),
            "core-2.img: thread_core.creds.secbits is 16: expected 0",
        ),
        (
            with_number("core-2.img", 0, &[THREAD, CREDENTIALS, 18], 0),
            "core-2.img: thread_core.creds.no_new_privs is 0: expected 1",
        ),
        (
            without("core-2.img", 0, &[THREAD, CREDENTIALS, 18]),
            "core-2.img: thread_core.creds.no_new_privs is missing",
        ),
        (
            with_number("core-2.img", 0, &[THREAD, CREDENTIALS, 19], 1 << 21),
            "core-2.img: thread_core.creds.cap_amb is 2097152: expected 0",
        ),
        (
            with_more("core-2.img", 0, &[THREAD, CREDENTIALS], &[(15, Text(b"unconfined"))]),
            "core-2.img: thread_core.creds.field 15 is in no guest's image",
        ),
        (with_file("apparmor.img"), "apparmor.img is in no guest's image"),
        (
            with_more("core-2.img", 0, &[THREAD], &[(11, Is(2))]),
            "core-2.img: thread_core.seccomp_mode is 2: expected 0",
        ),
        (
            with_more("core-2.img", 0, &[3], &[(11, Is(2))]),
            "core-2.img: tc.field 11 is in no guest's image",
        ),
        (
            with_entry("seccomp.img", message(&[(1, Of(message(&[(1, Text(b"x"))])))])),
            "seccomp.img is there more than 1 times",
        ),
        // Ahead of the owner.
        (
            with_number("core-2.img", 0, &[THREAD, 4], 1),
            "core-2.img: thread_core.sched_policy is 1: expected 0 or 3 or 5",
        ),
        (
            with_more("core-2.img", 0, &[THREAD], &[(5, Is(99))]),
            "core-2.img: thread_core.sched_prio is 99: expected 0",
        ),
        // Namespaces, control groups.
        (
            with_number("ids-3.img", 0, &[9], 7),
            "ids-3.img: ns_id differs from the whole image's: a namespace of its own",
        ),
        (
            with_number("inventory.img", 0, &[3, 6], 9),
            "ids-2.img: ns_id differs from the whole image's: a namespace of its own",
        ),
        (with_file("userns-10.img"), "userns-10.img is in no guest's image"),
        (with_file("mountpoints-6.img"), "mountpoints-6.img is in no guest's image"),
        (with_file("netns-2.img"), "netns-2.img is in no guest's image"),
        (with_file("iptables-2.img"), "iptables-2.img is in no guest's image"),
        (with_file("cgroup.img"), "cgroup.img is in no guest's image"),
        (with_file("tmpfs-dev-6.tar.gz.img"), "tmpfs-dev-6.tar.gz.img is in no guest's image"),
        // Older forms, which say the same elsewhere.
        (with_file("reg-files.img"), "reg-files.img is in no guest's image"),
        (with_file("vmas-2.img"), "vmas-2.img is in no guest's image"),
        (with_file("rlimit-2.img"), "rlimit-2.img is in no guest's image"),
        (with_file("signal-p-2.img"), "signal-p-2.img is in no guest's image"),
        (with_file("core-02.img"), "core-02.img is in no guest's image"),
        (with_file("ghost-file-0A.img"), "ghost-file-0A.img is in no guest's image"),
        (with_file("criu.kdat"), "criu.kdat is in no guest's image"),
        (with_number("inventory.img", 0, &[1], 1), "inventory.img: img_version is 1: expected 2"),
        // Paths that CRIU would open for it.
        (open("/proc/1/mem"), &out("/proc/1/mem")),
        (open("/root/.ssh/id_ed25519"), &out("/root/.ssh/id_ed25519")),
        (open("/place/../var/lib/x"), &out("/place/../var/lib/x")),
        (open("/dev/sda"), &out("/dev/sda")),
        (open("/sys/kernel/x"), &out("/sys/kernel/x")),
        (open("etc/shadow"), &out("etc/shadow")),
        (open("/etc/passwd"), "files.img: reg.name is /etc/passwd, which a guest may not write to"),
        (
            with_number("files.img", 3, &[3, 2], 0o1_001),
            "files.img: reg.flags is 513: expected no bits but 0x7ffc03",
        ),
        (with_more("files.img", 3, &[3], &[(9, Is(1))]), "files.img: reg.ext is 1: expected 0"),
        (with_number("files.img", 0, &[3, 5, 5], 1), "files.img: reg.fown.pid is 1: expected 0"),
        (
            with_number("mm-2.img", 0, &[14, 10], 2),
            "mm-2.img: vmas.shmid is /usr/bin/dash, which a guest may not write to",
        ),
        (
            with_number("mm-2.img", 0, &[12], 99),
            "mm-2.img: exe_file_id names 99, which is not in the image",
        ),
        (
            with_number("mm-2.img", 0, &[12], 5),
            "mm-2.img: exe_file_id names 5, which is not in the image",
        ),
        (with_number("mm-2.img", 0, &[14, 8], 8), "mm-2.img: vmas.fd is 8: expected 1"),
        (
            with_number("mm-2.img", 0, &[14, 7], 0x841),
            "mm-2.img: vmas.status is 2113: expected no bits but 0xf3ef",
        ),
        (
            with_number("fs-2.img", 0, &[2], 3),
            "fs-2.img: root_id is /place/guest/work, which a guest may not have as its root",
        ),
        // Deleted files: a device, one whose user is another, one elsewhere.
        (
            with_number("ghost-file-1.img", 0, &[3], 0o60_666),
            "ghost-file-1.img: mode is 25014: expected a regular file, a directory or a named pipe",
        ),
        (
            with_number("ghost-file-1.img", 0, &[3], 0o104_755),
            "ghost-file-1.img: mode is 35309: expected a regular file, a directory or a named pipe",
        ),
        (
            with_more("ghost-file-1.img", 0, &[], &[(6, Is(0x801))]),
            "ghost-file-1.img: field 6 is in no guest's image",
        ),
        (
            with_number("remap-fpath.img", 0, &[1], 1),
            "remap-fpath.img: orig_id is /usr/bin/dash, which a guest may not have deleted",
        ),
        (
            with_number("remap-fpath.img", 0, &[3], 0),
            "remap-fpath.img: remap_type is 0: expected 1",
        ),
        // Descriptors of other kinds.
        (
            with_entry("files.img", message(&[(1, Is(10)), (2, Is(30))])),
            "files.img: type is 10: expected 1 or 2 or 3 or 4 or 5 or 6 or 7 or 9 or 17 or 18 or 20",
        ),
        (
            with_entry("files.img", message(&[(1, Is(1)), (2, Is(30)), (11, Text(b""))])),
            "files.img: field 11 is in no guest's image",
        ),
        (with_number("files.img", 4, &[1], 1), "files.img: type is not what CRIU writes"),
        (
            with_number("fdinfo-2.img", 0, &[3], 1),
            "fdinfo-2.img: id names 5, which is not in the image",
        ),
        (with_number("files.img", 7, &[4, 4], 3), "files.img: isk.type is 3: expected 1 or 2"),
        (with_number("files.img", 7, &[4, 8], 80), "files.img: isk.dst_port is 80: expected 0"),
        (
            with_more("files.img", 7, &[4, 14], &[(10, Is(1))]),
            "files.img: isk.opts.so_mark is 1: expected 0",
        ),
        (
            with_number("files.img", 7, &[4, 14, 1], 1 << 31),
            "files.img: isk.opts.so_sndbuf is 2147483648: expected at most 67108864",
        ),
        (with_number("files.img", 5, &[16, 6], 1), "files.img: usk.uflags is 1: expected 0"),
        (
            with_text("files.img", 6, &[16, 11], "/run/dbus/system_bus_socket"),
            "files.img: usk.name is /run/dbus/system_bus_socket, which a guest may not listen at",
        ),
        (with_file("tcp-stream-5.img"), "tcp-stream-5.img is in no guest's image"),
        (with_file("tunfile.img"), "tunfile.img is in no guest's image"),
        (with_file("bpfmap-file.img"), "bpfmap-file.img is in no guest's image"),
        (with_file("tty.img"), "tty.img is in no guest's image"),
        // A tree that is none of the guest's.
        (
            with_number("pstree.img", 1, &[1], 1),
            "pstree.img: pid is 1: expected a process of the guest's",
        ),
        (
            with_number("pstree.img", 1, &[2], 9),
            "pstree.img: ppid names 9, which is not in the image",
        ),
        (with_number("pstree.img", 1, &[1], 2), "pstree.img: pid is there more than 1 times"),
        (with_number("pstree.img", 1, &[1], 9), "core-9.img: thread_core is missing"),
        (
            with_entry("pagemap-2.img", message(&[(1, Is(0)), (2, Is(1)), (3, Is(1))])),
            "pagemap-2.img: field 3 is in no guest's image",
        ),
        (
            with_number("core-2.img", 0, &[1], 2),
            if cfg!(target_arch = "x86_64") {
                "core-2.img: mtype is 2: expected 1"
            } else {
                "core-2.img: mtype is 2: expected 3"
            },
        ),
    ];
    for (number, (said, wanted)) in refusals.iter().enumerate() {
        assert_eq!(said, wanted, "image {number}");
    }
}

#[test]
fn another_files_head_is_refused() {
    let mut files = honest();
    let core = files["core-2.img"].clone();
    files.insert("mm-2.img".into(), core);
    assert_eq!(said(&files), "mm-2.img is not what CRIU writes");
    let mut files = honest();
    files.get_mut("sk-queues.img").unwrap().truncate(18);
    assert_eq!(said(&files), "sk-queues.img is not what CRIU writes");
}

proptest! {
    /// Whatever the bytes are, there is an answer: nothing panics, and what is
    /// looked at costs no more than a small multiple of its length.
    #[test]
    fn changed_bytes_have_an_answer(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let mut files = honest();
        let name = which.get(&files.keys().cloned().collect::<Vec<_>>()).clone();
        let bytes = files.get_mut(&name).unwrap();
        for (at, byte) in &changes {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Err(said) = judged(&files) {
            prop_assert!(said.len() < 10_000 && !said.contains('\n'), "{said}");
        }
    }

    #[test]
    fn any_bytes_have_an_answer(name in 0..KINDS.len(), bytes: Vec<u8>) {
        let kind = &KINDS[name];
        let number = if kind.numbers == Numbers::None { "" } else { "7" };
        let name = format!("{}{number}.img", kind.name);
        let mut files = honest();
        let head = if kind.magic == INVENTORY { vec![] } else { COMMON.to_le_bytes().to_vec() };
        files.insert(name, [head, kind.magic.to_le_bytes().to_vec(), bytes].concat());
        let _ = judged(&files);
    }
}
