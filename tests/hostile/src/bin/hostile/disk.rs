//! The disk: past its limit, and past what whoever clears up can walk.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;

use crate::escapes::number;
use crate::{Arguments, bits, call, tell, text};

/// `nest DEPTH BYTES WHERE`: so many directories, one in the other, with a file of
/// so much in each. No path leads to the last.
pub(crate) fn nest(arguments: Arguments<'_>) -> io::Result<()> {
    let depth = number(arguments)?;
    let bytes = number(arguments.get(1..).unwrap_or_default())?;
    let place = arguments.get(2).ok_or(io::ErrorKind::InvalidInput)?;
    let place = place.replace("OUTPUT", &std::env::var("GLEAN_OUTPUT").unwrap_or_default());
    std::env::set_current_dir(place)?;
    let name = CString::new("d".repeat(100))?;
    for _ in 0..depth {
        call(libc::SYS_mkdirat, &[bits(libc::AT_FDCWD), text(&name), 0o700])?;
        call(libc::SYS_chdir, &[text(&name)])?;
        if bytes > 0 {
            fs::write("f", vec![b'x'; bytes])?;
        }
    }
    tell("nested", Ok::<_, io::Error>(()));
    if bytes > 1 {
        wait();
    }
    Ok(())
}

/// Bytes of files that are deleted, and open.
pub(crate) fn deleted(arguments: Arguments<'_>) -> io::Result<()> {
    let open: Vec<File> =
        (0..4).map(|_| gone(number(arguments)? / 4)).collect::<io::Result<_>>()?;
    tell("deleted", Ok::<_, io::Error>(open.len()));
    wait()
}

/// The same, mapped and closed.
pub(crate) fn mapped(arguments: Arguments<'_>) -> io::Result<()> {
    for _ in 0..4 {
        let length = number(arguments)? / 4;
        let file = gone(length)?;
        let shared = bits(libc::MAP_SHARED);
        let descriptor = bits(file.as_raw_fd());
        call(libc::SYS_mmap, &[0, length, bits(libc::PROT_READ), shared, descriptor, 0])?;
    }
    tell("mapped", Ok::<_, io::Error>(()));
    wait()
}

fn gone(bytes: usize) -> io::Result<File> {
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open("f")?;
    fs::remove_file("f")?;
    file.write_all(&vec![b'x'; bytes])?;
    Ok(file)
}

/// Until somebody has noticed.
fn wait() -> ! {
    loop {
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}
