//! Adam with decoupled weight decay.

use super::config::{at_least_zero, below_one};
use super::groups::{choose, configuration, Chosen, ParameterGroup};
use super::slots::Slots;
use super::update::Update;
use super::Optimizer;
use crate::nn::element::Real;
use crate::train::{Gradients, NamedParameters};
use crate::Result;
use candle_core::Tensor;
use serde::{Deserialize, Serialize};

/// The numbers of [`AdamW`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AdamWConfig {
    /// `rate` in the formula.
    pub learning_rate: f64,
    /// `b1`, in [0, 1).
    pub beta1: f64,
    /// `b2`, in [0, 1).
    pub beta2: f64,
    /// `eps`, at least 0.
    pub eps: f64,
    /// `decay`; 0: Adam.
    pub weight_decay: f64,
}

impl AdamWConfig {
    /// With PyTorch's defaults: betas of 0.9 and 0.999, an eps of 1e-8, a weight decay of 0.01.
    pub fn new(learning_rate: f64) -> Self {
        AdamWConfig { learning_rate, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 }
    }

    fn check(&self) -> Result<()> {
        at_least_zero(NAME, "the learning rate", self.learning_rate)?;
        at_least_zero(NAME, "the weight decay", self.weight_decay)?;
        at_least_zero(NAME, "eps", self.eps)?;
        below_one(NAME, "beta1", self.beta1)?;
        below_one(NAME, "beta2", self.beta2)
    }
}

const NAME: &str = "AdamW";

/// Adam (Kingma and Ba 2015) with decoupled weight decay (Loshchilov and Hutter 2019):
///
/// ```text
/// w = w - rate decay w
/// m = m + (1 - b1) (g - m)
/// v = b2 v + (1 - b2) g^2
/// w = w - rate / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps)
/// ```
///
/// as in PyTorch; `t` counts the steps of each parameter, from 1. One pass over parameter, gradient, `m` and `v`; bf16 and
/// f16 parameters are moved in an f32 copy that is kept and rounded to them, so that small steps add up. (A parameter that
/// is set from outside takes its copy with it.)
///
/// State: `learning_rate`, and of each parameter `steps.NAME` (i64), `first_moment.NAME`, `second_moment.NAME`, and
/// `master.NAME` for bf16 and f16.
///
/// ```
/// use candle_core::{Device, Var};
/// use memopt_runtime::train::{AdamW, AdamWConfig, Gradients, NamedParameters, Optimizer};
///
/// let w = Var::new(&[1f64], &Device::Cpu)?;
/// let parameters = NamedParameters::new([("w".to_owned(), w.as_tensor().clone())])?;
/// let mut adamw = AdamW::new(&parameters, AdamWConfig { weight_decay: 0.5, ..AdamWConfig::new(0.125) })?;
/// adamw.step(&Gradients::new(&parameters, w.affine(8., 0.)?.sum_all()?.backward()?)?)?;
/// // The first step is as long as the learning rate, whatever the gradient.
/// assert!((w.to_vec1::<f64>()?[0] - (1. - 0.125 * 0.5 - 0.125)).abs() < 1e-9);
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
#[derive(Debug)]
pub struct AdamW {
    config: AdamWConfig,
    chosen: Vec<Chosen>,
    slots: Slots<2>,
}

impl AdamW {
    /// An optimizer of these parameters.
    ///
    /// # Errors
    /// If a number makes no sense.
    pub fn new(parameters: &NamedParameters, config: AdamWConfig) -> Result<Self> {
        Self::with_groups(parameters, config, [])
    }

    /// The same, with groups that have options of their own.
    ///
    /// # Errors
    /// Those of [`new`](Self::new), and if a group chooses nothing.
    pub fn with_groups(
        parameters: &NamedParameters,
        config: AdamWConfig,
        groups: impl IntoIterator<Item = ParameterGroup>,
    ) -> Result<Self> {
        config.check()?;
        let groups: Vec<ParameterGroup> = groups.into_iter().collect();
        let chosen = choose(NAME, parameters, config.weight_decay, &groups)?;
        let slots = Slots::new(NAME, ["first_moment", "second_moment"], parameters);
        Ok(AdamW { config, chosen, slots })
    }

    /// Its numbers; the learning rate is that of the next step.
    pub fn config(&self) -> AdamWConfig {
        self.config
    }
}

impl Optimizer for AdamW {
    fn parameters(&self) -> &NamedParameters {
        self.slots.parameters()
    }

    fn step(&mut self, gradients: &Gradients) -> Result<()> {
        let (config, chosen) = (self.config, &self.chosen);
        let AdamWConfig { learning_rate, beta1, beta2, eps, .. } = config;
        self.slots.step(gradients, |place, step| {
            let Chosen { rate_factor, weight_decay } = chosen[place];
            let rate = learning_rate * rate_factor;
            let step = step as f64;
            // The same bits on every platform.
            let (first, second) = (1. - libm::pow(beta1, step), 1. - libm::pow(beta2, step));
            Moments {
                kept: 1. - rate * weight_decay,
                of_first: 1. - beta1,
                beta2,
                length: rate / first,
                root: second.sqrt(),
                eps,
            }
        })
    }

    fn learning_rate(&self) -> f64 {
        self.config.learning_rate
    }

    fn set_learning_rate(&mut self, rate: f64) {
        self.config.learning_rate = rate;
    }

    fn configuration(&self) -> Vec<(String, String)> {
        let AdamWConfig { learning_rate, beta1, beta2, eps, weight_decay } = self.config;
        let numbers = [("learning_rate", learning_rate), ("beta1", beta1), ("beta2", beta2), ("eps", eps)];
        configuration(NAME, &numbers, weight_decay, self.parameters(), &self.chosen)
    }

    fn state(&self) -> Result<Vec<(String, Tensor)>> {
        self.slots.state(self.config.learning_rate)
    }

    fn load_state(&mut self, state: &[(String, Tensor)]) -> Result<()> {
        self.config.learning_rate = self.slots.load(state)?;
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Moments {
    /// What weight decay leaves of a weight.
    kept: f64,
    of_first: f64,
    beta2: f64,
    /// The learning rate, by what the first moment lacks.
    length: f64,
    /// The root of what the second moment lacks.
    root: f64,
    eps: f64,
}

impl Update<2> for Moments {
    #[inline(always)]
    fn run<R: Real>(self, weights: &mut [R], gradient: &[R], [first, second]: [&mut [R]; 2]) {
        let (kept, length) = (R::from_f64(self.kept), R::from_f64(self.length));
        let (of_first, of_second) = (R::from_f64(self.of_first), R::from_f64(1. - self.beta2));
        let (beta2, root, eps) = (R::from_f64(self.beta2), R::from_f64(self.root), R::from_f64(self.eps));
        for (((weight, gradient), first), second) in weights.iter_mut().zip(gradient).zip(first).zip(second) {
            let gradient = *gradient;
            *first += of_first * (gradient - *first);
            *second = beta2 * *second + of_second * (gradient * gradient);
            *weight = kept * *weight - length * (*first / (second.sqrt() / root + eps));
        }
    }
}
