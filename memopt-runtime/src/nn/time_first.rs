//! From batch first to time first.

use super::input::wrong;
use crate::autograd::{apply, view, Edge, Gradient, Output};
use crate::module::{Checkpointable, Context, Footprint, Incoming, Signal};
use crate::parameters::{Parameters, Visitor};
use crate::{storage, Result};
use candle_core::Tensor;

/// `[N, T, ...]` -> `[T, N, ...]`: the order in which all other layers take their input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeFirst;

#[diagnostic::do_not_recommend]
impl Parameters for TimeFirst {
    fn visit_parameters(&self, _: &mut Visitor<'_>) {}

    fn detached(&self) -> Self {
        *self
    }
}

#[diagnostic::do_not_recommend]
impl Checkpointable for TimeFirst {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        let x = x.into_dense(context.path())?;
        if x.dims().len() < 2 {
            return Err(wrong(context.path(), format!("[N, T, ...] expected, {:?} given", x.dims())));
        }
        Ok(time_first(context.path(), &x)?.into())
    }

    fn footprint(&self, x: &Incoming) -> Option<Footprint> {
        let mut output = x.dims.clone();
        (output.len() >= 2).then(|| output.swap(0, 1))?;
        // With one of either, the copy is none.
        let is_view = output.iter().take(2).any(|&dim| dim == 1);
        Some(Footprint { output, is_view, is_in_place: false, ..Footprint::elementwise(x) })
    }

    /// Its input has no time in front to be cut along.
    fn is_time_chunkable(&self) -> bool {
        false
    }
}

/// The first two dimensions in the other order, as a function: its gradient is one copy, as its output is.
fn time_first(part: &str, x: &Tensor) -> Result<Tensor> {
    let mut dims = x.dims().to_vec();
    dims.swap(0, 1);
    if dims.iter().take(2).any(|&dim| dim == 1) {
        return view(x, dims);
    }
    if !x.track_op() || !x.device().is_cpu() {
        return swapped(x);
    }
    let (swapped, input) = (x.detach().transpose(0, 1)?, x.shape().clone());
    let shape = swapped.shape().clone();
    // A copy in any case: the other order of a transposed view is somebody else's buffer.
    let output = Output::new(storage::owned(&swapped)?, shape.clone());
    let outputs = apply(part, vec![Edge::to(x)], vec![output], move |mut gradients| {
        let Some(dy) = gradients.pop().flatten() else { return Ok(vec![None]) };
        let dy = storage::into_tensor(dy.into_storage()?, shape, false);
        Ok(vec![Some(Gradient::new(storage::owned(&dy.transpose(0, 1)?)?, input))])
    })?;
    outputs.into_iter().next().ok_or_else(|| wrong(part, "its function gave no output"))
}

/// A copy of a tensor, of which neither of the first two dimensions is one.
fn swapped(x: &Tensor) -> Result<Tensor> {
    Ok(x.transpose(0, 1)?.contiguous()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Var};

    /// Swapping a transposed view back gives the buffer of somebody else.
    #[test]
    fn a_transposed_input_keeps_its_values() {
        let var = Var::rand(-1f32, 1., (3, 4, 5), &Device::Cpu).unwrap();
        let before = var.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let y = time_first("time_first", &var.transpose(0, 1).unwrap()).unwrap();
        assert_eq!(y.dims(), [3, 4, 5]);
        assert_eq!(y.flatten_all().unwrap().to_vec1::<f32>().unwrap(), before);
        let gradients = y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        assert_eq!(var.flatten_all().unwrap().to_vec1::<f32>().unwrap(), before);
        let gradient = gradients.get(&var).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert!(gradient.iter().zip(&before).all(|(g, x)| *g == 2. * x));
    }
}
