//! The fastest plan that fits: exact, by dynamic programming over the split tree.
//!
//! Parts run one after the other, and what one takes at its own peak depends on the others only through the bytes that
//! they keep: so of two ways to come to a part, one that keeps no more and is no slower is enough. What each piece takes
//! by itself is found once ([`unit`]); a plan is a way through the tree, piece by piece.
//!
//! Plans that are searched: every part, at any depth, and every run of up to [`RUN`] parts of one chain, retained, computed
//! again, or in 2, 4, 8, ... time or channel chunks; no segment inside of another.

use super::cost::CostTable;
use super::locate::{chunked, compressor_of, key_of, locate};
use super::options::Options;
use super::outline::{Body, Node};
use super::simulate::{predict, unit, LossBytes, Unit};
use super::trace::Traced;
use crate::checkpoint::targets_of;
use crate::module::Checkpointable;
use crate::plan::{Keep, Plan, Segment};
use crate::Result;
use candle_core::TensorId;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Parts of one chain in one segment, at most.
const RUN: usize = 4;

/// What plans there are to choose from.
#[derive(Debug)]
pub(super) struct Choice<'a> {
    options: &'a Options,
    costs: &'a CostTable,
    /// The parts that segments may be made of, with what is inside of them; `None`: all.
    parts: Option<BTreeSet<String>>,
}

impl<'a> Choice<'a> {
    /// Segments of all parts.
    pub(super) fn of_all(options: &'a Options, costs: &'a CostTable) -> Self {
        Choice { options, costs, parts: None }
    }

    /// Segments of the targets that the options name, and inside of them; of all parts, if they name none.
    ///
    /// # Errors
    /// If the model does not have such targets.
    pub(super) fn of<M: Checkpointable>(
        model: &M,
        traced: &Traced,
        options: &'a Options,
        costs: &'a CostTable,
    ) -> Result<Self> {
        let Some(targets) = &options.targets else { return Ok(Self::of_all(options, costs)) };
        let targets = targets_of(model, Some(targets))?;
        let mut parts = BTreeSet::new();
        let located = targets.iter().filter_map(|key| locate(&traced.nodes, "", key));
        located.for_each(|nodes| paths_of(nodes, &mut parts));
        Ok(Choice { options, costs, parts: Some(parts) })
    }

    /// Whether a part may be in a segment.
    fn has(&self, node: &Node) -> bool {
        let Some(parts) = &self.parts else { return true };
        if let Body::Join { branches, .. } = &node.body {
            return branches.iter().flatten().all(|node| self.has(node));
        }
        let dots = node.path.match_indices('.').map(|(dot, _)| dot);
        let mut around = dots.chain([node.path.len()]).filter_map(|end| node.path.get(..end));
        around.any(|path| parts.contains(path))
    }

    /// The fastest plan whose step takes no more than `limit` bytes beyond what is there before it; `None`: there is none.
    pub(super) fn fastest_within(&self, traced: &Traced, limit: usize) -> Option<Plan> {
        let search = Search { choice: self, limit };
        let loss = LossBytes::of(traced);
        // The loss keeps the output.
        let around = Around { backward: loss.output, is_last: true, ..Around::default() };
        let flow = Flow { bytes: traced.input.bytes(), source: Source::Resident, tracked: false };
        let labels = search.chain(&traced.nodes, "", flow, vec![Label::default()], &around);
        let ends = loss.all();
        let mut gradients = Parameters::default();
        gradients.add(&traced.nodes);
        // When backward has been everywhere, the loss still keeps the output.
        let last = |label: &Label| loss.output + gradients.bytes + 2 * label.deferred;
        let fits = |label: &Label| label.held + ends <= limit && last(label) <= limit;
        let fitting = labels.into_iter().filter(fits);
        let best =
            fitting.min_by(|a, b| a.seconds.total_cmp(&b.seconds).then(a.segments.cmp(&b.segments)))?;
        Some(best.plan())
    }

    /// The smallest limit within which there is a plan, to a thousandth.
    pub(super) fn smallest_peak(&self, traced: &Traced) -> usize {
        let (mut low, mut high) = (0, predict(traced, &Plan::new(), self.costs).peak);
        // Where predictions and the search differ by a little, the search counts.
        while high < usize::MAX / 2 && self.fastest_within(traced, high).is_none() {
            (low, high) = (high, high + high / 64 + 1);
        }
        while high - low > (high / 1000).max(1) {
            let middle = low + (high - low) / 2;
            match self.fastest_within(traced, middle) {
                Some(_) => high = middle,
                None => low = middle,
            }
        }
        high
    }
}

/// The paths of parts; a join has none of its own.
fn paths_of(nodes: &[Node], paths: &mut BTreeSet<String>) {
    for node in nodes {
        match &node.body {
            Body::Join { branches, .. } => branches.iter().for_each(|branch| paths_of(branch, paths)),
            _ => {
                paths.insert(node.path.clone());
            }
        }
    }
}

/// A way to come to a place in the tree.
#[derive(Debug, Clone, Default)]
struct Label {
    /// Bytes that are kept.
    held: usize,
    seconds: f64,
    /// The largest gradient of a weight that is added to zeros at the end.
    deferred: usize,
    segments: usize,
    /// Which of the inputs of the joins around are kept as they are, each a bit.
    raw: u64,
    picks: Option<Rc<Pick>>,
}

/// A segment, and those before it.
#[derive(Debug)]
struct Pick {
    key: String,
    segment: Segment,
    before: Option<Rc<Pick>>,
}

impl Label {
    fn plan(&self) -> Plan {
        let mut plan = Plan::new();
        let mut picks = self.picks.clone();
        while let Some(pick) = picks {
            plan = plan.with(pick.key.clone(), pick.segment.clone());
            picks = pick.before.clone();
        }
        plan
    }
}

/// Whose buffer flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// It was there before the step.
    Resident,
    /// The input of a join around, by number.
    Fork(usize),
    /// That of the part before.
    Own,
}

/// What goes into a part.
#[derive(Debug, Clone, Copy)]
struct Flow {
    bytes: usize,
    source: Source,
    tracked: bool,
}

/// What is alive around a chain, whatever is done inside of it.
#[derive(Debug, Clone, Default)]
struct Around {
    /// Outputs of branches that are done.
    forward: usize,
    /// Gradients that wait for earlier branches, or are the sums of later ones.
    backward: usize,
    /// Parameters of the parts that come later, whose gradients are there in backward.
    later: Parameters,
    /// The inputs of the joins around, and whether they are still needed.
    forks: Vec<Fork>,
    /// Whether the gradient that comes in is the loss's.
    is_last: bool,
}

/// Parameters, each once, and what their gradients take.
#[derive(Debug, Clone, Default)]
struct Parameters {
    ids: BTreeSet<String>,
    bytes: usize,
}

impl Parameters {
    fn add(&mut self, nodes: &[Node]) {
        for &(id, bytes) in nodes.iter().flat_map(|node| &node.parameters) {
            if self.ids.insert(key(id)) {
                self.bytes += bytes;
            }
        }
    }
}

/// Candle's ids can be compared, but not ordered.
fn key(id: TensorId) -> String {
    format!("{id:?}")
}

#[derive(Debug, Clone, Copy)]
struct Fork {
    bytes: usize,
    is_needed: bool,
}

struct Search<'a> {
    choice: &'a Choice<'a>,
    limit: usize,
}

impl Search<'_> {
    /// All ways through a chain that are worth going on with.
    fn chain(
        &self,
        nodes: &[Node],
        parent: &str,
        flow: Flow,
        labels: Vec<Label>,
        around: &Around,
    ) -> Vec<Label> {
        let mut flows = vec![flow];
        for node in nodes {
            let before = flows.last().copied().unwrap_or(flow);
            let source = if node.is_view() { before.source } else { Source::Own };
            let tracked = before.tracked || !node.parameters.is_empty();
            flows.push(Flow { bytes: node.output.bytes(), source, tracked });
        }
        let mut at: Vec<Vec<Label>> = vec![Vec::new(); nodes.len() + 1];
        at[0] = labels;
        for index in 0..nodes.len() {
            let labels = frontier(std::mem::take(&mut at[index]));
            if labels.is_empty() {
                continue;
            }
            let (node, flow) = (&nodes[index], flows[index]);
            let mut behind = around.clone();
            behind.later.add(&nodes[index + 1..]);
            behind.is_last &= index + 1 == nodes.len();
            let on = self.part(node, parent, flow, labels.clone(), &behind);
            at[index + 1].extend(on);
            for end in index + 1..=nodes.len().min(index + RUN) {
                let run = &nodes[index..end];
                let is_choice =
                    !run.iter().all(Node::is_view) && run.iter().all(|node| self.choice.has(node));
                let Some(key) = key_of(run).filter(|_| is_choice) else { continue };
                let mut behind = around.clone();
                behind.later.add(&nodes[end..]);
                behind.is_last &= end == nodes.len();
                for keep in ways(run) {
                    let segment =
                        Segment { keep, compressor: compressor_of(self.choice.options, &key, node) };
                    let plan = Plan::new().with(key.clone(), segment.clone());
                    let place = (parent, flow.tracked, behind.is_last);
                    let unit = unit(run, place, &plan, self.choice.costs);
                    let pick = Some((key.as_str(), &segment));
                    let trained = flow.tracked || run.iter().any(|node| !node.parameters.is_empty());
                    let all = labels
                        .iter()
                        .filter_map(|label| self.apply(label, unit, flow, trained, &behind, pick));
                    at[end].extend(all);
                }
            }
        }
        frontier(at.pop().unwrap_or_default())
    }

    /// A part that is no segment.
    fn part(&self, node: &Node, parent: &str, flow: Flow, labels: Vec<Label>, around: &Around) -> Vec<Label> {
        match &node.body {
            Body::Chain(inside) => self.chain(inside, &node.path, flow, labels, around),
            Body::Join { branches, .. } => self.join(node, branches, flow, labels, around),
            Body::Layer { .. } if node.is_view() => labels,
            Body::Layer { .. } => {
                let place = (parent, flow.tracked, around.is_last);
                let unit = unit(std::slice::from_ref(node), place, &Plan::new(), self.choice.costs);
                let trained = flow.tracked || !node.parameters.is_empty();
                labels
                    .iter()
                    .filter_map(|label| self.apply(label, unit, flow, trained, around, None))
                    .collect()
            }
        }
    }

    /// Goes on with a piece, if that fits.
    fn apply(
        &self,
        label: &Label,
        unit: Unit,
        flow: Flow,
        trained: bool,
        around: &Around,
        pick: Option<(&str, &Segment)>,
    ) -> Option<Label> {
        let is_raw = |fork: usize| label.raw >> fork & 1 == 1;
        // The input is counted with the unit, unless it is kept or there already.
        let is_counted = match flow.source {
            Source::Resident => false,
            Source::Fork(fork) => !is_raw(fork),
            Source::Own => true,
        };
        let counted = if is_counted { 0 } else { flow.bytes };
        let others = around
            .forks
            .iter()
            .enumerate()
            .filter(|(fork, of)| of.is_needed && !is_raw(*fork) && flow.source != Source::Fork(*fork));
        let in_flight: usize = others.map(|(_, fork)| fork.bytes).sum();
        if label.held + around.forward + in_flight + unit.forward - counted.min(unit.forward) > self.limit {
            return None;
        }
        let kept = if unit.keeps_input { counted } else { 0 };
        if trained {
            let backward = unit.backward - kept.min(unit.backward);
            if label.held + around.backward + around.later.bytes + backward > self.limit {
                return None;
            }
        }
        let mut next = label.clone();
        if trained {
            next.held += unit.held;
            if unit.keeps_input {
                next.held += flow.bytes - counted;
                if let Source::Fork(fork) = flow.source {
                    next.raw |= 1 << fork;
                }
            }
        }
        next.seconds += unit.seconds;
        next.deferred = next.deferred.max(unit.deferred);
        if let Some((key, segment)) = pick {
            next.segments += 1;
            next.picks =
                Some(Rc::new(Pick { key: key.to_owned(), segment: segment.clone(), before: next.picks }));
        }
        Some(next)
    }

    fn join(
        &self,
        node: &Node,
        branches: &[Vec<Node>],
        flow: Flow,
        mut labels: Vec<Label>,
        around: &Around,
    ) -> Vec<Label> {
        let Body::Join { footprint, keeps_outputs, .. } = &node.body else { return labels };
        let mut inside = Around { is_last: false, ..around.clone() };
        let (source, own) = match flow.source {
            Source::Own if inside.forks.len() < 64 => {
                inside.forks.push(Fork { bytes: flow.bytes, is_needed: true });
                (Source::Fork(inside.forks.len() - 1), true)
            }
            other => (other, false),
        };
        let is_view = |branch: &Vec<Node>| branch.iter().all(Node::is_view);
        let output = |branch: &Vec<Node>| {
            if is_view(branch) {
                0
            } else {
                branch.last().map_or(0, |n| n.output.bytes())
            }
        };
        let trained =
            |branch: &Vec<Node>| flow.tracked || branch.iter().any(|node| !node.parameters.is_empty());
        let any_view = branches.iter().any(is_view);
        for (index, branch) in branches.iter().enumerate() {
            if is_view(branch) {
                continue;
            }
            let (before, after) = (&branches[..index], &branches[index + 1..]);
            let mut here = inside.clone();
            here.forward += before.iter().map(output).sum::<usize>();
            here.backward += before.iter().filter(|b| trained(b)).map(output).sum::<usize>();
            if flow.tracked && (any_view || after.iter().any(|b| !is_view(b))) {
                here.backward += flow.bytes;
            }
            after.iter().for_each(|branch| here.later.add(branch));
            if let Source::Fork(fork) = source {
                let needed = !after.is_empty() || before.iter().any(is_view);
                if let (Some(fork), true) = (here.forks.get_mut(fork), own) {
                    fork.is_needed = needed;
                }
            }
            labels = self.chain(branch, &node.path, Flow { source, ..flow }, labels, &here);
        }
        let outputs: usize = branches.iter().map(output).sum();
        let count = branches.iter().filter(|branch| trained(branch)).count();
        let kept = if *keeps_outputs { outputs } else { 0 };
        let copies = if *keeps_outputs { count } else { count.saturating_sub(1) };
        let size = node.output.bytes();
        let costs = self.choice.costs;
        let seconds = costs.seconds(footprint.forward) + costs.seconds(footprint.backward);
        let join = |mut label: Label| {
            let is_raw = |fork: usize| label.raw >> fork & 1 == 1;
            let x = match source {
                Source::Fork(fork) if any_view && !is_raw(fork) => flow.bytes,
                _ => 0,
            };
            let others = around.forks.iter().enumerate().filter(|(fork, of)| of.is_needed && !is_raw(*fork));
            let in_flight: usize = others.map(|(_, fork)| fork.bytes).sum();
            let forward =
                label.held + around.forward + in_flight + x + outputs + size + footprint.forward.scratch;
            let backward = label.held
                + around.backward
                + around.later.bytes
                + kept
                + size * (1 + copies.max(usize::from(around.is_last)))
                + footprint.backward.scratch;
            if forward > self.limit || (count > 0 && backward > self.limit) {
                return None;
            }
            if count > 0 {
                label.held += kept;
                if *keeps_outputs && any_view {
                    label.held += x;
                }
            }
            label.seconds += seconds;
            if own {
                label.raw &= !(1 << (inside.forks.len() - 1));
            }
            Some(label)
        };
        labels.into_iter().filter_map(join).collect()
    }
}

/// The ways in which a run of parts can be a segment.
pub(super) fn ways(run: &[Node]) -> Vec<Keep> {
    let mut ways = vec![Keep::Recompute];
    let mut last = vec![Keep::Recompute];
    let channels = run.iter().filter_map(|node| node.output.dims.get(2)).max().copied().unwrap_or(1);
    let is_some = |keep: &Keep| !matches!(keep, Keep::ChannelChunks(chunks) if *chunks > channels.max(2));
    // As long as there are more chunks to be had.
    for _ in 0..8 {
        let next = last.iter().flat_map(|&keep| chunked(keep, 2, run)).filter(is_some);
        last = next.fold(Vec::new(), |mut last, keep| {
            if !ways.contains(&keep) && !last.contains(&keep) {
                last.push(keep);
            }
            last
        });
        if last.is_empty() {
            break;
        }
        ways.extend(&last);
    }
    ways
}

/// Those ways that no other is as good as.
fn frontier(mut labels: Vec<Label>) -> Vec<Label> {
    labels.sort_by(|a, b| {
        let by_size = a.held.cmp(&b.held).then(a.seconds.total_cmp(&b.seconds));
        by_size.then(a.segments.cmp(&b.segments))
    });
    let mut best: Vec<Label> = Vec::new();
    for label in labels {
        let is_as_good = |other: &Label| {
            other.raw == label.raw && other.seconds <= label.seconds && other.deferred <= label.deferred
        };
        let is_worse = best.iter().rev().any(is_as_good);
        if !is_worse {
            best.push(label);
        }
    }
    best
}
