//! Batch norm as a layer: its pieces over the window as one chunk.

use super::BatchNorm;
use crate::autograd::Gradient;
use crate::module::{
    rows, Checkpointable, Context, Footprint, Incoming, NormStatistics, NormSums, Part, Signal, WindowNorm,
    Work,
};
use crate::nn::element::{with_element, Element};
use crate::nn::function::function;
use crate::nn::input::{wrong, Input};
use crate::parameters::Parameters;
use crate::Result;
use candle_core::{CpuStorage, Tensor};
use std::ops::Range;
use std::sync::Arc;

impl BatchNorm {
    /// The sums whose total is the gradient of the weights: under batch statistics those of the window, which the input's
    /// gradient needs too; under running statistics those of each step, the last one first, since a step does not depend
    /// on the others.
    fn sums(
        &self,
        coupled: bool,
        z: &Tensor,
        dy: &CpuStorage,
        statistics: &NormStatistics,
    ) -> Result<Vec<NormSums>> {
        let planes = self.both(z, dy)?;
        let of = |steps| {
            let mut sums = self.no_sums();
            self.add_steps(&mut sums, planes, steps, z, dy, statistics).map(|()| sums)
        };
        match coupled {
            true => Ok(vec![of(0..planes.steps)?]),
            false => (0..planes.steps).rev().map(|step| of(step..step + 1)).collect(),
        }
    }

    fn run<E: Element>(
        &self,
        x: Input,
        context: &Context,
        statistics: Arc<NormStatistics>,
    ) -> Result<Signal> {
        let (part, coupled) = (context.path(), context.takes_batch_statistics());
        let shape = x.values.shape().clone();
        let y = self.normalized::<E>(part, &x.values, &statistics)?;

        let wants_input = x.edge.is_tracked();
        let mut edges = vec![x.edge];
        let mut gradients = Vec::new();
        for weight in self.weights(context) {
            let (_, edge, gradient) = weight.into_parts();
            edges.push(edge);
            gradients.push(gradient);
        }
        let (norm, z) = (self.detached(), x.values);
        function(part, edges, y, shape.clone(), move |dy: Vec<E>| {
            let dy = E::storage(dy);
            let sums = norm.sums(coupled, &z, &dy, &statistics)?;
            let of_weights = norm.parameter_gradients(&sums, &gradients)?;
            let of_input = match wants_input {
                true => {
                    let none = norm.no_sums();
                    let sums = if coupled { sums.first().unwrap_or(&none) } else { &none };
                    Some(Gradient::new(norm.input_gradient(&z, dy, &statistics, sums)?, shape))
                }
                false => None,
            };
            Ok(std::iter::once(of_input).chain(of_weights).collect())
        })
    }
}

#[diagnostic::do_not_recommend]
impl Checkpointable for BatchNorm {
    fn for_channels(&self, channels: Range<usize>) -> Result<Option<Part>> {
        if channels.end > self.channels {
            return Err(wrong("batch norm", format!("channels {channels:?} of {} asked for", self.channels)));
        }
        let affine = match &self.affine {
            Some(affine) => Some(super::Affine {
                weight: rows(&affine.weight, &channels)?,
                bias: rows(&affine.bias, &channels)?,
            }),
            None => None,
        };
        Ok(Some(Part::of(&BatchNorm { affine, channels: channels.len(), ..self.clone() })))
    }

    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        let context = &context.layer();
        let coupled = context.takes_batch_statistics();
        let x = Input::new(x, context)?;
        let (dims, dtype) = (x.values.dims(), x.values.dtype());
        self.planes(context.path(), dims, dtype)?;
        let (statistics, is_first_pass) = context.statistics(|| {
            if !coupled {
                return self.running_statistics();
            }
            let mut statistics = self.no_statistics();
            self.add_statistics(&mut statistics, &x.values)?;
            self.check_statistics(context.path(), &statistics)?;
            Ok(statistics)
        })?;
        if coupled && is_first_pass {
            let (norm, statistics) = (self.clone(), statistics.clone());
            context.when_done(move || norm.move_running(&statistics))?;
        }
        with_element!(context.path(), dtype, E => self.run::<E>(x, context, statistics))
    }

    fn window_norm(&self) -> Option<&dyn WindowNorm> {
        Some(self)
    }

    /// Three passes forward (mean, squares, output), five back.
    fn footprint(&self, x: &Incoming) -> Option<Footprint> {
        (x.dims.get(2) == Some(&self.channels)).then_some(())?;
        let (forward, backward) = (Work::moving(3 * x.bytes()), Work::moving(5 * x.bytes()));
        Some(Footprint { forward, backward, ..Footprint::elementwise(x).keeping_input() })
    }

    /// In training every time step depends on all others; in chunks it goes by its pieces, [`WindowNorm`].
    fn is_time_chunkable(&self) -> bool {
        false
    }
}
