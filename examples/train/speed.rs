//! Two ranks on two cores against one rank on one.

use super::flags::Flags;
use super::run::{in_threads, Shown};
use comfy_table::{presets::ASCII_MARKDOWN, Table};
use memopt::Result;

/// Medians over turns in which both train, one after the other; the ratio is the median of the turns' ratios.
pub fn speed(flags: &Flags) -> Result<Table> {
    let (mut one, mut two, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..=flags.turns {
        let samples_per_second = |ranks| -> Result<f64> {
            Ok(in_threads(flags, ranks, Some(1), Shown::Nothing)?.summary.samples_per_second)
        };
        // Who goes first takes turns too.
        let [of_one, of_two] = match turn % 2 {
            0 => [samples_per_second(1)?, samples_per_second(2)?],
            _ => {
                let of_two = samples_per_second(2)?;
                [samples_per_second(1)?, of_two]
            }
        };
        // The first turn warms up.
        if turn > 0 {
            one.push(of_one);
            two.push(of_two);
            ratios.push(of_two / of_one);
        }
    }
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["ranks of one thread", "samples/s (median)", "ratio (median of pairs)"]);
    table.add_row(["1".to_owned(), format!("{:.0}", median(one)), "1".to_owned()]);
    table.add_row(["2".to_owned(), format!("{:.0}", median(two)), format!("{:.2}", median(ratios))]);
    Ok(table)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
