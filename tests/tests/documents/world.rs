//! A machine of the documents' own: one shell, in namespaces with overlays over
//! the directories that are installed into, so that root's commands run as they
//! are written and the real machine never knows.
//!
//! What it provides: the built programs under the names that `cargo` would have
//! left them at; `systemctl`, which starts a unit's real daemon and returns
//! before that is ready, as systemd does; `sudo`, for who is root already; and
//! the files that the documents take to be there.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use gleaner_lab::cgroup::Cgroup;
use gleaner_lab::daemon::Home;
use gleaner_lab::wait::{PATIENCE, until};
use serde_json::Value;
use tempfile::TempDir;

/// Run by the shell first: what happens here is seen by nobody else.
const ENTER: &str = r#"
set -e
mount -t tmpfs -o mode=755 tmpfs "$WORLD/over"
for at in etc usr/local var/lib root home; do
    mkdir -p "$WORLD/over/$at/upper" "$WORLD/over/$at/work"
    mount -t overlay overlay \
        -o "lowerdir=/$at,upperdir=$WORLD/over/$at/upper,workdir=$WORLD/over/$at/work" "/$at"
done
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/systemd/system /home/ada /etc/gleaner /etc/bash_completion.d
hostname ws-042
ip link set lo up
echo "127.0.0.1 localhost coordinator.lab ws-042" > /etc/hosts
cp "$WORLD/agent.toml" /etc/gleaner/agent.toml
export HOME=/home/ada USER=ada PATH="$WORLD/bin:/usr/local/bin:$PATH" TERM=dumb
unset XDG_CONFIG_HOME GLEAN_IDENTITY
# The lab has been in use for a month.
glean usage generate --workstations 20 --from "$(date -u -d '-40 days' +%FT00:00:00Z)" \
    --usage /var/lib/gleaner/collector/usage
set +e
"#;

const SUDO: &str = "#!/bin/sh\nexec env HOME=/root \"$@\"\n";

/// What is built already is not built again: only that there is such a package
/// and such an example is asked of the real one.
const CARGO: &str = r#"#!/bin/sh
what=$1; shift
while [ $# -gt 0 ]; do
    case $1 in
    -p) package=$2; shift 2 ;;
    --example) example=$2; shift 2 ;;
    --release | --examples) shift ;;
    --) shift; break ;;
    *) echo "cargo: not known here: $1" >&2; exit 2 ;;
    esac
done
env HOME="$REAL_HOME" "$REAL_CARGO" pkgid --offline --manifest-path "$REPOSITORY/Cargo.toml" "$package" >&2 || exit
case $what in
build) exit 0 ;;
run) exec "$BUILT/examples/$example" "$@" ;;
esac
echo "cargo: not known here: $what" >&2
exit 2
"#;

const SYSTEMCTL: &str = r#"#!/bin/sh
# As systemd does for Type=exec: it returns when the program has begun, which is
# before it is ready. A machine with much else to do takes its time until then.
unit=/etc/systemd/system
value() { sed -n "s/^$2=//p" "$unit/$1" | head -n 1; }
stop() {
    [ -f "/run/$1.pid" ] || return 0
    kill "$(cat "/run/$1.pid")" 2>/dev/null
    while kill -0 "$(cat "/run/$1.pid")" 2>/dev/null; do sleep 0.05; done
    rm "/run/$1.pid"
}
start() {
    [ -f "/run/$1.pid" ] && kill -0 "$(cat "/run/$1.pid")" 2>/dev/null && return 0
    user=$(value "$1" User)
    for directory in "/var/lib/$(value "$1" StateDirectory)" "/run/$(value "$1" RuntimeDirectory)"; do
        mkdir -p "$directory"
        [ -z "$user" ] || [ "$directory" = /run/ ] || chown "$user:" "$directory"
    done
    as=
    [ -z "$user" ] || as="setpriv --reuid=$user --regid=$user --clear-groups"
    ( sleep 1; exec env -i PATH=/usr/bin:/bin $as $(value "$1" ExecStart) ) \
        >> "$WORLD/$1.log" 2>&1 < /dev/null &
    echo $! > "/run/$1.pid"
}
case $1 in
daemon-reload) ;;
enable) [ -f "$unit/$2" ] ;;
disable) stop "$3" ;;
start) start "$2" ;;
restart) stop "$2"; start "$2" ;;
stop) stop "$2" ;;
*) echo "systemctl: not known here: $*" >&2; exit 2 ;;
esac
"#;

const SIMULATE: &str = r#"#!/bin/sh
echo "simulated $*"
[ -z "$GLEAN_OUTPUT" ] || echo done > "$GLEAN_OUTPUT/result"
"#;

const MODEL: &str = "import os, sys
print('modelled', sys.argv[1:])
open(os.path.join(os.environ['GLEAN_OUTPUT'], 'model'), 'w').write('done')
";

/// Which processors and at which times, as liballprof writes it.
const CALLS: [&str; 2] = [
    "# collprof\nMPI_Init:-:1:2:1000.000000\nMPI_Send:1002.500000:99:10:11,8,8:1:7:0,0,2:1003.000000\n\
     MPI_Barrier:1003.000000:0,0,2:1009.000000\nMPI_Finalize:1010.000000:1010.000000\n",
    "MPI_Init:-:1:2:2000.000000\nMPI_Recv:2001.000000:99:10:11,8,8:0:7:0,1,2:98:2005.000000\n\
     MPI_Barrier:2005.000000:0,1,2:2009.000000\nMPI_Finalize:2009.000000:-\n",
];

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Done, or an answer that is no and no complaint.
    pub(crate) fn is_well(&self) -> bool {
        self.code == 0 || self.code == 1 && !self.stderr.lines().any(|it| it.starts_with("glean:"))
    }
}

/// The machine, and the shell on it. Fields are dropped in this order.
pub(crate) struct World {
    shell: Child,
    count: usize,
    _cgroup: Cgroup,
    dir: TempDir,
}

impl World {
    /// `None` where the rights do not allow it.
    pub(crate) fn new(repository: &Path, built: &Path) -> Result<Option<Self>> {
        let name = format!("glean-documents-{}", std::process::id());
        let Some(cgroup) = Cgroup::at_top(&name) else { return Ok(None) };
        let dir = tempfile::tempdir()?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        for below in ["over", "bin", "terminals"] {
            fs::create_dir(dir.path().join(below))?;
        }
        let bin = dir.path().join("bin");
        for (program, text) in [("sudo", SUDO), ("cargo", CARGO), ("systemctl", SYSTEMCTL)] {
            program_of(&bin.join(program), text)?;
        }
        symlink(built.join("glean"), bin.join("glean"))?;
        let host = cgroup.create("host")?;
        fs::write(dir.path().join("agent.toml"), agent(dir.path(), &host))?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--uts", "--net", "--pid", "--fork", "--kill-child"]);
        command.args(["--mount-proc", "--propagation", "private", "bash", "--noprofile", "--norc"]);
        command.current_dir(dir.path()).stdin(Stdio::piped());
        command.stdout(File::create(dir.path().join("shell.log"))?);
        command.stderr(File::options().append(true).open(dir.path().join("shell.log"))?);
        command.env("WORLD", dir.path()).env("BUILT", built).env("REPOSITORY", repository);
        command
            .env("REAL_CARGO", env!("CARGO"))
            .env("REAL_HOME", std::env::var_os("HOME").unwrap_or_default());
        Home { network: None, cgroup: Some(cgroup.create("shell")?) }.settle(&mut command)?;
        let shell = command.spawn().context("cannot run unshare")?;
        let mut world = Self { shell, count: 0, _cgroup: cgroup, dir };
        let entered = world.run(ENTER)?;
        Ok((entered.code == 0).then_some(world))
    }

    /// A new working directory as a checkout is, with what the documents take
    /// to be there, and a new user.
    pub(crate) fn enter(&mut self, name: &str, repository: &Path, built: &Path) -> Result<()> {
        let here = self.dir.path().join(name);
        fs::create_dir(&here)?;
        for below in ["data", "program"] {
            copy(&repository.join(below), &here.join(below))?;
        }
        shrink(&here.join("data/campaigns"))?;
        let release = here.join("target/release");
        fs::create_dir_all(release.join("examples"))?;
        for name in ["glean", "libglean_program.so"] {
            symlink(built.join(name), release.join(name))?;
        }
        for entry in fs::read_dir(built.join("examples"))? {
            let path = entry?.path();
            if path.extension().is_none() {
                let name = path.file_name().context("an example's name")?;
                symlink(&path, release.join("examples").join(name))?;
            }
        }
        for name in ["mesh", "fft"] {
            symlink(built.join("examples").join(name), here.join(name))?;
        }
        program_of(&here.join("simulate"), SIMULATE)?;
        fs::write(here.join("model.py"), MODEL)?;
        fs::copy(here.join("data/rwho/2026-01-05.txt"), here.join("snapshots.txt"))?;
        fs::write(here.join("npb.ti"), "0 compute 3\n0 send 1 7 100 0\n1 recv 0 7 100 0\n")?;
        for (rank, calls) in CALLS.into_iter().enumerate() {
            fs::write(here.join(format!("pmpi-trace-rank-{rank}.txt")), calls)?;
        }
        fs::write(here.join("states"), states())?;
        let prepare = format!(
            "set -e; cd {}; rm -rf ~/.config
            gzip -c npb.ti > npb-lu.W.16.ti.gz
            tar -czf sweep3d-2x2.liballprof.tar.gz pmpi-trace-rank-*.txt
            gzip -c states > state-2015.csv.gz
            sed s/2015-/2016-/ states | gzip -c > state-2016.csv.gz
            (echo computerName,isDesktop; cut -d, -f1 states | sort -u | sed 's/$/,1/') |
                gzip -c > computer-attributes.csv.gz
            set +e",
            here.display()
        );
        let ran = self.run(&prepare)?;
        anyhow::ensure!(ran.code == 0, "{ran:?}");
        Ok(())
    }

    /// Runs a command in the shell, as it is written.
    pub(crate) fn run(&mut self, text: &str) -> Result<Ran> {
        self.count += 1;
        let at = |what: &str| self.dir.path().join(format!("{}.{what}", self.count));
        fs::write(at("sh"), text)?;
        let paths = ["sh", "out", "err", "code"].map(|what| at(what).display().to_string());
        let [script, out, err, code] = &paths;
        let line = format!(
            ". {script} > {out} 2> {err} < /dev/null; echo $? > {code}.new; mv {code}.new {code}\n"
        );
        let input = self.shell.stdin.as_mut().context("the shell's input")?;
        input.write_all(line.as_bytes())?;
        let read = |path: &str| fs::read(path).map(|it| String::from_utf8_lossy(&it).into_owned());
        let shell = &mut self.shell;
        let ended = until(&format!("this ends: {text}"), PATIENCE * 8, || {
            if let Some(status) = shell.try_wait()? {
                bail!("the shell ended: {status}");
            }
            Ok(read(code).ok())
        });
        let (stdout, stderr) = (read(out).unwrap_or_default(), read(err).unwrap_or_default());
        let code = ended.with_context(|| format!("{stdout}{stderr}{}", self.logs()))?;
        Ok(Ran { code: code.trim().parse()?, stdout, stderr })
    }

    /// The one record that a command prints with `--json`.
    pub(crate) fn record(&mut self, command: &str) -> Result<Value> {
        let ran = self.run(command)?;
        serde_json::from_str(&ran.stdout).with_context(|| format!("{command}: {ran:?}"))
    }

    /// A new token, from the coordinator's own administrator.
    pub(crate) fn token(&mut self, role: &str) -> Result<Value> {
        self.record(&format!("sudo glean token create --role {role} --json"))
    }

    /// Waits until no job goes on, as a reader does before the next line.
    pub(crate) fn settle(&mut self) -> Result<()> {
        until("all jobs have ended", PATIENCE * 2, || {
            // Not so often that what is waited for gets no processor.
            let ran =
                self.run("! sudo glean jobs --json | grep '\"state\":\"running\"' || sleep 1")?;
            Ok(ran.stdout.is_empty().then_some(()))
        })
    }

    /// The paths below these that are there.
    pub(crate) fn there(&mut self, pattern: &str) -> Result<String> {
        Ok(self.run(&format!("ls -d {pattern} 2>/dev/null"))?.stdout)
    }

    pub(crate) fn logs(&self) -> String {
        let names = ["coordinator", "collector", "agent"];
        let logs = names.map(|it| {
            let path = self.dir.path().join(format!("gleaner-{it}.service.log"));
            let log = fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            format!("{it}:\n{}\n", lines[lines.len().saturating_sub(20)..].join("\n"))
        });
        logs.concat()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// A workstation that is idle whatever the machine does, with places enough for
/// a program of 17 ranks.
fn agent(dir: &Path, cgroup: &Path) -> String {
    let (dir, cgroup) = (dir.display(), cgroup.display());
    format!(
        "places = 20
[criteria]
quiet = \"1s\"
load_quiet = \"1s\"
load_idle_max = 1000.0
rise_cores = 1000.0
[sensors]
terminals = [\"{dir}/terminals\"]
input = \"{dir}/input\"
connections = false
slice = \"\"
[cgroup]
directory = \"{cgroup}\"
"
    )
}

fn program_of(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path: PathBuf = entry?.path();
        let to = to.join(path.file_name().context("a name")?);
        if path.is_dir() {
            copy(&path, &to)?;
        } else {
            fs::copy(&path, &to)?;
        }
    }
    Ok(())
}

/// A year of a library's computers: somebody comes every third day.
fn states() -> String {
    let mut text = String::new();
    for computer in 1..=25 {
        for day in (1..=12).flat_map(|month| (1..=28).step_by(3).map(move |day| (month, day))) {
            let (month, day) = day;
            for (state, hour) in [("in-use", 9), ("available", 12)] {
                let _ = writeln!(
                    text,
                    "INC{computer:03},{state},2015-{month:02}-{day:02} {hour:02}:00:00.000"
                );
            }
        }
    }
    text
}

/// Campaigns of hours become ones of seconds: one period of each, few costs.
fn shrink(campaigns: &Path) -> Result<()> {
    for entry in fs::read_dir(campaigns)? {
        let path = entry?.path();
        if path.is_dir() {
            shrink(&path)?;
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let mut networks = 0;
        let lines = text.lines().map(|line| {
            let key = line.split(" = ").next().unwrap_or_default();
            match key {
                "periods" => "periods = 1",
                "repeats" => "repeats = 1",
                "step" => "step = \"90s\"",
                // The library's computers here are few.
                "workstations" if path.ends_with("library.toml") => {
                    networks += 1;
                    ["workstations = 17", "workstations = 18", "workstations = 19"]
                        .get(networks - 1)
                        .unwrap_or(&"workstations = 20")
                }
                _ => line,
            }
        });
        fs::write(&path, lines.collect::<Vec<_>>().join("\n"))?;
    }
    Ok(())
}
