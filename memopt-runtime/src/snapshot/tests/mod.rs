#![allow(clippy::panic)]

mod damage;
mod disk;
mod round_trip;
mod store;

use super::elements::{filled, with_bytes};
use super::Snapshot;
use crate::storage::into_tensor;
use candle_core::{DType, Device, Shape, Tensor};

const DTYPES: [DType; 14] = [
    DType::U8,
    DType::U32,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::BF16,
    DType::F16,
    DType::F32,
    DType::F64,
    DType::F8E4M3,
    DType::F6E2M3,
    DType::F6E3M2,
    DType::F4,
    DType::F8E8M0,
];

/// A tensor of given bytes; those that are packed have as many as there are.
fn of_bytes(dtype: DType, shape: impl Into<Shape>, bytes: &[u8]) -> Tensor {
    let fill = |to: &mut [u8]| {
        to.copy_from_slice(bytes);
        Ok(())
    };
    into_tensor(filled(dtype, bytes.len(), fill).unwrap(), shape, false)
}

fn bytes_of(tensor: &Tensor) -> Vec<u8> {
    with_bytes(tensor, <[u8]>::to_vec).unwrap()
}

/// The same names, dtypes, shapes, bits and state.
fn assert_same(a: &Snapshot, b: &Snapshot) {
    assert_eq!(a.tensors.keys().collect::<Vec<_>>(), b.tensors.keys().collect::<Vec<_>>());
    for (name, x) in &a.tensors {
        let y = &b.tensors[name];
        assert_eq!((x.dtype(), x.dims()), (y.dtype(), y.dims()), "{name}");
        assert_eq!(bytes_of(x), bytes_of(y), "{name}");
    }
    // Not by `==`, to which 0 and -0 are the same.
    assert_eq!(serde_json::to_string(&a.state).unwrap(), serde_json::to_string(&b.state).unwrap());
}

fn small() -> Snapshot {
    let mut snapshot = Snapshot::new();
    let values = [1f32, -0., f32::from_bits(0x7fc1_2345), f32::INFINITY, 1e-45];
    snapshot.tensors.insert("weight".into(), Tensor::new(&values, &Device::Cpu).unwrap());
    snapshot.tensors.insert("empty".into(), Tensor::zeros((0, 3), DType::F64, &Device::Cpu).unwrap());
    snapshot.tensors.insert("labels".into(), Tensor::new(&[[3u8, 1], [4, 1]], &Device::Cpu).unwrap());
    snapshot.tensors.insert("four bits".into(), of_bytes(DType::F4, 3, &[0x21, 0x03]));
    snapshot
        .set("progress", &serde_json::json!({ "epoch": 3, "rate": 0.1, "name": "läuft \"\\\u{0}" }))
        .unwrap();
    snapshot
}
