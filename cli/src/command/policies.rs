//! `glean policies`: what a coordinator can schedule by.

use anyhow::Result;
use gleaner_coordinator_core::scheduler::{ALL, DEFAULT, PARAMETERS};
use serde::Serialize;

use crate::failure::Verdict;
use crate::output::{self, Form, Listing};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub form: Form,
}

#[derive(Debug, Serialize)]
struct PolicyRow {
    policy: &'static str,
    is_default: bool,
    what: &'static str,
    source: &'static str,
    parameters: Vec<ParameterRow>,
}

#[derive(Debug, Serialize)]
struct ParameterRow {
    name: &'static str,
    default: &'static str,
    what: &'static str,
}

/// # Errors
/// Standard output is closed or full.
pub fn run(args: &Args) -> Result<Verdict> {
    args.form.print(&rows(), listing)?;
    if !args.form.json {
        output::say(&format!("the coordinator's file chooses: scheduler.policy = \"{DEFAULT}\""));
    }
    Ok(Verdict::Yes)
}

fn rows() -> Vec<PolicyRow> {
    let parameters = |policy| {
        let of_it = PARAMETERS.iter().filter(move |it| it.policies.contains(&policy));
        let row = |it: &gleaner_coordinator_core::scheduler::Parameter| ParameterRow {
            name: it.name,
            default: it.default,
            what: it.line,
        };
        of_it.map(row).collect()
    };
    let row = |it: &gleaner_coordinator_core::scheduler::Named| PolicyRow {
        policy: it.name,
        is_default: it.name == DEFAULT,
        what: it.line,
        source: it.source,
        parameters: parameters(it.name),
    };
    ALL.iter().map(row).collect()
}

fn listing(rows: &[PolicyRow]) -> Listing {
    Listing::of(rows)
        .column("policy", 9, |row| row.policy.to_owned())
        .wrapped("what it does", (8, 30), |row| row.what.to_owned())
        .wrapped("source", (6, 20), |row| row.source.to_owned())
        .wrapped("parameters", (5, 14), |row| {
            let named = |it: &ParameterRow| format!("{} = {}", it.name, it.default);
            row.parameters.iter().map(named).collect::<Vec<_>>().join(", ")
        })
        .listing()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_listed_with_its_source_and_the_parameters_it_looks_at() {
        let rows = rows();
        assert_eq!(rows.len(), ALL.len());
        assert_eq!(rows.iter().filter(|row| row.is_default).count(), 1);
        let koala = rows.iter().find(|row| row.policy == "pwa-egs").unwrap();
        let names: Vec<_> = koala.parameters.iter().map(|it| it.name).collect();
        assert_eq!(names, ["kept_free", "tries_max"]);
        let (text, _) = listing(&rows).fitted(Some(200));
        assert!(text.contains("Buisson et al. 2007") && text.contains("kept_free = 0"), "{text}");
    }
}
