//! A report on disk: Markdown, each table also as CSV, each figure as SVG and
//! PNG. What came from a campaign's file is harmless wherever it stands.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gleaner_common::plain::{plain, plain_lines};
pub(super) use gleaner_figure::counted as count;
use gleaner_figure::{Figure, FigureError, Format};
use gleaner_shell::atomic::{self, PUBLIC};

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteReportError {
    #[error("cannot write {}: {why}", path.display())]
    Write { path: PathBuf, why: io::Error },
    #[error("figure {name}: {why}")]
    Figure { name: String, why: FigureError },
}

/// A report while it is written.
pub(super) struct Document {
    dir: PathBuf,
    text: String,
    files: Vec<PathBuf>,
}

impl Document {
    pub(super) fn new(dir: &Path, title: &str) -> Result<Self, WriteReportError> {
        for inner in ["tables", "figures"] {
            let path = dir.join(inner);
            fs::create_dir_all(&path).map_err(|why| WriteReportError::Write { path, why })?;
        }
        Ok(Self { dir: dir.to_owned(), text: format!("# {}\n", plain(title)), files: vec![] })
    }

    pub(super) fn section(&mut self, title: &str) {
        // A string never fails.
        let _ = write!(self.text, "\n## {title}\n");
    }

    pub(super) fn paragraph(&mut self, text: &str) {
        let _ = write!(self.text, "\n{text}\n");
    }

    /// Statements one below the other.
    pub(super) fn list(&mut self, items: &[String]) {
        self.text.push('\n');
        for item in items {
            let _ = writeln!(self.text, "- {item}");
        }
    }

    /// A table, also as `tables/NAME.csv`.
    pub(super) fn table(
        &mut self,
        name: &str,
        caption: &str,
        header: &[&str],
        rows: &[Vec<String>],
    ) -> Result<(), WriteReportError> {
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.iter().map(|cell| plain(cell).into_owned()).collect())
            .collect();
        let line = |cells: &[String]| {
            format!(
                "| {} |\n",
                cells.iter().map(|cell| cell.replace('|', "\\|")).collect::<Vec<_>>().join(" | ")
            )
        };
        let header: Vec<String> = header.iter().map(|title| (*title).to_owned()).collect();
        let _ = write!(self.text, "\n**{caption}**\n\n{}", line(&header));
        let rules: Vec<String> = (0..header.len()).map(|column| rule(&rows, column)).collect();
        self.text.push_str(&line(&rules));
        for row in &rows {
            self.text.push_str(&line(row));
        }
        let path = self.dir.join("tables").join(format!("{name}.csv"));
        let failed = |why| WriteReportError::Write { path: path.clone(), why };
        let mut writer = ::csv::Writer::from_writer(vec![]);
        let mut written = writer.write_record(&header);
        for row in &rows {
            written = written.and_then(|()| writer.write_record(row));
        }
        written.map_err(|error| failed(error.into()))?;
        let bytes = writer.into_inner().map_err(|error| failed(error.into_error()))?;
        self.write(path, &bytes)
    }

    /// A figure, as `figures/NAME.svg` and `figures/NAME.png`; a figure with
    /// nothing to draw is said to have nothing.
    pub(super) fn figure(
        &mut self,
        name: &str,
        caption: &str,
        figure: &impl Figure,
    ) -> Result<(), WriteReportError> {
        let scene = match figure.scene(figure.natural_size()) {
            Ok(scene) => scene,
            Err(FigureError::Empty { .. }) => {
                let _ = write!(self.text, "\n*{caption}: no execution falls in here.*\n");
                return Ok(());
            }
            Err(why) => return Err(WriteReportError::Figure { name: name.to_owned(), why }),
        };
        for (ending, format) in [("svg", Format::Svg), ("png", Format::Png)] {
            let path = self.dir.join("figures").join(format!("{name}.{ending}"));
            self.write(path, &scene.to_bytes(format))?;
        }
        let _ = write!(self.text, "\n![{caption}](figures/{name}.svg)\n\n*{caption}*\n");
        Ok(())
    }

    /// Writes `report.md`, last, and gives all files.
    pub(super) fn finish(mut self) -> Result<Vec<PathBuf>, WriteReportError> {
        let path = self.dir.join("report.md");
        let text = plain_lines(&self.text).into_owned();
        self.write(path, text.as_bytes())?;
        self.files.rotate_right(1);
        Ok(self.files)
    }

    /// What is there stays until all of it is written.
    fn write(&mut self, path: PathBuf, bytes: &[u8]) -> Result<(), WriteReportError> {
        let written = atomic::replace(&path, bytes, PUBLIC);
        written
            .map_err(|error| WriteReportError::Write { path: path.clone(), why: error.source })?;
        self.files.push(path);
        Ok(())
    }
}

/// Numbers to the right.
fn rule(rows: &[Vec<String>], column: usize) -> String {
    let is_number = |text: &String| {
        let mut text = text.as_str();
        for unit in [" %", " s", " h"] {
            text = text.strip_suffix(unit).unwrap_or(text);
        }
        text.is_empty() || text == "-" || text.replace(',', "").parse::<f64>().is_ok()
    };
    let all = rows.iter().filter_map(|row| row.get(column)).all(is_number);
    if all && !rows.is_empty() { "---:".to_owned() } else { "---".to_owned() }
}

/// A number with so many digits after the point; a dash for none.
pub(super) fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

pub(super) fn percent(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$} %"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_takes_the_place_of_an_older_one_and_is_not_written_over_it() {
        let dir = tempfile::tempdir().unwrap();
        let (report, older) = (dir.path().join("report.md"), dir.path().join("older"));
        fs::write(&report, "the report of before").unwrap();
        fs::hard_link(&report, &older).unwrap();
        let mut document = Document::new(dir.path(), "A title").unwrap();
        document.table("a", "A table", &["x"], &[vec!["1".into()]]).unwrap();
        let files = document.finish().unwrap();
        assert_eq!(files, [report.clone(), dir.path().join("tables/a.csv")]);
        assert!(fs::read_to_string(&report).unwrap().starts_with("# A title\n"));
        assert_eq!(fs::read_to_string(&older).unwrap(), "the report of before");
    }

    #[test]
    fn what_a_campaign_says_moves_no_cursor_and_makes_no_heading() {
        let dir = tempfile::tempdir().unwrap();
        let mut document = Document::new(dir.path(), "x\n# Passed").unwrap();
        document.paragraph("two\nlines\u{1b}[2J");
        document.list(&["\u{202e}gpj".into()]);
        document.table("a", "A table", &["x"], &[vec!["y\n| z".into()]]).unwrap();
        document.finish().unwrap();
        let text = fs::read_to_string(dir.path().join("report.md")).unwrap();
        assert!(text.starts_with("# x\\u000a# Passed\n\ntwo\nlines\\u001b[2J\n"), "{text}");
        assert!(text.contains("- \\u202egpj\n"), "{text}");
        assert!(text.contains("| y\\u000a\\| z |\n"), "{text}");
        assert_eq!(
            fs::read_to_string(dir.path().join("tables/a.csv")).unwrap(),
            "x\ny\\u000a| z\n"
        );
    }
}
