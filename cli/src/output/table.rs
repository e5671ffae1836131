//! Tables that stay readable on a narrow terminal: columns have weights.
//!
//! Where a line is too long, columns that may be are shortened or wrapped; where
//! that is not enough, the columns of the least weight are left out, one after
//! the other. Pure, so that tests can look at every width.

use gleaner_common::plain::plain;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Between two columns.
const GAP: &str = "  ";

/// A column of this weight is never left out.
const KEY: u8 = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Yield {
    Never,
    /// Cut, with an ellipsis at the end.
    Shorten,
    /// Goes on below.
    Wrap,
}

/// A column: its title, what it is worth, and how it yields.
#[derive(Clone, Copy, Debug)]
struct Column {
    title: &'static str,
    weight: u8,
    yields: Yield,
    /// What it keeps when it yields, or its longest text if that is shorter.
    least: usize,
}

/// A header and its rows.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// How wide the columns of a listing are. The pages of a long one share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout(Vec<Place>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    title: &'static str,
    /// `None`: the column is left out.
    width: Option<usize>,
    is_of_numbers: bool,
}

impl Layout {
    /// The titles of the columns that found no room.
    pub(crate) fn dropped(&self) -> Vec<&'static str> {
        self.0.iter().filter(|place| place.width.is_none()).map(|place| place.title).collect()
    }
}

/// What the rows of a listing are made of, while its columns are told one by one.
///
/// A column's weight is from 0, left out first, to 9, never left out.
#[derive(Debug)]
pub(crate) struct Rows<'a, T> {
    of: &'a [T],
    listing: Listing,
}

impl<T> Rows<'_, T> {
    pub(crate) fn column(
        self,
        title: &'static str,
        weight: u8,
        cell: impl Fn(&T) -> String,
    ) -> Self {
        self.push(Column { title, weight, yields: Yield::Never, least: usize::MAX }, cell)
    }

    /// A column that may be cut down to `least`.
    pub(crate) fn shortened(
        self,
        title: &'static str,
        (weight, least): (u8, usize),
        cell: impl Fn(&T) -> String,
    ) -> Self {
        self.push(Column { title, weight, yields: Yield::Shorten, least }, cell)
    }

    /// A column that may go on below, if it has room for `least`.
    pub(crate) fn wrapped(
        self,
        title: &'static str,
        (weight, least): (u8, usize),
        cell: impl Fn(&T) -> String,
    ) -> Self {
        self.push(Column { title, weight, yields: Yield::Wrap, least }, cell)
    }

    fn push(mut self, column: Column, cell: impl Fn(&T) -> String) -> Self {
        self.listing.columns.push(column);
        for (cells, row) in self.listing.rows.iter_mut().zip(self.of) {
            // What a row holds came from outside.
            cells.push(plain(&cell(row)).into_owned());
        }
        self
    }

    pub(crate) fn listing(self) -> Listing {
        self.listing
    }
}

impl Listing {
    /// A row for each of these, to be told the columns of.
    pub(crate) fn of<T>(rows: &[T]) -> Rows<'_, T> {
        Rows { of: rows, listing: Self { columns: vec![], rows: vec![vec![]; rows.len()] } }
    }

    /// The table as text, without the last line's end, and the titles of the
    /// columns that found no room.
    pub(crate) fn fitted(&self, width: Option<usize>) -> (String, Vec<&'static str>) {
        let layout = self.layout(width);
        (self.text(&layout, true), layout.dropped())
    }

    /// How this listing is best laid out in so much room.
    pub(crate) fn layout(&self, width: Option<usize>) -> Layout {
        let widths = self.widths(width.unwrap_or(usize::MAX));
        let columns = self.columns.iter().zip(widths).enumerate();
        let place = |(at, (column, width)): (usize, (&Column, Option<usize>))| Place {
            title: column.title,
            width,
            is_of_numbers: self.is_of_numbers(at),
        };
        Layout(columns.map(place).collect())
    }

    /// Has this listing the columns of the one that the layout was made for?
    pub(crate) fn suits(&self, layout: &Layout) -> bool {
        self.columns.iter().map(|it| it.title).eq(layout.0.iter().map(|it| it.title))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows as text, without the last line's end, with the header or without.
    pub(crate) fn text(&self, layout: &Layout, header: bool) -> String {
        let titles: Vec<String> = layout.0.iter().map(|it| it.title.to_uppercase()).collect();
        let mut lines = vec![];
        for row in header.then_some(&titles).into_iter().chain(&self.rows) {
            self.lay(row, layout, &mut lines);
        }
        lines.join("\n")
    }

    /// Every field of every row on a line of its own.
    pub(crate) fn long(&self) -> String {
        let width = self.columns.iter().map(|column| column.title.width()).max().unwrap_or(0);
        let rows = self.rows.iter().map(|row| {
            let fields = self.columns.iter().zip(row);
            let lines = fields.map(|(column, text)| format!("{:width$}{GAP}{text}", column.title));
            lines.map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
        });
        rows.collect::<Vec<_>>().join("\n\n")
    }

    /// How wide each column is; `None` for one that is left out.
    fn widths(&self, width: usize) -> Vec<Option<usize>> {
        let whole: Vec<usize> = (0..self.columns.len()).map(|at| self.longest(at)).collect();
        let least = |at: usize| whole[at].min(self.columns[at].least);
        let mut kept: Vec<usize> = (0..self.columns.len()).collect();
        let spare = loop {
            let needed = kept.iter().map(|at| least(*at) + GAP.len()).sum::<usize>();
            if let Some(spare) = (width.saturating_add(GAP.len())).checked_sub(needed) {
                break spare;
            }
            // Of equals the last goes first.
            let lightest = kept.iter().rev().min_by_key(|at| self.columns[**at].weight).copied();
            match lightest.filter(|at| self.columns[*at].weight < KEY) {
                Some(lightest) => kept.retain(|at| *at != lightest),
                None => break 0,
            }
        };
        let mut widths = vec![None; self.columns.len()];
        for at in &kept {
            widths[*at] = Some(least(*at));
        }
        share(spare, kept, &whole, &mut widths);
        widths
    }

    fn longest(&self, at: usize) -> usize {
        let texts = self.rows.iter().filter_map(|row| row.get(at));
        texts.map(|text| text.width()).chain([self.columns[at].title.width()]).max().unwrap_or(0)
    }

    fn is_of_numbers(&self, at: usize) -> bool {
        let mut texts = self.rows.iter().filter_map(|row| row.get(at));
        !self.rows.is_empty() && texts.all(|text| text.is_empty() || text.parse::<f64>().is_ok())
    }

    fn lay(&self, row: &[String], layout: &Layout, lines: &mut Vec<String>) {
        let cells: Vec<(usize, bool, Vec<String>)> = (row.iter().zip(&self.columns).zip(&layout.0))
            .filter_map(|((text, column), place)| {
                let width = place.width?;
                Some((width, place.is_of_numbers, column.cut(text, width)))
            })
            .collect();
        for line in 0..cells.iter().map(|(.., parts)| parts.len()).max().unwrap_or(0) {
            let cells = cells.iter().map(|(width, is_number, parts)| {
                let text = parts.get(line).map_or("", String::as_str);
                let space = " ".repeat(width.saturating_sub(text.width()));
                if *is_number { space + text } else { text.to_owned() + &space }
            });
            lines.push(cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned());
        }
    }
}

/// Gives columns what is there, all alike, as far as they can use it.
fn share(mut spare: usize, mut hungry: Vec<usize>, whole: &[usize], widths: &mut [Option<usize>]) {
    while spare > 0 && !hungry.is_empty() {
        let each = (spare / hungry.len()).max(1);
        hungry.retain(|at| {
            let width = widths[*at].get_or_insert(0);
            let more = (whole[*at] - *width).min(each).min(spare);
            *width += more;
            spare -= more;
            *width < whole[*at]
        });
    }
}

impl Column {
    /// A text's lines in a column of this width.
    fn cut(&self, text: &str, width: usize) -> Vec<String> {
        if text.width() <= width {
            return vec![text.to_owned()];
        }
        match self.yields {
            Yield::Never => vec![text.to_owned()],
            Yield::Shorten => vec![start(text, width.saturating_sub(1)).to_owned() + "…"],
            Yield::Wrap => wrapped(text, width),
        }
    }
}

/// As much of a text as fits, without spaces at its end.
fn start(text: &str, width: usize) -> &str {
    let mut taken = 0;
    let end = text.char_indices().find(|(_, letter)| {
        taken += letter.width().unwrap_or(0);
        taken > width
    });
    text[..end.map_or(text.len(), |(at, _)| at)].trim_end()
}

/// Lines of whole words, as far as they are not longer than a line.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![];
    let mut rest = text.trim();
    while rest.width() > width {
        let whole = start(rest, width);
        let is_between_words = rest[whole.len()..].starts_with(' ');
        let words = if is_between_words {
            whole
        } else {
            whole.rsplit_once(' ').map_or(whole, |(words, _)| words)
        };
        // A letter wider than the column stands in it all the same.
        let words = if words.is_empty() {
            &rest[..rest.chars().next().map_or(1, char::len_utf8)]
        } else {
            words
        };
        lines.push(words.trim_end().to_owned());
        rest = rest[words.len()..].trim_start();
    }
    lines.push(rest.to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing() -> Listing {
        let rows = [
            ["1", "primes", "7.5", "somebody typed"],
            ["12", "a name of many words", "120", "the load has been above a quarter for an hour"],
        ];
        Listing::of(&rows)
            .column("job", 9, |row| row[0].to_owned())
            .shortened("name", (8, 12), |row| row[1].to_owned())
            .column("cpu", 3, |row| row[2].to_owned())
            .wrapped("reason", (8, 12), |row| row[3].to_owned())
            .listing()
    }

    fn at(width: usize) -> String {
        let (text, dropped) = listing().fitted(Some(width));
        assert!(text.lines().all(|line| line.width() <= width), "{width}:\n{text}");
        format!("{text}\nwithout {dropped:?}")
    }

    #[test]
    fn what_fits_is_shown_whole_with_numbers_to_the_right() {
        assert_eq!(listing().fitted(None), listing().fitted(Some(120)));
        insta::assert_snapshot!(at(120), @r"
        JOB  NAME                  CPU  REASON
          1  primes                7.5  somebody typed
         12  a name of many words  120  the load has been above a quarter for an hour
        without []
        ");
    }

    #[test]
    fn texts_are_shortened_and_wrapped_before_a_column_is_left_out() {
        insta::assert_snapshot!(at(60), @r"
        JOB  NAME                  CPU  REASON
          1  primes                7.5  somebody typed
         12  a name of many words  120  the load has been above a
                                        quarter for an hour
        without []
        ");
        insta::assert_snapshot!(at(34), @r#"
        JOB  NAME            REASON
          1  primes          somebody
                             typed
         12  a name of man…  the load has
                             been above a
                             quarter for
                             an hour
        without ["cpu"]
        "#);
    }

    #[test]
    fn long_has_every_field_on_its_line() {
        insta::assert_snapshot!(listing().long(), @r"
        job     1
        name    primes
        cpu     7.5
        reason  somebody typed

        job     12
        name    a name of many words
        cpu     120
        reason  the load has been above a quarter for an hour
        ");
    }

    #[test]
    fn no_width_is_too_small_and_every_word_is_there() {
        for width in 0..80 {
            let (text, _) = listing().fitted(Some(width));
            assert!(text.contains("12"), "{width}:\n{text}");
        }
        let words = "a reason of many words, one of them uncommonlylongforawordinacolumn, and 漢字";
        for width in 1..40 {
            let lines = wrapped(words, width);
            assert_eq!(lines.concat().replace(' ', ""), words.replace(' ', ""), "{width}");
        }
    }

    #[test]
    fn a_later_page_is_laid_out_as_the_first_one() {
        let first = listing();
        let layout = first.layout(Some(34));
        let rows = vec![vec!["3".into(), "sieve".into(), "1".into(), "idle".into()]];
        let page = Listing { rows, ..listing() };
        assert!(page.suits(&layout));
        assert_eq!(page.text(&layout, false), "  3  sieve           idle");
        assert_ne!(page.layout(Some(34)), layout, "alone it would look otherwise");
        let other = Listing::of(&[0]).column("job", 9, ToString::to_string).listing();
        assert!(!other.suits(&layout));
    }

    #[test]
    fn a_table_without_rows_still_says_what_its_columns_are() {
        let empty = Listing { rows: vec![], ..listing() };
        assert_eq!(empty.fitted(None).0, "JOB  NAME  CPU  REASON");
    }
}
