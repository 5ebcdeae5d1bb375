//! The bytes of tensors, read where they are and written where they shall be.

use crate::storage::{on_vec, range, with_cpu};
use candle_core::{CpuStorage, DType, Device, Result, Tensor};
use std::io;

/// Whether Candle keeps elements of this dtype in fewer bits than a byte has, and so does not relate a buffer's length to a
/// shape.
pub(super) fn is_packed(dtype: DType) -> bool {
    dtype.size_in_bytes() == 0
}

/// Number of bytes that a tensor has in a file.
///
/// # Errors
/// What [`with_bytes`] gives for a packed tensor.
pub(super) fn byte_len(tensor: &Tensor) -> Result<usize> {
    match is_packed(tensor.dtype()) {
        true => with_bytes(tensor, <[u8]>::len),
        false => Ok(tensor.elem_count() * tensor.dtype().size_in_bytes()),
    }
}

/// Runs `f` on the bytes of a tensor's elements in row-major order: where they are, if they are so on the CPU, else on a copy.
/// Of packed tensors these are the bytes of the whole buffer.
///
/// # Errors
/// If Candle cannot copy it; if a packed tensor is a view of a part, whose bits nobody can tell.
pub(super) fn with_bytes<R>(tensor: &Tensor, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
    let packed = is_packed(tensor.dtype());
    // A view without elements may begin beyond the end of its buffer.
    if !packed && tensor.elem_count() == 0 {
        return Ok(f(&[]));
    }
    let mut tensor = tensor.detach().to_device(&Device::Cpu)?;
    if !packed {
        tensor = tensor.contiguous()?;
    }
    let mut f = Some(f);
    let done = with_cpu(&tensor, |storage, layout| {
        let elements = range(layout)?;
        let f = f.take()?;
        Some(on_vec!(storage, v => match packed {
            true if layout.start_offset() == 0 => f(bytemuck::cast_slice(v)),
            true => return None,
            false => f(bytemuck::cast_slice(&v[elements])),
        }))
    });
    let view =
        "a view of a part of a tensor that is packed below a byte; give the tensor that it is a view of";
    done.flatten().ok_or_else(|| candle_core::Error::Msg(view.into()))
}

/// A new buffer of `bytes` bytes, which `fill` is given to write.
///
/// # Errors
/// What `fill` gives.
pub(super) fn filled(
    dtype: DType,
    bytes: usize,
    fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
) -> io::Result<CpuStorage> {
    let elements = bytes / dtype.size_in_bytes().max(1);
    let mut storage = zeros(dtype, elements)?;
    on_vec!(&mut storage, v => fill(bytemuck::cast_slice_mut(v))?);
    Ok(storage)
}

fn zeros(dtype: DType, elements: usize) -> io::Result<CpuStorage> {
    /// `vec![0; n]`, but that memory that is not there is an error.
    fn zeros<T: bytemuck::Zeroable + Clone>(elements: usize) -> io::Result<Vec<T>> {
        let mut all = Vec::new();
        all.try_reserve_exact(elements).map_err(|e| io::Error::new(io::ErrorKind::OutOfMemory, e))?;
        all.resize(elements, T::zeroed());
        Ok(all)
    }
    Ok(match dtype {
        DType::U8 => CpuStorage::U8(zeros(elements)?),
        DType::U32 => CpuStorage::U32(zeros(elements)?),
        DType::I16 => CpuStorage::I16(zeros(elements)?),
        DType::I32 => CpuStorage::I32(zeros(elements)?),
        DType::I64 => CpuStorage::I64(zeros(elements)?),
        DType::BF16 => CpuStorage::BF16(zeros(elements)?),
        DType::F16 => CpuStorage::F16(zeros(elements)?),
        DType::F32 => CpuStorage::F32(zeros(elements)?),
        DType::F64 => CpuStorage::F64(zeros(elements)?),
        DType::F8E4M3 => CpuStorage::F8E4M3(zeros(elements)?),
        DType::F6E2M3 => CpuStorage::F6E2M3(zeros(elements)?),
        DType::F6E3M2 => CpuStorage::F6E3M2(zeros(elements)?),
        DType::F4 => CpuStorage::F4(zeros(elements)?),
        DType::F8E8M0 => CpuStorage::F8E8M0(zeros(elements)?),
        other => return Err(io::Error::other(format!("dtype {other:?} is not known here"))),
    })
}
