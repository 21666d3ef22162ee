//! Lists in every form, tables for people, and ages.

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;

use crate::output::plain;

/// How a list is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    /// A line each.
    Table,
    /// A line each, with the reason.
    Wide,
    /// A JSON array.
    Json,
    /// Names only.
    Name,
}

/// What stands in a list.
pub(crate) trait Listed {
    /// Titles of the columns; the last is shown only in the wide form.
    const HEAD: &[&str];

    fn name(&self) -> String;
    fn json(&self) -> Result<Value>;
    /// A cell for each column.
    fn cells(&self, now: Timestamp) -> Vec<String>;
}

/// A list in the form asked for.
pub(crate) fn list<T: Listed>(items: &[T], form: Form, now: Timestamp) -> Result<String> {
    Ok(match form {
        Form::Name => items.iter().map(T::name).collect::<Vec<_>>().join("\n"),
        Form::Json => {
            let items = items.iter().map(T::json).collect::<Result<Vec<_>>>()?;
            format!("{:#}", Value::from(items))
        }
        Form::Table | Form::Wide if items.is_empty() => String::new(),
        Form::Table | Form::Wide => {
            let width = T::HEAD.len() - usize::from(form == Form::Table);
            let cells = |item: &T| item.cells(now).into_iter().take(width).collect();
            table(&T::HEAD[..width], &items.iter().map(cells).collect::<Vec<_>>())
        }
    })
}

/// Columns as wide as their widest cell, two spaces between them; empty cells as `-`.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let shown = |cell: &String| if cell.is_empty() { "-".to_owned() } else { plain(cell) };
    let head: Vec<_> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(shown).collect()).collect();
    let all = || std::iter::once(&head).chain(&rows);
    let widths: Vec<usize> = (0..head.len())
        .map(|column| {
            all()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all().map(line).collect::<Vec<_>>().join("\n")
}

/// How long ago, as kubectl shows it: `7s`, `12m`, `5h`, `3d`.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let rows = [vec!["a".into(), "Bound\n".into()], vec!["longer".into(), String::new()]];
        let expected = "NAME    PHASE\na       Bound\u{fffd}\nlonger  -";
        assert_eq!(table(&["NAME", "PHASE"], &rows), expected);
    }

    #[test]
    fn ages_are_short() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        for (ago, expected) in
            [(7, "7s"), (119, "119s"), (720, "12m"), (18_000, "5h"), (300_000, "3d")]
        {
            assert_eq!(age(Timestamp::from_second(1_000_000 - ago).unwrap(), now), expected);
        }
    }
}
