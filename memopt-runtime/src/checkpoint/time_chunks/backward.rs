//! The recompute of a window in time chunks, and the way back through it.

use super::chunked::{check_steps, chunk, no_steps, Chunked};
use super::first_pass::{normalized, Ran};
use crate::autograd::{backward_from, Gradient};
use crate::checkpoint::leaves::{add_norm_gradients, run_leaves, Leaf};
use crate::checkpoint::replay::{in_recompute, Chunks};
use crate::checkpoint::window::WindowBuffer;
use crate::module::{Context, NormStatistics, NormSums, States, WindowNorm};
use crate::storage::checksum;
use crate::{Error, Result};
use candle_core::{Tensor, Var};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// The recompute and the way back.
pub(super) struct Backward {
    pub(super) chunked: Chunked,
    pub(super) ran: Ran,
    pub(super) context: Context,
    pub(super) name: String,
}

/// The gradients of the states after a chunk, by the neuron's path.
type StateGradients = Vec<(String, Gradient)>;

impl Backward {
    /// The gradient of the input, and those of variables that the layers did not add up themselves.
    pub(super) fn back(&self, chunks: Chunks<'_>) -> Result<(Option<Gradient>, Vec<Option<Gradient>>)> {
        let Chunks { input, gradient, is_tracked, variables } = chunks;
        let x = input.unpack()?;
        drop(input);
        let ranges = self.chunked.ranges(x.dim(0)?);
        let mut foreign: Vec<Option<Gradient>> = variables.iter().map(|_| None).collect();
        let shape = gradient.shape().clone();
        let mut window = WindowBuffer::new(gradient.into_storage()?, &shape);

        let (mut sums, mut statistics) = (None, None);
        if let Some((leaf, norm)) = self.chunked.norm() {
            let at_norm = leaf.context(&mut self.context.clone());
            let of_window = at_norm.recorded_statistics()?;
            let (at_output, of_norm) =
                self.through_norm(&x, window, norm, &of_window, &ranges, &mut foreign, variables)?;
            window = at_output;
            add_norm_gradients(norm, &of_norm, &at_norm)?;
            (sums, statistics) = (Some(of_norm), Some(of_window));
        }

        let first_layers =
            if self.chunked.norm.is_some() { self.chunked.before() } else { self.chunked.after() };
        let mut dx: Option<WindowBuffer> = None;
        let mut states: StateGradients = Vec::new();
        let borders = if self.chunked.norm.is_some() { &self.ran.before } else { &self.ran.after };
        for (index, (range, border)) in ranges.iter().zip(borders).enumerate().rev() {
            let input = leaf_if(is_tracked, chunk(&x, range.clone())?)?;
            let (y, before, after) = self.chunk_of(first_layers, input.clone(), range, border)?;
            if self.chunked.norm.is_none() {
                self.check_output(index, &y)?;
            }
            let mut gradient = Gradient::from(window.chunk(range.clone()));
            if let (Some((_, norm)), Some(statistics), Some(sums)) = (self.chunked.norm(), &statistics, &sums)
            {
                let z = y.detach().contiguous()?;
                let dz = norm.input_gradient(&z, gradient.into_storage()?, statistics, sums)?;
                gradient = Gradient::new(dz, z.shape());
            }
            let mut store = backward_from(roots(y, gradient, &after, states)?)?;
            states = gradients_of(&before, &mut store);
            add_foreign(&mut foreign, variables, &mut store)?;
            if is_tracked {
                let part = match store.remove(&input) {
                    Some(part) => part.detach(),
                    None => input.zeros_like()?,
                };
                let whole = match &mut dx {
                    Some(whole) => whole,
                    None => dx.insert(WindowBuffer::zeros(&part, x.dim(0)?)?),
                };
                whole.write(range.start, &part)?;
            }
        }
        let dx = dx.map(|dx| {
            let shape = dx.shape();
            Gradient::new(dx.into_storage(), shape)
        });
        if ranges.len() > 1 && foreign.iter().any(Option::is_some) {
            self.context.note(format!(
                "`{}`: some gradients of weights are added up chunk by chunk, within rounding of the unoptimized \
                 model's: the weights do not go through `Context::weight`",
                self.name
            ));
        }
        Ok((dx, foreign))
    }

    /// Back through B, last chunk first: the gradient at the norm's output over the window, and its sums.
    #[allow(clippy::too_many_arguments)] // what the two ways back share
    fn through_norm(
        &self,
        x: &Tensor,
        mut window: WindowBuffer,
        norm: &dyn WindowNorm,
        statistics: &NormStatistics,
        ranges: &[Range<usize>],
        foreign: &mut [Option<Gradient>],
        variables: &[Tensor],
    ) -> Result<(WindowBuffer, NormSums)> {
        let twin = self.chunked.detached();
        let mut sums = norm.no_sums();
        let mut states: StateGradients = Vec::new();
        let mut at_output: Option<WindowBuffer> = None;
        for (index, range) in ranges.iter().enumerate().rev() {
            let Some((border, begin)) = self.ran.before.get(index).zip(self.ran.after.get(index)) else {
                return Err(no_steps(&self.name));
            };
            let mut untracked = self.context.chunk(range.start, Arc::new(Mutex::new(border.clone())));
            let chunk_of_x = chunk(x, range.clone())?;
            let again = || run_leaves(twin.before(), chunk_of_x, &mut untracked);
            let z = in_recompute(&self.name, again)?.contiguous()?;
            let input = leaf_if(true, normalized(norm, &z, statistics)?)?;
            let (y, before, after) = self.chunk_of(self.chunked.after(), input.clone(), range, begin)?;
            self.check_output(index, &y)?;
            let gradient = Gradient::from(window.chunk(range.clone()));
            let mut store = backward_from(roots(y, gradient, &after, states)?)?;
            states = gradients_of(&before, &mut store);
            add_foreign(foreign, variables, &mut store)?;
            let dn = match store.remove(&input) {
                Some(dn) => dn.detach(),
                None => input.detach().zeros_like()?,
            };
            let dn_storage = Gradient::from(dn.clone()).into_storage()?;
            norm.add_sums(&mut sums, &z, &dn_storage, statistics)?;
            // In the place of the gradient that came in, where it has the same form.
            if window.fits(dn.dims().get(1..).unwrap_or_default()) {
                window.write(range.start, &dn)?;
            } else {
                let whole = match &mut at_output {
                    Some(whole) => whole,
                    None => at_output.insert(WindowBuffer::zeros(&dn, x.dim(0)?)?),
                };
                whole.write(range.start, &dn)?;
            }
        }
        Ok((at_output.unwrap_or(window), sums))
    }

    /// Whether a chunk gave what it gave first.
    fn check_output(&self, index: usize, y: &Tensor) -> Result<()> {
        let Some(then) = &self.ran.outputs else { return Ok(()) };
        match then.get(index) == Some(&checksum(&y.detach())?) {
            true => Ok(()),
            false => Err(Error::RecomputeDiffers {
                segment: self.name.clone(),
                what: format!("time chunk {index} has other values"),
            }),
        }
    }

    /// Runs layers on one chunk: the output, the states before it as leaves, and the states after it.
    fn chunk_of(
        &self,
        leaves: &[Leaf],
        x: Tensor,
        range: &Range<usize>,
        border: &States,
    ) -> Result<(Tensor, States, States)> {
        let mut before = States::default();
        for (path, state) in border.iter() {
            before.set(path, Var::from_tensor(state)?.into_inner());
        }
        let states = Arc::new(Mutex::new(before.clone()));
        let y = in_recompute(&self.name, || {
            run_leaves(leaves, x, &mut self.context.chunk(range.start, states.clone()))
        })?;
        check_steps(&y, range, &self.name)?;
        let after = states.lock().clone();
        Ok((y, before, after))
    }
}

/// The tensor as a leaf of a graph, if its gradient is wanted.
fn leaf_if(wanted: bool, x: Tensor) -> Result<Tensor> {
    match wanted {
        true => Ok(Var::from_tensor(&x)?.into_inner()),
        false => Ok(x),
    }
}

/// What to go back from: the output, and the states after it that the next chunk began with.
fn roots(
    y: Tensor,
    gradient: Gradient,
    after: &States,
    states: StateGradients,
) -> Result<Vec<(Tensor, Gradient)>> {
    let mut roots = vec![(y, gradient)];
    for (path, gradient) in states {
        if let Some(state) = after.get(&path) {
            roots.push((state.clone(), gradient));
        }
    }
    Ok(roots)
}

fn gradients_of(before: &States, store: &mut candle_core::backprop::GradStore) -> StateGradients {
    let gradient = |(path, state): (&str, &Tensor)| Some((path.to_owned(), store.remove(state)?.into()));
    before.iter().filter_map(gradient).collect()
}

/// Adds what Candle's own layers have in the graph. (Chunk by chunk, so not in the order of the whole window.)
fn add_foreign(
    foreign: &mut [Option<Gradient>],
    variables: &[Tensor],
    store: &mut candle_core::backprop::GradStore,
) -> Result<()> {
    for (sum, variable) in foreign.iter_mut().zip(variables) {
        if let Some(gradient) = store.remove(variable).map(Gradient::from) {
            *sum = Some(match sum.take() {
                None => gradient,
                Some(earlier) => earlier.plus(gradient)?,
            });
        }
    }
    Ok(())
}
