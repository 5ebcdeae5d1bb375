//! The tables of the original's documentation, with ours beside its numbers.

use super::step::{median, step, Step};
use super::{events, Flags, CPU};
use candle_core::{DType, Result, Tensor};
use candle_nn::VarMap;
use memopt::checkpoint::Planned;
use memopt::models::CifarDvsVgg;
use memopt::module::Session;
use memopt::nn::{init::seeded, Lif, Linear, LinearConfig};
use memopt::plan::Plan;
use memopt::search::{optimize, Options};
use memopt::Checkpointable;

/// The tiny network of the original's documentation.
#[derive(Clone, Checkpointable)]
#[spatial_split(blocks)]
struct BlockNet {
    blocks: Vec<FcBlock>,
}

#[derive(Clone, Checkpointable)]
#[checkpoint(segment)]
#[spatial_split(fc, neuron)]
struct FcBlock {
    fc: Linear,
    neuron: Lif,
}

/// A way to optimize, and the original's numbers: step ms, peak MB, search ms.
struct Way {
    name: &'static str,
    options: Option<Options>,
    original: &'static str,
}

fn ways<T: std::str::FromStr<Err = memopt::Error>>(
    baseline: &'static str,
    with: fn(T) -> Options,
    originals: &[(&'static str, &'static str)],
) -> Result<Vec<Way>> {
    let mut ways = vec![Way { name: "baseline", options: None, original: baseline }];
    for &(name, original) in originals {
        ways.push(Way { name, options: Some(with(name.parse()?)), original });
    }
    Ok(ways)
}

/// One of the plans that are compared.
struct Row<M> {
    planned: Planned<M>,
    search: String,
    structure: String,
}

fn row<M: Checkpointable + Clone>(net: &M, x: &Tensor, options: Option<Options>) -> Result<Row<M>> {
    let Some(options) = options else {
        let planned = Planned::new(net.clone(), Plan::new(), Session::new(0))?;
        return Ok(Row { planned, search: "-".into(), structure: "-".into() });
    };
    let found = optimize(net.clone(), x, options)?;
    let s = found.summary();
    let structure = format!(
        "{} gc, {} tcgc, {} ccgc; {} + {} splits, {} restored",
        s.gc_segments, s.tcgc_segments, s.ccgc_segments, s.spatial_splits, s.temporal_splits, s.restored
    );
    let search = format!("{:.1}", s.search_ms);
    Ok(Row { planned: found.planned().clone(), search, structure })
}

/// Finds all plans, runs them in turn, and prints what they took.
fn print<M: Checkpointable + Clone>(
    title: &str,
    net: &M,
    x: &Tensor,
    ways: Vec<Way>,
    [samples, rounds]: [usize; 2],
) -> Result<()> {
    let originals: Vec<&str> = ways.iter().map(|way| way.original).collect();
    let names: Vec<&str> = ways.iter().map(|way| way.name).collect();
    let rows: Vec<Row<M>> = ways.into_iter().map(|way| row(net, x, way.options)).collect::<Result<_>>()?;
    // The first round warms up.
    let mut all: Vec<Vec<Step>> = vec![Vec::new(); rows.len()];
    for round in 0..=rounds {
        for (row, steps) in rows.iter().zip(&mut all) {
            let taken = step(&row.planned, x)?;
            if round > 0 {
                steps.push(taken);
            }
        }
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    let original = "the original (RTX 4090): step ms, peak MB, search ms";
    table.set_header(["", "step ms", "ratio", "samples/s", "peak MB", "search ms", "structure", original]);
    let baseline = all.first().cloned().unwrap_or_default();
    for (((name, row), steps), original) in names.iter().zip(&rows).zip(&all).zip(originals) {
        let ms = median(steps.iter().map(|step| step.ms).collect());
        let ratio = median(steps.iter().zip(&baseline).map(|(step, plain)| step.ms / plain.ms).collect());
        let peak = steps.iter().map(|step| step.peak).max().unwrap_or_default();
        table.add_row([
            (*name).to_owned(),
            format!("{ms:.2}"),
            format!("{ratio:.2}"),
            format!("{:.1}", samples as f64 * 1e3 / ms),
            format!("{:.2}", peak as f64 / 1e6),
            row.search.clone(),
            row.structure.clone(),
            original.to_owned(),
        ]);
    }
    println!("{title}\n\n{table}\n");
    Ok(())
}

pub fn print_all(flags: &Flags) -> Result<()> {
    let vb = seeded(&VarMap::new(), flags.seed, DType::F32, CPU);
    let fc = Linear::new(16, 16, LinearConfig::default(), vb.pp("fc"))?;
    let tiny = BlockNet { blocks: vec![FcBlock { fc, neuron: Lif::default() }] };
    let x = Tensor::ones((2, 2, 16), DType::F32, CPU)?;
    let originals = [
        ("safe", "5.73, 17.26, 910.9"),
        ("balanced", "6.13, 17.26, 8661.2"),
        ("memory", "6.07, 17.26, 20027.8"),
        ("exhaustive", "-, 17.26, 32880.1"),
    ];
    let profiles = ways("5.80, 17.26, 0", Options::profile, &originals)?;
    print("MemOptBlockNet, depth 1, [2, 2, 16]", &tiny, &x, profiles, [2, 20])?;

    let (n, t) = (flags.batch as usize, flags.time_steps as usize);
    let vgg = CifarDvsVgg::new(48, seeded(&VarMap::new(), flags.seed, DType::F32, CPU))?;
    let x = events(flags.seed, &[n, t, 2, 48, 48])?;
    let sizes = [n, flags.steps.max(1)];
    let originals = [
        ("safe", "36.60, 833.94, 2606"),
        ("balanced", "33.88, 787.94, 37038"),
        ("memory", "35.83, 671.56, 89789"),
        ("exhaustive", "27.66, 589.16, 450973"),
    ];
    let profiles = ways("27.57, 1022.23, 0", Options::profile, &originals)?;
    print(&format!("CIFAR10-DVS VGG by profile, batch {n}, T = {t}"), &vgg, &x, profiles, sizes)?;

    let originals =
        [("speed", "34.43, 922, 2727"), ("balanced", "34.35, 877, 34361"), ("memory", "43.36, 699, 92690")];
    let preferences = ways("27.57, 1022.23, 0", Options::prefer, &originals)?;
    print(&format!("CIFAR10-DVS VGG by preference, batch {n}, T = {t}"), &vgg, &x, preferences, sizes)
}
