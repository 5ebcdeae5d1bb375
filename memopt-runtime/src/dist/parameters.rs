//! The first rank's parameters for all.

use super::communicator::Communicator;
use super::listed::Listed;
use super::together::in_common;
use crate::Result;
use candle_core::{DType, Tensor, Var};

/// Gives the variables of all ranks the values of rank 0, bit for bit, so that training starts from the same model.
///
/// The variables are matched by name, in whatever order they are given.
///
/// # Errors
/// On all ranks, and nothing is changed: if names, shapes or dtypes are not the same, or a dtype cannot be sent. If a rank fails
/// midway, some variables have the new values.
///
/// ```
/// use candle_core::{Device, Var};
/// use memopt_runtime::dist::{broadcast_parameters, Single};
///
/// let weight = Var::new(&[1f32, 2.], &Device::Cpu)?;
/// broadcast_parameters(&Single::new(), &[("weight".to_owned(), weight)])?;
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
pub fn broadcast_parameters(communicator: &dyn Communicator, parameters: &[(String, Var)]) -> Result<()> {
    let mut sorted: Vec<_> = parameters.iter().collect();
    sorted.sort_by_key(|(name, _)| name.as_str());
    let list: Vec<_> = sorted.iter().map(|(name, var)| Listed::new(name, var)).collect();
    let problem = sorted.iter().zip(&list).find_map(|((_, var), listed)| {
        (!can_be_sent(var.dtype())).then(|| format!("{listed} cannot be sent; take an integer or float type"))
    });
    in_common(communicator, &list, problem, false)?;
    if communicator.size() == 1 {
        return Ok(());
    }
    for (_, var) in sorted.into_iter().filter(|(_, var)| var.elem_count() > 0) {
        let mut bytes = Vec::new();
        if communicator.rank() == 0 {
            bytes.reserve_exact(var.elem_count() * var.dtype().size_in_bytes());
            var.write_bytes(&mut bytes)?;
        }
        communicator.broadcast(0, &mut bytes)?;
        if communicator.rank() != 0 {
            var.set(&Tensor::from_raw_buffer(&bytes, var.dtype(), var.dims(), var.device())?)?;
        }
    }
    Ok(())
}

/// Whether Candle writes and reads values of this type as bytes.
fn can_be_sent(dtype: DType) -> bool {
    use DType::{BF16, F16, F32, F64, I16, I32, I64, U32, U8};
    matches!(dtype, BF16 | F16 | F32 | F64 | I16 | I32 | I64 | U32 | U8)
}
