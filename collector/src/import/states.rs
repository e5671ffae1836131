//! State changes of library and lab computers: `machine,state,timestamp` rows
//! without a header, as the University Libraries at UNC Greensboro published
//! them, in local time.
//!
//! ```text
//! INC004,in-use,2016-04-09 11:50:40.383
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gleaner_common::plain::quoted;

use super::fields::only_place;
use super::local::LocalClock;
use super::machine::{Machine, MachineDoing, OrderError};
use super::source::{Sources, bad};
use super::{ImportError, ImportOptions, ImportSummary, NAMES_MAX, Sink, check_room};
use crate::name::{NameError, WorkstationName};

/// A longer line is no such row.
const LINE_BYTES_MAX: usize = 4_096;

pub(super) fn walk(
    sources: &Sources,
    options: &ImportOptions,
    sink: Sink<'_>,
) -> Result<ImportSummary, ImportError> {
    let desktops = options.only_desktops.as_deref();
    let desktops = desktops.map(|table| read_desktops(sources, table)).transpose()?;
    let mut walk = StatesWalk {
        options,
        desktops,
        clock: LocalClock::new(options.zone.clone()),
        machines: BTreeMap::new(),
        left_out: BTreeSet::new(),
        summary: ImportSummary::default(),
        sink,
    };
    for path in &sources.files {
        walk.file(sources, path)?;
    }
    if walk.summary.rows == 0 {
        let expected = "rows such as INC004,in-use,2016-04-09 11:50:40.383";
        return Err(sources.empty(&options.sources, expected));
    }
    walk.summary.left_out_workstations = walk.left_out.len() as u64;
    Ok(walk.summary)
}

struct StatesWalk<'a> {
    options: &'a ImportOptions,
    desktops: Option<BTreeMap<String, Option<bool>>>,
    clock: LocalClock,
    machines: BTreeMap<String, Machine>,
    left_out: BTreeSet<String>,
    summary: ImportSummary,
    sink: Sink<'a>,
}

impl StatesWalk<'_> {
    fn file(&mut self, sources: &Sources, path: &Path) -> Result<(), ImportError> {
        let mut lines = sources.lines(path, LINE_BYTES_MAX)?;
        let mut records = vec![];
        self.summary.files += 1;
        while let Some(line) = lines.next_line()? {
            if line.is_empty() {
                self.summary.blank_lines += 1;
                continue;
            }
            self.summary.rows += 1;
            let name = self.row(line, &mut records).map_err(|what| lines.bad(what))?;
            let Some(name) = name else { continue };
            for record in records.drain(..) {
                self.summary.records += 1;
                (self.sink)(name.clone(), record)?;
            }
        }
        Ok(())
    }

    /// Whose row it is, unless it is left out.
    fn row(
        &mut self,
        line: &str,
        records: &mut Vec<gleaner_common::usage::UsageRecord>,
    ) -> Result<Option<WorkstationName>, String> {
        let mut fields = line.split(',');
        let (Some(name), Some(state), Some(time), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(format!("`{}`: expected machine,state,timestamp", quoted(line)));
        };
        let doing = match state {
            "in-use" => MachineDoing::InUse,
            "available" => MachineDoing::Free,
            "restarted" => MachineDoing::Restarted,
            "offline" => MachineDoing::Off,
            _ => {
                return Err(format!(
                    "`{}` is not a state: expected in-use, available, restarted or offline",
                    quoted(state)
                ));
            }
        };
        let at = self.clock.read(time)?;
        if !self.is_wanted(name)? {
            self.summary.left_out_rows += 1;
            return Ok(None);
        }
        self.summary.local_times.count(at);
        if !self.machines.contains_key(name) {
            check_room(self.machines.len())?;
            let valid = name.parse().map_err(|error: NameError| error.to_string())?;
            self.machines.insert(name.to_owned(), Machine::new(&valid));
        }
        let Some(machine) = self.machines.get_mut(name) else { unreachable!("inserted above") };
        let finding = machine.enter(at, doing, state, self.options.hold_max, records).map_err(
            |error| match error {
                OrderError::Earlier => format!(
                    "`{}` is earlier than the row before it of `{name}`: expected order of time",
                    quoted(time)
                ),
                OrderError::TwoAtOnce => {
                    format!("a second state of `{name}` at {}", quoted(time))
                }
            },
        )?;
        self.summary.count_row(finding);
        Ok(Some(machine.name().clone()))
    }

    fn is_wanted(&mut self, name: &str) -> Result<bool, String> {
        let Some(desktops) = &self.desktops else { return Ok(true) };
        let listed = desktops.get(name).copied().flatten();
        self.summary.unlisted_rows += u64::from(listed.is_none());
        if listed == Some(true) {
            return Ok(true);
        }
        if !self.left_out.contains(name) {
            self.left_out.insert(name.to_owned());
        }
        if self.left_out.len() > NAMES_MAX {
            return Err(format!("more than {NAMES_MAX} computers that are no desktops"));
        }
        Ok(false)
    }
}

/// Which computers a table calls desktops; `None` where it leaves that empty.
fn read_desktops(
    sources: &Sources,
    path: &Path,
) -> Result<BTreeMap<String, Option<bool>>, ImportError> {
    let mut rows = sources.rows(path)?;
    let (mut columns, mut fields) = (None, 0);
    let mut desktops = BTreeMap::new();
    while let Some((line, row)) = rows.next_row()? {
        let bad = |what: String| bad(path, line, &what);
        let Some((name, desktop)) = columns else {
            let column = |title: &str| {
                let place = only_place(row, title, |column| column == title).map_err(bad)?;
                place.ok_or_else(|| {
                    bad(format!(
                        "no column `{title}` in the header: expected computerName and isDesktop"
                    ))
                })
            };
            columns = Some((column("computerName")?, column("isDesktop")?));
            fields = row.len();
            continue;
        };
        if row.len() != fields {
            let found = row.len();
            return Err(bad(format!(
                "a row of {found} fields: expected {fields}, like the header"
            )));
        }
        let field = |column: usize| row.get(column).unwrap_or_default().trim();
        let is_desktop = match field(desktop) {
            "1" => Some(true),
            "0" => Some(false),
            "" => None,
            other => return Err(bad(format!("isDesktop `{}`: expected 0 or 1", quoted(other)))),
        };
        if desktops.insert(field(name).to_owned(), is_desktop).is_some() {
            return Err(bad(format!("`{}` is there twice", quoted(field(name)))));
        }
        if desktops.len() > NAMES_MAX {
            return Err(bad(format!("more than {NAMES_MAX} computers")));
        }
    }
    match columns {
        Some(_) => Ok(desktops),
        None => Err(bad(path, 1, "no header: expected computerName and isDesktop in it")),
    }
}
