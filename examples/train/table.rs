//! What a large batch takes at once, in micro-batches, and what small batches take.

use super::flags::Flags;
use super::run::{train, Shown};
use comfy_table::{presets::ASCII_MARKDOWN, Table};
use memopt::dist::Single;
use memopt::train::RateScaling;
use memopt::Result;
use std::sync::Arc;

/// Micro-batches of a step, and images of a micro-batch.
const WAYS: [(u16, u16); 4] = [(1, 16), (4, 4), (8, 2), (1, 2)];

/// Samples that the loss is averaged over, with weights that halve behind so many.
const HALF: f64 = 128.;

/// One row for each way, all of the same seed.
pub fn table(flags: &Flags) -> Result<Table> {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    let to_loss = format!("steps to a loss of {}", flags.loss);
    table.set_header(["batch", "peak of a step", "samples/s", &to_loss, "samples until then", "held out"]);
    for (accumulate, micro_batch) in WAYS {
        let batch = accumulate * micro_batch;
        let rate = RateScaling::SquareRoot.rate((flags.rate(), 16), batch.into())?;
        let flags = Flags { accumulate, micro_batch, rate: Some(rate), ..flags.clone() };
        let outcome = train(&flags, Arc::new(Single::new()), Shown::Nothing)?;
        let summary = outcome.summary;
        let reached = reaching(&outcome.losses, flags.loss);
        let accuracy = summary.evaluations.last().and_then(|last| last.metrics.get("accuracy"));
        table.add_row([
            match accumulate {
                1 => format!("{batch} direct"),
                _ => format!("{batch} as {accumulate} x {micro_batch}"),
            },
            summary.peak_bytes.map_or("not counted".into(), |peak| format!("{:.3} MB", peak as f64 / 1e6)),
            format!("{:.0}", summary.samples_per_second),
            reached.map_or("not reached".into(), |(steps, _)| steps.to_string()),
            reached.map_or("not reached".into(), |(_, samples)| samples.to_string()),
            accuracy.map_or("".into(), |accuracy| format!("{:.2} %", 100. * accuracy)),
        ]);
    }
    Ok(table)
}

/// Steps and samples until the averaged loss is at most `loss`.
fn reaching(losses: &[(u64, f64)], loss: f64) -> Option<(usize, u64)> {
    let (mut average, mut weight, mut seen) = (0., 0., 0);
    for (step, &(samples, own)) in losses.iter().enumerate() {
        let kept = 0.5f64.powf(samples as f64 / HALF);
        average = kept * average + (1. - kept) * own;
        weight = kept * weight + (1. - kept);
        seen += samples;
        // Not by the first few samples alone.
        if average / weight <= loss && seen as f64 >= HALF {
            return Some((step + 1, seen));
        }
    }
    None
}
