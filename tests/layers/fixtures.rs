//! Reference values: PyTorch 2.15 in f64, computed from inputs that are multiples of 1/4.

use super::support::{variable, CPU};
use candle_core::{DType, Tensor};
use serde_json::Value;

pub const DTYPES: [DType; 2] = [DType::F64, DType::F32];

/// One case of a file, its tensors in one dtype.
pub struct Case<'a>(pub &'a Value, pub DType);

/// Runs `check` on every case of a file in every dtype.
pub fn each(file: &str, check: impl Fn(Case<'_>)) {
    let path = format!("{}/tests/fixtures/layers/{file}.json", env!("CARGO_MANIFEST_DIR"));
    let cases: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let cases = cases.as_array().unwrap();
    assert!(cases.len() > 3, "{file}");
    for case in cases {
        DTYPES.into_iter().for_each(|dtype| check(Case(case, dtype)));
    }
}

impl Case<'_> {
    pub fn number(&self, name: &str) -> f64 {
        self.0[name].as_f64().unwrap()
    }

    pub fn size(&self, name: &str) -> usize {
        self.0[name].as_u64().unwrap() as usize
    }

    pub fn sizes(&self, name: &str) -> Vec<usize> {
        sizes(&self.0[name])
    }

    pub fn pair(&self, name: &str) -> [usize; 2] {
        self.sizes(name).try_into().unwrap()
    }

    pub fn has(&self, name: &str) -> bool {
        !self.0[name].is_null()
    }

    pub fn tensor(&self, name: &str) -> Tensor {
        let values: Vec<f64> =
            self.0[name]["values"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        Tensor::from_vec(values, sizes(&self.0[name]["shape"]), CPU).unwrap().to_dtype(self.1).unwrap()
    }

    pub fn variable(&self, name: &str) -> Tensor {
        variable(&self.tensor(name))
    }

    /// Fails unless `got` is this tensor but for rounding, relative to the largest value.
    #[track_caller]
    pub fn check(&self, name: &str, got: &Tensor) {
        let expected = self.tensor(name);
        assert_eq!((got.dims(), got.dtype()), (expected.dims(), self.1), "{name}");
        let values =
            |t: &Tensor| t.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1::<f64>().unwrap();
        let (got, expected) = (values(got), values(&expected));
        let largest = expected.iter().fold(1f64, |largest, v| largest.max(v.abs()));
        let tolerance = largest * if self.1 == DType::F64 { 1e-12 } else { 1e-5 };
        for (index, (got, expected)) in got.iter().zip(&expected).enumerate() {
            assert!(
                (got - expected).abs() <= tolerance,
                "{name}[{index}]: {got}, not {expected}: {:?}",
                self.1
            );
        }
    }
}

fn sizes(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as usize).collect()
}
