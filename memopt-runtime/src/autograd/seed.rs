//! Backward from several tensors with given gradients, without a product and a sum over each.

use super::gradient::Gradient;
use super::registry::producer_of;
use super::token;
use crate::Result;
use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, CustomOp1, CustomOp3, Layout, Shape, Tensor};
use parking_lot::Mutex;

/// The gradients of everything that the roots `y` depend on, for `dL/dy` given with each.
///
/// As `sum(y * g).backward()`, but without the products and without writing ones. Roots that are not tracked are left
/// out. The gradients move: none is kept longer than Candle needs it.
///
/// ```
/// use candle_core::{Device, Tensor, Var};
/// use memopt_runtime::autograd::backward_from;
///
/// let x = Var::new(&[2f32, 3.], &Device::Cpu)?;
/// let gradients = backward_from(vec![(x.sqr()?, Tensor::new(&[1f32, 10.], &Device::Cpu)?.into())])?;
/// assert_eq!(gradients.get(&x).unwrap().to_vec1::<f32>()?, [4., 60.]);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// If a gradient has another shape, dtype or device than its root, or if Candle cannot go back through an operation.
pub fn backward_from(roots: Vec<(Tensor, Gradient)>) -> Result<GradStore> {
    let mut seeds = Vec::with_capacity(roots.len());
    for (index, (root, gradient)) in roots.into_iter().enumerate() {
        let name = || format!("root {index}");
        gradient.check("backward_from", name, root.shape(), root.dtype(), root.device())?;
        if !root.track_op() || root.dtype().is_int() {
            continue;
        }
        // A leaf that is a root too is left to Candle, which adds up all its uses in its own order.
        if let Some(producer) = producer_of(&root).filter(|producer| !producer.is_leaf) {
            // Straight into the function that made it: Candle adds nothing up, and the root itself may die.
            producer.deposit(gradient)?;
            seeds.push(producer.token.apply_op1(Delivered)?);
        } else {
            let gradient = Mutex::new(Some(gradient.into_tensor()));
            seeds.push(root.apply_op1(Seed { gradient })?);
        }
    }
    while seeds.len() > 1 {
        let nothing = token::untracked(seeds[0].device())?;
        let at = |chunk: &[Tensor], i: usize| chunk.get(i).unwrap_or(&nothing).clone();
        seeds = seeds
            .chunks(3)
            .map(|chunk| chunk[0].apply_op3(&at(chunk, 1), &at(chunk, 2), Sow))
            .collect::<candle_core::Result<_>>()?;
    }
    match seeds.pop() {
        Some(sum) => Ok(sum.backward()?),
        None => Ok(GradStore::default()),
    }
}

/// A scalar whose argument, a function's token, has got one gradient.
struct Delivered;

impl CustomOp1 for Delivered {
    fn name(&self) -> &'static str {
        "memopt delivered"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        Ok(token::forward())
    }

    fn bwd(&self, token: &Tensor, _: &Tensor, _: &Tensor) -> candle_core::Result<Option<Tensor>> {
        token::deliveries(1, token.device()).map(Some)
    }
}

/// A scalar whose argument's gradient is given.
struct Seed {
    gradient: Mutex<Option<Tensor>>,
}

impl CustomOp1 for Seed {
    fn name(&self) -> &'static str {
        "memopt seed"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        Ok(token::forward())
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, _: &Tensor) -> candle_core::Result<Option<Tensor>> {
        Ok(self.gradient.lock().take())
    }
}

/// A scalar that stands for up to three seeds.
struct Sow;

impl CustomOp3 for Sow {
    fn name(&self) -> &'static str {
        "memopt seeds"
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        Ok(token::forward())
    }

    fn bwd(
        &self,
        a: &Tensor,
        b: &Tensor,
        c: &Tensor,
        _: &Tensor,
        _: &Tensor,
    ) -> candle_core::Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let one = |t: &Tensor| if t.track_op() { t.ones_like().map(Some) } else { Ok(None) };
        Ok((one(a)?, one(b)?, one(c)?))
    }
}
