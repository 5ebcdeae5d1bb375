//! What an optimizer keeps for each parameter.

use super::update::{Piece, Update};
use crate::checkpoint::mark_changed;
use crate::nn::element::{Element, Real};
use crate::storage;
use crate::train::gradients::{tensor_of, Gradients};
use crate::train::parameters::{NamedParameters, Parameter};
use crate::train::real_dtype;
use crate::train::state::{count, number, Loading};
use crate::{Error, Result};
use candle_core::{CpuStorage, DType, Layout, Tensor};
use std::fmt;

/// The states of all parameters, `K` buffers each.
#[derive(Debug)]
pub(super) struct Slots<const K: usize> {
    owner: &'static str,
    /// What the buffers are called.
    kinds: [&'static str; K],
    parameters: NamedParameters,
    slots: Vec<Slot<K>>,
}

/// The state of a parameter. It has no buffers before its first step.
struct Slot<const K: usize> {
    steps: u64,
    /// In the type that is computed in, where that is not the parameter's own.
    master: Option<CpuStorage>,
    buffers: Option<[CpuStorage; K]>,
}

impl<const K: usize> Slot<K> {
    fn new() -> Self {
        Slot { steps: 0, master: None, buffers: None }
    }
}

/// Without the buffers' millions of elements.
impl<const K: usize> fmt::Debug for Slot<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot {{ steps: {}, has_master: {} }}", self.steps, self.master.is_some())
    }
}

/// The name of the master copies in a state.
const MASTER: &str = "master";

impl<const K: usize> Slots<K> {
    pub fn new(owner: &'static str, kinds: [&'static str; K], parameters: &NamedParameters) -> Self {
        let slots = parameters.iter().map(|_| Slot::new()).collect();
        Slots { owner, kinds, parameters: parameters.clone(), slots }
    }

    pub fn parameters(&self) -> &NamedParameters {
        &self.parameters
    }

    /// Updates each parameter that has a gradient, by what `of` gives for its place and the number of its step, from 1.
    pub fn step<U: Update<K>>(&mut self, gradients: &Gradients, of: impl Fn(usize, u64) -> U) -> Result<()> {
        if !gradients.parameters().is_same(&self.parameters) {
            let what = "the gradients are of other parameters than the optimizer's; make both from one `NamedParameters`";
            return Err(Error::Training { part: self.owner.into(), what: what.into() });
        }
        for (place, (slot, (parameter, gradient))) in self.slots.iter_mut().zip(gradients.iter()).enumerate()
        {
            let Some(gradient) = gradient else { continue };
            let update = of(place, slot.steps + 1);
            let done = storage::with_cpu_mut(parameter.tensor(), |weights, layout| {
                slot.update(weights, layout, gradient, update)
            })?;
            if done.is_none() {
                let what = "it cannot be written over: f32, f64, bf16 or f16 in row-major order expected";
                return Err(Error::Parameter { name: parameter.name().to_owned(), what: what.into() });
            }
            slot.steps += 1;
            mark_changed(parameter.tensor());
        }
        Ok(())
    }

    /// The learning rate; `steps.NAME` of each parameter, and of those that were stepped `KIND.NAME` and `master.NAME`.
    pub fn state(&self, rate: f64) -> Result<Vec<(String, Tensor)>> {
        let mut state = vec![("learning_rate".to_owned(), number(rate)?)];
        for (parameter, slot) in self.parameters.iter().zip(&self.slots) {
            let named = |kind: &str| format!("{kind}.{}", parameter.name());
            state.push((named("steps"), count(slot.steps)?));
            for (kind, buffer) in self.kinds.iter().zip(slot.buffers.iter().flatten()) {
                state.push((named(kind), tensor_of(parameter, buffer)));
            }
            if let Some(master) = &slot.master {
                state.push((named(MASTER), tensor_of(parameter, master)));
            }
        }
        Ok(state)
    }

    /// Takes such a state, all or nothing, and gives the learning rate.
    pub fn load(&mut self, state: &[(String, Tensor)]) -> Result<f64> {
        let mut loading = Loading::new(self.owner, state)?;
        let rate = loading.take_number("learning_rate")?;
        let slots: Result<Vec<Slot<K>>> =
            self.parameters.iter().map(|p| self.slot(p, &mut loading)).collect();
        let slots = slots?;
        loading.finish()?;
        self.slots = slots;
        Ok(rate)
    }

    fn slot(&self, parameter: &Parameter, loading: &mut Loading) -> Result<Slot<K>> {
        let named = |kind: &str| format!("{kind}.{}", parameter.name());
        let dtype = parameter.tensor().dtype();
        let real = real_dtype(dtype).unwrap_or(DType::F32);
        let steps = loading.take_count(&named("steps"))?;
        if steps == 0 {
            return Ok(Slot::new());
        }
        let mut take = |kind| {
            let tensor = loading.take_like(&named(kind), parameter.dims(), real)?;
            Ok::<_, Error>(storage::owned(&tensor)?)
        };
        let master = if real == dtype { None } else { Some(take(MASTER)?) };
        let buffers = self.kinds.iter().map(|kind| take(kind)).collect::<Result<Vec<_>>>()?;
        // There are K kinds.
        Ok(Slot { steps, master, buffers: buffers.try_into().ok() })
    }
}

impl<const K: usize> Slot<K> {
    /// `None` if something has another dtype or length than it should.
    fn update<U: Update<K>>(
        &mut self,
        weights: &mut CpuStorage,
        layout: &Layout,
        gradient: &CpuStorage,
        update: U,
    ) -> Option<()> {
        let range = storage::range(layout)?;
        match weights {
            CpuStorage::F32(weights) => self.update_reals(weights.get_mut(range)?, gradient, update),
            CpuStorage::F64(weights) => self.update_reals(weights.get_mut(range)?, gradient, update),
            CpuStorage::F16(stored) => self.update_stored(stored.get_mut(range)?, gradient, update),
            CpuStorage::BF16(stored) => self.update_stored(stored.get_mut(range)?, gradient, update),
            _ => None,
        }
    }

    fn update_reals<R: Real>(
        &mut self,
        weights: &mut [R],
        gradient: &CpuStorage,
        update: impl Update<K>,
    ) -> Option<()> {
        let (gradient, state) = (R::slice(gradient)?, self.buffers::<R>(weights.len())?);
        (gradient.len() == weights.len()).then_some(())?;
        Piece::<R, K> { stored: None, weights, gradient, state }.update(update);
        Some(())
    }

    fn update_stored<E: Element>(
        &mut self,
        stored: &mut [E],
        gradient: &CpuStorage,
        update: impl Update<K>,
    ) -> Option<()> {
        let mut master = match self.master.take() {
            Some(master) => <E::Real as Element>::vec(master)?,
            None => stored.iter().map(|value| value.load()).collect(),
        };
        let (gradient, state) =
            (<E::Real as Element>::slice(gradient)?, self.buffers::<E::Real>(stored.len())?);
        (gradient.len() == stored.len() && master.len() == stored.len()).then_some(())?;
        Piece { stored: Some(stored), weights: &mut master, gradient, state }.update(update);
        self.master = Some(<E::Real as Element>::storage(master));
        Some(())
    }

    /// The buffers, zeros before the first step.
    fn buffers<R: Real>(&mut self, len: usize) -> Option<[&mut [R]; K]> {
        let zeros = || std::array::from_fn(|_| R::storage(vec![R::ZERO; len]));
        let buffers = self.buffers.get_or_insert_with(zeros);
        let fit = buffers.iter().all(|buffer| R::slice(buffer).is_some_and(|values| values.len() == len));
        fit.then(|| buffers.each_mut().map(|buffer| R::slice_mut(buffer).unwrap_or_default()))
    }
}
