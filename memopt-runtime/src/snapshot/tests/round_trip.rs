use super::super::{Snapshot, SnapshotError};
use super::{assert_same, bytes_of, of_bytes, small, DTYPES};
use crate::Error;
use candle_core::{DType, Device, Tensor, Var};
use proptest::prelude::*;
use serde_json::Value;

fn through_a_file(snapshot: &Snapshot) -> Snapshot {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a b.memopt");
    snapshot.save(&path).unwrap();
    Snapshot::load(&path).unwrap()
}

/// Any dtype, shape and bits, and any view of them that Candle has.
fn tensors() -> impl Strategy<Value = Tensor> {
    (0..DTYPES.len(), proptest::collection::vec(0usize..5, 0..4), 0..4, any::<u64>()).prop_map(
        |(dtype, dims, view, seed)| {
            let dtype = DTYPES[dtype];
            let elements: usize = dims.iter().product();
            // Nobody says how many bytes the packed ones have.
            let bytes = match dtype.size_in_bytes() {
                0 => elements.div_ceil(2),
                size => elements * size,
            };
            let random = |i: usize| (seed.wrapping_mul(2 * i as u64 + 1) >> 32) as u8;
            let tensor = of_bytes(dtype, dims.clone(), &(0..bytes).map(random).collect::<Vec<_>>());
            if dtype.size_in_bytes() == 0 || dtype == DType::F8E8M0 {
                return tensor;
            }
            match view {
                1 if dims.len() > 1 => tensor.t().unwrap(),
                2 if dims.first().is_some_and(|&n| n > 0) => tensor.narrow(0, 1, dims[0] - 1).unwrap(),
                3 => tensor.broadcast_left(2).unwrap(),
                _ => tensor,
            }
        },
    )
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        // All finite ones: also those that a fast parser rounds wrongly.
        any::<u64>().prop_map(|bits| Value::from(f64::from_bits(bits))),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn what_is_loaded_is_what_was_saved(
        tensors in proptest::collection::btree_map(any::<String>(), tensors(), 0..6),
        state in proptest::collection::btree_map(any::<String>(), json(), 0..4),
    ) {
        let snapshot = Snapshot { tensors, state };
        assert_same(&through_a_file(&snapshot), &snapshot);
    }
}

#[test]
fn every_dtype_keeps_every_byte() {
    let bytes: Vec<u8> = (0..=255).cycle().take(1024).collect();
    let mut snapshot = Snapshot::new();
    for dtype in DTYPES {
        let elements = bytes.len() / dtype.size_in_bytes().max(1);
        snapshot.tensors.insert(format!("{dtype:?}"), of_bytes(dtype, elements, &bytes));
    }
    let again = through_a_file(&snapshot);
    assert_same(&again, &snapshot);
    assert!(again.tensors.values().all(|tensor| bytes_of(tensor) == bytes));
}

#[test]
fn names_are_any_text() {
    let names =
        ["", "__metadata__", "__metadata___", "__metadata__x", "memopt", "a.b/c", "\"\\\n\u{0}", "ü 🧠"];
    let mut snapshot = Snapshot::new();
    for (i, name) in names.into_iter().enumerate() {
        snapshot.tensors.insert(name.into(), Tensor::new(i as u32, &Device::Cpu).unwrap());
        // Packed ones are found by their names.
        snapshot.tensors.insert(format!("{name}4"), of_bytes(DType::F4, 2, &[i as u8]));
        snapshot.set(name, &i).unwrap();
    }
    assert_same(&through_a_file(&snapshot), &snapshot);
}

#[test]
fn variables_and_computed_tensors_come_back_as_plain_ones() {
    let variable = Var::new(&[1f32, 2.], &Device::Cpu).unwrap();
    let mut snapshot = Snapshot::new();
    snapshot.tensors.insert("variable".into(), variable.as_tensor().clone());
    snapshot.tensors.insert("computed".into(), variable.exp().unwrap());
    let again = through_a_file(&snapshot);
    assert_same(&again, &snapshot);
    assert!(again.tensors.values().all(|tensor| !tensor.track_op()));
}

#[test]
fn the_same_snapshot_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = |name: &str, snapshot: &Snapshot| {
        let path = folder.path().join(name);
        snapshot.save(&path).unwrap();
        std::fs::read(path).unwrap()
    };
    let first = bytes("a", &small());
    assert_eq!(first, bytes("b", &small()));
    assert_eq!(first, bytes("c", &through_a_file(&small())));
}

#[test]
fn other_readers_of_safetensors_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    small().save(&path).unwrap();
    let tensors = candle_core::safetensors::load(&path, &Device::Cpu).unwrap();
    assert_eq!(tensors.len(), 4);
    assert_eq!(bytes_of(&tensors["weight"]), bytes_of(&small().tensors["weight"]));
    assert_eq!((tensors["four bits"].dtype(), tensors["four bits"].dims()), (DType::U8, &[2][..]));
}

#[test]
fn state_that_json_would_lose_is_refused() {
    #[derive(serde::Serialize)]
    struct Scale {
        best: Option<f32>,
    }
    let mut snapshot = Snapshot::new();
    for best in [f32::NAN, f32::INFINITY] {
        let error = snapshot.set("scale", &Scale { best: Some(best) }).unwrap_err();
        assert!(
            matches!(&error, Error::Snapshot(SnapshotError::State { section, .. }) if section == "scale")
        );
    }
    assert!(snapshot.set("keys", &std::collections::BTreeMap::from([((1, 2), 3)])).is_err());
    assert!(snapshot.state.is_empty());
    snapshot.set("scale", &Scale { best: None }).unwrap();
    snapshot.set("numbers", &(u64::MAX, i64::MIN, f64::MIN_POSITIVE, -0f64)).unwrap();
    let numbers: (u64, i64, f64, f64) = through_a_file(&snapshot).get("numbers").unwrap();
    assert_eq!((numbers.0, numbers.1, numbers.2), (u64::MAX, i64::MIN, f64::MIN_POSITIVE));
    assert!(numbers.3.is_sign_negative());
}

/// A file that could be written and never be read would be found out when it is needed.
#[test]
fn state_that_could_not_be_read_again_is_not_written() {
    let mut snapshot = Snapshot::new();
    let deep = (0..200).fold(Value::Null, |inner, _| Value::from(vec![inner]));
    snapshot.state.insert("deep".into(), deep);
    let folder = tempfile::tempdir().unwrap();
    let error = snapshot.save(folder.path().join("x")).unwrap_err();
    assert!(matches!(error, Error::Snapshot(SnapshotError::State { section, .. }) if section == "deep"));
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_part_of_a_packed_tensor_is_refused_by_name() {
    let whole = of_bytes(DType::F4, 4, &[1, 2]);
    let mut snapshot = Snapshot::new();
    snapshot.tensors.insert("part".into(), whole.narrow(0, 2, 2).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let error = snapshot.save(folder.path().join("x")).unwrap_err();
    assert!(matches!(error, Error::Snapshot(SnapshotError::Tensor { name, .. }) if name == "part"));
}

#[test]
fn what_is_missing_is_named_with_what_is_there() {
    let error = small().tensor("bias").unwrap_err().to_string();
    assert!(error.contains("no tensor `bias`") && error.contains("`weight`"), "{error}");
    let error = small().get::<u64>("optimizer").unwrap_err().to_string();
    assert!(error.contains("no state `optimizer`") && error.contains("`progress`"), "{error}");
    let error = small().get::<u64>("progress").unwrap_err();
    assert!(matches!(error, Error::Snapshot(SnapshotError::State { .. })));
}
