//! Writing over a tensor's elements, which Candle offers to operations only.

use candle_core::{CpuStorage, InplaceOp1, Layout, Result, Tensor};
use parking_lot::Mutex;

/// Runs `f` on a CPU tensor's buffer, which it may write over; on another device it is an error.
///
/// All tensors over the same storage see what is written. The buffer is locked meanwhile: `f` must not touch the tensor.
pub(crate) fn with_cpu_mut<R>(tensor: &Tensor, f: impl FnOnce(&mut CpuStorage, &Layout) -> R) -> Result<R> {
    let write = Write(Mutex::new(State::Before(f)));
    tensor.inplace_op1(&write)?;
    match write.0.into_inner() {
        State::After(result) => Ok(result),
        _ => Err(candle_core::Error::Msg("a tensor on the CPU expected".into())),
    }
}

struct Write<F, R>(Mutex<State<F, R>>);

enum State<F, R> {
    Before(F),
    Running,
    After(R),
}

impl<F: FnOnce(&mut CpuStorage, &Layout) -> R, R> InplaceOp1 for Write<F, R> {
    fn name(&self) -> &'static str {
        "write"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let mut state = self.0.lock();
        if let State::Before(f) = std::mem::replace(&mut *state, State::Running) {
            *state = State::After(f(storage, layout));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Var};

    #[test]
    fn what_is_written_is_seen_by_all_over_the_storage() {
        let variable = Var::new(&[1f32, 2., 3.], &Device::Cpu).unwrap();
        let view = variable.as_detached_tensor();
        let n = with_cpu_mut(&variable, |storage, layout| {
            if let CpuStorage::F32(values) = storage {
                values[1] = 5.;
            }
            layout.shape().elem_count()
        });
        assert_eq!(n.unwrap(), 3);
        assert_eq!(view.to_vec1::<f32>().unwrap(), [1., 5., 3.]);
    }
}
