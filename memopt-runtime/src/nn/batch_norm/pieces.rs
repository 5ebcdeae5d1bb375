//! The pieces of batch norm.

use super::kernels::{channels, Channel, Passes};
use super::{Affine, BatchNorm};
use crate::autograd::Gradient;
use crate::module::{Context, NormStatistics, NormSums, Weight, WeightGradient, WindowNorm};
use crate::nn::element::{with_element, Element, Real};
use crate::nn::input::{read, reals, take, wrong};
use crate::nn::reduce::{accumulate, Planes};
use crate::{storage, Result};
use candle_core::{CpuStorage, DType, Tensor};
use std::ops::Range;

/// Names the norm in errors of its pieces, which do not know its path.
const PART: &str = "batch norm";

impl WindowNorm for BatchNorm {
    fn channels(&self) -> usize {
        self.channels
    }

    fn add_statistics(&self, statistics: &mut NormStatistics, z: &Tensor) -> Result<()> {
        let planes = self.planes(PART, z.dims(), z.dtype())?;
        with_element!(PART, z.dtype(), E => read::<E, _>(PART, z, |z| {
            Passes::new(planes).add_statistics(z, statistics);
            Ok(())
        }))
    }

    fn normalize(&self, z: CpuStorage, dims: &[usize], statistics: &NormStatistics) -> Result<CpuStorage> {
        let dtype = storage::dtype(&z);
        let planes = self.planes(PART, dims, dtype)?;
        if storage::len(&z) != planes.len() {
            return Err(wrong(PART, format!("a buffer of {dims:?} expected")));
        }
        with_element!(PART, dtype, E => {
            let mut z = take::<E>(PART, z)?;
            Passes::new(planes).normalize_over(&self.plane_channels::<E>(statistics)?, &mut z);
            Ok(E::storage(z))
        })
    }

    fn add_sums(
        &self,
        sums: &mut NormSums,
        z: &Tensor,
        dy: &CpuStorage,
        statistics: &NormStatistics,
    ) -> Result<()> {
        let planes = self.both(z, dy)?;
        self.add_steps(sums, planes, 0..planes.steps, z, dy, statistics)
    }

    fn input_gradient(
        &self,
        z: &Tensor,
        dy: CpuStorage,
        statistics: &NormStatistics,
        sums: &NormSums,
    ) -> Result<CpuStorage> {
        let planes = self.both(z, &dy)?;
        with_element!(PART, z.dtype(), E => {
            let mut dy = take::<E>(PART, dy)?;
            let channels = self.plane_channels::<E>(statistics)?;
            read::<E, _>(PART, z, |z| {
                Passes::new(planes).input_gradient(&channels, z, &mut dy, (sums, statistics.count));
                Ok(())
            })?;
            Ok(E::storage(dy))
        })
    }

    fn weights(&self, context: &Context) -> Vec<Weight> {
        let Some(Affine { weight, bias }) = &self.affine else { return Vec::new() };
        vec![context.weight("weight", weight), context.weight("bias", bias)]
    }

    fn parameter_gradients(
        &self,
        sums: &[NormSums],
        gradients: &[WeightGradient],
    ) -> Result<Vec<Option<Gradient>>> {
        let (weight, bias, dtype) = match (&self.affine, gradients) {
            (Some(affine), [weight, bias]) => (weight, bias, affine.weight.dtype()),
            (None, []) => return Ok(Vec::new()),
            _ => return Err(wrong(PART, "as many gradients as weights expected")),
        };
        with_element!(PART, dtype, E => {
            let add = |gradient, of: fn(&NormSums) -> &Vec<f64>| accumulate::<E>(gradient, |to| {
                for sums in sums {
                    to.iter_mut().zip(of(sums)).for_each(|(to, sum)| *to += <E as Element>::Real::from_f64(*sum));
                }
                Ok(())
            });
            Ok(vec![add(weight, |sums| &sums.dy_normalized)?, add(bias, |sums| &sums.dy)?])
        })
    }

    fn move_running(&self, statistics: &NormStatistics) -> Result<()> {
        self.check_statistics(PART, statistics)?;
        self.running.lock().move_to(statistics, self.momentum)
    }

    fn running_statistics(&self) -> Result<NormStatistics> {
        self.running.lock().statistics()
    }
}

impl BatchNorm {
    pub(super) fn planes(&self, part: &str, dims: &[usize], dtype: DType) -> Result<Planes> {
        let planes = Planes::of(dims).filter(|planes| planes.channels == self.channels);
        let Some(planes) = planes else {
            return Err(wrong(part, format!("[T, N, {}, ...] expected, {dims:?} given", self.channels)));
        };
        let fits = |weight: &Tensor| weight.dims() == [self.channels] && weight.dtype() == dtype;
        if self.affine.as_ref().is_some_and(|affine| !fits(&affine.weight) || !fits(&affine.bias)) {
            let (channels, dtype) = (self.channels, dtype.as_str());
            return Err(wrong(
                part,
                format!("weight and bias must be [{channels}] of the input's dtype, {dtype}"),
            ));
        }
        Ok(planes)
    }

    fn plane_channels<E: Element>(&self, statistics: &NormStatistics) -> Result<Vec<Channel<E::Real>>> {
        let affine = match &self.affine {
            Some(affine) => Some((reals::<E>(PART, &affine.weight)?, reals::<E>(PART, &affine.bias)?)),
            None => None,
        };
        let affine = affine.as_ref().map(|(weight, bias)| (weight.as_slice(), bias.as_slice()));
        Ok(channels(statistics, self.eps, affine))
    }

    /// The output for `z`, beside it.
    pub(super) fn normalized<E: Element>(
        &self,
        part: &str,
        z: &Tensor,
        statistics: &NormStatistics,
    ) -> Result<Vec<E>> {
        let passes = Passes::new(self.planes(part, z.dims(), z.dtype())?);
        let channels = self.plane_channels::<E>(statistics)?;
        read::<E, _>(part, z, |z| Ok(passes.normalize_beside(&channels, z)))
    }

    /// Planes of `z`, if `dy` has as many elements.
    pub(super) fn both(&self, z: &Tensor, dy: &CpuStorage) -> Result<Planes> {
        let planes = self.planes(PART, z.dims(), z.dtype())?;
        if storage::len(dy) != planes.len() || storage::dtype(dy) != z.dtype() {
            return Err(wrong(PART, "the gradient of the output has another size or dtype than the input"));
        }
        Ok(planes)
    }

    /// Adds some time steps of `z` and `dy` to the sums, the last one first.
    pub(super) fn add_steps(
        &self,
        sums: &mut NormSums,
        planes: Planes,
        steps: Range<usize>,
        z: &Tensor,
        dy: &CpuStorage,
        statistics: &NormStatistics,
    ) -> Result<()> {
        with_element!(PART, z.dtype(), E => {
            let channels = self.plane_channels::<E>(statistics)?;
            let Some(dy) = E::slice(dy) else { return Err(wrong(PART, "a gradient of the input's dtype expected")) };
            read::<E, _>(PART, z, |z| {
                Passes::new(planes).add_sums(steps, &channels, (z, dy), sums);
                Ok(())
            })
        })
    }
}
