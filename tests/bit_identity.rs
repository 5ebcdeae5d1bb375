//! Losses and gradients with checkpointed closures are plain Candle's, bit for bit: random small networks.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use candle_core::{DType, Device, Result, Tensor, Var};
use common::{bits, gradient, Values};
use memopt::checkpoint::{checkpoint, Options};
use memopt::compress::{Auto, Bit, Byte, Null, Sparse, SpikeCompressor};
use proptest::prelude::*;
use std::sync::Arc;

/// Rows and columns of every activation.
const ROWS: usize = 3;
const FEATURES: usize = 5;

/// One segment of a network; numbers are indices of weights.
#[derive(Debug, Clone)]
enum Piece {
    /// tanh(x w + b)
    Dense(usize, usize),
    /// relu(x * w), with w broadcast over rows
    Scale(usize),
    /// (x w, exp(x v) - x v): two outputs
    Fork(usize, usize),
    /// tanh(x w) + tanh(z v): two inputs
    Merge(usize, usize),
    /// Spikes of x over a threshold, with the gradient of tanh.
    Spike,
    /// The transposed view's sums: another order in memory.
    Transposed(usize),
    /// Two pieces in one segment, each checkpointed inside it too if `.2`.
    Nested(Box<Piece>, Box<Piece>, bool),
}

impl Piece {
    fn inputs(&self) -> usize {
        match self {
            Piece::Merge(..) => 2,
            Piece::Nested(first, ..) => first.inputs(),
            _ => 1,
        }
    }

    /// How often it uses its first input.
    fn uses(&self) -> usize {
        match self {
            Piece::Fork(..) => 2,
            Piece::Nested(first, ..) => first.uses(),
            _ => 1,
        }
    }

    fn run(&self, w: &[Tensor], x: &[Tensor], inside: &Mode) -> Result<Vec<Tensor>> {
        let product = |x: &Tensor, w: &Tensor| {
            // Candle has no bf16 matrix product on the CPU.
            if x.dtype() == DType::BF16 {
                let (rows, features) = x.dims2()?;
                x.reshape((rows, features, 1))?.broadcast_mul(&w.reshape((1, features, features))?)?.sum(1)
            } else {
                x.matmul(w)
            }
        };
        Ok(match self {
            Piece::Dense(i, j) => {
                let bias = w[*j].narrow(0, 0, 1)?;
                vec![product(&x[0], &w[*i])?.broadcast_add(&bias)?.tanh()?]
            }
            Piece::Scale(i) => vec![x[0].broadcast_mul(&w[*i].narrow(0, 1, 1)?)?.relu()?],
            Piece::Fork(i, j) => {
                let second = product(&x[0], &w[*j])?;
                vec![product(&x[0], &w[*i])?, (second.exp()? - &second)?]
            }
            Piece::Merge(i, j) => {
                vec![(product(&x[0], &w[*i])?.tanh()? + product(&x[1], &w[*j])?.tanh()?)?]
            }
            Piece::Spike => {
                let soft = x[0].tanh()?;
                let hard = x[0].detach().ge(0.1)?.to_dtype(x[0].dtype())?;
                vec![(&soft + (hard - soft.detach())?)?]
            }
            Piece::Transposed(i) => {
                let y = x[0].t()?;
                let column = w[*i].narrow(1, 0, 1)?;
                vec![y.broadcast_mul(&column)?.t()?.contiguous()?]
            }
            Piece::Nested(first, second, checkpointed) => {
                let inside = if *checkpointed { inside.clone() } else { Mode::Plain };
                let mut middle = inside.run(first, w, x)?;
                let rest = middle.split_off(1);
                let mut out = inside.run(second, w, &middle[..second.inputs().min(1)])?;
                out.extend(rest);
                out
            }
        })
    }
}

/// How a network's segments run.
#[derive(Debug, Clone)]
enum Mode {
    Plain,
    Checkpointed(Arc<dyn SpikeCompressor>),
}

impl Mode {
    fn run(&self, piece: &Piece, w: &[Tensor], x: &[Tensor]) -> Result<Vec<Tensor>> {
        match self {
            Mode::Plain => piece.run(w, x, self),
            Mode::Checkpointed(compressor) => {
                let options = Options::new("piece").compressors(vec![compressor.clone(); x.len()]);
                let (piece, w, inside) = (piece.clone(), w.to_vec(), self.clone());
                Ok(checkpoint(move |x| piece.run(&w, x, &inside), x, options)?)
            }
        }
    }
}

#[derive(Debug, Clone)]
struct Network {
    dtype: DType,
    seed: u64,
    weights: usize,
    pieces: Vec<(Piece, usize, usize)>,
    tracked_input: bool,
    spiking_input: bool,
    transposed_input: bool,
    /// Moves one value of the first weight by one unit in the last place.
    one_ulp: bool,
}

/// Everything of two training steps that must not change: losses, gradients.
type Record = Vec<(Vec<u64>, Vec<Option<(Vec<usize>, DType, Vec<u64>)>>)>;

impl Network {
    /// Each weight is used twice at most, and so is each activation: sums of three may be grouped in another way.
    fn train(&self, mode: &Mode) -> Result<Record> {
        let mut values = Values::new(self.seed);
        let vars = (0..self.weights)
            .map(|_| Var::from_tensor(&values.tensor(&[FEATURES, FEATURES], self.dtype)?))
            .collect::<Result<Vec<_>>>()?;
        if self.one_ulp {
            let mut first = vars[0].flatten_all()?.to_vec1::<f32>()?;
            first[0] = f32::from_bits(first[0].to_bits() + 1);
            vars[0].set(&Tensor::from_vec(first, (FEATURES, FEATURES), &Device::Cpu)?)?;
        }
        let shape = if self.transposed_input { [FEATURES, ROWS] } else { [ROWS, FEATURES] };
        let input = if self.spiking_input {
            values.spikes(&shape, 0.3, self.dtype)?
        } else {
            values.tensor(&shape, self.dtype)?
        };
        let input = Var::from_tensor(&input)?;
        let weights: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
        let mut record = Vec::new();
        for _ in 0..2 {
            let x = if self.tracked_input { input.as_tensor().clone() } else { input.as_detached_tensor() };
            let x = if self.transposed_input { x.t()? } else { x };
            let mut tensors = vec![(x, 0)];
            for (piece, a, b) in &self.pieces {
                let pick = |tensors: &mut Vec<(Tensor, usize)>, wish: usize, needed: usize| {
                    let free: Vec<usize> =
                        (0..tensors.len()).filter(|&i| tensors[i].1 + needed <= 2).collect();
                    let chosen = free[wish % free.len()];
                    tensors[chosen].1 += needed;
                    tensors[chosen].0.clone()
                };
                let mut x = vec![pick(&mut tensors, *a, piece.uses())];
                if piece.inputs() == 2 {
                    x.push(pick(&mut tensors, *b, 1));
                }
                for y in mode.run(piece, &weights, &x)? {
                    tensors.push((y, 0));
                }
            }
            let mut loss: Option<Tensor> = None;
            for (t, uses) in tensors {
                if uses == 0 {
                    let term = t.to_dtype(DType::F64)?.sqr()?.mean_all()?;
                    loss = Some(match loss {
                        None => term,
                        Some(sum) => (sum + term)?,
                    });
                }
            }
            let loss = loss.unwrap();
            let gradients = loss.backward()?;
            let mut all: Vec<_> = vars.iter().map(|v| gradient(&gradients, v)).collect();
            if self.tracked_input {
                all.push(gradient(&gradients, &input));
            }
            for v in &vars {
                if let Some(g) = gradients.get(v) {
                    v.set(&(v.as_tensor() - (g * 0.1)?)?.detach())?;
                }
            }
            record.push((bits(&loss), all));
        }
        Ok(record)
    }
}

/// Gives out weights so that each is used twice at most.
fn with_weights(
    mut pieces: Vec<(Piece, usize, usize)>,
    sharing: &[bool],
) -> (Vec<(Piece, usize, usize)>, usize) {
    let (mut next, mut again, mut turn) = (0, Vec::new(), 0);
    let mut take = || {
        turn += 1;
        if sharing[turn % sharing.len()] {
            if let Some(old) = again.pop() {
                return old;
            }
        }
        again.push(next);
        next += 1;
        next - 1
    };
    fn assign(piece: &mut Piece, take: &mut impl FnMut() -> usize) {
        match piece {
            Piece::Dense(i, j) | Piece::Fork(i, j) | Piece::Merge(i, j) => (*i, *j) = (take(), take()),
            Piece::Scale(i) | Piece::Transposed(i) => *i = take(),
            Piece::Spike => {}
            Piece::Nested(a, b, _) => {
                assign(a, take);
                assign(b, take);
            }
        }
    }
    pieces.iter_mut().for_each(|(piece, ..)| assign(piece, &mut take));
    (pieces, next.max(1))
}

fn simple_piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        Just(Piece::Dense(0, 0)),
        Just(Piece::Scale(0)),
        Just(Piece::Fork(0, 0)),
        Just(Piece::Spike),
        Just(Piece::Transposed(0)),
    ]
}

/// Two pieces in one segment, which may be two themselves.
fn nested(first: impl Strategy<Value = Piece>) -> impl Strategy<Value = Piece> {
    (first, simple_piece(), any::<bool>())
        .prop_map(|(first, second, inside)| Piece::Nested(Box::new(first), Box::new(second), inside))
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        4 => simple_piece(),
        2 => Just(Piece::Merge(0, 0)),
        2 => nested(simple_piece()),
        1 => nested(nested(simple_piece())),
    ]
}

fn network() -> impl Strategy<Value = Network> {
    let pieces = prop::collection::vec((piece(), any::<usize>(), any::<usize>()), 1..7);
    let dtype = prop_oneof![Just(DType::F32), Just(DType::F64), Just(DType::BF16), Just(DType::F16)];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (pieces, dtype, any::<u64>(), prop::collection::vec(any::<bool>(), 8), flags).prop_map(
        |(pieces, dtype, seed, sharing, (tracked_input, spiking_input, transposed_input))| {
            let (pieces, weights) = with_weights(pieces, &sharing);
            let one_ulp = false;
            Network { dtype, seed, weights, pieces, tracked_input, spiking_input, transposed_input, one_ulp }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn checkpointed_networks_train_as_plain_ones(network in network()) {
        let plain = network.train(&Mode::Plain).unwrap();
        let compressors: [Arc<dyn SpikeCompressor>; 5] =
            [Arc::new(Null), Arc::new(Auto), Arc::new(Bit), Arc::new(Byte), Arc::new(Sparse)];
        for compressor in compressors {
            let name = compressor.name().to_owned();
            let ours = network.train(&Mode::Checkpointed(compressor)).unwrap();
            prop_assert_eq!(&ours, &plain, "compressor {}", name);
        }
    }
}

/// The test above must be able to fail: another rounding of one weight shows.
#[test]
fn the_comparison_sees_one_ulp() {
    let (pieces, weights) = with_weights(vec![(Piece::Dense(0, 0), 0, 0)], &[false]);
    let base = Network {
        dtype: DType::F32,
        seed: 7,
        weights,
        pieces,
        tracked_input: true,
        spiking_input: false,
        transposed_input: false,
        one_ulp: false,
    };
    let plain = base.train(&Mode::Plain).unwrap();
    assert!(plain.iter().all(|(_, gradients)| gradients.iter().all(Option::is_some)));
    assert_ne!(plain, Network { one_ulp: true, ..base }.train(&Mode::Plain).unwrap());
}
