//! Long chains: Candle's walk recurses, so the stack is the limit.
#![allow(clippy::unwrap_used, clippy::panic)]

use candle_core::{DType, Device, ModuleT, Tensor, Var};
use candle_nn::VarMap;
use memopt::autograd::depth_limit;
use memopt::checkpoint::{checkpoint, Planned};
use memopt::module::Session;
use memopt::nn::init::seeded;
use memopt::nn::{Linear, LinearConfig};
use memopt::plan::{Keep, Plan};
use memopt::Error;

fn chain(length: usize, w: &Var, x: &Tensor) -> memopt::Result<Tensor> {
    let mut y = x.clone();
    for _ in 0..length {
        let (a, b) = (w.clone(), w.clone());
        y = checkpoint(move |x| x[0].mul(&a)?.add(&b), &[&y], "link")?;
    }
    Ok(y)
}

/// The default stack of a spawned thread.
fn on_two_mebibytes(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(2 << 20).spawn(work).unwrap().join().unwrap();
}

#[test]
fn a_thousand_chained_closures_on_a_two_mebibyte_stack() {
    on_two_mebibytes(|| {
        let w = Var::new(&[0.5f32, 0.25], &Device::Cpu).unwrap();
        let x = Tensor::new(&[1f32, 0.], &Device::Cpu).unwrap();
        let y = chain(1_000, &w, &x).unwrap();
        let gradients = y.sum_all().unwrap().backward().unwrap();
        let g = gradients.get(&w).unwrap().to_vec1::<f32>().unwrap();
        // y = w y + w has the fixed point w / (1 - w), whose derivative is 1 / (1 - w)^2
        assert!((g[0] - 4.).abs() < 1e-4 && (g[1] - 16. / 9.).abs() < 1e-4, "{g:?}");
        // dropping the graph without a backward must not overflow either
        drop(chain(1_000, &w, &x).unwrap());
    });
}

#[test]
fn a_thousand_planned_segments_on_a_two_mebibyte_stack() {
    on_two_mebibytes(|| {
        let variables = VarMap::new();
        let vb = seeded(&variables, 0, DType::F32, &Device::Cpu);
        let layer = |i: usize| Linear::new(2, 2, LinearConfig::default(), vb.pp(i)).unwrap();
        let layers: Vec<Linear> = (0..1_000).map(layer).collect();
        let keeps = [Keep::Recompute, Keep::TimeChunks(2)];
        let plan = (0..1_000).fold(Plan::new(), |plan, i| plan.with(i.to_string(), keeps[i % 2]));
        let net = Planned::new(layers, plan, Session::new(0)).unwrap();
        let x = Tensor::ones((2, 1, 2), DType::F32, &Device::Cpu).unwrap();
        let gradients = net.forward_t(&x, true).unwrap().sum_all().unwrap().backward().unwrap();
        assert!(variables.all_vars().iter().all(|v| gradients.get(v).is_some()));
        drop(net.forward_t(&x, true).unwrap());
    });
}

#[test]
fn plain_operations_between_do_not_hide_the_length_of_a_chain() {
    on_two_mebibytes(|| {
        let w = Var::new(&[0.5f32], &Device::Cpu).unwrap();
        let residual = |length: usize| -> memopt::Result<Tensor> {
            let mut y = Tensor::new(&[1f32], &Device::Cpu)?;
            for _ in 0..length {
                let w = w.clone();
                let z: Tensor = checkpoint(move |x| x[0].mul(&w), &[&y], "link")?;
                y = (y + z)?;
            }
            Ok(y)
        };
        residual(900).unwrap().sum_all().unwrap().backward().unwrap();
        let error = residual(20_000).unwrap_err();
        assert!(matches!(error, Error::TooDeep { limit, .. } if limit == depth_limit()), "{error}");
    });
}

#[test]
fn many_functions_side_by_side_are_not_a_long_chain() {
    let w = Var::new(&[0.5f32], &Device::Cpu).unwrap();
    let x = Tensor::new(&[1f32], &Device::Cpu).unwrap();
    let many: Vec<Tensor> = (0..3_000).map(|_| chain(1, &w, &x).unwrap().affine(2., 0.).unwrap()).collect();
    let y: Tensor = checkpoint(|x| Tensor::cat(x, 0)?.sum(0), &many, "all").unwrap();
    assert_eq!(y.backward().unwrap().get(&w).unwrap().to_vec1::<f32>().unwrap(), [3_000. * 2. * 2.]);
}

#[test]
fn a_longer_chain_is_a_typed_error() {
    on_two_mebibytes(|| {
        let w = Var::new(&[0.5f32], &Device::Cpu).unwrap();
        let x = Tensor::new(&[1f32], &Device::Cpu).unwrap();
        let error = chain(depth_limit() + 1, &w, &x).unwrap_err();
        assert!(matches!(error, Error::TooDeep { limit, .. } if limit == depth_limit()), "{error}");
    });
}
