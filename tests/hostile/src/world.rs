//! The lab that is attacked: a coordinator, a collector, two workstations, and the
//! people who use it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context as _, Result, bail, ensure};
use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::job::{IndexRange, JobSpec, StagedFile};
use gleaner_common::report::{JobSummary, SubprogramRow};
use gleaner_common::wire::{OutputFile, Printed, Reply, Request};
use gleaner_lab::blocking_client::BlockingClient;
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_lab::{Lab, LabHost};
use gleaner_shell::enrol::enrol;
use gleaner_shell::identity::{Identity, Token};
use tempfile::TempDir;

use crate::hostage::Hostage;

/// What its agents are told. No two hosts have guests of the same user: they share
/// a kernel, and are workstations.
const AGENT: &str = r#"
[guests]
uid_base = 62{number}00
readable = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/sys", "SITE/tools"]
shared_directories = ["SITE/shared"]
output_bytes_max = "1MiB"
[peers]
listen = "[::]:4434"
"#;

/// What the coordinator is told.
const COORDINATOR: &str = r#"user_bytes_a_day_max = "64MiB""#;

/// Somebody who may submit jobs.
#[derive(Debug)]
pub struct User {
    pub name: String,
    pub identity: PathBuf,
    pub asks: BlockingClient,
}

/// The lab and who is in it.
#[derive(Debug)]
pub struct World {
    pub lab: Lab,
    /// Means no harm.
    pub ada: User,
    /// Does.
    pub mallory: User,
    /// The administrator.
    pub admin: BlockingClient,
    /// Directories of the site: `owner` is the owner's, open to everybody; `tools`
    /// is what guests may read; `shared` is offered to jobs.
    pub site: TempDir,
    /// What mallory's guests run.
    hostile: StagedFile,
    /// A guest that another agent has taken, for attacks on those who take it back.
    pub hostage: Mutex<Option<Hostage>>,
}

/// What became of a job of one subprogram.
#[derive(Debug)]
pub struct Ended {
    pub job: JobId,
    pub summary: JobSummary,
    pub row: SubprogramRow,
    pub stdout: Printed,
    pub outputs: Vec<OutputFile>,
}

impl Ended {
    /// What it printed, if that was little.
    pub fn said(&self) -> String {
        match &self.stdout {
            Printed::Inline(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Printed::Staged { .. } => String::new(),
        }
    }

    pub fn outcome(&self) -> &str {
        self.row.outcome.as_deref().unwrap_or_default()
    }
}

/// The program that tries attacks, built beside the tests.
///
/// # Errors
/// It has not been built.
pub fn hostile() -> Result<PathBuf> {
    Ok(gleaner_tests::glean()?.with_file_name("hostile"))
}

impl World {
    /// `None`, said aloud, where the rights do not allow a lab.
    ///
    /// # Errors
    /// The lab does not start.
    pub fn start() -> Result<Option<Self>> {
        // Not below a guest's own scratch directories.
        let site = tempfile::Builder::new().prefix("glean-site-").tempdir_in("/var/tmp")?;
        open_to_all(site.path())?;
        for name in ["owner", "tools", "shared"] {
            fs::create_dir(site.path().join(name))?;
            open_to_all(&site.path().join(name))?;
        }
        let mut options = gleaner_tests::options(2)?;
        options.host.extra = AGENT.replace("SITE", &site.path().display().to_string());
        COORDINATOR.clone_into(&mut options.coordinator);
        let Some(lab) = gleaner_tests::lab_or_skip(options)? else { return Ok(None) };
        lab.wait_for_idle(2)?;
        let admin = BlockingClient::connect(&lab.admin(), None)?;
        let [ada, mallory] = ["ada", "mallory"].map(|name| user(&lab, name));
        let (ada, mallory) = (ada?, mallory?);
        let hostile = stage(&mallory, "hostile", &fs::read(hostile()?)?, true)?;
        Ok(Some(Self { lab, ada, mallory, admin, site, hostile, hostage: Mutex::default() }))
    }

    /// A job of mallory's, whose guests try an attack.
    pub fn attack(&self, attack: &[&str]) -> JobSpec {
        let command = ["./hostile"].iter().chain(attack).map(ToString::to_string).collect();
        let mut spec = JobSpec::new(command, one());
        spec.inputs = vec![self.hostile.clone()];
        spec.retries = 0;
        spec
    }

    /// What a guest of mallory's says of an attack.
    ///
    /// # Errors
    /// It could not be tried.
    pub fn tried(&self, attack: &[&str]) -> Result<String> {
        let ended = self.run(&self.mallory, self.attack(attack))?;
        let said = ended.said();
        ensure!(ended.outcome() == "succeeded", "{attack:?}: {}\n{said}", ended.outcome());
        Ok(said)
    }

    /// Runs a job of one subprogram to its end.
    ///
    /// # Errors
    /// It is refused, or nobody answers.
    pub fn run(&self, user: &User, spec: JobSpec) -> Result<Ended> {
        let job = user.asks.submit(spec)?;
        user.ended(job)
    }

    /// A token from the administrator.
    ///
    /// # Errors
    /// It is refused.
    pub fn token(&self, role: &str, name: Option<&str>) -> Result<Token> {
        token(&self.lab, role, name)
    }

    /// Enrols somebody else.
    ///
    /// # Errors
    /// They are refused.
    pub fn enrol(&self, role: &str, name: &str) -> Result<Identity> {
        let token = self.token(role, None)?;
        runtime()?.block_on(async { Ok(enrol(self.lab.address(), &token, name).await?) })
    }

    /// Another user, new to the lab.
    ///
    /// # Errors
    /// They are refused.
    pub fn user(&self, name: &str) -> Result<User> {
        user(&self.lab, name)
    }

    /// `glean ARGUMENTS` as somebody: what they see, and whether it went well.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn glean(&self, user: &User, arguments: &[&str]) -> Result<(bool, String, String)> {
        let mut command = self.lab.command(arguments)?;
        let output = command.env("GLEAN_IDENTITY", &user.identity).output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((output.status.success(), text(&output.stdout), text(&output.stderr)))
    }

    pub fn owner(&self, name: &str) -> String {
        self.site.path().join("owner").join(name).display().to_string()
    }

    /// A file of the owner's that everybody may read.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn owners_file(&self, name: &str) -> Result<String> {
        let path = self.owner(name);
        fs::write(&path, "the owner's")?;
        fs::set_permissions(&path, Permissions::from_mode(0o666))?;
        Ok(path)
    }

    /// The workstation of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn host(&self, name: &str) -> Result<&LabHost> {
        self.lab.hosts.iter().find(|host| host.name == name).context("no such host")
    }

    /// Lets nothing new start on a workstation, or does again.
    ///
    /// # Errors
    /// The coordinator refuses.
    pub fn drain(&self, name: &str, drained: bool) -> Result<()> {
        let request = Request::WorkstationDrain { name: name.to_owned(), drained, now: false };
        self.admin.request(&request).map(drop)
    }
}

impl User {
    /// Waits for the end of a job of one subprogram.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn ended(&self, job: JobId) -> Result<Ended> {
        let summary = self.asks.wait(job)?;
        let id = SubprogramId { job, index: 0 };
        let row = self.row(id)?;
        let (stdout, outputs) = match self.asks.request(&Request::Output(id)) {
            Ok(Reply::Output { stdout, outputs, .. }) => (stdout, outputs),
            _ => (Printed::default(), vec![]),
        };
        Ok(Ended { job, summary, row, stdout, outputs })
    }

    /// # Errors
    /// There is no such subprogram.
    pub fn row(&self, id: SubprogramId) -> Result<SubprogramRow> {
        let asked = Request::Subprograms { job: id.job, first: id.index, count: 1 };
        let rows = self.asks.rows(&asked)?;
        let Some(Reply::Subprogram(row)) = rows.into_iter().next() else { bail!("no {id}") };
        Ok(*row)
    }

    /// Where a subprogram runs, once it does.
    ///
    /// # Errors
    /// It does not.
    pub fn runs_at(&self, id: SubprogramId) -> Result<String> {
        until(&format!("{id} runs"), PATIENCE, || {
            let row = self.row(id)?;
            let runs = row.state.name() == "running";
            ensure!(row.outcome.is_none(), "{id} has ended: {:?}", row.outcome);
            Ok(row.workstation.filter(|_| runs))
        })
    }

    /// What the coordinator answers, also if that is no.
    pub fn answer(&self, request: &Request) -> String {
        match self.asks.request(request) {
            Ok(reply) => format!("{reply:?}"),
            Err(error) => error.to_string(),
        }
    }

    /// All rows, also if the last one says no.
    pub fn listing(&self, request: &Request) -> String {
        match self.asks.rows(request) {
            Ok(rows) => format!("{rows:?}"),
            Err(error) => error.to_string(),
        }
    }
}

/// An input of a user's jobs.
///
/// # Errors
/// The coordinator takes no more of theirs.
pub fn stage(user: &User, path: &str, bytes: &[u8], executable: bool) -> Result<StagedFile> {
    let hash = user.asks.with(async |client| client.put_bytes(bytes).await)?;
    Ok(StagedFile { path: path.to_owned(), hash, size_bytes: bytes.len() as u64, executable })
}

/// Indexes of one subprogram.
pub fn one() -> IndexRange {
    IndexRange { first: 0, last: 0, step: 1 }
}

/// A job that runs a shell's script.
pub fn script(text: &str) -> JobSpec {
    let mut spec = JobSpec::new(["sh", "-c", text].map(str::to_owned).to_vec(), one());
    spec.retries = 0;
    spec
}

/// For strangers, who have no connection yet.
///
/// # Errors
/// No threads are left.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?)
}

fn open_to_all(path: &Path) -> Result<()> {
    Ok(fs::set_permissions(path, Permissions::from_mode(0o755))?)
}

fn token(lab: &Lab, role: &str, name: Option<&str>) -> Result<Token> {
    let mut arguments = vec!["token", "create", "--role", role, "--json"];
    if let Some(name) = name {
        arguments.extend(["--name", name]);
    }
    let row: serde_json::Value = lab.one(&arguments)?;
    Ok(row["token"].as_str().context("no token")?.parse()?)
}

fn user(lab: &Lab, name: &str) -> Result<User> {
    let identity = lab.dir().join(format!("user-{name}"));
    let token = token(lab, "user", Some(name))?;
    let enrolled = runtime()?.block_on(enrol(lab.address(), &token, name))?;
    enrolled.store(&identity)?;
    let asks = BlockingClient::connect(&identity, None)?;
    Ok(User { name: name.to_owned(), identity, asks })
}

/// Nothing of it was done: so many lines, and none says that it was.
///
/// # Errors
/// Something was done, or less was tried.
pub fn nothing_done(said: &str, lines: usize) -> Result<()> {
    ensure!(!said.contains(": done"), "done:\n{said}");
    let count = said.lines().filter(|line| line.contains(": ")).count();
    ensure!(count >= lines, "{count} things were tried instead of {lines}:\n{said}");
    Ok(())
}

/// Nothing of it is even there.
///
/// # Errors
/// Something is, or less was tried.
pub fn nothing_there(said: &str, lines: usize) -> Result<()> {
    nothing_done(said, lines)?;
    let there = said.lines().find(|line| !line.ends_with("(os error 2)"));
    there.map_or(Ok(()), |line| bail!("it is there: {line}"))
}
