//! What one guest leaves for the next: queues, memory, keys and files.

use std::ffi::CString;
use std::fs;
use std::io;

use crate::numbers::{KEYCTL_READ, KEYCTL_SEARCH, SESSION_KEYRING, USER_KEYRING};
use crate::{Arguments, bits, call, tell, text};

/// The same for every guest.
const NUMBER: usize = 0x6c65_6674;
const CREATE: usize = 0o1_666;

/// Who is here, so that whoever looks knows whom it has come after.
fn place() -> io::Result<()> {
    println!("user {}", call(libc::SYS_getuid, &[])?);
    Ok(())
}

/// One of everything that lasts longer than a process.
pub(crate) fn leave(_: Arguments<'_>) -> io::Result<()> {
    place()?;
    let queue = call(libc::SYS_msgget, &[NUMBER, CREATE])?;
    let message = [1_u64, u64::from_le_bytes(*b"a secret")];
    call(libc::SYS_msgsnd, &[bits(queue), message.as_ptr().expose_provenance(), 8, 0])?;
    call(libc::SYS_shmget, &[NUMBER, 8 << 20, CREATE])?;
    call(libc::SYS_semget, &[NUMBER, 4, CREATE])?;
    let made = bits(libc::O_CREAT | libc::O_RDWR);
    // Landlock lets nobody open what has been made, but made it is.
    let _ = call(libc::SYS_mq_open, &[text(c"left"), made, 0o666, 0]);
    for path in ["/tmp/left", "/dev/shm/left", "left"] {
        fs::create_dir(path)?;
        fs::write(format!("{path}/secret"), "a secret")?;
        fs::create_dir(format!("{path}/shut"))?;
        let shut = CString::new(format!("{path}/shut"))?;
        call(libc::SYS_chmod, &[text(&shut), 0])?;
    }
    Ok(())
}

/// What is there of it.
pub(crate) fn find(_: Arguments<'_>) -> io::Result<()> {
    place()?;
    tell("queue", call(libc::SYS_msgget, &[NUMBER, 0]));
    tell("memory", call(libc::SYS_shmget, &[NUMBER, 0, 0]));
    tell("semaphores", call(libc::SYS_semget, &[NUMBER, 0, 0]));
    tell("POSIX queue", call(libc::SYS_mq_open, &[text(c"left"), 0, 0, 0]));
    for path in ["/tmp/left", "/dev/shm/left", "left"] {
        tell(path, fs::symlink_metadata(path));
    }
    Ok(())
}

pub(crate) fn leave_keys(_: Arguments<'_>) -> io::Result<()> {
    place()?;
    for (name, ring) in [("user", USER_KEYRING), ("session", SESSION_KEYRING)] {
        let secret = "a secret";
        let at = secret.as_ptr().expose_provenance();
        let added = [text(c"user"), text(c"left"), at, secret.len(), bits(ring)];
        tell(&format!("keep in {name}"), call(libc::SYS_add_key, &added));
    }
    Ok(())
}

pub(crate) fn find_keys(_: Arguments<'_>) -> io::Result<()> {
    place()?;
    for (name, ring) in [("user", USER_KEYRING), ("session", SESSION_KEYRING)] {
        let wanted = [KEYCTL_SEARCH, bits(ring), text(c"user"), text(c"left"), 0];
        let found = call(libc::SYS_keyctl, &wanted);
        tell(&format!("found in {name}"), found.as_ref());
        if let Ok(key) = found {
            let mut secret = [0_u8; 8];
            let at = secret.as_mut_ptr().expose_provenance();
            tell("read", call(libc::SYS_keyctl, &[KEYCTL_READ, bits(key), at, 8]));
        }
    }
    Ok(())
}
