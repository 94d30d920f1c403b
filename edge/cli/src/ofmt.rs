//! Columns as the Solaris commands print them: fixed widths that give way and recover, `-o`, `-p`, wrapping.
//!
//! Output for people has a header once rows come, repeated every screenful on a terminal. A value as wide as its
//! column or wider pushes what follows to the right, and later columns shrink until the rows are aligned again, those of
//! counters too, where the original's stay as wide as they are. An empty value is shown as `--`. Output for programs (`-p`) has no header, needs `-o`, joins fields with
//! colons and escapes colons and backslashes inside them, unless there is only one field.

use crate::session::{Failure, Session, die};

/// A column: its name and its width with the space after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) width: usize,
}

/// Shorthand for a table of columns.
pub(crate) const fn col(name: &'static str, width: usize) -> Column {
    Column { name, width }
}

/// How a table is printed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Style<'a> {
    /// The fields of `-o`.
    pub(crate) fields: Option<&'a str>,
    /// For programs.
    pub(crate) parsable: bool,
    /// Right-justified, as counters are.
    pub(crate) right: bool,
    /// Whether lists may wrap over several rows.
    pub(crate) wrap: bool,
    /// What stands between the fields for programs, in place of a colon; values are not escaped then.
    pub(crate) separator: Option<char>,
}

/// What is asked of a table on the command line of `firelane` itself; the older commands read theirs with `getopt`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Form {
    /// Answer in JSON
    #[arg(short, long, conflicts_with_all = ["output", "parsable"])]
    pub(crate) json: bool,
    /// The fields to show
    #[arg(short, value_name = "FIELD,...")]
    pub(crate) output: Option<String>,
    /// Output for programs; needs -o
    #[arg(short, long)]
    pub(crate) parsable: bool,
}

impl Form {
    pub(crate) fn style(&self) -> Style<'_> {
        Style { fields: self.output.as_deref(), parsable: self.parsable, ..Style::default() }
    }
}

/// What an unknown value is shown as.
pub(crate) const UNKNOWN: &str = "?";
/// What an empty value is shown as.
const UNDEFINED: &str = "--";

/// A table that is being printed.
pub(crate) struct Table<'a> {
    columns: Vec<(usize, Column)>,
    style: Style<'a>,
    /// The lines since the header began, itself among them; none before the first.
    printed: usize,
}

impl<'a> Table<'a> {
    /// A table of the `default` fields of `template`, or of those that `-o` names. Unknown fields are a
    /// warning for people and fatal for programs.
    pub(crate) fn open(
        session: &mut Session<'_>,
        program: &str,
        template: &[Column],
        default: &str,
        style: Style<'a>,
    ) -> Result<Self, Failure> {
        let wanted = match style.fields {
            None | Some("") if style.parsable => {
                return Err(die("output fields must be specified in parsable mode"));
            }
            Some(fields) if fields.eq_ignore_ascii_case("all") => {
                if style.parsable {
                    return Err(die("output field `all' invalid in parsable mode"));
                }
                template.iter().map(|column| column.name).collect::<Vec<_>>()
            }
            fields => fields.unwrap_or(default).split(',').filter(|field| !field.is_empty()).collect(),
        };
        let mut columns = Vec::new();
        let mut unknown = Vec::new();
        for field in wanted {
            match template.iter().position(|column| column.name.eq_ignore_ascii_case(field)) {
                Some(index) => columns.push((index, template[index])),
                None => unknown.push(format!(" `{field}'")),
            }
        }
        if columns.is_empty() {
            return Err(die("no valid output fields"));
        }
        if !unknown.is_empty() {
            let plural = if unknown.len() > 1 { "s" } else { "" };
            let message = format!("unknown output field{plural}:{}", unknown.concat());
            if style.parsable {
                return Err(die(message));
            }
            session.warn(program, &format!("ignoring {message}"));
        }
        Ok(Self { columns, style, printed: 0 })
    }

    /// Prints the header although no row may come, as those commands do that have one in each report.
    pub(crate) fn header(&mut self, session: &mut Session<'_>) -> Result<(), Failure> {
        if self.style.parsable {
            return Ok(());
        }
        let names: Vec<_> = self.columns.iter().map(|(_, column)| column.name).collect();
        writeln!(session.out, "{}", self.line(&names))?;
        self.printed = 1;
        Ok(())
    }

    /// Prints one row; `values` are in the template's order.
    pub(crate) fn row(&mut self, session: &mut Session<'_>, values: &[String]) -> Result<(), Failure> {
        if self.style.parsable {
            return self.parsable_row(session, values);
        }
        // A row that wraps may begin on one screen and end on the next.
        if self.printed == 0 || session.rows.is_some_and(|rows| self.printed >= rows) {
            self.header(session)?;
        }
        let values: Vec<_> = self.columns.iter().map(|&(index, _)| values[index].as_str()).collect();
        let shown: Vec<_> = values.iter().map(|v| if v.is_empty() { UNDEFINED } else { v }).collect();
        if !self.style.wrap {
            writeln!(session.out, "{}", self.line(&shown))?;
            self.printed += 1;
            return Ok(());
        }
        let mut rests: Vec<Vec<&str>> = shown.iter().map(|value| value.split(',').collect()).collect();
        let mut first = true;
        while first || rests.iter().any(|rest| !rest.is_empty()) {
            let pieces: Vec<String> = rests
                .iter_mut()
                .zip(&self.columns)
                .map(|(rest, (_, column))| fit(rest, column.width))
                .collect();
            writeln!(session.out, "{}", self.line(&pieces.iter().map(String::as_str).collect::<Vec<_>>()))?;
            self.printed += 1;
            first = false;
        }
        Ok(())
    }

    fn parsable_row(&self, session: &mut Session<'_>, values: &[String]) -> Result<(), Failure> {
        let escape = self.columns.len() > 1 && self.style.separator.is_none();
        let mut line = String::new();
        for (position, &(index, _)) in self.columns.iter().enumerate() {
            if position > 0 {
                line.push(self.style.separator.unwrap_or(':'));
            }
            for c in values[index].chars() {
                if escape && matches!(c, ':' | '\\') {
                    line.push('\\');
                }
                line.push(c);
            }
        }
        Ok(writeln!(session.out, "{line}")?)
    }

    /// One line of fields, one per column.
    fn line(&self, values: &[&str]) -> String {
        if self.style.right {
            return self.right_line(values);
        }
        let mut line = String::new();
        let mut overflow = 0;
        for (position, (value, (_, column))) in values.iter().zip(&self.columns).enumerate() {
            let (width, length) = (column.width, value.chars().count());
            if position + 1 == self.columns.len() {
                line.push_str(value);
            } else if length + overflow >= width {
                // Too wide for what is left of the column: what follows moves to the right.
                overflow = (overflow + length + 1).saturating_sub(width);
                line.push_str(&format!("{value} "));
            } else {
                let width = width - overflow.min(width - length);
                overflow = overflow.saturating_sub(column.width - length);
                line.push_str(&format!("{value:<width$}"));
            }
        }
        line
    }

    /// The same where each value ends below the end of its heading, or behind a space as soon as it can.
    fn right_line(&self, values: &[&str]) -> String {
        let mut line = String::new();
        let (mut at, mut end) = (0, 0);
        for (position, (value, (_, column))) in values.iter().zip(&self.columns).enumerate() {
            if position > 0 {
                line.push(' ');
                (at, end) = (at + 1, end + 1);
            }
            end += column.width;
            let length = value.chars().count();
            let width = end.saturating_sub(at).max(length);
            line.push_str(&format!("{value:>width$}"));
            at += width;
        }
        line
    }
}

/// Takes as many list elements as fit into `width`, at least one. What is continued ends with a comma.
fn fit(rest: &mut Vec<&str>, width: usize) -> String {
    let mut piece = String::new();
    let mut taken = 0;
    for (index, element) in rest.iter().enumerate() {
        if index > 0 && piece.chars().count() + element.chars().count() > width {
            break;
        }
        piece.push_str(element);
        taken = index + 1;
        if taken < rest.len() {
            piece.push(',');
        }
    }
    rest.drain(..taken);
    piece
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::testing::capture;

    const TEMPLATE: [Column; 3] = [col("LINK", 8), col("OVER", 6), col("VALUE", 4)];

    /// What rows print, or the failure's message.
    fn printed(style: Style<'_>, rows: Option<usize>, values: &[[&str; 3]]) -> (String, String) {
        capture(rows, |session| {
            let mut table = Table::open(session, "prog", &TEMPLATE, "link,over,value", style)?;
            for row in values {
                table.row(session, &row.map(str::to_owned))?;
            }
            Ok(())
        })
    }

    #[test]
    fn a_wide_value_pushes_and_later_columns_recover() {
        let rows = [
            ["a0", "b0", "1"],
            ["longlink0", "b0", "2"],
            ["eightch0", "b0", "3"],
            ["longlink0", "longer0", "4"],
        ];
        let (out, _) = printed(Style::default(), None, &rows);
        let want =
            "LINK    OVER  VALUE\na0      b0    1\nlonglink0 b0  2\neightch0 b0   3\nlonglink0 longer0 4\n";
        assert_eq!(out, want);
    }

    #[test]
    fn empty_is_two_dashes_and_nothing_has_no_header() {
        assert_eq!(
            printed(Style::default(), None, &[["a0", "", ""]]).0,
            "LINK    OVER  VALUE\na0      --    --\n"
        );
        assert_eq!(printed(Style::default(), None, &[]).0, "");
    }

    #[test]
    fn counters_are_right_justified() {
        let style = Style { right: true, ..Style::default() };
        assert_eq!(
            printed(style, None, &[["a0", "7", "1"]]).0,
            "    LINK   OVER VALUE\n      a0      7    1\n"
        );
    }

    #[test]
    fn counters_behind_a_wide_name_stand_below_their_headings_again() {
        let style = Style { right: true, ..Style::default() };
        let rows = [["longlink00", "7", "1"], ["longlink00", "123", "1"], ["longlink00", "1234567", "1"]];
        let want =
            "    LINK   OVER VALUE\nlonglink00    7    1\nlonglink00  123    1\nlonglink00 1234567 1\n";
        assert_eq!(printed(style, None, &rows).0, want);
        // What stands in the last column gives way as well.
        let rows = [["longlink00", "123456", "1"], ["longlink00", "1234567", "12345"]];
        let want = "    LINK   OVER VALUE\nlonglink00 123456  1\nlonglink00 1234567 12345\n";
        assert_eq!(printed(style, None, &rows).0, want);
    }

    #[test]
    fn the_header_returns_every_screenful_of_a_terminal() {
        let (out, _) = printed(Style::default(), Some(3), &[["a0", "b0", "1"]; 4]);
        assert_eq!(out.lines().filter(|line| line.starts_with("LINK")).count(), 2, "{out}");
        let (out, _) = printed(Style::default(), None, &[["a0", "b0", "1"]; 100]);
        assert_eq!(out.lines().count(), 101);
        // Two lines for each row: the third screen's header is due in the middle of one.
        let wrapped = Style { wrap: true, ..Style::default() };
        let (out, _) = printed(wrapped, Some(4), &[["a0", "lo,me,hi", "1"]; 5]);
        let headers: Vec<_> = (0..).zip(out.lines()).filter(|(_, line)| line.starts_with("LINK")).collect();
        assert_eq!(headers.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 5, 10], "{out}");
    }

    #[test]
    fn programs_get_escaped_fields_and_no_header() {
        let style = |fields| Style { fields: Some(fields), parsable: true, ..Style::default() };
        let row = [["a0", "2:8\\", ""]];
        assert_eq!(printed(style("LINK,over,value"), None, &row).0, "a0:2\\:8\\\\:\n");
        assert_eq!(printed(style("over"), None, &row).0, "2:8\\\n");
    }

    #[test]
    fn refused_field_lists() {
        let parsable = |fields| Style { fields, parsable: true, ..Style::default() };
        let human = |fields| Style { fields: Some(fields), ..Style::default() };
        for (style, message) in [
            (parsable(None), "prog: output fields must be specified in parsable mode\n"),
            (parsable(Some("ALL")), "prog: output field `all' invalid in parsable mode\n"),
            (parsable(Some("link,x")), "prog: unknown output field: `x'\n"),
            (human("x,y"), "prog: no valid output fields\n"),
        ] {
            assert_eq!(printed(style, None, &[["a0", "", ""]]), (String::new(), message.to_owned()));
        }
        let (out, err) = printed(human("x,link,y"), None, &[["a0", "", ""]]);
        assert_eq!(
            (out.as_str(), err.as_str()),
            ("LINK\na0\n", "prog: warning: ignoring unknown output fields: `x' `y'\n")
        );
    }

    #[test]
    fn lists_wrap_at_commas() {
        let style = Style { wrap: true, ..Style::default() };
        let (out, _) = printed(style, None, &[["a0", "lo,me,hi", "1"]]);
        assert_eq!(out, "LINK    OVER  VALUE\na0      lo,me, 1\n        hi    \n");
    }
}
