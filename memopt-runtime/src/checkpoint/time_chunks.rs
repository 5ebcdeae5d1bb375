//! Segments that are recomputed and gone back through in time chunks, exactly.
//!
//! Layers A, then at most one norm over the window, then layers B. Forward, first chunk first: A; the norm's statistics
//! over the window; the norm and B. Backward, last chunk first: A, the norm with the statistics of the first pass, B and
//! back through B; the gradient at the norm's output takes the place of the chunk of the incoming gradient, and its two
//! sums are added up. Then again: A, back through the norm with the sums of the window, back through A.
//!
//! Neurons go on from chunk to chunk: the states at the borders are kept, and gradients go back through them. Weights are
//! added up in buffers that the chunks share. So every sum is the same sequence of additions as over the whole window.

use super::leaves::{leaves_of, run_leaves, Leaf};
use super::options::Options;
use super::replay::{in_chunks, in_recompute, Chunks};
use super::segment::Segment;
use super::window::WindowBuffer;
use crate::autograd::{backward_from, Gradient};
use crate::module::{Context, NormStatistics, NormSums, Signal, States, Step, WindowNorm};
use crate::storage::checksum;
use crate::{Error, Result};
use candle_core::{Tensor, Var};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// Runs steps as segments of `chunks` time chunks each, with one norm over the window at most in each.
pub(super) fn in_time_chunks(
    steps: &[Step],
    chunks: usize,
    options: Options,
    x: Signal,
    context: &mut Context,
) -> Result<Signal> {
    let path = options.segment.clone();
    // A view that repeats elements has a gradient for each of them here.
    let mut x = x.into_dense(&path)?.contiguous()?;
    let leaves = leaves_of(steps);
    let training = context.is_training();
    for leaf in &leaves {
        let is_norm = leaf.window_norm().is_some();
        if !(leaf.is_time_chunkable() || is_norm) {
            return Err(Error::NotTimeChunkable { segment: path, part: leaf.path() });
        }
    }
    let pieces = one_norm_each(&leaves, training);
    let several = pieces.len() > 1;
    for (index, piece) in pieces.into_iter().enumerate() {
        let options = match (several, index) {
            (false, _) => options.clone(),
            (true, 0) => options.clone().renamed(format!("{path}[0]")),
            (true, index) => Options::new(format!("{path}[{index}]")),
        };
        x = run(Chunked::new(leaves[piece].to_vec(), chunks, training), options, x, context)?;
    }
    Ok(x.into())
}

/// Cuts layers before the layer in front of each norm but the first.
fn one_norm_each(leaves: &[Leaf], training: bool) -> Vec<Range<usize>> {
    let norms: Vec<usize> =
        (0..leaves.len()).filter(|&i| training && leaves[i].window_norm().is_some()).collect();
    let mut borders = vec![0];
    for pair in norms.windows(2) {
        borders.push((pair[1] - 1).max(pair[0] + 1));
    }
    borders.push(leaves.len());
    borders.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// The layers of one segment: A, a norm, B.
#[derive(Clone)]
struct Chunked {
    leaves: Vec<Leaf>,
    /// Which of them is a norm over the window, in training.
    norm: Option<usize>,
    chunks: usize,
}

impl Chunked {
    fn new(leaves: Vec<Leaf>, chunks: usize, training: bool) -> Self {
        let norm = leaves.iter().position(|leaf| training && leaf.window_norm().is_some());
        Chunked { leaves, norm, chunks }
    }

    fn before(&self) -> &[Leaf] {
        &self.leaves[..self.norm.unwrap_or(0)]
    }

    fn after(&self) -> &[Leaf] {
        &self.leaves[self.norm.map_or(0, |norm| norm + 1)..]
    }

    fn norm(&self) -> Option<(&Leaf, &dyn WindowNorm)> {
        let leaf = self.leaves.get(self.norm?)?;
        leaf.window_norm().map(|norm| (leaf, norm))
    }

    fn detached(&self) -> Self {
        Chunked { leaves: self.leaves.iter().map(Leaf::detached).collect(), ..self.clone() }
    }

    /// The time steps of each chunk: as equal as can be; no more chunks than steps.
    fn ranges(&self, steps: usize) -> Vec<Range<usize>> {
        let chunks = self.chunks.clamp(1, steps.max(1));
        (0..chunks).map(|i| i * steps / chunks..(i + 1) * steps / chunks).collect()
    }
}

/// The states of a stage's neurons before each chunk.
type Borders = Vec<States>;

/// What a first pass leaves for the way back.
#[derive(Default)]
struct Ran {
    /// Of the layers before the norm.
    before: Borders,
    /// Of those behind it, or of all if there is none.
    after: Borders,
    /// Checksums of the output of each chunk, if the recompute is verified.
    outputs: Option<Vec<u64>>,
}

fn run(chunked: Chunked, options: Options, x: Tensor, context: &mut Context) -> Result<Tensor> {
    let name = options.segment.clone();
    let segment = Segment::new(&[&x], options)?;
    drop(x);
    let (first, record) = context.first_pass();
    let mut left = Ran::default();
    let verify = segment.verifies();
    let twin = chunked.detached();
    let mut ran = segment.run(|x| -> candle_core::Result<Tensor> {
        let (y, ran) = first_pass(&twin, &x[0], &first, context, verify)?;
        left = ran;
        Ok(y)
    })?;
    segment.adopt(&mut ran, chunked.leaves.iter().flat_map(Leaf::parameters), context)?;
    let again = context.recompute(record, ran.weights.accumulators());
    let backward = Backward { chunked, ran: left, context: again, name };
    segment.seal_with(ran, move |kept, gradients| in_chunks(kept, gradients, |chunks| backward.back(chunks)))
}

/// The output over the window, and the states at the borders.
fn first_pass(
    chunked: &Chunked,
    x: &Tensor,
    first: &Context,
    outer: &Context,
    verify: bool,
) -> Result<(Tensor, Ran)> {
    let steps = x.dim(0)?;
    let ranges = chunked.ranges(steps);
    let states = Arc::new(Mutex::new(first.states_to_begin_with()));
    let stage = |leaves: &[Leaf], input: &mut dyn FnMut(Range<usize>) -> Result<Tensor>| {
        let mut output: Option<WindowBuffer> = None;
        let mut borders = Borders::new();
        for range in &ranges {
            borders.push(states.lock().clone());
            let mut context = first.chunk(range.start, states.clone());
            let y = run_leaves(leaves, input(range.clone())?, &mut context)?;
            check_steps(&y, range, outer)?;
            match &mut output {
                Some(output) => output.push(&y)?,
                None => output.insert(WindowBuffer::like(&y, steps)?).push(&y)?,
            }
        }
        // The stage's own neurons are those that left another state.
        let after = states.lock().clone();
        if let Some(before) = borders.first().cloned() {
            borders.iter_mut().for_each(|border| border.retain_changed(&before, &after));
        }
        Ok::<_, Error>((output.ok_or_else(|| no_steps(outer))?.into_tensor(), borders))
    };
    let mut ran = Ran::default();
    let y = match chunked.norm() {
        None => {
            let (y, borders) = stage(chunked.after(), &mut |range| chunk(x, range))?;
            ran.after = borders;
            y
        }
        Some((leaf, norm)) => {
            let (z, borders) = stage(chunked.before(), &mut |range| chunk(x, range))?;
            ran.before = borders;
            let mut at_norm = first.clone();
            let (statistics, is_first) = leaf.at(&mut at_norm, |context| {
                let path = context.path();
                context.statistics(|| {
                    let mut statistics = norm.no_statistics();
                    for range in &ranges {
                        norm.add_statistics(&mut statistics, &chunk(&z, range.clone())?)?;
                    }
                    norm.check_statistics(path, &statistics)?;
                    Ok(statistics)
                })
            })?;
            if is_first {
                let (leaf, statistics) = (leaf.clone(), statistics.clone());
                outer
                    .when_done(move || leaf.window_norm().map_or(Ok(()), |n| n.move_running(&statistics)))?;
            }
            let mut input = |range| normalized(norm, &chunk(&z, range)?, &statistics);
            let (y, borders) = stage(chunked.after(), &mut input)?;
            ran.after = borders;
            y
        }
    };
    if verify {
        let of_chunk = |range: &Range<usize>| Ok(checksum(&chunk(&y, range.clone())?)?);
        ran.outputs = Some(ranges.iter().map(of_chunk).collect::<Result<_>>()?);
    }
    if let Some(carried) = outer.carried_states() {
        carried.lock().extend(&states.lock());
    }
    Ok((y, ran))
}

/// Whether a chunk has as many time steps as went in.
fn check_steps(y: &Tensor, range: &Range<usize>, context: &Context) -> Result<()> {
    match y.dims().first() == Some(&range.len()) {
        true => Ok(()),
        false => Err(Error::LayerInput {
            part: context.path().to_owned(),
            what: format!(
                "a time chunk of {} steps gave {:?}; recompute it as a whole",
                range.len(),
                y.shape()
            ),
        }),
    }
}

/// Some time steps of a window; a view.
fn chunk(x: &Tensor, range: Range<usize>) -> Result<Tensor> {
    Ok(x.narrow(0, range.start, range.len())?.contiguous()?)
}

fn normalized(norm: &dyn WindowNorm, z: &Tensor, statistics: &NormStatistics) -> Result<Tensor> {
    let copy = Gradient::from(z.clone()).into_storage()?;
    Ok(crate::storage::into_tensor(norm.normalize(copy, z.dims(), statistics)?, z.shape(), false))
}

fn no_steps(context: &Context) -> Error {
    Error::LayerInput { part: context.path().to_owned(), what: "a window has one time step at least".into() }
}

/// The recompute and the way back.
struct Backward {
    chunked: Chunked,
    ran: Ran,
    context: Context,
    name: String,
}

/// The gradients of the states after a chunk, by the neuron's path.
type StateGradients = Vec<(String, Gradient)>;

impl Backward {
    /// The gradient of the input, and those of variables that the layers did not add up themselves.
    fn back(&self, chunks: Chunks<'_>) -> Result<(Option<Gradient>, Vec<Option<Gradient>>)> {
        let Chunks { x, gradient, is_tracked, variables } = chunks;
        let ranges = self.chunked.ranges(x.dim(0)?);
        let mut foreign: Vec<Option<Gradient>> = variables.iter().map(|_| None).collect();
        let shape = gradient.shape().clone();
        let mut window = WindowBuffer::new(gradient.into_storage()?, &shape);

        let (mut sums, mut statistics) = (None, None);
        if let Some((leaf, norm)) = self.chunked.norm() {
            let mut at_norm = self.context.clone();
            let of_window = leaf.at(&mut at_norm, |context| context.recorded_statistics())?;
            let (at_output, of_norm) =
                self.through_norm(&x, window, norm, &of_window, &ranges, &mut foreign, variables)?;
            window = at_output;
            leaf.add_norm_gradients(norm, &of_norm, &mut at_norm)?;
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
                return Err(no_steps(&self.context));
            };
            let mut untracked = self.context.chunk(range.start, Arc::new(Mutex::new(border.clone())));
            let z = run_leaves(twin.before(), chunk(x, range.clone())?, &mut untracked)?.contiguous()?;
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
        check_steps(&y, range, &self.context)?;
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
