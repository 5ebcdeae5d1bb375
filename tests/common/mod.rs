//! Helpers of the integration tests.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use candle_core::backprop::GradStore;
use candle_core::{DType, Result, Tensor};

/// The elements' bits, in row-major order.
pub fn bits(t: &Tensor) -> Vec<u64> {
    if t.elem_count() == 0 {
        return Vec::new();
    }
    let t = t.flatten_all().unwrap();
    match t.dtype() {
        DType::F32 => t.to_vec1::<f32>().unwrap().iter().map(|v| v.to_bits() as u64).collect(),
        DType::F64 => t.to_vec1::<f64>().unwrap().iter().map(|v| v.to_bits()).collect(),
        DType::BF16 => t.to_vec1::<half::bf16>().unwrap().iter().map(|v| v.to_bits() as u64).collect(),
        DType::F16 => t.to_vec1::<half::f16>().unwrap().iter().map(|v| v.to_bits() as u64).collect(),
        DType::U8 => t.to_vec1::<u8>().unwrap().iter().map(|v| *v as u64).collect(),
        DType::U32 => t.to_vec1::<u32>().unwrap().iter().map(|v| *v as u64).collect(),
        DType::I64 => t.to_vec1::<i64>().unwrap().iter().map(|v| *v as u64).collect(),
        other => panic!("no bits for {other:?}"),
    }
}

/// Shape, dtype and bits of a gradient, or that there is none.
pub fn gradient(store: &GradStore, t: &Tensor) -> Option<(Vec<usize>, DType, Vec<u64>)> {
    store.get(t).map(|g| (g.dims().to_vec(), g.dtype(), bits(g)))
}

/// Fails unless the two have the same shape, dtype and bits.
#[track_caller]
pub fn assert_same(a: &Tensor, b: &Tensor) {
    assert_eq!(a.dims(), b.dims(), "shapes");
    assert_eq!(a.dtype(), b.dtype(), "dtypes");
    assert_eq!(bits(a), bits(b), "bits");
}

/// Deterministic values in [-1, 1).
pub struct Values(u64);

impl Values {
    pub fn new(seed: u64) -> Self {
        Values(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as f64) / (1u64 << 30) as f64 - 1.
    }

    pub fn tensor(&mut self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        let n = shape.iter().product();
        let values: Vec<f64> = (0..n).map(|_| self.next()).collect();
        Tensor::from_vec(values, shape, &candle_core::Device::Cpu)?.to_dtype(dtype)
    }

    /// 0 or 1, ones with probability `rate`.
    pub fn spikes(&mut self, shape: &[usize], rate: f64, dtype: DType) -> Result<Tensor> {
        let n = shape.iter().product();
        let values: Vec<f64> = (0..n).map(|_| f64::from(self.next() < 2. * rate - 1.)).collect();
        Tensor::from_vec(values, shape, &candle_core::Device::Cpu)?.to_dtype(dtype)
    }
}
