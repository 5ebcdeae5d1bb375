//! Batch norms that are coupled over ranks: two halves of a batch train as the whole does, under every plan.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use candle_core::{DType, Device, Tensor};
use candle_nn::VarMap;
use common::Values;
use memopt::checkpoint::Planned;
use memopt::module::{NormGroup, NormStatistics, NormSums, Session};
use memopt::nn::init::seeded;
use memopt::nn::{BatchNorm2d, Conv2d, Conv2dConfig, Lif, Plif};
use memopt::Checkpointable;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

const CPU: &Device = &Device::Cpu;

#[derive(Clone, Checkpointable)]
#[spatial_split(conv, bn, neuron)]
struct Block<N: Checkpointable> {
    conv: Conv2d,
    bn: BatchNorm2d,
    neuron: N,
}

/// A block that runs in place, and two whose neurons need the graph.
#[derive(Clone, Checkpointable)]
#[spatial_split(first, second, last)]
struct Net {
    first: Block<Lif>,
    second: Block<Plif>,
    last: Block<(Lif, Lif)>,
}

fn net(variables: &VarMap) -> Net {
    let vb = seeded(variables, 3, DType::F64, CPU);
    let conv = |from, to, name: &str| {
        let config = Conv2dConfig::default().padding(1).bias(false);
        Conv2d::new(from, to, 3, config, vb.pp(name).pp("conv")).unwrap()
    };
    let bn =
        |channels, name: &str| BatchNorm2d::new(channels, Default::default(), vb.pp(name).pp("bn")).unwrap();
    let lif = || Lif::new(2.).unwrap().v_threshold(0.4);
    Net {
        first: Block { conv: conv(2, 6, "first"), bn: bn(6, "first"), neuron: lif() },
        second: Block {
            conv: conv(6, 4, "second"),
            bn: bn(4, "second"),
            neuron: Plif::from_builder(2., vb.pp("plif")).unwrap(),
        },
        last: Block { conv: conv(4, 3, "last"), bn: bn(3, "last"), neuron: (lif(), lif()) },
    }
}

/// Two ranks in threads, which add up what they give.
#[derive(Debug)]
struct Pair {
    barrier: Barrier,
    slots: [Mutex<Vec<f64>>; 2],
    asked: AtomicUsize,
}

#[derive(Debug, Clone)]
struct Rank {
    pair: Arc<Pair>,
    rank: usize,
}

impl Rank {
    fn sum(&self, own: Vec<f64>) -> Vec<f64> {
        *self.pair.slots[self.rank].lock().unwrap() = own;
        self.pair.barrier.wait();
        let [a, b] = [0, 1].map(|rank| self.pair.slots[rank].lock().unwrap().clone());
        self.pair.barrier.wait();
        a.iter().zip(&b).map(|(a, b)| a + b).collect()
    }
}

impl NormGroup for Rank {
    fn statistics(&self, _: &str, own: &NormStatistics) -> memopt::Result<NormStatistics> {
        self.pair.asked.fetch_add(1, Ordering::Relaxed);
        let mut totals: Vec<f64> = own.mean.iter().map(|mean| mean * own.count).collect();
        totals.push(own.count);
        let mut totals = self.sum(totals);
        let count = totals.pop().unwrap();
        let mean: Vec<f64> = totals.iter().map(|total| total / count).collect();
        let squares = own.squares.iter().zip(&own.mean).zip(&mean);
        let squares = self
            .sum(squares.map(|((m, own_mean), mean)| m + own.count * (own_mean - mean).powi(2)).collect());
        Ok(NormStatistics { mean, squares, count })
    }

    fn sums(&self, _: &str, own: &NormSums) -> memopt::Result<NormSums> {
        self.pair.asked.fetch_add(1, Ordering::Relaxed);
        let dy = self.sum(own.dy.clone());
        Ok(NormSums { dy, dy_normalized: self.sum(own.dy_normalized.clone()) })
    }
}

type Named = BTreeMap<String, Vec<f64>>;

/// Output, and the gradients of the variables and running statistics after a step.
fn step(variables: &VarMap, net: Net, plan: &str, session: Session, x: &Tensor) -> (Vec<f64>, Named, Named) {
    let net = Planned::new(net, plan.parse().unwrap(), session).unwrap();
    let y = net.run(x, true).unwrap().into_dense("y").unwrap();
    let weights = Tensor::arange(0f64, (y.elem_count() / y.dim(1).unwrap()) as f64, CPU).unwrap();
    let weights = weights
        .affine(0.01, -0.3)
        .unwrap()
        .reshape((y.dim(0).unwrap(), 1, y.dim(2).unwrap(), y.dim(3).unwrap(), y.dim(4).unwrap()))
        .unwrap();
    let store = y.broadcast_mul(&weights).unwrap().sum_all().unwrap().backward().unwrap();
    let flat = |t: &Tensor| t.flatten_all().unwrap().to_dtype(DType::F64).unwrap().to_vec1::<f64>().unwrap();
    let data = variables.data().lock().unwrap();
    let gradients =
        data.iter().filter_map(|(name, var)| Some((name.clone(), flat(store.get(var)?)))).collect();
    let running = data.iter().filter(|(name, _)| name.contains("running"));
    let running = running.map(|(name, var)| (name.clone(), flat(var))).collect();
    (flat(&y), gradients, running)
}

fn close(a: &[f64], b: &[f64], what: &str) {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let off = norm(&mut a.iter().zip(b).map(|(a, b)| a - b));
    assert!(
        a.len() == b.len() && off <= 1e-9 * norm(&mut b.iter().copied()).max(1e-12),
        "{what}: off by {off}"
    );
}

#[test]
fn ranks_train_as_the_whole_batch_does() {
    let x = Values::new(5).spikes(&[4, 4, 2, 8, 8], 0.4, DType::F64).unwrap();
    let variables = VarMap::new();
    let (_, whole, whole_running) = step(&variables, net(&variables), "", Session::new(0), &x);
    let plans = [
        "",
        "first: gc\nsecond: gc\nlast: gc",
        "first: tcgc:2\nsecond: tcgc:2\nlast: tcgc:4",
        "first: ccgc:2\nsecond: gc\nlast: ccgc:3",
        "first..last: gc",
    ];
    for plan in plans {
        let pair = Arc::new(Pair {
            barrier: Barrier::new(2),
            slots: Default::default(),
            asked: AtomicUsize::new(0),
        });
        let ran: Vec<(Vec<f64>, Named, Named)> = std::thread::scope(|scope| {
            let ranks: Vec<_> = (0..2)
                .map(|rank| {
                    // Halves that are not alike: one image, and three.
                    let part = if rank == 0 { x.narrow(1, 0, 1) } else { x.narrow(1, 1, 3) }.unwrap();
                    let session =
                        Session::new(0).with_norm_group(Arc::new(Rank { pair: pair.clone(), rank }));
                    scope.spawn(move || {
                        let variables = VarMap::new();
                        step(&variables, net(&variables), plan, session, &part)
                    })
                })
                .collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        assert_eq!(ran[0].1.keys().collect::<Vec<_>>(), whole.keys().collect::<Vec<_>>());
        for (name, gradient) in &whole {
            let sum: Vec<f64> = ran[0].1[name].iter().zip(&ran[1].1[name]).map(|(a, b)| a + b).collect();
            close(&sum, gradient, &format!("{name} under\n{plan}"));
        }
        for (name, running) in &whole_running {
            assert_eq!(ran[0].2[name], ran[1].2[name]);
            close(&ran[0].2[name], running, &format!("{name} under\n{plan}"));
        }
        // Once in the first pass and once back, for each norm; channels of a group of their own ask by themselves.
        let asked = pair.asked.load(Ordering::Relaxed) / 2;
        let most = 3 + 3 + if plan.contains("ccgc") { 4 } else { 0 };
        assert!((6..=most).contains(&asked), "{asked} under\n{plan}");
    }
}

/// Without the group, halves see their own statistics: the test above would see a difference.
#[test]
fn halves_alone_train_in_another_way() {
    let x = Values::new(5).spikes(&[4, 4, 2, 8, 8], 0.4, DType::F64).unwrap();
    let of = |x: &Tensor| {
        let variables = VarMap::new();
        step(&variables, net(&variables), "", Session::new(0), x).2["first.bn.running_mean"].clone()
    };
    assert_ne!(of(&x), of(&x.narrow(1, 0, 1).unwrap()));
}

/// A block so large that it is gone back through in groups of channels: ranks of other batches ask for the same groups.
#[test]
fn ranks_with_batches_of_their_own_sizes_ask_for_the_same_groups_of_channels() {
    let x = Values::new(5).spikes(&[4, 8, 2, 48, 48], 0.2, DType::F32).unwrap();
    let step = |session: Session, x: &Tensor| {
        let variables = VarMap::new();
        let vb = seeded(&variables, 3, DType::F32, CPU);
        let config = Conv2dConfig::default().padding(1).bias(false);
        let block = Block {
            conv: Conv2d::new(2, 128, 3, config, vb.pp("conv")).unwrap(),
            bn: BatchNorm2d::new(128, Default::default(), vb.pp("bn")).unwrap(),
            neuron: Lif::new(2.).unwrap(),
        };
        let net = Planned::new(vec![block], "0: gc".parse().unwrap(), session).unwrap();
        let y = net.run(x, true).unwrap().into_dense("y").unwrap();
        y.sum_all().unwrap().backward().unwrap();
    };
    let pair =
        Arc::new(Pair { barrier: Barrier::new(2), slots: Default::default(), asked: AtomicUsize::new(0) });
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let part = if rank == 0 { x.narrow(1, 0, 1) } else { x.narrow(1, 1, 7) }.unwrap();
            let session = Session::new(0).with_norm_group(Arc::new(Rank { pair: pair.clone(), rank }));
            scope.spawn(move || step(session, &part));
        }
    });
    let asked = pair.asked.load(Ordering::Relaxed);
    assert!(asked > 4 && asked.is_multiple_of(2), "{asked}: one group only");
}
