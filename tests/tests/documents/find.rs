//! Every command that a reader is shown: in documents, in the help of each
//! command, and in what the programs say.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use clap::{Command as Clap, CommandFactory as _};
use gleaner_cli::arguments::Cli;

/// A command as it is written, and where.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) text: String,
    pub(crate) at: String,
}

/// What a command of a block without a label would begin with.
const PROGRAMS: [&str; 6] = ["glean ", "sudo ", "./", "cargo ", "make ", "cd "];

/// The lines of a document's `sh` blocks, in order.
pub(crate) fn blocks(path: &Path) -> Result<Vec<Written>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut found: Vec<Written> = vec![];
    let (mut label, mut goes_on) = (None, false);
    for (number, line) in (1..).zip(text.lines()) {
        let at = format!("{}:{number}", path.display());
        match (label, line.strip_prefix("```")) {
            (None, Some(opened)) => label = Some(opened),
            (Some(_), Some(_)) => label = None,
            (Some("sh"), None) if goes_on => {
                let last = found.last_mut().context("the line before")?;
                last.text = format!("{}\n{line}", last.text);
                goes_on = line.ends_with('\\');
            }
            (Some("sh"), None) if !line.trim().is_empty() && !line.starts_with('#') => {
                found.push(Written { text: line.to_owned(), at });
                goes_on = line.ends_with('\\');
            }
            (Some(other), None)
                if other != "sh" && PROGRAMS.iter().any(|it| line.starts_with(it)) =>
            {
                bail!("{at}: a command in a block that is not labelled sh: {line}");
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Commands in a document's running text and tables.
pub(crate) fn spans(path: &Path) -> Result<Vec<Written>> {
    let text = fs::read_to_string(path)?;
    let mut outside = vec![];
    let mut is_block = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with("```") {
            is_block = !is_block;
        } else if !is_block {
            let at = format!("{}:{number}", path.display());
            let spans = line.split('`').skip(1).step_by(2).filter(|span| is_ours(span));
            outside.extend(spans.map(|span| Written { text: span.to_owned(), at: at.clone() }));
        }
    }
    Ok(outside)
}

fn is_ours(span: &str) -> bool {
    let span = span.strip_prefix("sudo ").unwrap_or(span);
    span.starts_with("glean ")
}

/// Each visible command with its path, such as `glean usage ls`, as the help
/// lists them: a command before those below it.
pub(crate) fn tree() -> Vec<(String, Clap)> {
    fn walk(command: &Clap, path: &str, found: &mut Vec<(String, Clap)>) {
        let path = format!("{path} {}", command.get_name()).trim().to_owned();
        found.push((path.clone(), command.clone()));
        for inner in command.get_subcommands() {
            if !inner.is_hide_set() && inner.get_name() != "help" {
                walk(inner, &path, found);
            }
        }
    }
    let mut found = vec![];
    walk(&Cli::command(), "", &mut found);
    found
}

/// What stands under `Example:` or `Examples:` in a command's help, without the
/// explanations beside it.
pub(crate) fn examples(path: &str, command: &Clap) -> Vec<Written> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut found: Vec<Written> = vec![];
    let lines = help.lines().skip_while(|line| !line.starts_with("Example"));
    for line in lines.skip(1).take_while(|line| line.starts_with("  ")) {
        if let Some(indented) = line.strip_prefix("    ")
            && let Some(last) = found.last_mut()
        {
            last.text = format!("{}\n{indented}", last.text);
            continue;
        }
        let text = line.trim().split("   ").next().unwrap_or_default();
        found.push(Written { text: text.to_owned(), at: format!("{path} --help") });
    }
    found
}

/// Commands that helps name in backquotes.
pub(crate) fn named_in_help(path: &str, command: &Clap) -> Vec<Written> {
    let arguments = command.get_arguments();
    let helps = arguments.flat_map(|it| [it.get_help(), it.get_long_help()]);
    let own = [command.get_about(), command.get_long_about(), command.get_after_help()];
    let texts = helps.chain(own).flatten().map(ToString::to_string);
    let spans = texts.flat_map(|text| {
        let spans = text.split('`').skip(1).step_by(2).map(str::to_owned);
        spans.filter(|span| is_ours(span)).collect::<Vec<_>>()
    });
    spans.map(|text| Written { text, at: format!("{path} --help") }).collect()
}

/// Commands that are named in what the programs say: in the strings of every
/// source, tests left out.
pub(crate) fn named_in_sources(root: &Path) -> Result<Vec<Written>> {
    let mut found = vec![];
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_left_out =
                ["target", "tests", "benches", "bench", "examples"].contains(&name.as_str());
            if path.is_dir() && !is_left_out && !name.starts_with('.') {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") && name != "tests.rs" {
                let source = fs::read_to_string(&path)?;
                let shipped = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
                for literal in literals(shipped) {
                    let named = commands_in(&literal);
                    let at = path.display().to_string();
                    found.extend(named.into_iter().map(|text| Written { text, at: at.clone() }));
                }
            }
        }
    }
    Ok(found)
}

/// The texts of a source's string literals.
fn literals(source: &str) -> Vec<String> {
    let mut found = vec![];
    let mut rest = source;
    while let Some(at) = rest.find(['"', '/', '\'']) {
        rest = &rest[at..];
        if rest.starts_with("//") {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        } else if let Some(after) = rest.strip_prefix("'\"'") {
            rest = after;
        } else if let Some(inside) = rest.strip_prefix('"') {
            let (text, after) = literal(inside);
            found.push(text);
            rest = after;
        } else {
            rest = &rest[1..];
        }
    }
    found
}

/// A literal up to its end, its escapes resolved, and what comes after it.
fn literal(inside: &str) -> (String, &str) {
    let mut text = String::new();
    let mut letters = inside.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (text, &inside[at + 1..]),
            '\\' => match letters.next() {
                Some((_, 'n')) => text.push('\n'),
                // The line goes on where the next one begins.
                Some((at, '\n')) => {
                    let indent = inside[at + 1..].find(|it: char| it != ' ').unwrap_or(0);
                    for _ in 0..indent {
                        letters.next();
                    }
                }
                Some((_, other)) => text.push(other),
                None => {}
            },
            other => text.push(other),
        }
    }
    (text, "")
}

/// What follows `glean` in a program's words, as far as it is a command and not
/// prose: in backquotes all of it, else what the tree of commands knows.
fn commands_in(said: &str) -> Vec<String> {
    let said = &said.replace("{what}", "agent");
    if said.starts_with("Example") || said.contains("\n  glean ") {
        return vec![];
    }
    let mut found = vec![];
    for (at, _) in said.match_indices("glean ") {
        let before = said[..at].strip_suffix("sudo ").unwrap_or(&said[..at]);
        let rest = &said[at + "glean ".len()..];
        if before.ends_with('`') {
            let words = rest.split('`').next().unwrap_or_default();
            found.push(format!("glean {words}"));
        } else if before.is_empty() || before.ends_with([' ', '\n', '(']) {
            found.extend(without_prose(rest).map(|words| format!("glean {words}")));
        }
    }
    found
}

/// The words of a command before prose goes on; `None` if it begins at once.
fn without_prose(rest: &str) -> Option<String> {
    let mut tree = Cli::command();
    let mut taken: Vec<&str> = vec![];
    let mut words = rest.split_whitespace();
    while let Some(word) = words.next() {
        let bare = word.trim_end_matches([',', ';', ':', '.', ')']);
        let inner = tree.find_subcommand(bare).cloned();
        let is_wrong = tree.is_subcommand_required_set() && inner.is_none();
        if taken.is_empty() && is_wrong {
            return None;
        }
        let stands_for = !bare.is_empty() && bare.chars().all(|it| !it.is_lowercase());
        let is_argument = bare.starts_with("--") || bare.starts_with('{') || stands_for;
        if inner.is_none() && !is_wrong && !is_argument {
            break;
        }
        taken.push(bare);
        let long = bare.strip_prefix("--");
        let flag = tree.get_arguments().find(|it| long.is_some() && it.get_long() == long);
        if flag.is_some_and(|flag| flag.get_action().takes_values()) {
            taken.extend(words.next().map(|value| value.trim_end_matches([',', ';', '.'])));
        }
        if bare != word || is_wrong {
            break;
        }
        tree = inner.unwrap_or(tree);
    }
    Some(taken.join(" "))
}
