//! What the files of an image say together: who is there, what each of them has
//! open, and where that lies.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use std::os::unix::ffi::OsStrExt as _;

use super::messages::{FIFO, MEMFD, NAMESPACES, PID_MAX, PIDFD, REG, UNIX, member_of};
use super::reach::{Reach, is_own, is_plain};
use super::rules::{Fault, Wrong};
use super::{Claims, Refusal};
use crate::image::number_in;
use crate::wire::{Value, fields};

/// A task that has ended and waits for its parent to look.
const ENDED: u64 = 2;

/// Of an area: a file is mapped there, to be shared.
const OF_A_FILE: u64 = 1 << 6 | 1 << 7;
const SHARED: u64 = 1 << 7;
const OF_A_MEMFD: u64 = 1 << 14;
const WRITE: u64 = 2;

/// The kind of a file, and its right to be executed and written by whom, of a
/// mode.
const KIND: u64 = 0o170_000;
const DIRECTORY: u64 = 0o040_000;
const REGULAR: u64 = 0o100_000;
const NAMED_PIPE: u64 = 0o010_000;
const PLAIN_MODE: u64 = 0o1_777;

/// A checked message.
struct Entry<'a>(Vec<(u32, Value<'a>)>);

impl<'a> Entry<'a> {
    fn read(message: &'a [u8]) -> Result<Self, Fault> {
        fields(message).map(Self).map_err(|wrong| (vec![], wrong.into()))
    }

    fn numbers(&self, wanted: u32) -> impl Iterator<Item = u64> {
        self.0.iter().filter_map(move |field| match field {
            (number, Value::Varint(value)) if *number == wanted => Some(*value),
            _ => None,
        })
    }

    fn number(&self, wanted: u32) -> Option<u64> {
        self.numbers(wanted).next()
    }

    /// One that must be there: 0 where it is not, which the rules have refused.
    fn given(&self, wanted: u32) -> u64 {
        self.number(wanted).unwrap_or(0)
    }

    fn process(&self, wanted: u32) -> i32 {
        i32::try_from(self.given(wanted)).unwrap_or(0)
    }

    fn all(&self, wanted: u32) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter_map(move |field| match field {
            (number, Value::Bytes(bytes)) if *number == wanted => Some(*bytes),
            _ => None,
        })
    }

    fn bytes(&self, wanted: u32) -> Option<&'a [u8]> {
        self.all(wanted).next()
    }

    fn message(&self, wanted: u32) -> Result<Option<Self>, Fault> {
        self.bytes(wanted).map(Self::read).transpose()
    }
}

/// A process and its threads. One that has ended is all that is left of it: what
/// its only thread was called is not said, and on the way back not asked.
fn tasks_of(pid: i32, threads: &[u64], has_ended: bool) -> Result<Vec<i32>, Refusal> {
    let refusal = |wrong| Refusal::of("pstree.img", "threads", wrong);
    if has_ended {
        return if threads.len() > 1 { Err(refusal(Wrong::TooMany(1))) } else { Ok(vec![pid]) };
    }
    let number = |tid: &u64| {
        let expected = || format!("at most {PID_MAX}");
        let wrong = || refusal(Wrong::Number { found: *tid, expected: expected() });
        i32::try_from(*tid).ok().filter(|_| *tid <= PID_MAX).ok_or_else(wrong)
    };
    threads.iter().map(number).chain([Ok(pid)]).collect()
}

fn fault(field: &str, wrong: Wrong) -> Fault {
    (field.split('.').map(str::to_owned).collect(), wrong)
}

/// A process, as the tree says.
#[derive(Debug)]
struct Process {
    parent: i32,
    threads: Vec<u64>,
}

/// What there is of a task.
#[derive(Clone, Copy, Debug, Default)]
struct Core {
    is_process: bool,
    has_ended: bool,
    is_thread: bool,
}

/// An open file.
#[derive(Debug)]
struct Open {
    kind: u64,
    /// A path, or a Unix socket's address.
    name: Vec<u8>,
    writes: bool,
    /// Of a named pipe: the file behind it.
    behind: Option<u64>,
    /// Of a descriptor of a process.
    process: Option<u64>,
}

/// How a file is used: its number, its type if that is said, whether it is
/// written to.
type Use = (u64, Option<u64>, bool);

#[derive(Debug, Default)]
pub(super) struct Whole {
    tree: BTreeMap<i32, Process>,
    cores: BTreeMap<i32, Core>,
    /// Of all, and of each.
    namespaces: Vec<Option<u64>>,
    own_namespaces: Vec<(String, Vec<Option<u64>>)>,
    files: BTreeMap<u64, Open>,
    /// Where it is used first.
    uses: BTreeMap<Use, (String, &'static str)>,
    /// Which file is a root directory.
    roots: BTreeMap<u64, String>,
    /// Files whose content comes along.
    deleted: BTreeSet<u64>,
}

impl Whole {
    /// Notes what an entry of a file of some kind says, which follows its rules.
    pub(super) fn take(&mut self, kind: &str, file: &str, message: &[u8]) -> Result<(), Fault> {
        let entry = Entry::read(message)?;
        match kind {
            "inventory" => {
                let ids = entry.message(3)?;
                self.namespaces = ids.as_ref().map(namespaces).unwrap_or_default();
            }
            "pstree" => self.process(&entry)?,
            "core-" => self.core(number_in(file, kind).unwrap_or(0), &entry)?,
            "ids-" => self.own_namespaces.push((file.to_owned(), namespaces(&entry))),
            "mm-" => self.memory(file, &entry)?,
            "fdinfo-" => self.used(file, "id", (entry.given(1), entry.number(3), false)),
            "fs-" => {
                self.used(file, "cwd_id", (entry.given(1), Some(REG), false));
                self.used(file, "root_id", (entry.given(2), Some(REG), false));
                self.roots.entry(entry.given(2)).or_insert_with(|| file.to_owned());
            }
            "files" => self.file(&entry)?,
            "remap-fpath" => {
                self.used(file, "orig_id", (entry.given(1), Some(REG), false));
                self.deleted.insert(entry.given(1));
            }
            "ghost-file-" => ghost(&entry)?,
            _ => {}
        }
        Ok(())
    }

    fn used(&mut self, file: &str, field: &'static str, of: Use) {
        self.uses.entry(of).or_insert_with(|| (file.to_owned(), field));
    }

    fn process(&mut self, entry: &Entry<'_>) -> Result<(), Fault> {
        let pid = entry.process(1);
        let threads = entry.numbers(5).collect();
        if pid <= 1 {
            let expected = "a process of the guest's".to_owned();
            return Err(fault("pid", Wrong::Number { found: entry.given(1), expected }));
        }
        let process = Process { parent: entry.process(2), threads };
        let twice = self.tree.insert(pid, process).is_some();
        if twice { Err(fault("pid", Wrong::TooMany(1))) } else { Ok(()) }
    }

    fn core(&mut self, task: i32, entry: &Entry<'_>) -> Result<(), Fault> {
        let process = entry.message(3)?;
        let has_ended = process.as_ref().is_some_and(|process| process.given(1) == ENDED);
        // Else it would keep those of its keeper, who has none of a guest's.
        if process.as_ref().is_some_and(|process| !has_ended && process.bytes(8).is_none()) {
            return Err(fault("tc.rlimits", Wrong::Missing));
        }
        self.cores.insert(
            task,
            Core { is_process: process.is_some(), has_ended, is_thread: entry.bytes(5).is_some() },
        );
        Ok(())
    }

    fn memory(&mut self, file: &str, entry: &Entry<'_>) -> Result<(), Fault> {
        self.used(file, "exe_file_id", (entry.given(12), Some(REG), false));
        for area in entry.all(14) {
            let area = Entry::read(area)?;
            let status = area.given(7);
            if status & OF_A_FILE == 0 {
                continue;
            }
            let shares = status & SHARED != 0 && area.given(5) & WRITE != 0;
            let writes = area.number(10).map_or(shares, writes);
            let kind = if status & OF_A_MEMFD == 0 { REG } else { MEMFD };
            self.used(file, "vmas.shmid", (area.given(4), Some(kind), writes && kind == REG));
        }
        Ok(())
    }

    fn file(&mut self, entry: &Entry<'_>) -> Result<(), Fault> {
        let (kind, id) = (entry.given(1), entry.given(2));
        let is_message = |field: &&(u32, Value<'_>)| matches!(field.1, Value::Bytes(_));
        let members: Vec<u32> =
            entry.0.iter().filter(is_message).map(|(number, _)| *number).collect();
        let member = member_of(kind).filter(|member| members == [*member]);
        let Some(member) = member else { return Err(fault("type", Wrong::Malformed)) };
        let of = Entry(entry.message(member)?.map(|of| of.0).unwrap_or_default());
        if of.given(1) != id {
            return Err(fault("id", Wrong::Dangling(id)));
        }
        let name = match kind {
            REG => of.bytes(6),
            UNIX => of.bytes(11),
            _ => None,
        };
        let open = Open {
            kind,
            name: name.unwrap_or_default().to_vec(),
            writes: kind == REG && writes(of.given(2)),
            behind: if kind == FIFO { of.number(3) } else { None },
            process: if kind == PIDFD { of.number(4) } else { None },
        };
        let twice = self.files.insert(id, open).is_some();
        if twice { Err(fault("id", Wrong::TooMany(1))) } else { Ok(()) }
    }

    /// Does it all fit together, and lie within reach?
    pub(super) fn judge(&self, claims: Claims<'_>) -> Result<(), Refusal> {
        self.judge_tree(claims.root)?;
        let other = self.own_namespaces.iter().find(|(_, own)| *own != self.namespaces);
        if let Some((file, _)) = other {
            return Err(Refusal::of(file, "ns_id", Wrong::Namespace));
        }
        self.judge_files(claims.reach)?;
        self.judge_uses(claims.reach)
    }

    /// Whoever runs has credentials of its own: where they were missing, CRIU
    /// would look elsewhere.
    fn judge_tree(&self, root: i32) -> Result<(), Refusal> {
        let dangling = |field: &str, pid: i32| {
            Refusal::of("pstree.img", field, Wrong::Dangling(u64::try_from(pid).unwrap_or(0)))
        };
        if !self.tree.contains_key(&root) {
            return Err(dangling("pid", root));
        }
        let mut tasks = BTreeSet::new();
        for (pid, Process { parent, threads }) in &self.tree {
            if *pid != root && !self.tree.contains_key(parent) {
                return Err(dangling("ppid", *parent));
            }
            let has_ended = self.cores.get(pid).is_some_and(|core| core.has_ended);
            for task in tasks_of(*pid, threads, has_ended)? {
                let core = self.cores.get(&task).copied().unwrap_or_default();
                if (task == *pid && !core.is_process) || !(core.is_thread || has_ended) {
                    let name = format!("core-{task}.img");
                    let what = if core.is_thread { "tc" } else { "thread_core" };
                    return Err(Refusal::of(&name, what, Wrong::Missing));
                }
                tasks.insert(task);
            }
        }
        match self.cores.keys().find(|task| !tasks.contains(task)) {
            Some(task) => Err(Refusal::of(&format!("core-{task}.img"), "", Wrong::Foreign)),
            None => Ok(()),
        }
    }

    fn judge_files(&self, reach: &Reach) -> Result<(), Refusal> {
        let processes: BTreeSet<i32> = self.tree.keys().copied().collect();
        let refusal = |field: &str, wrong| Refusal::of("files.img", field, wrong);
        for file in self.files.values() {
            if file.kind == REG {
                let permitted = reach.permits(&file.name, file.writes, &processes);
                permitted.map_err(|wrong| refusal("reg.name", wrong))?;
            }
            if file.kind == UNIX && !is_own_address(&file.name) {
                let path = file.name.escape_ascii().to_string();
                return Err(refusal("usk.name", Wrong::OutOfReach { path, act: "listen at" }));
            }
            if let Some(behind) = file.behind
                && self.files.get(&behind).is_none_or(|behind| behind.kind != REG)
            {
                return Err(refusal("fifo.regf_id", Wrong::Dangling(behind)));
            }
            let is_its = |pid: u64| {
                i32::try_from(pid.cast_signed())
                    .is_ok_and(|pid| pid == -1 || processes.contains(&pid))
            };
            if let Some(pid) = file.process.filter(|pid| !is_its(*pid)) {
                return Err(refusal("pidfd.nspid", Wrong::Dangling(pid)));
            }
        }
        Ok(())
    }

    fn judge_uses(&self, reach: &Reach) -> Result<(), Refusal> {
        let processes: BTreeSet<i32> = self.tree.keys().copied().collect();
        for ((id, kind, writes), (at, field)) in &self.uses {
            let open = self.files.get(id).filter(|open| kind.is_none_or(|kind| open.kind == kind));
            let Some(open) = open else {
                return Err(Refusal::of(at, *field, Wrong::Dangling(*id)));
            };
            if *writes {
                let permitted = reach.permits(&open.name, true, &processes);
                permitted.map_err(|wrong| Refusal::of(at, *field, wrong))?;
            }
        }
        let path =
            |id: &u64| self.files.get(id).map(|open| open.name.as_slice()).unwrap_or_default();
        let told = |name: &[u8]| name.escape_ascii().to_string();
        if let Some((id, at)) = self.roots.iter().find(|(id, _)| path(id) != b"/") {
            let wrong = Wrong::OutOfReach { path: told(path(id)), act: "have as its root" };
            return Err(Refusal::of(at, "root_id", wrong));
        }
        let is_anywhere =
            |id: &&u64| !reach.is_written(Path::new(std::ffi::OsStr::from_bytes(path(id))));
        if let Some(id) = self.deleted.iter().find(is_anywhere) {
            let wrong = Wrong::OutOfReach { path: told(path(id)), act: "have deleted" };
            return Err(Refusal::of("remap-fpath.img", "orig_id", wrong));
        }
        Ok(())
    }
}

fn namespaces(ids: &Entry<'_>) -> Vec<Option<u64>> {
    NAMESPACES.map(|number| ids.number(number)).collect()
}

fn writes(flags: u64) -> bool {
    flags & 3 != 0
}

/// A deleted file is made anew: no device is, and nothing that makes its user
/// another.
fn ghost(entry: &Entry<'_>) -> Result<(), Fault> {
    let mode = entry.given(3);
    let is_plain = [DIRECTORY, REGULAR, NAMED_PIPE].contains(&(mode & KIND))
        && mode & !(KIND | PLAIN_MODE) == 0;
    let expected = "a regular file, a directory or a named pipe".to_owned();
    let wrong = Wrong::Number { found: mode, expected };
    if is_plain { Ok(()) } else { Err(fault("mode", wrong)) }
}

/// None, one that is no path, or a path of the guest's own.
fn is_own_address(name: &[u8]) -> bool {
    let path = name.strip_suffix(b"\0").unwrap_or(name);
    name.first().is_none_or(|first| *first == 0)
        || is_plain(path) && is_own(Path::new(std::ffi::OsStr::from_bytes(path)))
}
