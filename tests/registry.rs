//! The registry of function outputs purges itself. One test, since the registry is the process's.
#![allow(clippy::unwrap_used, clippy::panic)]

use candle_core::{Device, Tensor, Var};
use memopt::autograd::registered_outputs;
use memopt::checkpoint::checkpoint;

#[test]
fn the_registry_holds_live_outputs_only() {
    let x = Var::new(&[1f32, 2.], &Device::Cpu).unwrap();
    let two = |x: &Tensor| -> (Tensor, Tensor) {
        checkpoint(|x| Ok((x[0].sqr()?, x[0].exp()?)), &[x], "two").unwrap()
    };
    assert_eq!(registered_outputs(), 0);
    let (a, b) = two(&x);
    assert_eq!(registered_outputs(), 2);
    drop(b);
    assert_eq!(registered_outputs(), 1);
    let (c, _) = two(&a);
    assert_eq!(registered_outputs(), 2);
    // `a` is dropped; its function lives on in `c`'s graph, but cannot be found by `a` any more
    drop(a);
    assert_eq!(registered_outputs(), 1);
    let loss = c.sum_all().unwrap();
    drop(c); // the graph of the loss still holds it
    assert_eq!(registered_outputs(), 1);
    loss.backward().unwrap();
    drop(loss);
    assert_eq!(registered_outputs(), 0);
    // forward without backward, in a loop
    for _ in 0..100 {
        let (a, b) = two(&x);
        two(&(a + b).unwrap());
    }
    assert_eq!(registered_outputs(), 0);
}
