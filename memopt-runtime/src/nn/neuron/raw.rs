//! A window on raw buffers, for neurons without a learned factor.

use super::charge::Charge;
use super::firing::Firing;
use super::step::Dynamics;
use super::tiles::{for_each, tiles, Columns, TILE};
use super::window::state_values;
use crate::nn::element::{with_element, Element};
use crate::nn::input::{read, take, wrong};
use crate::{storage, Result};
use candle_core::{CpuStorage, Shape, Tensor};

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

    /// `dy` becomes the gradient of `x`.
    pub(super) fn back(self, x: &CpuStorage, dy: CpuStorage) -> Result<CpuStorage> {
        let state = self.check(x)?;
        self.check(&dy)?;
        with_element!(self.part, storage::dtype(x), E => self.back_in::<E>(x, dy, &state))
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
        let dynamics = Dynamics::<E::Real>::new(self.charge, &self.firing);
        let mut x = take::<E>(self.part, x)?;
        let mut v = match self.v0 {
            Some(v0) => {
                let v0 = state_values(self.part, v0, state, E::Real::DTYPE)?;
                read(self.part, &v0, |v: &[E::Real]| Ok(v.to_vec()))?
            }
            None => vec![dynamics.rest(); state.elem_count()],
        };
        let elements = x.len();
        for_each(tiles(&mut x, &mut v, TILE), elements, |tile| dynamics.fire(tile));
        Ok((E::storage(x), storage::into_tensor(E::Real::storage(v), state, false)))
    }

    fn back_in<E: Element>(self, x: &CpuStorage, dy: CpuStorage, state: &Shape) -> Result<CpuStorage> {
        let dynamics = Dynamics::<E::Real>::new(self.charge, &self.firing);
        let Some(data) = E::slice(x) else {
            return Err(wrong(self.part, "a buffer of the input's dtype expected"));
        };
        let x = Columns { data, neurons: state.elem_count() };
        let mut dx = take::<E>(self.part, dy)?;
        let mut dv = vec![E::Real::ZERO; state.elem_count()];
        let mut run = |v0: Option<&[E::Real]>| {
            for_each(tiles(&mut dx, &mut dv, TILE), data.len(), |tile| dynamics.backward(x, v0, tile));
            Ok(())
        };
        match self.v0 {
            Some(v0) => {
                read(self.part, &state_values(self.part, v0, state, E::Real::DTYPE)?, |v0| run(Some(v0)))?;
            }
            None => run(None)?,
        }
        Ok(E::storage(dx))
    }
}
