//! What a timeline recorded, and how it is shown.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::time::Duration;

use super::megabytes::Megabytes;

/// Columns of the bar chart.
const WIDTH: usize = 80;
/// Longer names are cut.
const LONGEST_NAME: usize = 32;
/// Columns of a number with the space before it: up to 99,999 MB in line.
const NUMBER: usize = 11;

/// A moment in a [`Curve`] and the interval that it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mark {
    /// The name that it was given.
    pub name: Cow<'static, str>,
    /// Live bytes of the process less those at the start of the timeline.
    pub live: isize,
    /// The highest number of live bytes since the previous mark (or the start), less those at the start of the
    /// timeline.
    pub peak_since_previous: isize,
    /// Time since the start of the timeline.
    pub elapsed: Duration,
}

/// The memory of the process between the start and the end of a [`Timeline`](super::Timeline).
///
/// Displays as a bar chart of 80 columns with a line per mark. Numbers are MB (10^6 bytes) above the start. The
/// dark part of a bar is what is live at the mark, the light part goes on to the peak since the previous mark:
///
/// ```text
/// mark                      live MB    peak MB
/// forward of segment 0        2.000      2.500 ██████████████████░░░░░
/// backward of segment 0       0.000      4.000 ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
/// end                         0.000      0.000
/// peak: 4.000 MB above the start, before "backward of segment 0"
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curve {
    pub(super) start: usize,
    pub(super) marks: Vec<Mark>,
}

impl Curve {
    /// Live bytes of the process at the start, from which the marks are measured.
    pub fn start(&self) -> usize {
        self.start
    }

    /// The marks in the order in which they were set; the last is `end`.
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// The most bytes that had to be available beyond those that were in use at the start.
    pub fn peak(&self) -> usize {
        let peaks = self.marks.iter().map(|mark| mark.peak_since_previous);
        peaks.max().unwrap_or(0).max(0).unsigned_abs()
    }

    /// The marks as comma-separated values with a line of headings: name, bytes and seconds, relative to the start.
    pub fn to_csv(&self) -> String {
        let mut csv = String::from("name,live_bytes,peak_since_previous_bytes,elapsed_seconds\n");
        for mark in &self.marks {
            csv.push_str(&csv_field(&mark.name));
            let seconds = mark.elapsed.as_secs_f64();
            // Writing to a string does not fail.
            let _ = writeln!(csv, ",{},{},{seconds:.6}", mark.live, mark.peak_since_previous);
        }
        csv
    }
}

fn csv_field(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}

/// On one line and at most so many columns.
fn shortened(name: &str, columns: usize) -> String {
    let line = name.chars().map(|c| if c.is_control() { ' ' } else { c });
    if name.chars().count() <= columns {
        line.collect()
    } else {
        line.take(columns.saturating_sub(1)).chain(['…']).collect()
    }
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = self.marks.iter().map(|mark| mark.name.chars().count()).max().unwrap_or(0);
        let names = longest.clamp("mark".len(), LONGEST_NAME);
        let room = WIDTH - names - 2 * NUMBER - 1;
        let peak = self.peak();
        let columns = |bytes: isize| {
            let share = bytes.max(0) as f64 / peak.max(1) as f64;
            (share * room as f64).round() as usize
        };

        writeln!(f, "{:names$}{:>NUMBER$}{:>NUMBER$}", "mark", "live MB", "peak MB")?;
        for mark in &self.marks {
            let live = Megabytes(mark.live).to_string();
            let highest = Megabytes(mark.peak_since_previous).to_string();
            write!(f, "{:names$}{live:>NUMBER$}{highest:>NUMBER$}", shortened(&mark.name, names))?;
            let dark = columns(mark.live);
            let light = columns(mark.peak_since_previous).saturating_sub(dark);
            if dark + light > 0 {
                write!(f, " {}{}", "█".repeat(dark), "░".repeat(light))?;
            }
            writeln!(f)?;
        }

        write!(f, "peak: {} MB above the start", Megabytes(peak as isize))?;
        match self.marks.iter().find(|mark| peak > 0 && mark.peak_since_previous == peak as isize) {
            Some(mark) => write!(f, ", before \"{}\"", shortened(&mark.name, LONGEST_NAME)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Curve, Mark};
    use std::time::Duration;

    fn curve(marks: &[(&'static str, isize, isize)]) -> Curve {
        let mark =
            |(index, &(name, live, peak_since_previous)): (usize, &(&'static str, isize, isize))| Mark {
                name: name.into(),
                live,
                peak_since_previous,
                elapsed: Duration::from_millis(1500 * (index as u64 + 1)),
            };
        Curve { start: 1_000_000, marks: marks.iter().enumerate().map(mark).collect() }
    }

    #[test]
    fn displays_as_a_bar_chart() {
        let curve = curve(&[
            ("forward of segment 0", 2_000_000, 2_500_000),
            ("backward of segment 0", 0, 4_000_000),
            ("update of the parameters of the last layer", 1_000_000, 1_000_000),
            ("end", -1_234_000, 1_000_000),
        ]);
        let expected = "\
mark                                live MB    peak MB
forward of segment 0                  2.000      2.500 █████████████░░░
backward of segment 0                 0.000      4.000 ░░░░░░░░░░░░░░░░░░░░░░░░░
update of the parameters of the…      1.000      1.000 ██████
end                                  -1.234      1.000 ░░░░░░
peak: 4.000 MB above the start, before \"backward of segment 0\"";
        assert_eq!(curve.to_string(), expected);
        assert!(expected.lines().all(|line| line.chars().count() <= 80));
        assert_eq!(curve.peak(), 4_000_000);
    }

    #[test]
    fn displays_nothing_allocated() {
        let expected = "\
mark    live MB    peak MB
end       0.000      0.000
peak: 0.000 MB above the start";
        assert_eq!(curve(&[("end", 0, 0)]).to_string(), expected);
        assert_eq!(curve(&[]).to_string(), "mark    live MB    peak MB\npeak: 0.000 MB above the start");
    }

    #[test]
    fn csv_quotes_names_that_need_it() {
        let csv = curve(&[("forward", 5, 7), ("a \"b\", c", -5, 0)]).to_csv();
        let expected = "name,live_bytes,peak_since_previous_bytes,elapsed_seconds\n\
                        forward,5,7,1.500000\n\
                        \"a \"\"b\"\", c\",-5,0,3.000000\n";
        assert_eq!(csv, expected);
    }
}
