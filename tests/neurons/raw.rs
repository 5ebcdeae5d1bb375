//! Neurons on raw buffers: the bits of the layer, and errors that name it.

use super::common::{assert_same, Values};
use super::*;
use candle_core::op::BackpropOp;
use candle_core::{CpuStorage, DType, Storage};
use memopt::module::{Checkpointable, Part, WindowNeuron};

fn storage(tensor: &Tensor) -> CpuStorage {
    let copy = tensor.copy().unwrap();
    let (storage, _) = copy.storage_and_layout();
    match &*storage {
        Storage::Cpu(storage) => storage.clone(),
        _ => panic!("a CPU tensor expected"),
    }
}

fn tensor(storage: CpuStorage, shape: &[usize]) -> Tensor {
    Tensor::from_storage(Storage::Cpu(storage), shape, BackpropOp::none(), false)
}

fn assert_same_as_layer(neuron: &Neuron, raw: &dyn WindowNeuron, dtype: DType, has_state: bool) {
    let (window, state) = ([5, 2, 700], [2, 700]);
    let state_dtype = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let mut values = Values::new(9);
    let x = values.tensor(&window, DType::F64).unwrap().affine(1.5, 0.5).unwrap().to_dtype(dtype).unwrap();
    let dy = values.tensor(&window, dtype).unwrap();
    let v0 = has_state.then(|| values.tensor(&state, state_dtype).unwrap());

    let tracked = variable(x.clone());
    let (s, v) = neuron.window(&tracked, v0.as_ref()).unwrap();
    let gradients = backward_from(vec![(s.clone(), dy.clone().into())]).unwrap();

    let (spikes, last) = raw.fire(storage(&x), &window, v0.as_ref()).unwrap();
    assert_same(&tensor(spikes, &window), &s);
    assert_same(&last, &v);
    let (dx, dv) = raw.back(&storage(&x), storage(&dy), &window, v0.as_ref(), None).unwrap();
    assert_same(&tensor(dx, &window), gradients.get(&tracked).unwrap());
    assert!(dv.is_none());
}

/// Chunk by chunk, potentials and their gradients going on, and from a gradient of the last potential: the bits of the
/// layer over the whole window.
fn assert_chunks_are_same(neuron: &Neuron, raw: &dyn WindowNeuron, dtype: DType) {
    let (steps, rest) = (5, [2, 1100]);
    let window = [&[steps][..], &rest].concat();
    let state_dtype = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let mut values = Values::new(4);
    let x = values.tensor(&window, DType::F64).unwrap().affine(1.5, 0.5).unwrap().to_dtype(dtype).unwrap();
    let dy = values.tensor(&window, dtype).unwrap();
    let [v0, dv] = [(); 2].map(|()| values.tensor(&rest, state_dtype).unwrap());

    let (tracked, start) = (variable(x.clone()), variable(v0.clone()));
    let (s, v) = neuron.window(&tracked, Some(&start)).unwrap();
    let gradients = backward_from(vec![(s, dy.clone().into()), (v, dv.clone().into())]).unwrap();

    let chunks = [0..2, 2..3, 3..5];
    let part = |t: &Tensor, range: &std::ops::Range<usize>| {
        storage(&t.narrow(0, range.start, range.len()).unwrap().force_contiguous().unwrap())
    };
    let dims = |range: &std::ops::Range<usize>| [&[range.len()][..], &rest].concat();
    let mut potentials = vec![v0];
    for range in &chunks {
        let (_, v) = raw.fire(part(&x, range), &dims(range), potentials.last()).unwrap();
        potentials.push(v);
    }
    let mut dv = Some(storage(&dv));
    for (range, v) in chunks.iter().zip(&potentials).rev() {
        let (dx, before) = raw.back(&part(&x, range), part(&dy, range), &dims(range), Some(v), dv).unwrap();
        let expected = gradients.get(&tracked).unwrap().narrow(0, range.start, range.len()).unwrap();
        assert_same(&tensor(dx, &dims(range)), &expected);
        dv = before;
    }
    assert_same(&tensor(dv.unwrap(), &rest), gradients.get(&start).unwrap());
}

#[test]
fn raw_chunks_give_the_bits_of_the_whole_window() {
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        for reset in [Reset::Soft, Reset::Hard(-0.3)] {
            let lif = Lif::new(1.333).unwrap().reset(reset);
            assert_chunks_are_same(&Neuron::Lif(lif.clone()), &lif, dtype);
            let neuron = If::new().reset(reset).surrogate(Surrogate::atan());
            assert_chunks_are_same(&Neuron::If(neuron.clone()), &neuron, dtype);
        }
    }
}

#[test]
fn raw_buffers_give_the_bits_of_the_layer() {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        for has_state in [false, true] {
            for reset in [Reset::Soft, Reset::Hard(-0.3)] {
                let lif = Lif::new(1.333).unwrap().decay_input(false).detach_reset(true).reset(reset);
                assert_same_as_layer(&Neuron::Lif(lif.clone()), &lif, dtype, has_state);
                let neuron = If::new().reset(reset).surrogate(Surrogate::atan());
                assert_same_as_layer(&Neuron::If(neuron.clone()), &neuron, dtype, has_state);
            }
        }
    }
}

#[test]
fn raw_buffers_are_offered_through_containers_by_neurons_without_weights() {
    assert!(Lif::default().window_neuron().is_some() && If::new().window_neuron().is_some());
    assert!(Part::of(&Some(Lif::default())).window_neuron().is_some());
    assert!(Box::new(If::new()).window_neuron().is_some());
    assert!(None::<Lif>.window_neuron().is_none());
    let w = Var::new(0f32, CPU).unwrap();
    assert!(Plif::new(w.as_tensor().clone()).unwrap().window_neuron().is_none());
}

#[test]
fn errors_of_raw_buffers_name_the_layer() {
    let floats = |n| CpuStorage::F32(vec![0.; n]);
    let v0 = Tensor::zeros(4, DType::F32, CPU).unwrap();
    let lif = Lif::default();
    let errors = [
        lif.fire(floats(5), &[2, 3], None).unwrap_err(),
        lif.fire(floats(1), &[], None).unwrap_err(),
        lif.fire(floats(6), &[2, 3], Some(&v0)).unwrap_err(),
        lif.fire(CpuStorage::U8(vec![0; 6]), &[2, 3], None).unwrap_err(),
        lif.back(&floats(6), floats(5), &[2, 3], None, None).unwrap_err(),
        lif.back(&floats(6), CpuStorage::F64(vec![0.; 6]), &[2, 3], None, None).unwrap_err(),
        lif.back(&floats(6), floats(6), &[2, 3], None, Some(floats(2))).unwrap_err(),
        lif.back(&floats(6), floats(6), &[2, 3], None, Some(CpuStorage::F64(vec![0.; 3]))).unwrap_err(),
        lif.v_threshold(f64::NAN).fire(floats(6), &[2, 3], None).unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().starts_with("`Lif`"), "{error}");
    }
}
