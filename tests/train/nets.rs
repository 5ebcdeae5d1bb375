//! A small spiking network, data for it, and an optimizer that only looks.

use super::common::{bits, Values};
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::VarMap;
use memopt::checkpoint::Planned;
use memopt::module::Session;
use memopt::nn::{
    cross_entropy_of_mean, init::seeded, AvgPool2d, BatchNorm2d, Conv2d, Conv2dConfig, Flatten, Lif, Linear,
};
use memopt::plan::Plan;
use memopt::train::{Gradients, NamedParameters, Optimizer};
use memopt::{Checkpointable, Result};
use std::sync::{Arc, Mutex};

pub const CPU: &Device = &Device::Cpu;

#[derive(Clone, Checkpointable)]
#[checkpoint(segment)]
#[spatial_split(conv, bn, neuron)]
pub struct Block {
    conv: Conv2d,
    bn: Option<BatchNorm2d>,
    neuron: Lif,
}

#[derive(Clone, Checkpointable)]
#[spatial_split(block, pool, flatten, head)]
pub struct Net {
    pub block: Block,
    pool: AvgPool2d,
    flatten: Flatten,
    head: Linear,
}

/// The same network, however often it is made.
pub fn net(has_norm: bool, plan: &str) -> Planned<Net> {
    let vb = seeded(&VarMap::new(), 5, DType::F32, CPU);
    let bn = has_norm.then(|| BatchNorm2d::new(6, Default::default(), vb.pp("bn")).unwrap());
    let conv = Conv2d::new(2, 6, 3, Conv2dConfig::default().padding(1), vb.pp("conv")).unwrap();
    let net = Net {
        block: Block { conv, bn, neuron: Lif::new(2.).unwrap() },
        pool: AvgPool2d::new(2),
        flatten: Flatten,
        head: Linear::new(6 * 9, 4, Default::default(), vb.pp("head")).unwrap(),
    };
    Planned::new(net, plan.parse::<Plan>().unwrap(), Session::new(0)).unwrap()
}

pub fn parameters(net: &Net) -> NamedParameters {
    NamedParameters::of(net).unwrap()
}

/// `[T, N, C, H, W]`, and labels.
pub struct Data {
    x: Tensor,
    labels: Tensor,
}

impl Data {
    pub fn new(samples: usize, seed: u64) -> Self {
        let mut values = Values::new(seed);
        let x = (values.tensor(&[3, samples, 2, 6, 6], DType::F32).unwrap() * 4.).unwrap();
        let labels: Vec<u32> = (0..samples).map(|_| ((values.next() + 1.) * 2.) as u32 % 4).collect();
        Data { x, labels: Tensor::new(labels, CPU).unwrap() }
    }

    /// The mean loss of some of the samples.
    pub fn loss(&self, net: &Planned<Net>, start: usize, n: usize) -> Tensor {
        let y = net.run(self.x.narrow(1, start, n).unwrap(), true).unwrap().into_dense("output").unwrap();
        cross_entropy_of_mean(&y, &self.labels.narrow(0, start, n).unwrap()).unwrap()
    }
}

/// An optimizer that keeps the gradients of its steps and moves nothing.
#[derive(Debug)]
pub struct Looking {
    parameters: NamedParameters,
    pub seen: Seen,
}

pub type Seen = Arc<Mutex<Vec<Vec<Option<Tensor>>>>>;

impl Looking {
    pub fn at(parameters: &NamedParameters) -> Self {
        Looking { parameters: parameters.clone(), seen: Seen::default() }
    }
}

impl Optimizer for Looking {
    fn parameters(&self) -> &NamedParameters {
        &self.parameters
    }

    fn step(&mut self, gradients: &Gradients) -> Result<()> {
        let all = self.parameters.iter().map(|parameter| gradients.get(parameter.name()).unwrap());
        self.seen.lock().unwrap().push(all.collect());
        Ok(())
    }

    fn learning_rate(&self) -> f64 {
        0.
    }

    fn set_learning_rate(&mut self, _: f64) {}

    fn state(&self) -> Result<Vec<(String, Tensor)>> {
        Ok(vec![])
    }

    fn load_state(&mut self, _: &[(String, Tensor)]) -> Result<()> {
        Ok(())
    }
}

/// All elements of tensors in f64; none for those that are not there.
pub fn elements(tensors: &[Option<Tensor>]) -> Vec<f64> {
    let of = |t: &Tensor| t.flatten_all().unwrap().to_dtype(DType::F64).unwrap().to_vec1::<f64>().unwrap();
    tensors.iter().flatten().flat_map(of).collect()
}

/// `norm(a - b) / norm(b)`
pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / norm(&mut b.iter().copied())
}

/// The bits of all parameters.
pub fn weights(parameters: &NamedParameters) -> Vec<Vec<u64>> {
    parameters.iter().map(|parameter| bits(parameter.tensor())).collect()
}

/// A variable `w` of these values by itself.
pub fn variable(values: &[f32]) -> (Var, NamedParameters) {
    let w = Var::new(values, CPU).unwrap();
    let parameters = NamedParameters::new([("w".to_owned(), w.as_tensor().clone())]).unwrap();
    (w, parameters)
}

/// A loss whose gradient is `factor` at each element of `w`.
pub fn linear(w: &Var, factor: f64) -> Tensor {
    w.affine(factor, 0.).unwrap().sum_all().unwrap()
}
