//! Ways from here to somebody else: the network, terminals, what is printed, and
//! what is left to be brought back.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::UdpSocket;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use crate::{Arguments, address, bits, call, tell, text};

/// A datagram to each address.
pub(crate) fn send(addresses: Arguments<'_>) -> io::Result<()> {
    for to in addresses {
        let tried = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
            socket.connect(to)?;
            socket.send(b"hello")
        });
        tell(&format!("send to {to}"), tried);
        tell(&format!("connect to {to}"), std::net::TcpStream::connect(to));
    }
    Ok(())
}

/// Letters into the owner's shell.
pub(crate) fn terminal(terminals: Arguments<'_>) -> io::Result<()> {
    for path in ["/dev/tty", "/dev/console", "/dev/tty0", "/dev/ptmx", "/dev/pts/0"] {
        tell(&format!("open {path}"), File::open(path));
    }
    for path in terminals {
        tell("open the owner's", File::open(path));
    }
    for descriptor in 0..3_usize {
        let letter = b'x';
        let types = [descriptor, bits(libc::TIOCSTI.cast_signed()), address(&letter)];
        tell(&format!("type into {descriptor}"), call(libc::SYS_ioctl, &types));
        let takes = [descriptor, bits(libc::TIOCSCTTY.cast_signed()), 1];
        tell(&format!("take {descriptor}"), call(libc::SYS_ioctl, &takes));
    }
    Ok(())
}

/// What was open before this program began.
pub(crate) fn inherited(_: Arguments<'_>) -> io::Result<()> {
    let mut open: Vec<usize> = (0..4_096)
        .filter(|descriptor| call(libc::SYS_fcntl, &[*descriptor, bits(libc::F_GETFD)]).is_ok())
        .collect();
    open.sort_unstable();
    let first = fs::read_link("/proc/self/fd/0")?;
    tell("descriptors", Err::<(), _>(format!("{open:?}, the first is {}", first.display())));
    Ok(())
}

/// So many bytes.
pub(crate) fn print(arguments: Arguments<'_>) -> io::Result<()> {
    let count = number(arguments)?;
    let line = [b'x'; 1 << 16];
    let mut out = io::stdout().lock();
    for _ in 0..count.div_ceil(line.len()) {
        out.write_all(&line)?;
    }
    out.flush()
}

/// What moves a cursor, hides, and answers for the user.
pub(crate) fn codes(_: Arguments<'_>) -> io::Result<()> {
    io::stdout().write_all(CODES)
}

/// Clears the line above, forges another, asks the terminal for its answer, and
/// names a clipboard.
const CODES: &[u8] = b"\x1b[1A\x1b[2Kforged\r\x1b[c\x1b]52;c;cm0gLXJm\x07\x9b31mend\n";

/// What is to be brought back and is no file of ours.
pub(crate) fn outputs(others: Arguments<'_>) -> io::Result<()> {
    let output = output()?;
    fs::write(output.join("honest"), "honest")?;
    symlink("/etc/shadow", output.join("shadow"))?;
    symlink("/etc", output.join("etc"))?;
    symlink("../../../../../etc/shadow", output.join("up"))?;
    symlink(".", output.join("loop"))?;
    for (count, other) in others.iter().enumerate() {
        symlink(other, output.join(format!("other{count}")))?;
        let _ = fs::hard_link(other, output.join(format!("hard{count}")));
    }
    let _ = fs::hard_link("/etc/passwd", output.join("passwd"));
    let _listens = UnixListener::bind(output.join("socket"))?;
    let pipe = CString::new(output.join("pipe").into_os_string().into_encoded_bytes())?;
    let made = [bits(libc::AT_FDCWD), text(&pipe), bits(libc::S_IFIFO | 0o666), 0];
    call(libc::SYS_mknodat, &made)?;
    tell("outputs", Ok::<_, io::Error>(()));
    Ok(())
}

fn output() -> io::Result<PathBuf> {
    let output = std::env::var_os("GLEAN_OUTPUT").ok_or(io::ErrorKind::NotFound)?;
    Ok(Path::new(&output).to_owned())
}

pub(crate) fn number(arguments: Arguments<'_>) -> io::Result<usize> {
    let text = arguments.first().ok_or(io::ErrorKind::InvalidInput)?;
    text.parse().map_err(io::Error::other)
}
