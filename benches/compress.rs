//! Packing and unpacking spikes, beside copying the same tensor: `cargo bench --bench compress`.
//!
//! The runs of all operations are interleaved and the medians of each reported, because what matters are the ratios, and
//! machines drift. That is why this is no criterion bench, which times one operation after the other. The copy is Candle's;
//! large unpacked tensors ask for huge pages, which the copy does not.
#![allow(missing_docs, clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use clap::Parser;
use comfy_table::presets::ASCII_MARKDOWN;
use memopt::compress::{Auto, Bit, Byte, Pack, Sparse, SpikeCompressor};
use std::hint::black_box;
use std::time::Instant;

/// Rates in GB/s of the unpacked tensor, medians of interleaved runs.
#[derive(Parser)]
struct Flags {
    /// Bytes of the tensor in f32; the default is [10, 10, 256, 48, 48].
    #[arg(long, default_value_t = 235_929_600)]
    bytes: usize,
    /// Share of ones.
    #[arg(long, default_value_t = 0.15)]
    rate: f64,
    /// Interleaved runs, after two that do not count.
    #[arg(long, default_value_t = 15)]
    runs: usize,
    /// cargo passes this.
    #[arg(long, hide = true)]
    bench: bool,
}

type Operation = (String, usize, Box<dyn FnMut()>);

fn main() {
    let flags = Flags::parse();
    let elements = flags.bytes / 4;
    let mut state = 1u64;
    let spikes: Vec<f32> = (0..elements)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            f32::from(u8::from(((state >> 32) as f64) < flags.rate * f64::from(u32::MAX)))
        })
        .collect();
    let spikes = Tensor::from_vec(spikes, elements, &Device::Cpu).unwrap();
    let mut operations: Vec<Operation> = Vec::new();
    for dtype in [DType::F32, DType::BF16] {
        let x = spikes.to_dtype(dtype).unwrap();
        let bytes = elements * dtype.size_in_bytes();
        let copied = x.clone();
        operations.push((
            format!("{dtype:?} copy"),
            bytes,
            Box::new(move || drop(black_box(copied.copy().unwrap()))),
        ));
        let compressors: [(&str, &'static dyn SpikeCompressor); 4] =
            [("bit", &Bit), ("byte", &Byte), ("sparse", &Sparse), ("auto", &Auto)];
        for (name, compressor) in compressors {
            let (x, packed) = (x.clone(), compressor.pack(&x).unwrap());
            operations.push((
                format!("{dtype:?} {name} pack"),
                bytes,
                Box::new(move || drop(black_box(compressor.pack(&x).unwrap()))),
            ));
            operations.push((
                format!("{dtype:?} {name} unpack"),
                bytes,
                Box::new(move || drop(black_box(packed.unpack().unwrap()))),
            ));
        }
    }

    let mut times = vec![Vec::new(); operations.len()];
    for run in 0..flags.runs + 2 {
        for ((_, _, operation), times) in operations.iter_mut().zip(&mut times) {
            let start = Instant::now();
            operation();
            if run >= 2 {
                times.push(start.elapsed().as_secs_f64());
            }
        }
    }

    let mut table = comfy_table::Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["operation", "ms", "GB/s", "times copy"]);
    let mut copy = 0.;
    for ((name, bytes, _), mut times) in operations.into_iter().zip(times) {
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        if name.ends_with("copy") {
            copy = median;
        }
        table.add_row([
            name,
            format!("{:.2}", median * 1e3),
            format!("{:.2}", bytes as f64 / median / 1e9),
            format!("{:.2}", copy / median),
        ]);
    }
    println!("{table}");
}
