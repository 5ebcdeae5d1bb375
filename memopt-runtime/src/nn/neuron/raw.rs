//! A window on raw buffers, for neurons without a learned factor.

use super::charge::Charge;
use super::firing::Firing;
use super::passes::Passes;
use super::step::Dynamics;
use super::window::{state_values, with_passes};
use crate::nn::element::{with_element, Element};
use crate::nn::input::{take, wrong};
use crate::{storage, Result};
use candle_core::{CpuStorage, Shape, Tensor};

/// Of the input, and of the first potential.
type Gradients = (CpuStorage, Option<CpuStorage>);

/// A window's dimensions and what its neurons do.
pub(super) struct RawWindow<'a> {
    /// How errors call the layer.
    pub(super) part: &'a str,
    pub(super) dims: &'a [usize],
    /// The potential before the first step.
    pub(super) v0: Option<&'a Tensor>,
    pub(super) charge: Charge<f64>,
    pub(super) firing: Firing,
}

impl RawWindow<'_> {
    /// `x` becomes the spikes; gives them and the last potential.
    pub(super) fn fire(self, x: CpuStorage) -> Result<(CpuStorage, Tensor)> {
        let state = self.check(&x)?;
        with_element!(self.part, storage::dtype(&x), E => self.fire_in::<E>(x, &state))
    }

    /// `dy` becomes the gradient of `x`, and `dv`, that of the last potential, the one of the first.
    pub(super) fn back(self, x: &CpuStorage, dy: CpuStorage, dv: Option<CpuStorage>) -> Result<Gradients> {
        let state = self.check(x)?;
        self.check(&dy)?;
        if dv.as_ref().is_some_and(|dv| storage::len(dv) != state.elem_count()) {
            return Err(wrong(self.part, format!("a gradient of the potential of {state:?} expected")));
        }
        with_element!(self.part, storage::dtype(x), E => self.back_in::<E>(x, dy, dv, &state))
    }

    /// The shape of a potential.
    fn check(&self, buffer: &CpuStorage) -> Result<Shape> {
        self.firing.check(self.part)?;
        let Some((_, state)) = self.dims.split_first() else {
            return Err(wrong(self.part, "the input is a scalar; give it a window `[T, N, ...]`"));
        };
        match storage::elements(&self.dims.into()) == Some(storage::len(buffer)) {
            true => Ok(state.into()),
            false => Err(wrong(self.part, format!("a buffer of {:?} expected", self.dims))),
        }
    }

    fn fire_in<E: Element>(self, x: CpuStorage, state: &Shape) -> Result<(CpuStorage, Tensor)> {
        let mut x = take::<E>(self.part, x)?;
        let last = self.with_passes::<E, _>(state, |passes| Ok(passes.fire_over(&mut x)))?;
        Ok((E::storage(x), storage::into_tensor(E::Real::storage(last), state, false)))
    }

    fn back_in<E: Element>(
        self,
        x: &CpuStorage,
        dy: CpuStorage,
        dv: Option<CpuStorage>,
        state: &Shape,
    ) -> Result<Gradients> {
        let Some(x) = E::slice(x) else {
            return Err(wrong(self.part, "a buffer of the input's dtype expected"));
        };
        let mut dx = take::<E>(self.part, dy)?;
        let mut dv = dv.map(|dv| take::<E::Real>(self.part, dv)).transpose()?;
        self.with_passes::<E, _>(state, |passes| Ok(passes.back_over(x, &mut dx, dv.as_deref_mut())))?;
        Ok((E::storage(dx), dv.map(E::Real::storage)))
    }

    fn with_passes<E: Element, T>(
        &self,
        state: &Shape,
        f: impl FnOnce(Passes<'_, E>) -> Result<T>,
    ) -> Result<T> {
        let v0 = self.v0.map(|v0| state_values(self.part, v0, state, E::Real::DTYPE)).transpose()?;
        let dynamics = Dynamics::new(self.charge, &self.firing);
        with_passes(self.part, dynamics, state.elem_count(), v0.as_ref(), f)
    }
}
