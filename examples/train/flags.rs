//! What the program is told.

use candle_core::DType;
use clap::{Parser, ValueEnum};
use memopt::search::Prefer;
use std::path::PathBuf;

/// Trains a small spiking network on digits.
#[derive(Parser, Clone)]
#[command(version)]
pub struct Flags {
    /// Passes over the training images.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    pub epochs: u64,
    /// The first so many training images only.
    #[arg(long)]
    pub images: Option<usize>,
    /// Images in a micro-batch of a rank.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(2..=1437))]
    pub micro_batch: u16,
    /// Micro-batches of a step on each rank.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub accumulate: u16,
    /// Time steps that each image is shown for.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub time_steps: u16,
    /// What matters more to the search for a plan: speed, balanced, memory. Without it there is no plan.
    #[arg(long)]
    pub prefer: Option<Prefer>,
    /// How weights are moved.
    #[arg(long, value_enum, default_value_t = Kind::Adamw)]
    pub optimizer: Kind,
    /// The learning rate; without it 0.005 for AdamW and 0.1 for SGD.
    #[arg(long)]
    pub rate: Option<f64>,
    /// The global norm that gradients are clipped to.
    #[arg(long)]
    pub clip: Option<f64>,
    /// The type of weights and activations. With f16, losses are scaled.
    #[arg(long, value_enum, default_value_t = Type::F32)]
    pub dtype: Type,
    /// The share of features that dropout sets to zero.
    #[arg(long, default_value_t = 0.1)]
    pub dropout: f64,
    /// Seed of the weights, of dropout and of the order of the images.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Ranks that train together, each in a thread of its own with its share of the cores.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub ranks: u16,
    /// This process is a rank that `mpirun` started.
    #[arg(long, conflicts_with = "ranks")]
    pub mpi: bool,
    /// Save snapshots in this folder.
    #[arg(long)]
    pub snapshots: Option<PathBuf>,
    /// A snapshot behind each so many steps, besides those at the ends of epochs.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub save_every: Option<u64>,
    /// Go on from the latest snapshot in this folder, if there is one, and save there.
    #[arg(long, conflicts_with = "snapshots")]
    pub resume: Option<PathBuf>,
    /// Append a JSON object for each step and each evaluation to this file.
    #[arg(long)]
    pub log: Option<PathBuf>,
    /// Train with batches of 16 directly, as 4 x 4, as 2 x 8, and with batches of 2, and print what each took.
    #[arg(long, conflicts_with_all = ["ranks", "mpi", "resume", "snapshots", "log", "speed"])]
    pub table: bool,
    /// Compare two ranks with one thread each with one rank with one thread, in turns.
    #[arg(long, conflicts_with_all = ["ranks", "mpi", "resume", "snapshots", "log"])]
    pub speed: bool,
    /// How many turns.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    pub turns: u16,
    /// The loss to which steps are counted.
    #[arg(long, default_value_t = 0.3)]
    pub loss: f64,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum Kind {
    Sgd,
    Adamw,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum Type {
    F32,
    Bf16,
    F16,
}

impl Flags {
    pub fn dtype(&self) -> DType {
        match self.dtype {
            Type::F32 => DType::F32,
            Type::Bf16 => DType::BF16,
            Type::F16 => DType::F16,
        }
    }

    pub fn rate(&self) -> f64 {
        self.rate.unwrap_or(match self.optimizer {
            Kind::Sgd => 0.1,
            Kind::Adamw => 5e-3,
        })
    }
}
