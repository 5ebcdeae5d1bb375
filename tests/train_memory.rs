//! What accumulation holds, in counted bytes.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Result, Tensor, Var};
use memopt::memory::{CountingAllocator, Scope, ScopeBytes};
use memopt::train::{Accumulator, AccumulatorConfig, AdamW, AdamWConfig, Clip, Gradients, NamedParameters};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

const PARAMETERS: usize = 8;
/// Bytes of a parameter.
const SIZE: isize = 1 << 20;
/// Names, lists, scalars.
const SLACK: isize = 64 << 10;

fn variables() -> (Vec<Var>, NamedParameters) {
    let make = |_| Var::zeros(SIZE as usize / 4, DType::F32, &Device::Cpu).unwrap();
    let variables: Vec<Var> = (0..PARAMETERS).map(make).collect();
    let named = variables.iter().enumerate().map(|(i, v)| (i.to_string(), v.as_tensor().clone()));
    let parameters = NamedParameters::new(named).unwrap();
    (variables, parameters)
}

fn loss(variables: &[Var]) -> Tensor {
    let sums = variables.iter().map(|v| v.sum_all()).reduce(|a, b| a? + b?);
    sums.unwrap().unwrap()
}

fn grown_by(report: &ScopeBytes) -> isize {
    report.end as isize - report.start as isize
}

/// One test, since bytes are counted for the process.
#[test]
fn gradients_are_held_once_and_dropped() -> Result<()> {
    let (variables, parameters) = variables();
    let store = loss(&variables).backward()?;
    let scope = Scope::enter("taking gradients").unwrap();
    let gradients = Gradients::new(&parameters, store).unwrap();
    let report = scope.finish();
    assert_eq!(gradients.bytes() as isize, PARAMETERS as isize * SIZE);
    // One after the other: never two of all.
    assert!((report.peak_above_start() as isize) < SIZE + SLACK, "{report:?}");
    assert!(grown_by(&report).abs() < SLACK, "{report:?}");
    drop(gradients);

    let config = AccumulatorConfig { steps: 3, clip: Clip::GlobalNorm(1.), ..Default::default() };
    let adamw = AdamW::new(&parameters, AdamWConfig::new(1e-3)).unwrap();
    let mut accumulator = Accumulator::new(adamw, config).unwrap();
    for window in 0..3 {
        for micro in 0..3 {
            let loss = loss(&variables);
            let scope = Scope::enter("a micro-batch").unwrap();
            let step = accumulator.backward(&loss, 1).unwrap();
            let report = scope.finish();
            assert_eq!(step.is_some(), micro == 2);
            let all = PARAMETERS as isize * SIZE;
            let grown = match (window, micro) {
                (_, 0) => all,  // the buffers
                (0, 2) => all,  // the two moments come, the buffers go
                (_, 2) => -all, // the buffers go
                _ => 0,
            };
            assert!((grown_by(&report) - grown).abs() < SLACK, "{window} {micro}: {report:?}");
        }
        assert_eq!(accumulator.bytes(), 0);
    }
    Ok(())
}
