//! A tensor in another shape.

use super::registry::{producer_of, register_view};
use crate::Result;
use candle_core::{Shape, Tensor};

/// The elements of `x` in row-major order, in another shape of as many: in `x`'s own buffer if that is contiguous.
///
/// Of a function's output it is the function's output too: whoever takes an edge to it gets one to the function, where the
/// gradient's buffer is moved in the output's own shape. Candle, whose view it is besides, would add the gradient to zeros,
/// so that three buffers were alive; it does so where its own operations use the view, or made `x`.
///
/// # Errors
/// If the shape has another number of elements.
pub(crate) fn view(x: &Tensor, shape: impl Into<Shape>) -> Result<Tensor> {
    let y = x.reshape(shape.into())?;
    if let Some(producer) = producer_of(x) {
        register_view(&y, &producer);
    }
    Ok(y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autograd::{apply, Edge, Gradient, Output};
    use candle_core::{CpuStorage, Device, Var};
    use parking_lot::Mutex;
    use std::sync::Arc;

    /// A function that gives `x`, and tells where the gradient came to it, in which shape.
    fn identity(x: &Tensor, seen: &Arc<Mutex<Vec<(usize, Shape)>>>) -> Result<Tensor> {
        let seen = seen.clone();
        let outputs =
            apply("identity", vec![Edge::to(x)], vec![Output::copy_of(x)?], move |mut gradients| {
                let Some(gradient) = gradients.pop().flatten() else { return Ok(vec![None]) };
                let shape = gradient.shape().clone();
                let storage = gradient.into_storage()?;
                if let CpuStorage::F32(values) = &storage {
                    seen.lock().push((values.as_ptr() as usize, shape.clone()));
                }
                Ok(vec![Some(Gradient::new(storage, shape))])
            })?;
        Ok(outputs.into_iter().next().unwrap())
    }

    #[test]
    fn the_gradients_buffer_moves_through_views_in_the_shape_of_the_output() -> Result<()> {
        let x = Var::new(&[[1f32, 2.], [3., 4.]], &Device::Cpu)?;
        let seen = Arc::default();
        let y = identity(&x, &seen)?;
        let z = identity(&view(&view(&y, 4)?, (1, 4))?, &seen)?;
        drop(y);
        let gradients = z.sqr()?.sum_all()?.backward()?;
        assert_eq!(gradients.get(&x).unwrap().to_vec2::<f32>()?, [[2., 4.], [6., 8.]]);
        let seen = seen.lock();
        assert_eq!(seen.iter().map(|(_, shape)| shape.dims()).collect::<Vec<_>>(), [&[1, 4][..], &[2, 2]]);
        assert_eq!(seen[0].0, seen[1].0);
        Ok(())
    }

    /// A tensor and its view both lead to the function; Candle's operations use a view as any other.
    #[test]
    fn gradients_of_a_tensor_and_of_its_views_add_up() -> Result<()> {
        let x = Var::new(&[[1f32, 2.], [3., 4.]], &Device::Cpu)?;
        let seen = Arc::default();
        let y = identity(&x, &seen)?;
        let flat = view(&y, 4)?;
        let (a, b) = (identity(&y, &seen)?, identity(&flat, &seen)?);
        let of_candle = (&flat * 10.)?.sum_all()?;
        let loss = ((a.sum_all()? + b.sqr()?.sum_all()?)? + of_candle)?;
        let gradients = loss.backward()?;
        assert_eq!(gradients.get(&x).unwrap().to_vec2::<f32>()?, [[13., 15.], [17., 19.]]);
        Ok(())
    }

    #[test]
    fn entries_go_with_the_tensor() -> Result<()> {
        let x = Var::new(&[[1f32, 2.], [3., 4.]], &Device::Cpu)?;
        let y = identity(&x, &Arc::default())?;
        let flat = view(&y, 4)?;
        assert!(producer_of(&flat).is_some());
        drop(y);
        assert!(producer_of(&flat).is_some());
        let id = flat.id();
        let edge = Edge::to(&flat);
        drop(flat);
        assert!(!super::super::registry::is_registered(id));
        drop(edge);
        Ok(())
    }

    #[test]
    fn another_number_of_elements_is_an_error() {
        assert!(view(&Tensor::new(&[1f32, 2.], &Device::Cpu).unwrap(), 3).is_err());
    }
}
