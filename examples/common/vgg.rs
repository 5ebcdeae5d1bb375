//! Training steps of the CIFAR10-DVS VGG under a plan, on synthetic event counts: bytes, times, gradients.

use candle_core::{DType, Device, ModuleT, Result, Tensor, Var};
use candle_nn::VarMap;
use memopt::checkpoint::Planned;
use memopt::memory::{live, Scope};
use memopt::models::CifarDvsVgg;
use memopt::nn::init::seeded;
use memopt::plan::{Compressor, Keep, Plan, Segment};
use rand::{rngs::StdRng, Rng, SeedableRng};
use rand_distr::{Distribution, Poisson};
use sha2::{Digest, Sha256};
use std::time::Instant;

pub const CPU: &Device = &Device::Cpu;
const SIDE: usize = 48;
pub const BLOCKS: usize = 8;
const MOMENTUM: f64 = 0.9;

/// The plan of this name; `inexact` time chunks take the statistics of each chunk by itself.
pub fn plan(name: &str, inexact: bool) -> Result<Plan> {
    let every = |segment: Segment| {
        (0..BLOCKS).fold(Plan::new(), |plan, i| plan.with(format!("features.{i}"), segment.clone()))
    };
    Ok(match name {
        "plain" => Plan::new(),
        "gc" => every((Keep::Recompute, Compressor::Null).into()),
        // The first input is counts, not spikes: it is declared not to be compressed.
        "gc-bit" => every((Keep::Recompute, Compressor::Bit).into())
            .with("features.0", (Keep::Recompute, Compressor::Null)),
        "split" => (0..BLOCKS).fold(Plan::new(), |plan, i| {
            let input = if i == 0 { Compressor::Null } else { Compressor::Bit };
            plan.with(format!("features.{i}.proj_bn"), (Keep::Recompute, input))
                .with(format!("features.{i}.neuron"), (Keep::Recompute, Compressor::Null))
        }),
        chunks if chunks.starts_with("tcgc:") || chunks.starts_with("ccgc:") => {
            let keep: Keep = match (chunks.parse()?, inexact) {
                (Keep::TimeChunks(chunks), true) => Keep::InexactTimeChunks(chunks),
                (keep, _) => keep,
            };
            every((keep, Compressor::Bit).into()).with("features.0", (keep, Compressor::Null))
        }
        file if file.ends_with(".json") => {
            let text = std::fs::read_to_string(file)
                .map_err(|e| candle_core::Error::Msg(format!("cannot read the plan {file}: {e}")))?;
            serde_json::from_str(&text).map_err(|e| candle_core::Error::Msg(format!("{file}: {e}")))?
        }
        other => candle_core::bail!(
            "`{other}` is no plan; the plans are: plain, gc, gc-bit, split, tcgc:K, ccgc:K, or a file that ends in .json"
        ),
    })
}

/// The network with a threshold for each block.
pub fn network(variables: &VarMap, seed: u64, thresholds: &[f64; BLOCKS]) -> Result<CifarDvsVgg> {
    Ok(CifarDvsVgg::with_thresholds(SIDE, thresholds, seeded(variables, seed, DType::F32, CPU))?)
}

/// Event counts `[N, T, 2, 48, 48]` and labels.
pub fn data(n: usize, t: usize, seed: u64) -> Result<(Tensor, Tensor)> {
    let mut random = StdRng::seed_from_u64(seed.wrapping_add(1));
    let counts = Poisson::new(0.3f32).map_err(candle_core::Error::wrap)?;
    let Some(elements) =
        n.checked_mul(t).and_then(|nt| nt.checked_mul(2 * SIDE * SIDE)).filter(|n| n >> 40 == 0)
    else {
        candle_core::bail!("{n} samples of {t} time steps are more than any machine holds");
    };
    let events: Vec<f32> = counts.sample_iter(&mut random).take(elements).collect();
    let labels: Vec<u32> = (0..n).map(|_| random.random_range(0..10)).collect();
    Ok((Tensor::from_vec(events, (n, t, 2, SIDE, SIDE), CPU)?, Tensor::new(labels, CPU)?))
}

/// SHA-256 over (name, dtype, shape, little-endian bytes) of all gradients, sorted by name.
fn hash(named: &[(String, Var)], gradients: &candle_core::backprop::GradStore) -> Result<String> {
    let mut hasher = Sha256::new();
    for (name, variable) in named {
        if let Some(gradient) = gradients.get(variable) {
            hasher.update(name.as_bytes());
            hasher.update(gradient.dtype().as_str().as_bytes());
            gradient.dims().iter().for_each(|dim| hasher.update((*dim as u64).to_le_bytes()));
            for value in gradient.flatten_all()?.to_vec1::<f32>()? {
                hasher.update(value.to_le_bytes());
            }
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What some steps gave.
pub struct Measured {
    /// Bytes after the forward: parameters, optimizer state and input are not among them.
    pub held: usize,
    /// The most bytes of a step, above the same.
    pub peak: usize,
    /// Of a step, the median.
    pub step_ms: f64,
    pub losses: Vec<f64>,
    /// Of the first step.
    pub grad_hash: String,
}

/// Trains for one step that warms up and `steps` that are measured, with momentum.
pub fn train(
    net: &Planned<CifarDvsVgg>,
    variables: &VarMap,
    (x, labels): (&Tensor, &Tensor),
    steps: u32,
) -> Result<Measured> {
    let mut named: Vec<(String, Var)> = match variables.data().lock() {
        Ok(data) => data.iter().map(|(name, variable)| (name.clone(), variable.clone())).collect(),
        Err(_) => candle_core::bail!("the variables are poisoned"),
    };
    named.retain(|(name, _)| !name.contains("running"));
    named.sort_by(|a, b| a.0.cmp(&b.0));
    let momentum: Vec<Var> =
        named.iter().map(|(_, v)| Var::zeros(v.shape(), v.dtype(), CPU)).collect::<Result<_>>()?;

    let (mut losses, mut times) = (Vec::new(), Vec::new());
    let (mut held, mut peak, mut grad_hash) = (0, 0, String::new());
    for step in 0..=steps {
        let before = live().unwrap_or_default();
        let scope = Scope::enter("step").map_err(memopt::Error::from)?;
        let start = Instant::now();
        let loss = candle_nn::loss::cross_entropy(&net.forward_t(x, true)?.mean(0)?, labels)?;
        held = held.max(live().unwrap_or_default().saturating_sub(before));
        let gradients = loss.backward()?;
        let mut elapsed = start.elapsed();
        if step == 0 {
            grad_hash = hash(&named, &gradients)?;
        }
        let start = Instant::now();
        for ((_, variable), momentum) in named.iter().zip(&momentum) {
            if let Some(gradient) = gradients.get(variable) {
                momentum.set(&((momentum.as_tensor() * MOMENTUM)? + gradient)?)?;
                variable.set(&(variable.as_detached_tensor() - (momentum.as_tensor() * 1e-3)?)?.detach())?;
            }
        }
        losses.push(f64::from(loss.to_scalar::<f32>()?));
        drop((loss, gradients));
        elapsed += start.elapsed();
        let bytes = scope.finish().peak_above_start();
        if step > 0 {
            times.push(elapsed.as_secs_f64() * 1e3);
            peak = peak.max(bytes);
        }
    }
    times.sort_by(f64::total_cmp);
    let step_ms = times[times.len() / 2];
    Ok(Measured { held, peak, step_ms, losses, grad_hash })
}
