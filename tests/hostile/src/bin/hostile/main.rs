//! A guest that means harm: `hostile ATTACK ARGUMENT..` tries one thing after the
//! other and says of each what came of it, a line each:
//!
//! ```text
//! read /etc/shadow: Permission denied (os error 13)
//! read /etc/passwd: done
//! ```
//!
//! Everything here is a plain system call that other programs may make as well;
//! what keeps it from working is never in this program.

#![expect(clippy::print_stdout, reason = "a program's answer")]
#![expect(unsafe_code, reason = "attacks are raw system calls")]
#![expect(clippy::unnecessary_wraps, reason = "attacks have one signature")]
#![expect(clippy::large_stack_arrays, reason = "one line of much")]

mod disk;
mod escapes;
mod files;
mod keeper;
mod kernel;
mod leftovers;
mod numbers;
mod processes;

use std::io;
use std::process::ExitCode;

/// What an attack is given.
type Arguments<'a> = &'a [String];

type Attack = fn(Arguments<'_>) -> io::Result<()>;

/// All that can be tried, by name.
const ATTACKS: &[(&str, Attack)] = &[
    ("read", files::read),
    ("stat", files::stat),
    ("list", files::list),
    ("write", files::write),
    ("watch", files::watch),
    ("connect", files::connect),
    ("spoil", files::spoil),
    ("link", files::link),
    ("send", escapes::send),
    ("terminal", escapes::terminal),
    ("inherited", escapes::inherited),
    ("print", escapes::print),
    ("codes", escapes::codes),
    ("outputs", escapes::outputs),
    ("trace", keeper::trace),
    ("signal", keeper::signal),
    ("limit", keeper::limit),
    ("sockets", kernel::sockets),
    ("namespaces", kernel::namespaces),
    ("within", kernel::within),
    ("rings", kernel::rings),
    ("keys", kernel::keys),
    ("eyes", kernel::eyes),
    ("mounts", kernel::mounts),
    ("root", kernel::root),
    ("devices", kernel::devices),
    ("schedule", kernel::schedule),
    ("groups", kernel::groups),
    ("become", processes::become_root),
    ("processes", processes::processes),
    ("forks", processes::forks),
    ("memory", processes::memory),
    ("daemon", processes::daemon),
    ("sleep", processes::sleep),
    ("descriptors", processes::descriptors),
    ("travel", processes::travel),
    ("leave", leftovers::leave),
    ("find", leftovers::find),
    ("leave-keys", leftovers::leave_keys),
    ("find-keys", leftovers::find_keys),
    ("nest", disk::nest),
    ("deleted", disk::deleted),
    ("mapped", disk::mapped),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let named = arguments.split_first();
    let attack = named.and_then(|(name, rest)| {
        let (_, attack) = ATTACKS.iter().find(|(known, _)| known == name)?;
        Some(attack(rest))
    });
    match attack {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            println!("could not be tried: {error}");
            ExitCode::from(2)
        }
        None => {
            println!("no such attack: {arguments:?}");
            ExitCode::from(2)
        }
    }
}

/// Says what came of one thing that was tried.
fn tell<T, E: std::fmt::Display>(what: &str, tried: Result<T, E>) {
    match tried {
        Ok(_) => println!("{what}: done"),
        Err(error) => println!("{what}: {error}"),
    }
}

/// A system call by its number.
fn call(number: libc::c_long, arguments: &[usize]) -> io::Result<i64> {
    let of = |at: usize| arguments.get(at).copied().unwrap_or(0);
    // SAFETY: what is pointed to lives on in the caller for as long as the call; a
    // call that is let through harms only this process, which asked for it.
    let done = unsafe { libc::syscall(number, of(0), of(1), of(2), of(3), of(4), of(5)) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

/// A number of the kernel's as an argument of [`call`].
fn bits(number: impl Into<i64>) -> usize {
    let number: i64 = number.into();
    usize::try_from(number.cast_unsigned()).unwrap_or(usize::MAX)
}

/// An address as an argument of [`call`].
fn address<T>(of: &T) -> usize {
    std::ptr::from_ref(of).expose_provenance()
}

fn text(of: &std::ffi::CStr) -> usize {
    of.as_ptr().expose_provenance()
}
