//! Every command that a reader is shown is run as it is written: those of the
//! documents and of each command's help in order, in one shell; those that the
//! programs name in their hints as well.
//!
//! What would take minutes or be this very test is switched off aloud.

mod find;
mod world;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Parser as _;
use clap::error::ErrorKind;
use find::Written;
use gleaner_cli::arguments::Cli;
use gleaner_tests::glean;
use world::{Ran, World};

const DOCUMENTS: [&str; 3] = ["README.md", "data/README.md", "program/examples/README.md"];

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(Path::to_owned).unwrap_or_default()
}

/// Why a command is not run here.
fn switched_off(text: &str) -> Option<&'static str> {
    let first = text.strip_prefix("sudo ").unwrap_or(text);
    let has = |program: &str| {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&paths).any(|dir| dir.join(program).exists())
    };
    if first.starts_with("make demo") || first.starts_with("make test") {
        Some("it builds for minutes, and this test is part of it")
    } else if first.starts_with("glean demo") {
        Some("it has tests of its own, which run it")
    } else if first.starts_with("glean validate") {
        Some("it takes minutes")
    } else if first.starts_with("glean replay spot") {
        Some("it wants traces of spot machines or a log of years, which are not the project's")
    } else if first.starts_with("glean coordinator restore") {
        Some("the coordinator of this machine runs, which is refused; its own tests restore")
    } else if first == "glean presence" {
        Some("it needs a display, and runs as long as that")
    } else if first.contains("--replica") {
        Some("replicas are on different workstations, and this reader has one")
    } else if first.contains("glean-bench") {
        Some("it measures for minutes")
    } else if text.contains("python3") && !Path::new("/usr/bin/python3").exists() {
        Some("guests have no python3 here")
    } else if text.contains("| jq") && !has("jq") {
        Some("there is no jq")
    } else {
        None
    }
}

/// How `glean` understands the words of a command.
fn understood(text: &str) -> Result<Cli, clap::Error> {
    let mut words = vec![];
    for (number, part) in text.split('\'').enumerate() {
        if number % 2 == 0 {
            words.extend(part.split_whitespace());
        } else {
            words.push(part);
        }
    }
    Cli::try_parse_from(words)
}

/// A command without its comment, its pipe and its redirection.
fn bare(text: &str) -> &str {
    let ends = [" #", " |", " >"].into_iter().filter_map(|end| text.find(end));
    text[..ends.min().unwrap_or(text.len())].trim_end()
}

/// A daemon runs for ever: those of this machine are running already.
fn is_daemon(text: &str) -> bool {
    let mut words = text.split_whitespace().skip_while(|word| *word != "glean").skip(1);
    let daemons = ["agent", "coordinator", "collector"];
    words.next().is_some_and(|word| daemons.contains(&word))
        && words.next().is_none_or(|word| word.starts_with("--"))
}

/// How a command that is only named is understood as far as it goes.
const NEEDS_MORE: [ErrorKind; 4] = [
    ErrorKind::MissingRequiredArgument,
    ErrorKind::MissingSubcommand,
    ErrorKind::DisplayHelp,
    ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
];

struct Reader {
    world: World,
    built: PathBuf,
    ran: usize,
    off: usize,
    listings: usize,
    /// What did not do well, so that one run tells of all of it.
    complaints: Vec<String>,
}

impl Reader {
    /// A new checkout, and whoever reads the next document enrols anew.
    fn begin(&mut self, name: &str) -> Result<()> {
        self.world.enter(name, &repository(), &self.built)?;
        let directory = format!("cd \"$WORLD/{name}\"");
        self.expect(&Written { text: directory, at: name.to_owned() })
    }

    fn enrol(&mut self, role: &str) -> Result<()> {
        let token = self.world.token(&format!("{role} --name {role}"))?;
        let enrol = format!(
            "rm -rf ~/.config; glean enrol --coordinator coordinator.lab:4433 --token {} --name {role}",
            token["token"].as_str().unwrap_or_default()
        );
        self.expect(&Written { text: enrol, at: "the reader".to_owned() })
    }

    /// Runs a command, which must do well.
    fn expect(&mut self, written: &Written) -> Result<()> {
        if let Some(why) = switched_off(&written.text) {
            self.off += 1;
            let count = self.off;
            gleaner_skip::without(format!("{count}: `{}` of {}: {why}", written.text, written.at));
            return Ok(());
        }
        if written.text.starts_with("glean") {
            self.world.settle()?;
        }
        let text = self.filled(&written.text)?;
        if text.starts_with("glean enrol") {
            self.world.run("rm -rf ~/.config")?;
        }
        let ran = self.world.run(&text)?;
        self.ran += 1;
        if !ran.is_well() {
            self.complaints.push(format!("{}: `{text}`: {ran:#?}", written.at));
            return Ok(());
        }
        self.expect_json(written, &text, &ran)
    }

    /// Whatever prints a table says the same in records.
    fn expect_json(&mut self, written: &Written, text: &str, ran: &Ran) -> Result<()> {
        let is_header = |line: &str| {
            line.trim().contains("  ")
                && line.starts_with(char::is_uppercase)
                && !line.chars().any(char::is_lowercase)
        };
        if !ran.stdout.lines().any(is_header) || !bare(text).starts_with("glean") {
            return Ok(());
        }
        self.listings += 1;
        let json = self.world.run(&format!("{} --json", bare(text)))?;
        let is_record = |line: &str| serde_json::from_str::<serde_json::Value>(line).is_ok();
        let records = json.stdout.lines().all(is_record);
        if !json.is_well() || json.stdout.is_empty() || !records {
            let said = format!("{}: `{text}` is a listing; --json gives {json:#?}", written.at);
            self.complaints.push(said);
        }
        Ok(())
    }

    /// Somebody, or a workstation, that is known to the coordinator and not here.
    fn spare(&mut self, role: &str) -> Result<()> {
        let token = self.world.token(&format!("{role} --name spare-{role}"))?;
        let enrol = format!(
            "HOME=$(mktemp -d) glean enrol --coordinator coordinator.lab:4433 --token {} --name spare-{role}",
            token["token"].as_str().unwrap_or_default()
        );
        self.expect(&Written { text: enrol, at: "the reader".to_owned() })
    }

    /// A command with what stands for a reader's own put in.
    fn filled(&mut self, text: &str) -> Result<String> {
        let mut text = text.to_owned();
        let role = ["agent install", "collector install"].into_iter().find(|it| text.contains(it));
        let role = role.and_then(|it| it.split(' ').next()).unwrap_or("admin");
        for token in ["glean-…", "glean-..."] {
            if text.contains(token) {
                // The reader of another document may have had the name before.
                let name = match role {
                    "admin" => "${USER:-${LOGNAME:-uid-$(id -u)}}",
                    _ => "$(uname -n)",
                };
                let new = self.world.token(&format!("{role} --name \"{name}\""))?;
                text = text.replace(token, new["token"].as_str().unwrap_or_default());
            }
        }
        if text.contains("1f2e3d4c") {
            let open = self.world.token("user")?;
            text = text.replace("1f2e3d4c", open["id"].as_str().unwrap_or_default());
        }
        for (command, role) in [("glean workstations rm", "agent"), ("glean users rm", "user")] {
            if text.starts_with(command) {
                // Whoever is taken away is not needed by the rest of the document.
                self.spare(role)?;
                text = format!("{command} spare-{role}");
            }
        }
        if text.starts_with("glean cancel") {
            let endless = self.world.run("glean submit -- sleep 1000")?;
            text = text.replace(" 7", &format!(" {}", endless.stdout.trim()));
        }
        Ok(text)
    }

    /// Runs what is named in passing, if all of it is there; what needs more is
    /// only named, and must be understood that far.
    fn expect_named(&mut self, written: &Written) -> Result<()> {
        let mut written = written.clone();
        let mut after = String::new();
        let words = written.text.split_whitespace().map(|word| {
            let filled = match (word, after.as_str()) {
                ("HOST:PORT", _) => "coordinator.lab:4433",
                ("T", _) => "glean-…",
                ("COMMAND", _) => "submit",
                ("REPORT", _) => "report",
                ("{out}" | "DIR", _) => "results",
                ("FILE", "backup") => "lab.backup",
                ("FILE", _) => "data/campaigns/phalen1994.toml",
                ("THIS-FILE", _) => "phalen1994",
                ("NAME", "undrain") => "ws-042",
                (_, "--role") if word.starts_with('{') => "user",
                _ if word.starts_with('{') => "7",
                _ => word,
            };
            word.clone_into(&mut after);
            filled
        });
        written.text = words.collect::<Vec<_>>().join(" ");
        let first = written.text.strip_prefix("sudo ").unwrap_or(&written.text);
        match understood(first) {
            Ok(_) if is_daemon(first) => Ok(()),
            Ok(_) => {
                self.expect(&written)?;
                // An owner who has read how to pause goes on with the document.
                self.world.run("glean agent resume").map(drop)
            }
            Err(error) if NEEDS_MORE.contains(&error.kind()) => Ok(()),
            Err(error) => {
                self.complaints.push(format!("{}: `{}`: {error}", written.at, written.text));
                Ok(())
            }
        }
    }
}

#[test]
fn every_command_that_a_reader_is_shown_runs_as_it_is_written() -> Result<()> {
    let built = glean()?.parent().map(Path::to_owned).unwrap_or_default();
    let Some(world) = World::new(&repository(), &built)? else {
        gleaner_skip::without_lab("namespaces, overlays and a cgroup need root");
        return Ok(());
    };
    let mut reader = Reader { world, built, ran: 0, off: 0, listings: 0, complaints: vec![] };
    documents(&mut reader)?;
    reader.begin("help")?;
    reader.enrol("admin")?;
    let tree = find::tree();
    let (last, examples): (Vec<Written>, Vec<Written>) = tree
        .iter()
        .flat_map(|(path, command)| find::examples(path, command))
        .partition(|it| it.text.contains("uninstall") || is_daemon(&it.text));
    for written in &examples {
        reader.expect(written)?;
        if written.text.contains("agent pause") {
            reader.world.run("glean agent resume")?;
        }
    }
    let named = tree.iter().flat_map(|(path, command)| find::named_in_help(path, command));
    for written in named.chain(find::named_in_sources(&repository())?) {
        reader.expect_named(&written)?;
    }
    farewell(&mut reader, &last)?;
    let Reader { ran, off, listings, complaints, world, .. } = reader;
    assert!(complaints.is_empty(), "{}\n{}", complaints.join("\n"), world.logs());
    println!("{ran} commands were run, {off} switched off; {listings} listings have --json");
    assert!(ran > 100, "only {ran} commands were found");
    assert!(listings > 15, "only {listings} listings were found");
    Ok(())
}

/// One helper skips tests, so that each is counted.
#[test]
fn no_test_is_skipped_by_a_word_of_its_own() -> Result<()> {
    let mut open = vec![repository()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = std::fs::read_to_string(&path)?.to_lowercase();
                for word in ["skipped: ", "left out: "] {
                    let said = text.contains(&format!("println!(\"{word}"));
                    assert!(!said, "{}: gleaner_skip says so", path.display());
                }
            }
        }
    }
    Ok(())
}

/// Those of the documents, in order; the first one sets the machine up.
fn documents(reader: &mut Reader) -> Result<()> {
    for (number, document) in DOCUMENTS.into_iter().enumerate() {
        let path = repository().join(document);
        reader.begin(&format!("document{number}"))?;
        if number > 0 {
            reader.enrol("user")?;
        }
        let mut is_first_job = number == 0;
        for written in find::blocks(&path)? {
            if is_first_job && written.text.starts_with("glean submit") {
                // The documents speak of job 7.
                for _ in 1..=5 {
                    reader.world.run("sudo glean submit --wait -- true")?;
                }
                is_first_job = false;
            }
            reader.expect(&written)?;
        }
        for written in find::spans(&path)? {
            reader.expect_named(&written)?;
        }
    }
    Ok(())
}

/// Daemons by hand, and everything taken away again.
fn farewell(reader: &mut Reader, last: &[Written]) -> Result<()> {
    let (daemons, uninstalls): (Vec<_>, Vec<_>) = last.iter().partition(|it| is_daemon(&it.text));
    for written in uninstalls {
        reader.expect(written)?;
    }
    let left = "/etc/systemd/system/gleaner* /usr/local/bin/glean /usr/local/share/man/man1/glean* \
                /usr/local/share/*/*/*glean* /etc/gleaner/agent.toml /var/lib/gleaner/agent";
    assert_eq!(reader.world.there(left)?, "", "uninstall takes everything away");
    for written in daemons {
        let text = &written.text;
        let run = format!(
            "{text} 2> daemon.log & daemon=$!
            until grep -q 'listening on' daemon.log; do kill -0 $daemon || break; done
            kill $daemon; wait $daemon"
        );
        reader.expect(&Written { text: run, at: written.at.clone() })?;
    }
    Ok(())
}
