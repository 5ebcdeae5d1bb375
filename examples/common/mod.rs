//! What the examples share: the images, and how they end.

mod digits;

pub use digits::Digits;

use candle_core::Result;
use std::process::ExitCode;

/// A table of the bytes that two trainings held after forward, and of the peaks of a step.
pub fn memory_table(names: [&str; 2], held: [usize; 2], peak: [usize; 2]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["", names[0], names[1], "ratio"]);
    for (what, [plain, ours]) in [("held after forward", held), ("peak of a step", peak)] {
        let less = format!("{:.1}x less", plain as f64 / ours as f64);
        table.add_row([what, &megabytes(plain), &megabytes(ours), &less]);
    }
    table
}

/// Bytes as MB (10^6).
fn megabytes(bytes: usize) -> String {
    format!("{:.3} MB", bytes as f64 / 1e6)
}

/// How a program ends whose result is good or bad.
pub fn end(result: Result<bool>) -> Result<ExitCode> {
    match result {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        // Whoever reads has read enough, as `head` does.
        Err(candle_core::Error::Io(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(e) => Err(e),
    }
}
