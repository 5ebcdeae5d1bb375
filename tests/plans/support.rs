//! Trains a model and writes down all bits.

use super::common::{bits, gradient, Values};
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{VarBuilder, VarMap};
use memopt::checkpoint::Planned;
use memopt::module::Session;
use memopt::nn::init::seeded;
use memopt::nn::{BatchNorm2d, BatchNormConfig, Conv2d, Conv2dConfig};
use memopt::plan::Plan;
use memopt::Checkpointable;
use std::fmt::Display;

pub const CPU: &Device = &Device::Cpu;

/// Bits by what they are of.
pub type Record = Vec<(String, Vec<u64>)>;

/// A model inside of another, so that a plan can name it.
#[derive(Clone, Checkpointable)]
#[spatial_split(body)]
pub struct Around<M> {
    pub body: M,
}

pub fn conv(from: usize, to: usize, vb: VarBuilder) -> memopt::Result<Conv2d> {
    Conv2d::new(from, to, 3, Conv2dConfig::default().padding(1), vb)
}

pub fn norm(channels: usize, vb: VarBuilder) -> memopt::Result<BatchNorm2d> {
    BatchNorm2d::new(channels, BatchNormConfig::default(), vb)
}

/// The variables of a map (running statistics are among them), by name.
pub fn sorted(variables: &VarMap) -> Vec<(String, Var)> {
    let mut named: Vec<(String, Var)> = variables.data().lock().unwrap().clone().into_iter().collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    named
}

/// What a model is trained on.
pub struct Data {
    /// What the windows are computed from, if its gradient is wanted.
    pub leaf: Option<Var>,
    /// One for each step.
    pub windows: Vec<Tensor>,
}

impl Data {
    /// Several random windows.
    pub fn new(steps: usize, shape: &[usize], dtype: DType, seed: u64) -> Self {
        let mut values = Values::new(seed);
        let windows = (0..steps).map(|_| (values.tensor(shape, dtype).unwrap() * 3.).unwrap()).collect();
        Data { leaf: None, windows }
    }

    /// The same tracked images `[N, C, H, W]` at each of `time_steps` steps, in each of three windows.
    pub fn repeated(images: &[usize], time_steps: usize) -> Self {
        let leaf = (Values::new(9).tensor(images, DType::F32).unwrap() * 2.).unwrap();
        let leaf = Var::from_tensor(&leaf).unwrap();
        let window = [&[time_steps], images].concat();
        let window = leaf.unsqueeze(0).unwrap().broadcast_as(window).unwrap();
        Data { leaf: Some(leaf), windows: vec![window; 3] }
    }
}

/// A planned model and its variables, step by step.
pub struct Trainer<M> {
    pub net: Planned<M>,
    pub named: Vec<(String, Var)>,
}

impl<M: Checkpointable> Trainer<M> {
    pub fn new(
        build: impl FnOnce(VarBuilder) -> memopt::Result<M>,
        dtype: DType,
        plan: Plan,
        session: Session,
    ) -> memopt::Result<Self> {
        let variables = VarMap::new();
        let net = build(seeded(&variables, 3, dtype, CPU))?;
        Ok(Trainer { net: Planned::new(net, plan, session)?, named: sorted(&variables) })
    }

    pub fn loss(&self, x: &Tensor) -> memopt::Result<Tensor> {
        Ok(self.net.run(x, true)?.into_dense("output")?.sqr()?.mean_all()?)
    }

    /// Goes back from the loss and moves the variables: the loss and all gradients.
    pub fn descend(&self, loss: &Tensor, leaf: Option<&Var>) -> memopt::Result<Record> {
        let gradients = loss.backward()?;
        let mut record = vec![("loss".to_owned(), bits(loss))];
        let of = |v: &Tensor| gradient(&gradients, v).map_or(vec![], |g| g.2);
        record.extend(leaf.map(|leaf| ("gradient of the leaf".to_owned(), of(leaf))));
        for (name, v) in &self.named {
            record.push((format!("gradient of {name}"), of(v)));
            if let Some(g) = gradients.get(v) {
                v.set(&(v.as_tensor() - (g * 0.1)?)?.detach())?;
            }
        }
        Ok(record)
    }

    pub fn step(&self, x: &Tensor) -> memopt::Result<Record> {
        self.descend(&self.loss(x)?, None)
    }

    /// The variables as they are.
    pub fn variables(&self) -> Record {
        self.named.iter().map(|(name, v)| (name.clone(), bits(v))).collect()
    }
}

/// Losses and gradients of a step for each window, then the variables and an output in evaluation.
pub fn train<M: Checkpointable>(
    build: impl FnOnce(VarBuilder) -> memopt::Result<M>,
    plan: Plan,
    session: Session,
    data: &Data,
) -> memopt::Result<Record> {
    let dtype = data.windows[0].dtype();
    let trainer = Trainer::new(build, dtype, plan, session)?;
    let mut record = Record::new();
    for x in &data.windows {
        let loss = trainer.loss(x)?;
        record.extend(trainer.descend(&loss, data.leaf.as_ref())?);
    }
    record.extend(trainer.variables());
    let y = trainer.net.run(&data.windows[0], false)?.into_dense("output")?;
    assert_eq!(y.dtype(), dtype);
    record.push(("evaluation".to_owned(), bits(&y)));
    Ok(record)
}

/// What of two trainings is not the same, at most a few of it.
pub fn differing(ours: &Record, plain: &Record) -> Vec<String> {
    assert_eq!(ours.len(), plain.len());
    let differ = ours.iter().zip(plain).filter(|(a, b)| a != b);
    differ.map(|((name, _), _)| name.clone()).take(8).collect()
}

/// How much of a training is more than zeros.
pub fn alive(record: &Record) -> usize {
    record.iter().filter(|(_, bits)| bits.iter().any(|bits| bits << 1 != 0)).count()
}

#[track_caller]
pub fn assert_same_bits(ours: &Record, plain: &Record, what: impl Display) {
    assert_eq!(differing(ours, plain), Vec::<String>::new(), "{what}");
}

/// A session that carries the neurons' states, or one that does not.
pub fn session(carry: bool) -> Session {
    match carry {
        true => Session::new(7).carry_states(),
        false => Session::new(7),
    }
}
