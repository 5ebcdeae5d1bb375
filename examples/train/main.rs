//! Trains a small spiking network on 1,797 real digits by the trainer: micro-batches, a searched plan, snapshots, a log, ranks.
//!
//! `cargo run --release --example train -- --accumulate 4 --micro-batch 8 --prefer memory --epochs 3 --snapshots DIR`, killed at
//! any moment, goes on with `--resume DIR` beside it and ends with the same weights. `--ranks 2` trains in two threads, and with
//! the feature `mpi`, `mpirun -n 2 ... --mpi` in two processes. `--table` and `--speed` print figures.

#[path = "../common/digits.rs"]
mod digits;
mod flags;
mod network;
mod run;
mod speed;
mod table;

use clap::Parser;
use flags::Flags;
use memopt::dist::Single;
use memopt::memory::CountingAllocator;
use memopt::Result;
use run::{in_threads, train, Outcome, Shown};
use std::process::ExitCode;
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

fn run(flags: &Flags) -> Result<()> {
    if flags.table {
        println!("{}", table::table(flags)?);
        return Ok(());
    }
    if flags.speed {
        println!("{}", speed::speed(flags)?);
        return Ok(());
    }
    let outcome = match (flags.mpi, flags.ranks) {
        (true, _) => under_mpi(flags)?,
        (false, 1) => Some(train(flags, Arc::new(Single::new()), Shown::All)?),
        (false, ranks) => Some(in_threads(flags, ranks, None, Shown::All)?),
    };
    if let Some(outcome) = outcome {
        println!("{outcome}");
    }
    Ok(())
}

/// What this process gives, if it is the first.
#[cfg(feature = "mpi")]
fn under_mpi(flags: &Flags) -> Result<Option<Outcome>> {
    use memopt::dist::{Communicator, Mpi};
    let mpi: Arc<dyn Communicator> = Arc::new(Mpi::initialize()?);
    let is_first = mpi.rank() == 0;
    let outcome = train(flags, mpi, Shown::All)?;
    Ok(is_first.then_some(outcome))
}

#[cfg(not(feature = "mpi"))]
fn under_mpi(_: &Flags) -> Result<Option<Outcome>> {
    let what = "this program was built without the feature `mpi`; build with `--features mpi`".into();
    Err(memopt::Error::Training { part: "--mpi".into(), what })
}

fn main() -> ExitCode {
    match run(&Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
