//! Stochastic gradient descent.

use super::config::{at_least_zero, below_one, wrong};
use super::groups::{choose, configuration, Chosen, ParameterGroup};
use super::slots::Slots;
use super::update::Update;
use super::Optimizer;
use crate::nn::element::Real;
use crate::train::{Gradients, NamedParameters};
use crate::Result;
use candle_core::Tensor;
use serde::{Deserialize, Serialize};

/// The numbers of [`Sgd`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SgdConfig {
    /// `rate` in the formula.
    pub learning_rate: f64,
    /// `momentum`, in [0, 1); 0: none, and no buffer is kept.
    pub momentum: f64,
    /// `dampening`, in [0, 1).
    pub dampening: f64,
    /// Whether the step looks ahead along the momentum (Nesterov 1983, as in Sutskever et al. 2013).
    pub nesterov: bool,
    /// `decay`: that of a quadratic penalty on the weights.
    pub weight_decay: f64,
}

impl SgdConfig {
    /// Without momentum and weight decay.
    pub fn new(learning_rate: f64) -> Self {
        SgdConfig { learning_rate, momentum: 0., dampening: 0., nesterov: false, weight_decay: 0. }
    }

    fn check(&self) -> Result<()> {
        at_least_zero(NAME, "the learning rate", self.learning_rate)?;
        at_least_zero(NAME, "the weight decay", self.weight_decay)?;
        below_one(NAME, "the momentum", self.momentum)?;
        below_one(NAME, "the dampening", self.dampening)?;
        if self.nesterov && (self.momentum == 0. || self.dampening != 0.) {
            return Err(wrong(NAME, "Nesterov's step needs a momentum above 0 and a dampening of 0"));
        }
        Ok(())
    }
}

const NAME: &str = "SGD";

/// Stochastic gradient descent with momentum:
///
/// ```text
/// g = gradient + decay w
/// v = g                                    (first step)
/// v = momentum v + (1 - dampening) g       (later)
/// w = w - rate (g + momentum v)            (Nesterov)
/// w = w - rate v                           (else; without momentum, w - rate g)
/// ```
///
/// as in PyTorch. One pass over parameter, gradient and `v`; bf16 and f16 parameters are moved in an f32 copy that is kept
/// and rounded to them, so that small steps add up. (A parameter that is set from outside takes its copy with it.)
///
/// State: `learning_rate`, and of each parameter `steps.NAME` (i64), `momentum.NAME` where there is a momentum and
/// `master.NAME` for bf16 and f16.
///
/// ```
/// use candle_core::{Device, Var};
/// use memopt_runtime::train::{Gradients, NamedParameters, Optimizer, Sgd, SgdConfig};
///
/// let w = Var::new(&[1f64, -2.], &Device::Cpu)?;
/// let parameters = NamedParameters::new([("w".to_owned(), w.as_tensor().clone())])?;
/// let mut sgd = Sgd::new(&parameters, SgdConfig { momentum: 0.5, ..SgdConfig::new(0.25) })?;
/// for _ in 0..2 {
///     let gradients = Gradients::new(&parameters, w.sum_all()?.backward()?)?; // 1, 1
///     sgd.step(&gradients)?;                                                  // v = 1, then 1.5
/// }
/// assert_eq!(w.to_vec1::<f64>()?, [1. - 0.25 * 2.5, -2. - 0.25 * 2.5]);
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
#[derive(Debug)]
pub struct Sgd {
    config: SgdConfig,
    chosen: Vec<Chosen>,
    states: States,
}

/// Without momentum there is nothing to keep.
#[derive(Debug)]
enum States {
    Plain(Slots<0>),
    Momentum(Slots<1>),
}

impl Sgd {
    /// An optimizer of these parameters.
    ///
    /// # Errors
    /// If a number makes no sense.
    pub fn new(parameters: &NamedParameters, config: SgdConfig) -> Result<Self> {
        Self::with_groups(parameters, config, [])
    }

    /// The same, with groups that have options of their own.
    ///
    /// # Errors
    /// Those of [`new`](Self::new), and if a group chooses nothing.
    pub fn with_groups(
        parameters: &NamedParameters,
        config: SgdConfig,
        groups: impl IntoIterator<Item = ParameterGroup>,
    ) -> Result<Self> {
        config.check()?;
        let groups: Vec<ParameterGroup> = groups.into_iter().collect();
        let chosen = choose(NAME, parameters, config.weight_decay, &groups)?;
        let states = match config.momentum {
            0. => States::Plain(Slots::new(NAME, [], parameters)),
            _ => States::Momentum(Slots::new(NAME, ["momentum"], parameters)),
        };
        Ok(Sgd { config, chosen, states })
    }

    /// Its numbers; the learning rate is that of the next step.
    pub fn config(&self) -> SgdConfig {
        self.config
    }
}

impl Optimizer for Sgd {
    fn parameters(&self) -> &NamedParameters {
        match &self.states {
            States::Plain(slots) => slots.parameters(),
            States::Momentum(slots) => slots.parameters(),
        }
    }

    fn step(&mut self, gradients: &Gradients) -> Result<()> {
        let (config, chosen) = (self.config, &self.chosen);
        let of = |place: usize| {
            let Chosen { rate_factor, weight_decay } = chosen[place];
            Plain { rate: config.learning_rate * rate_factor, weight_decay }
        };
        match &mut self.states {
            States::Plain(slots) => slots.step(gradients, |place, _| of(place)),
            States::Momentum(slots) => slots.step(gradients, |place, step| {
                let (momentum, of_gradient) = match step {
                    1 => (0., 1.),
                    _ => (config.momentum, 1. - config.dampening),
                };
                let ahead = config.nesterov.then_some(config.momentum);
                Momentum { plain: of(place), momentum, of_gradient, ahead }
            }),
        }
    }

    fn learning_rate(&self) -> f64 {
        self.config.learning_rate
    }

    fn set_learning_rate(&mut self, rate: f64) {
        self.config.learning_rate = rate;
    }

    fn configuration(&self) -> Vec<(String, String)> {
        let SgdConfig { learning_rate, momentum, dampening, nesterov, weight_decay } = self.config;
        let numbers = [
            ("learning_rate", learning_rate),
            ("momentum", momentum),
            ("dampening", dampening),
            ("nesterov", f64::from(nesterov)),
        ];
        configuration(NAME, &numbers, weight_decay, self.parameters(), &self.chosen)
    }

    fn state(&self) -> Result<Vec<(String, Tensor)>> {
        match &self.states {
            States::Plain(slots) => slots.state(self.config.learning_rate),
            States::Momentum(slots) => slots.state(self.config.learning_rate),
        }
    }

    fn load_state(&mut self, state: &[(String, Tensor)]) -> Result<()> {
        self.config.learning_rate = match &mut self.states {
            States::Plain(slots) => slots.load(state)?,
            States::Momentum(slots) => slots.load(state)?,
        };
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Plain {
    rate: f64,
    weight_decay: f64,
}

impl Update<0> for Plain {
    #[inline(always)]
    fn run<R: Real>(self, weights: &mut [R], gradient: &[R], []: [&mut [R]; 0]) {
        let (rate, decay) = (R::from_f64(self.rate), R::from_f64(self.weight_decay));
        for (weight, gradient) in weights.iter_mut().zip(gradient) {
            *weight = *weight - rate * (*gradient + decay * *weight);
        }
    }
}

#[derive(Clone, Copy)]
struct Momentum {
    plain: Plain,
    momentum: f64,
    of_gradient: f64,
    /// The momentum along which Nesterov's step looks ahead.
    ahead: Option<f64>,
}

impl Update<1> for Momentum {
    #[inline(always)]
    fn run<R: Real>(self, weights: &mut [R], gradient: &[R], [velocity]: [&mut [R]; 1]) {
        let Plain { rate, weight_decay } = self.plain;
        let (rate, decay) = (R::from_f64(rate), R::from_f64(weight_decay));
        let (momentum, of_gradient) = (R::from_f64(self.momentum), R::from_f64(self.of_gradient));
        let elements = weights.iter_mut().zip(gradient).zip(velocity);
        match self.ahead {
            None => elements.for_each(|((weight, gradient), velocity)| {
                *velocity = momentum * *velocity + of_gradient * (*gradient + decay * *weight);
                *weight = *weight - rate * *velocity;
            }),
            Some(ahead) => {
                let ahead = R::from_f64(ahead);
                elements.for_each(|((weight, gradient), velocity)| {
                    let gradient = *gradient + decay * *weight;
                    *velocity = momentum * *velocity + of_gradient * gradient;
                    *weight = *weight - rate * (gradient + ahead * *velocity);
                });
            }
        }
    }
}
