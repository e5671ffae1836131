//! Jumps of one process's wall clock, while all others of the machine keep theirs.
//!
//! The kernel has one wall clock for all. But whoever asks for the time asks code that
//! the kernel maps into each process (the vDSO), and a process's copy of it can be
//! written by who may debug it: there stands a call of the kernel then, and an addition.
//! Fault injectors for clusters do the same.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// `clock_gettime` by the kernel; to the wall clock's answer what stands behind the
/// code is added, in seconds.
#[rustfmt::skip]
const CODE: [u8; 32] = [
    0xb8, 0xe4, 0x00, 0x00, 0x00,             // mov eax, 228
    0x0f, 0x05,                               // syscall
    0x85, 0xc0,                               // test eax, eax
    0x75, 0x10,                               // jne the end
    0x85, 0xff,                               // test edi, edi: CLOCK_REALTIME is 0
    0x75, 0x0c,                               // jne the end
    0x48, 0x8b, 0x05, 0x0a, 0x00, 0x00, 0x00, // mov rax, [rip + 10]
    0x48, 0x01, 0x06,                         // add [rsi], rax
    0x31, 0xc0,                               // xor eax, eax
    0xc3,                                     // ret
    0x90, 0x90, 0x90, 0x90,
];

const FUNCTION: &str = "__vdso_clock_gettime";

/// How often it is tried to find a process outside of that code.
const TRIES: usize = 50;

/// Why no clock is made to jump here, if so.
pub fn missing() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("jumps of the wall clock: they are written for x86-64 only".to_owned());
    }
    let found = File::open("/proc/self/mem").and_then(|mem| function(&mem, std::process::id()));
    found.err().map(|error| format!("jumps of the wall clock: {error}"))
}

/// Lets the wall clock of a process be so many seconds wrong; right for 0. `false`: it
/// stands still, or is no more.
///
/// # Errors
/// Its memory cannot be written.
pub fn set_wrong(pid: u32, seconds: i64) -> io::Result<bool> {
    let Ok(mem) = File::options().read(true).write(true).open(format!("/proc/{pid}/mem")) else {
        return Ok(false);
    };
    let at = function(&mem, pid)?;
    let mut there = [0; CODE.len()];
    mem.read_exact_at(&mut there, at)?;
    let word = seconds.to_le_bytes();
    if there == CODE {
        mem.write_all_at(&word, at + CODE.len() as u64)?;
        return Ok(true);
    }
    if seconds == 0 {
        return Ok(false);
    }
    outside(pid, at..at + CODE.len() as u64 + 8, || {
        mem.write_all_at(&[CODE.as_slice(), &word].concat(), at)
    })
}

/// Does it while the process stands still and no thread of it is in there.
fn outside(
    pid: u32,
    code: std::ops::Range<u64>,
    act: impl Fn() -> io::Result<()>,
) -> io::Result<bool> {
    let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(false) };
    if threads(pid)?.iter().all(|thread| thread.stands) {
        // Somebody else has stopped it, and will have it go on.
        return Ok(false);
    }
    for _ in 0..TRIES {
        if kill_process(process, Signal::STOP).is_err() {
            return Ok(false);
        }
        let done = is_outside(pid, &code).then(&act);
        let _ = kill_process(process, Signal::CONT);
        if let Some(done) = done {
            return done.map(|()| true);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(false)
}

/// Does all of it stand, and none of it in there? A thread that ends meanwhile does not.
fn is_outside(pid: u32, code: &std::ops::Range<u64>) -> bool {
    let is_outside = |at: &Thread| at.stands && at.runs_at.is_some_and(|at| !code.contains(&at));
    for _ in 0..TRIES {
        let Ok(all) = threads(pid) else { continue };
        if all.iter().all(|thread| thread.stands) {
            return all.iter().all(is_outside);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    false
}

struct Thread {
    stands: bool,
    /// Its program counter.
    runs_at: Option<u64>,
}

fn threads(pid: u32) -> io::Result<Vec<Thread>> {
    let mut found = vec![];
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = entry?.path();
        let stat = fs::read_to_string(path.join("stat"))?;
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        let syscall = fs::read_to_string(path.join("syscall")).unwrap_or_default();
        let counter = syscall.split_whitespace().last().and_then(hexadecimal);
        found.push(Thread { stands: state == Some('T'), runs_at: counter });
    }
    Ok(found)
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// Where the function is that tells a process the time.
fn function(mem: &File, pid: u32) -> io::Result<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"));
    let range = line.and_then(|line| line.split_once(' ')?.0.split_once('-'));
    let ends = range.and_then(|(from, to)| {
        Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?))
    });
    let (from, to) = ends.ok_or_else(|| io::Error::other("it has no vDSO"))?;
    let mut image = vec![0; usize::try_from(to - from).map_err(io::Error::other)?];
    mem.read_exact_at(&mut image, from)?;
    let (value, bytes) = symbol(&image, FUNCTION)
        .ok_or_else(|| io::Error::other(format!("its vDSO has no {FUNCTION}")))?;
    if bytes < CODE.len() as u64 + 8 || value % 8 != 0 {
        return Err(io::Error::other(format!("{FUNCTION} has {bytes} bytes at {value:#x}")));
    }
    Ok(from + value)
}

/// The value and the size of a dynamic symbol of a 64-bit ELF image as it is mapped.
fn symbol(image: &[u8], name: &str) -> Option<(u64, u64)> {
    const DYNAMIC: u64 = 2;
    const STRINGS: u64 = 5;
    const SYMBOLS: u64 = 6;
    const ENTRY: usize = 24;
    let headers = usize::try_from(number(image, 0x20, 8)?).ok()?;
    let count = usize::try_from(number(image, 0x38, 2)?).ok()?;
    let header = |at: usize| headers + at * 56;
    let dynamic = (0..count).find(|at| number(image, header(*at), 4) == Some(DYNAMIC))?;
    let table = usize::try_from(number(image, header(dynamic) + 16, 8)?).ok()?;
    let entry = |tag: u64| {
        let at = (0..).map(|at| table + at * 16);
        let at = at.take_while(|at| number(image, *at, 8).is_some_and(|found| found != 0));
        let found = at.into_iter().find(|at| number(image, *at, 8) == Some(tag))?;
        usize::try_from(number(image, found + 8, 8)?).ok()
    };
    let (strings, symbols) = (entry(STRINGS)?, entry(SYMBOLS)?);
    // The names follow the symbols.
    let mut all = (symbols..strings).step_by(ENTRY);
    let is_named = |at: &usize| {
        let offset = number(image, *at, 4).and_then(|offset| usize::try_from(offset).ok());
        let text = offset.and_then(|offset| image.get(strings + offset..));
        text.is_some_and(|text| text.starts_with(name.as_bytes()) && text[name.len()] == 0)
    };
    let at = all.find(is_named)?;
    Some((number(image, at + 8, 8)?, number(image, at + 16, 8)?))
}

/// A number of so many bytes, the lowest first.
fn number(image: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let mut number = [0; 8];
    number[..bytes].copy_from_slice(image.get(at..at + bytes)?);
    Some(u64::from_le_bytes(number))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    use gleaner_shell::clock::Clock;

    use super::*;

    #[test]
    fn one_process_is_wrong_about_the_time_and_then_right_again() {
        if let Some(missing) = missing() {
            return gleaner_skip::without_lab(&missing);
        }
        // It tells the wall clock and the other one for each line that it reads.
        let tells = "use Time::HiRes 'clock_gettime'; $| = 1; \
            while (<>) { print clock_gettime(0), ' ', clock_gettime(7), \"\\n\" }";
        let mut perl = Command::new("perl")
            .args(["-e", tells])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut asks = perl.stdin.take().unwrap();
        let mut answers = BufReader::new(perl.stdout.take().unwrap());
        let mut ask = || {
            writeln!(asks).unwrap();
            let mut line = String::new();
            answers.read_line(&mut line).unwrap();
            let numbers: Vec<f64> = line.split_whitespace().map(|it| it.parse().unwrap()).collect();
            let (wall, boot) = (Clock.wall().unix_s(), Clock.now().0 as f64 / 1e9);
            ((numbers[0] - wall).round(), (numbers[1] - boot).round())
        };
        assert_eq!(ask(), (0.0, 0.0));
        for wrong in [86_400, -7, 0] {
            assert!(set_wrong(perl.id(), wrong).unwrap());
            assert_eq!(ask(), (wrong as f64, 0.0));
        }
        perl.kill().unwrap();
        perl.wait().unwrap();
        assert!(!set_wrong(perl.id(), 5).unwrap(), "there is no such process");
    }
}
