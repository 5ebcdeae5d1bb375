//! Windows in chunks against whole windows, and numbers of threads: the same bits.

use super::common::{assert_same, bits, Values};
use super::gradients::each_layer;
use super::support::{forward, run, training, Run, CPU};
use candle_core::{CpuStorage, DType, Storage, Tensor};
use memopt::autograd::Gradient;
use memopt::module::WindowNorm;
use memopt::nn::{init, BatchNorm, BatchNormConfig};
use proptest::prelude::*;

fn norm(channels: usize, dtype: DType) -> BatchNorm {
    let vb = init::seeded(&candle_nn::VarMap::new(), 1, dtype, CPU);
    BatchNorm::new(channels, BatchNormConfig::default(), vb).unwrap()
}

fn buffer(tensor: &Tensor) -> CpuStorage {
    Gradient::from(tensor.clone()).into_storage().unwrap()
}

fn tensor(storage: CpuStorage, shape: &[usize]) -> Tensor {
    Tensor::from_storage(Storage::Cpu(storage), shape, candle_core::op::BackpropOp::none(), false)
}

/// Batch norm by its pieces, chunk by chunk, as the executor of time chunks does it.
fn by_pieces(norm: &BatchNorm, x: &Tensor, dy: &Tensor, lengths: &[usize]) -> Run {
    let mut borders = Vec::new();
    lengths.iter().fold(0, |start, length| {
        borders.push((start, *length));
        start + length
    });
    let cut = |t: &Tensor, &(start, length): &(usize, usize)| {
        t.narrow(0, start, length).unwrap().contiguous().unwrap()
    };
    let mut statistics = norm.no_statistics();
    for chunk in &borders {
        norm.add_statistics(&mut statistics, &cut(x, chunk)).unwrap();
    }
    norm.move_running(&statistics).unwrap();
    let mut sums = norm.no_sums();
    for chunk in borders.iter().rev() {
        norm.add_sums(&mut sums, &cut(x, chunk), &buffer(&cut(dy, chunk)), &statistics).unwrap();
    }
    let context = training();
    let gradients: Vec<_> = norm.weights(&context).into_iter().map(|weight| weight.into_parts().2).collect();
    let parameters = norm.parameter_gradients(&[sums.clone()], &gradients).unwrap();
    let (mut y, mut dx) = (Vec::new(), Vec::new());
    for chunk in &borders {
        let (x, dy) = (cut(x, chunk), cut(dy, chunk));
        y.push(tensor(norm.normalize(buffer(&x), x.dims(), &statistics).unwrap(), x.dims()));
        dx.push(tensor(norm.input_gradient(&x, buffer(&dy), &statistics, &sums).unwrap(), x.dims()));
    }
    Run {
        y: Tensor::cat(&y, 0).unwrap(),
        dx: Tensor::cat(&dx, 0).unwrap(),
        parameters: parameters.into_iter().map(|gradient| gradient.unwrap().into_tensor()).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn batch_norm_by_its_pieces(
        lengths in prop::collection::vec(1..4usize, 1..5),
        channels in 1..20usize,
        images in 1..4usize,
        rest in prop::collection::vec(1..6usize, 0..3),
        dtype in prop::sample::select(vec![DType::F32, DType::F64, DType::BF16, DType::F16]),
        seed: u64,
    ) {
        let steps: usize = lengths.iter().sum();
        prop_assume!(steps * images > 1);
        let shape = [vec![steps, images, channels], rest].concat();
        let mut values = Values::new(seed);
        let x = values.tensor(&shape, dtype).unwrap();
        let dy = values.tensor(&shape, dtype).unwrap();
        let (whole, cut) = (norm(channels, dtype), norm(channels, dtype));
        let a = run(&whole, &x, |_| dy.clone(), &mut training());
        let b = by_pieces(&cut, &x, &dy, &lengths);
        assert_same(&a.y, &b.y);
        assert_same(&a.dx, &b.dx);
        a.parameters.iter().zip(&b.parameters).for_each(|(a, b)| assert_same(a, b));
        assert_same(&whole.running_mean().unwrap(), &cut.running_mean().unwrap());
        assert_same(&whole.running_var().unwrap(), &cut.running_var().unwrap());
    }
}

/// The control of the test above: statistics of chunks that are merged after the fact are other bits.
#[test]
fn merged_partial_sums_would_differ() {
    let mut values = Values::new(5);
    let x = values.tensor(&[8, 3, 4, 5, 5], DType::F32).unwrap();
    let norm = norm(4, DType::F32);
    let mut whole = norm.no_statistics();
    norm.add_statistics(&mut whole, &x).unwrap();
    let mut backward = norm.no_statistics();
    for step in (0..8).rev() {
        norm.add_statistics(&mut backward, &x.narrow(0, step, 1).unwrap().contiguous().unwrap()).unwrap();
    }
    assert_ne!(whole, backward);
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for (dtype, images) in [(DType::F32, 5), (DType::F64, 2), (DType::BF16, 3)] {
        let x = Values::new(4).tensor(&[3, images, 4, 6, 6], dtype).unwrap();
        let all = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let mut all = Vec::new();
                each_layer(dtype, |_, run| {
                    let run = run(&x);
                    all.extend([&run.y, &run.dx].into_iter().chain(&run.parameters).map(bits));
                });
                all
            })
        };
        let one = all(1);
        for threads in [2, 5] {
            assert_eq!(one, all(threads), "{threads} threads");
        }
    }
}

/// Convolutions wide enough for several bands, groups of output channels and blocks of the weight.
#[test]
fn any_number_of_threads_gives_the_same_bits_of_a_wide_convolution() {
    use memopt::nn::{Conv2d, ConvConfig};
    let vb = init::seeded(&candle_nn::VarMap::new(), 1, DType::F32, CPU);
    let conv = Conv2d::new(70, 72, 3, ConvConfig::default().padding(1), vb).unwrap();
    let x = Values::new(4).spikes(&[2, 3, 70, 20, 20], 0.2, DType::F32).unwrap();
    let dy = Values::new(5).tensor(&[2, 3, 72, 20, 20], DType::F32).unwrap();
    let all = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let run = pool.install(|| run(&conv, &x, |_| dy.clone(), &mut training()));
        [&run.y, &run.dx].into_iter().chain(&run.parameters).map(bits).collect::<Vec<_>>()
    };
    let one = all(1);
    for threads in [2, 5] {
        assert!(one == all(threads), "{threads} threads");
    }
    // each image by itself
    for (step, image) in [(0, 0), (1, 2)] {
        let alone = x.narrow(0, step, 1).unwrap().narrow(1, image, 1).unwrap();
        let y = forward(&conv, &alone, &mut training()).unwrap();
        let whole = forward(&conv, &x, &mut training()).unwrap().detach();
        let part = whole.narrow(0, step, 1).unwrap().narrow(1, image, 1).unwrap().contiguous().unwrap();
        assert_same(&y.detach(), &part);
    }
}
