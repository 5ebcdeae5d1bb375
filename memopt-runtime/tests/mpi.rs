//! Groups under MPI: `cargo test -p memopt-runtime --features mpi --test mpi`.
//!
//! `MEMOPT_MPI_BYTES=2500000000` beside it also sends so many bytes in one call (two ranks hold them twice).
//!
//! By itself this program starts `mpirun` on itself for each scenario; with `rank SCENARIO` it is one of the processes.

use candle_core::{DType, Device, Tensor, Var};
use memopt_runtime::dist::{
    agreement, broadcast_parameters, Agreement, Buckets, Communicator, Gradient, GroupError, Mpi, Reduce,
    Values,
};
use memopt_runtime::Error;
use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A failed job must have ended by then.
const PATIENCE: Duration = Duration::from_secs(30);

/// The size of the large message.
const BYTES: &str = "MEMOPT_MPI_BYTES";

/// How rank 1 ends the job, and what must be said about it. What `mpirun` finds by itself it says in its own words.
const FAILURES: [(&str, &str); 6] = [
    ("panic", "memopt: rank 1 failed: panicked: out of luck ("),
    ("leave", "memopt: rank 1 failed: it left early, while rank 0 called all_reduce (sum of 3 f32)"),
    ("abort", "memopt: rank 1 failed: out of data"),
    ("abort-within-a-call", "memopt: rank 1 failed: out of time"),
    ("exit", "process rank 1"),
    ("kill", "signal 9"),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let done = match arguments.get(1..3) {
        Some([rank, scenario]) if rank == "rank" => run_as_rank(scenario),
        _ => run_all(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_all() -> Result {
    for ranks in [1, 2, 3] {
        let (success, output) = job("checks", ranks)?;
        check(success, || format!("checks of {ranks} ranks: {output}"))?;
        println!("mpi: checks of {ranks} ranks ... ok");
    }
    if let Ok(bytes) = std::env::var(BYTES) {
        let (success, output) = job("large", 2)?;
        check(success, || format!("{bytes} bytes: {output}"))?;
        println!("mpi: {bytes} bytes in one call ... ok");
    }
    for (scenario, message) in FAILURES {
        let (success, output) = job(scenario, 3)?;
        check(!success, || format!("{scenario}: the job reported success: {output}"))?;
        check(output.contains(message), || format!("{scenario}: `{message}` is not in: {output}"))?;
        println!("mpi: {scenario} ... ok");
    }
    Ok(())
}

/// Runs this program under `mpirun`; whether it succeeded, and what it printed.
fn job(scenario: &str, ranks: usize) -> Result<(bool, String)> {
    let mut child = Command::new("mpirun")
        .args(["-n", &ranks.to_string()])
        .arg(std::env::current_exe()?)
        .args(["rank", scenario])
        // Open MPI's; other libraries ask for no permission.
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or("no output")?;
    let stderr = child.stderr.take().ok_or("no output")?;
    let reader = std::thread::spawn(move || -> std::io::Result<String> {
        let mut text = String::new();
        stdout.chain(stderr).read_to_string(&mut text)?;
        Ok(text)
    });
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if began.elapsed() > PATIENCE && scenario != "large" {
            child.kill()?;
            return Err(format!("{scenario}: {ranks} ranks still ran after {PATIENCE:?}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let output = reader.join().map_err(|_| "the output could not be read")??;
    Ok((status.success(), output))
}

fn run_as_rank(scenario: &str) -> Result {
    if scenario == "large" {
        return large(&Mpi::initialize()?);
    }
    // Pieces of a few elements, so that most reductions go in several.
    let mpi = Mpi::with_piece(1000)?;
    if scenario == "checks" {
        return checks(&mpi);
    }
    mpi.barrier()?;
    if mpi.rank() == 1 {
        fail(scenario, mpi)?;
        // Whoever gets here has not ended the job.
        std::thread::sleep(PATIENCE * 2);
        return Ok(());
    }
    if scenario == "abort-within-a-call" {
        std::thread::sleep(PATIENCE * 2);
    }
    let mut values = [1f32; 3];
    mpi.all_reduce(Values::F32(&mut values), Reduce::Sum)?;
    Err("a reduction without rank 1 succeeded".into())
}

#[allow(clippy::panic)]
fn fail(scenario: &str, mpi: Mpi) -> Result {
    match scenario {
        "panic" => panic!("out of luck"),
        "leave" => drop(mpi),
        "abort" => mpi.abort("out of data"),
        "abort-within-a-call" => std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                mpi.abort("out of time");
            });
            // The others never come.
            mpi.barrier().map_err(|error| error.to_string())
        })?,
        "exit" => std::process::exit(0),
        "kill" => {
            Command::new("kill").args(["-9", &std::process::id().to_string()]).status()?;
        }
        other => return Err(format!("no scenario `{other}`").into()),
    }
    Ok(())
}

fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Result {
    if holds {
        Ok(())
    } else {
        Err(otherwise().into())
    }
}

fn checks(mpi: &Mpi) -> Result {
    reductions(mpi)?;
    broadcasts(mpi)?;
    mistakes(mpi)?;
    training(mpi)?;
    mpi.barrier()?;
    Ok(())
}

/// The values of a rank: of all sizes, so that the order of a sum shows, and special ones.
fn values(rank: usize, len: usize) -> Vec<f64> {
    const SPECIAL: [f64; 6] = [0., -0., f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-40];
    let value = |i: usize| {
        let mixed = ((rank * 1_000_003 + i) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        match mixed % 8 {
            0 => SPECIAL[(mixed / 8 % 6) as usize],
            exponent => (mixed as f64 / 1e12 - 8.) * 10f64.powi(exponent as i32),
        }
    };
    (0..len).map(value).collect()
}

fn reductions(mpi: &Mpi) -> Result {
    let (rank, size) = (mpi.rank(), mpi.size());
    for len in [0, 1, 2, 3, 125, 126, 250, 1000, 10_007] {
        for reduce in [Reduce::Sum, Reduce::Max] {
            macro_rules! reduction {
                ($ty:ty, $values:ident, $plain:expr, $bits:expr) => {{
                    let of = |rank| values(rank, len).into_iter().map(|x| x as $ty).collect::<Vec<$ty>>();
                    let mut expected = of(0);
                    for next in (1..size).map(of) {
                        expected.iter_mut().zip(next).for_each(|(a, b)| *a = $plain(*a, b));
                    }
                    let mut got = of(rank);
                    mpi.all_reduce(Values::$values(&mut got), reduce)?;
                    let same = got.iter().map(|&x| $bits(x)).eq(expected.iter().map(|&x| $bits(x)));
                    check(same, || format!("{reduce:?} of {len} {}: {got:?}", stringify!($ty)))?;
                }};
            }
            macro_rules! float {
                ($ty:ty) => {
                    |a: $ty, b: $ty| match reduce {
                        Reduce::Sum => a + b,
                        Reduce::Max if a.is_nan() => a,
                        Reduce::Max if b.is_nan() || b > a => b,
                        Reduce::Max => a,
                    }
                };
            }
            reduction!(f32, F32, float!(f32), |x: f32| if x.is_nan() { None } else { Some(x.to_bits()) });
            reduction!(f64, F64, float!(f64), |x: f64| if x.is_nan() { None } else { Some(x.to_bits()) });
            let count = |a: u64, b: u64| match reduce {
                Reduce::Sum => a.saturating_add(b),
                Reduce::Max => a.max(b),
            };
            reduction!(u64, U64, count, |x: u64| x);
        }
    }
    let before = mpi.bytes_sent();
    mpi.all_reduce(Values::F64(&mut vec![1.; 12 * size]), Reduce::Sum)?;
    let sent = mpi.bytes_sent() - before;
    check(sent == 8 * 2 * 12 * (size as u64 - 1), || format!("{sent} bytes counted"))
}

fn broadcasts(mpi: &Mpi) -> Result {
    for len in [0, 1, 999, 1000, 1001, 5000] {
        for root in 0..mpi.size() {
            let sent: Vec<u8> = (0..len).map(|i| (i * 7 + root) as u8).collect();
            let mut bytes = if mpi.rank() == root { sent.clone() } else { vec![1; mpi.rank()] };
            mpi.broadcast(root, &mut bytes)?;
            check(bytes == sent, || format!("broadcast of {len} bytes from {root}: {bytes:?}"))?;
        }
    }
    Ok(())
}

/// A message larger than what libraries count in 32 bits.
fn large(mpi: &Mpi) -> Result {
    let bytes: usize = std::env::var(BYTES)?.parse()?;
    let value = |i: usize| (i % 1000) as f32;
    let mut values: Vec<f32> = (0..bytes / 4).map(value).collect();
    mpi.all_reduce(Values::F32(&mut values), Reduce::Sum)?;
    let wrong = values.iter().enumerate().position(|(i, &x)| x != value(i) * mpi.size() as f32);
    check(wrong.is_none(), || format!("all_reduce of {bytes} bytes: wrong at {wrong:?}"))?;
    drop(values);
    let mut sent = match mpi.rank() {
        0 => (0..bytes).map(|i| (i % 251) as u8).collect(),
        _ => Vec::new(),
    };
    mpi.broadcast(0, &mut sent)?;
    let wrong = sent.iter().enumerate().position(|(i, &x)| x != (i % 251) as u8);
    check(sent.len() == bytes && wrong.is_none(), || {
        format!("broadcast of {bytes} bytes: wrong at {wrong:?}")
    })
}

/// Mistakes are typed errors on all ranks, and the group goes on.
fn mistakes(mpi: &Mpi) -> Result {
    let mut bytes = vec![3];
    let error = mpi.broadcast(mpi.size(), &mut bytes);
    let named = matches!(error, Err(Error::Group(GroupError::NoMember { .. })));
    check(named && (mpi.rank() > 0 || bytes == [3]), || format!("no such root: {error:?}"))?;
    if mpi.size() > 1 {
        let error = match mpi.rank() {
            1 => mpi.barrier(),
            rank => mpi.all_reduce(Values::U64(&mut vec![0; 5 + rank]), Reduce::Sum),
        };
        let expected = GroupError::Mismatch {
            rank: 0,
            call: "all_reduce (sum of 5 u64)".to_owned(),
            other: 1,
            other_call: "barrier".to_owned(),
        };
        check(matches!(&error, Err(Error::Group(e)) if *e == expected), || format!("mismatch: {error:?}"))?;
    }
    let error = Mpi::initialize();
    check(matches!(error, Err(Error::Group(GroupError::Unavailable { .. }))), || {
        format!("twice: {error:?}")
    })?;
    mpi.barrier()?;
    Ok(())
}

fn training(mpi: &Mpi) -> Result {
    let own = mpi.rank() as f32;
    let weight = Var::from_tensor(&Tensor::full(own, (2, 3), &Device::Cpu)?)?;
    broadcast_parameters(mpi, &[("weight".to_owned(), weight.clone())])?;
    check(weight.flatten_all()?.to_vec1::<f32>()? == [0.; 6], || format!("parameters: {weight}"))?;

    let gradient = Tensor::full(own + 1., (2, 3), &Device::Cpu)?;
    let missing = Tensor::ones(4, DType::F64, &Device::Cpu)?;
    let list = [
        Gradient { name: "weight", parameter: &weight, gradient: Some(&gradient) },
        Gradient { name: "bias", parameter: &missing, gradient: (mpi.rank() == 0).then_some(&missing) },
    ];
    let reduced = Buckets::default().reduce(mpi, &list)?;
    let total = (1..=mpi.size()).sum::<usize>() as f32;
    match reduced.gradients.as_slice() {
        [Some(weight), Some(bias)] => {
            check(weight.flatten_all()?.to_vec1::<f32>()? == [total; 6], || format!("{weight}"))?;
            check(bias.to_vec1::<f64>()? == [1.; 4], || format!("{bias}"))?;
        }
        other => return Err(format!("gradients: {other:?}").into()),
    }
    let agreement = agreement(mpi);
    let plan = agreement.of_first(&format!("plan {}", mpi.rank()))?;
    let largest = agreement.largest(&[mpi.rank() as u64])?;
    check(plan == "plan 0" && largest == [mpi.size() as u64 - 1], || format!("{plan}, {largest:?}"))
}
