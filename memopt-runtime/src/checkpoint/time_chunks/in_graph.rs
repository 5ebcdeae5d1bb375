//! The way back through layers by their graph, chunk by chunk.

use super::backward::{giving_way, Backward, OfNorm, Way};
use super::chunked::{check_steps, no_steps};
use super::first_pass::normalized;
use crate::autograd::{backward_from, Gradient};
use crate::checkpoint::leaves::{run_leaves, Leaf};
use crate::checkpoint::replay::in_recompute;
use crate::module::{NormStatistics, NormSums, States, WindowNorm};
use crate::storage::{self, checksum};
use crate::Result;
use candle_core::{backprop::GradStore, Tensor, Var};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// The gradients of the states after a chunk, by the neuron's path.
type StateGradients = Vec<(String, Gradient)>;

impl Backward {
    /// Back through the norm, where `of_norm` is given, and the layers before it, last chunk first: the gradient of the
    /// input, if it `is_tracked`.
    pub(super) fn through_layers(
        &self,
        way: &mut Way<'_>,
        gradient: Gradient,
        layers: &[Leaf],
        borders: &[States],
        of_norm: Option<&OfNorm<'_>>,
        is_tracked: bool,
    ) -> Result<Option<Gradient>> {
        let mut dx = giving_way(gradient)?;
        let mut states: StateGradients = Vec::new();
        for (index, (range, border)) in way.ranges.clone().iter().zip(borders).enumerate().rev() {
            let input = leaf_if(is_tracked, way.input.at(range)?)?;
            let (y, before, after) = self.chunk_of(layers, input.clone(), range, border)?;
            if self.chunked.norm.is_none() {
                self.check_output(index, &y)?;
            }
            let mut gradient = dx.part(range);
            if let Some(OfNorm { norm, statistics, sums, .. }) = of_norm {
                gradient = norm.input_gradient(&y.detach().contiguous()?, gradient, statistics, sums)?;
            }
            let gradient = Gradient::new(gradient, y.shape());
            let mut store = backward_from(roots(y, gradient, &after, states)?)?;
            states = gradients_of(&before, &mut store);
            way.add_foreign(&mut store)?;
            if is_tracked {
                let part = match store.remove(&input) {
                    Some(part) => part.detach(),
                    None => input.zeros_like()?,
                };
                dx.write(range.start, &part)?;
            }
        }
        Ok(dx.finish())
    }

    /// Back through the layers behind the norm, last chunk first: the gradient at the norm's output over the window, its sums,
    /// and the states of the layers before it.
    pub(super) fn through_norm(
        &self,
        way: &mut Way<'_>,
        gradient: Gradient,
        norm: &dyn WindowNorm,
        statistics: &NormStatistics,
    ) -> Result<(Gradient, NormSums, Vec<States>)> {
        let twin = self.chunked.detached();
        let mut borders = self.borders(&way.input, &way.ranges, Some(statistics))?;
        let mut sums = norm.no_sums();
        let mut states: StateGradients = Vec::new();
        let mut at_output = giving_way(gradient)?;
        for (index, range) in way.ranges.clone().iter().enumerate().rev() {
            let Some((border, begin)) = borders.before.get(index).zip(borders.after.pop()) else {
                return Err(no_steps(&self.name));
            };
            let of_chunk = Arc::new(Mutex::new(border.clone()));
            let z = self.before_norm(twin.before(), way.input.at(range)?, range, of_chunk)?;
            let n = normalized(norm, storage::owned(&z)?, z.dims(), statistics)?;
            let input = leaf_if(true, n)?;
            let (y, before, after) = self.chunk_of(self.chunked.after(), input.clone(), range, &begin)?;
            self.check_output(index, &y)?;
            let gradient = Gradient::new(at_output.part(range), y.shape());
            let mut store = backward_from(roots(y, gradient, &after, states)?)?;
            states = gradients_of(&before, &mut store);
            way.add_foreign(&mut store)?;
            let dn = match store.remove(&input) {
                Some(dn) => dn.detach(),
                None => input.detach().zeros_like()?,
            };
            drop((store, input));
            norm.add_sums(&mut sums, &z, &storage::owned(&dn)?, statistics)?;
            at_output.write(range.start, &dn)?;
        }
        let at_output = at_output.finish().ok_or_else(|| no_steps(&self.name))?;
        Ok((at_output, sums, borders.before))
    }

    /// Whether a chunk gave what it gave first.
    pub(super) fn check_output(&self, index: usize, y: &Tensor) -> Result<()> {
        let Some(then) = &self.ran.outputs else { return Ok(()) };
        match then.get(index) == Some(&checksum(&y.detach())?) {
            true => Ok(()),
            false => Err(self.differs(format!("time chunk {index} has other values"))),
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

impl Way<'_> {
    /// Adds what Candle's own layers have in the graph. (Chunk by chunk, so not in the order of the whole window.)
    fn add_foreign(&mut self, store: &mut GradStore) -> Result<()> {
        for (sum, variable) in self.foreign.iter_mut().zip(self.variables) {
            if let Some(gradient) = store.remove(variable).map(Gradient::from) {
                *sum = Some(match sum.take() {
                    None => gradient,
                    Some(earlier) => earlier.plus(gradient)?,
                });
            }
        }
        Ok(())
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

fn gradients_of(before: &States, store: &mut GradStore) -> StateGradients {
    let gradient = |(path, state): (&str, &Tensor)| Some((path.to_owned(), store.remove(state)?.into()));
    before.iter().filter_map(gradient).collect()
}
