//! A small training with all that must be gone on with: dropout, batch norm, AdamW, shuffled samples, accumulation.

use super::common::Values;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarMap;
use memopt::checkpoint::Planned;
use memopt::data::{from_fn, Loader};
use memopt::dist::{Communicator, Single, Threads};
use memopt::module::Session;
use memopt::nn::{
    cross_entropy_of_mean, init::seeded, AvgPool2d, BatchNorm2d, Conv2d, Conv2dConfig, Dropout, Flatten, Lif,
    Linear,
};
use memopt::snapshot::{Snapshot, Store};
use memopt::train::{
    AdamW, AdamWConfig, Clip, Metrics, NamedParameters, Schedule, Trainer, TrainerConfig, TrainingSummary,
};
use memopt::{Checkpointable, Result};
use std::path::Path;
use std::sync::Arc;

pub const CPU: &Device = &Device::Cpu;

#[derive(Clone, Checkpointable)]
#[checkpoint(segment)]
#[spatial_split(conv, bn, neuron)]
pub struct Block {
    conv: Conv2d,
    bn: BatchNorm2d,
    neuron: Lif,
}

#[derive(Clone, Checkpointable)]
#[spatial_split(block, dropout, pool, flatten, head)]
pub struct Net {
    block: Block,
    dropout: Dropout,
    pool: AvgPool2d,
    flatten: Flatten,
    head: Linear,
}

/// What is to be trained, and how.
#[derive(Clone)]
pub struct Setup {
    pub channels: usize,
    pub plan: &'static str,
    pub carries_states: bool,
    pub learning_rate: f64,
    /// Micro-batches have three samples of 23: the last one of an epoch has fewer.
    pub batch_size: usize,
    pub config: TrainerConfig,
}

impl Setup {
    /// Snapshots and log in a folder.
    pub fn new(folder: &Path) -> Self {
        let config = TrainerConfig {
            epochs: 3,
            accumulate: 3,
            clip: Clip::GlobalNorm(1.),
            schedule: Some(Schedule::cosine(0.02, 0., 60).unwrap()),
            folder: Some(folder.join("snapshots")),
            save_every: Some(2),
            log: Some(folder.join("log.jsonl")),
            ..Default::default()
        };
        let plan = "block: gc";
        Setup { channels: 6, plan, carries_states: false, learning_rate: 0.02, batch_size: 3, config }
    }

    pub fn trainer(&self, communicator: Arc<dyn Communicator>) -> Result<Trainer<Planned<Net>, AdamW>> {
        let variables = VarMap::new();
        let rank = communicator.rank() as u64;
        // Other values on other ranks: those of rank 0 count.
        let vb = seeded(&variables, rank, DType::F32, CPU);
        let conv = Conv2d::new(2, self.channels, 3, Conv2dConfig::default().padding(1), vb.pp("conv"))?;
        let bn = BatchNorm2d::new(self.channels, Default::default(), vb.pp("bn"))?;
        let net = Net {
            block: Block { conv, bn, neuron: Lif::new(2.)? },
            dropout: Dropout::new(0.3)?,
            pool: AvgPool2d::new(2),
            flatten: Flatten,
            head: Linear::new(self.channels * 9, 4, Default::default(), vb.pp("head"))?,
        };
        // Other masks on other ranks.
        let session = Session::new(7 + rank);
        let session = if self.carries_states { session.carry_states() } else { session };
        let net = Planned::new(net, self.plan.parse()?, session)?;
        let adamw = AdamW::new(&NamedParameters::of(&*net)?, AdamWConfig::new(self.learning_rate))?;
        match communicator.size() {
            1 => Trainer::new(net, &variables, adamw, self.config.clone()),
            _ => Trainer::of_ranks(net, &variables, adamw, self.config.clone(), communicator),
        }
    }

    pub fn loader(&self) -> Loader<(Tensor, u32)> {
        let samples = 23 / self.batch_size * self.batch_size + if self.carries_states { 0 } else { 2 };
        let samples = from_fn(samples, |index| {
            let mut values = Values::new(index as u64);
            let x = (values.tensor(&[3, 2, 6, 6], DType::F32)? * 4.)?; // [T, C, H, W]
            Ok((x, index as u32 % 4))
        });
        Loader::new(samples).batch_size(self.batch_size).shuffle(true).seed(5)
    }

    /// Resumes if there is something to resume, and trains to the end.
    pub fn run(&self, communicator: Arc<dyn Communicator>) -> Result<TrainingSummary> {
        let mut trainer = self.trainer(communicator)?;
        if let Some(folder) = &self.config.folder {
            trainer.resume(folder)?;
        }
        trainer.fit(&self.loader(), loss, evaluate)
    }

    /// The same in threads of so many ranks; what rank 0 gives.
    pub fn run_ranks(&self, ranks: usize) -> TrainingSummary {
        if ranks == 1 {
            return self.run(Arc::new(Single::new())).unwrap();
        }
        let run = |rank| self.run(Arc::new(rank)).unwrap();
        let summaries: Vec<_> = std::thread::scope(|scope| {
            let spawn = |rank| scope.spawn(move || run(rank));
            let threads: Vec<_> = Threads::group(ranks).into_iter().map(spawn).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let metrics = |summary: &TrainingSummary| summary.evaluations.clone();
        assert!(summaries.iter().all(|summary| metrics(summary) == metrics(&summaries[0])));
        summaries.into_iter().next().unwrap()
    }
}

pub fn loss(net: &Planned<Net>, (x, labels): &(Tensor, Tensor)) -> Result<Tensor> {
    let y = net.run(x, true)?.into_dense("output")?;
    cross_entropy_of_mean(&y, labels)
}

/// Over fixed samples, which see the running statistics.
pub fn evaluate(net: &Planned<Net>) -> Result<Metrics> {
    let x = Values::new(99).tensor(&[3, 4, 2, 6, 6], DType::F32)?;
    let sum = net.predict(&x)?.into_dense("output")?.sqr()?.sum_all()?.to_scalar::<f32>()?;
    Ok(Metrics::from([("sum".to_owned(), sum.into())]))
}

/// The lines of a log, without what depends on the clock.
pub fn lines(log: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(log).unwrap();
    let line = |line: &str| {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        for of_clock in ["samples_per_second", "peak_bytes"] {
            line.as_object_mut().unwrap().remove(of_clock);
        }
        line
    };
    text.lines().map(line).collect()
}

/// The bytes of all tensors of a snapshot, by name.
pub fn bytes(snapshot: &Snapshot) -> Vec<(String, Vec<u8>)> {
    let of = |(name, tensor): (&String, &Tensor)| {
        let mut bytes = Vec::new();
        tensor.write_bytes(&mut bytes).unwrap();
        (name.clone(), bytes)
    };
    snapshot.tensors.iter().map(of).collect()
}

/// The latest snapshot of a setup's folder.
pub fn latest(setup: &Setup) -> (u64, Snapshot) {
    let store = Store::open(setup.config.folder.as_ref().unwrap(), 1).unwrap();
    store.latest().unwrap().found.unwrap()
}

/// That two trainings have the same losses, metrics and final state, to the bit.
pub fn assert_same(a: &Setup, b: &Setup) {
    assert_eq!(lines(a.config.log.as_ref().unwrap()), lines(b.config.log.as_ref().unwrap()));
    let ((step, a), (other, b)) = (latest(a), latest(b));
    assert_eq!(step, other);
    for (a, b) in bytes(&a).iter().zip(&bytes(&b)) {
        assert_eq!(a, b);
    }
    assert_eq!(a.tensors.len(), b.tensors.len());
}
