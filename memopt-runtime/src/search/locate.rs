//! Segments of a plan in the split tree, and what can be made of them.

use super::options::Options;
use super::outline::{Body, Node};
use crate::checkpoint::check_keep;
use crate::module::Step;
use crate::path::joined;
use crate::plan::{Compressor, Keep, Plan, Segment};

/// The nodes that a plan's key names.
pub(super) fn locate<'n>(nodes: &'n [Node], parent: &str, key: &str) -> Option<&'n [Node]> {
    let at = |path: &str| {
        nodes.iter().position(|node| node.name().is_some_and(|name| joined(parent, name) == path))
    };
    let named = |last: &str| nodes.iter().position(|node| node.name() == Some(last));
    let range = match key.split_once("..") {
        None => at(key).map(|first| first..first + 1),
        Some((first, last)) => at(first).zip(named(last)).map(|(first, last)| first..last + 1),
    };
    if let Some(range) = range {
        return nodes.get(range);
    }
    nodes.iter().find_map(|node| match &node.body {
        Body::Chain(inside) => locate(inside, &node.path, key),
        Body::Join { branches, .. } => branches.iter().find_map(|branch| locate(branch, &node.path, key)),
        Body::Layer { .. } => None,
    })
}

/// The key of consecutive nodes, if they begin and end with parts.
pub(super) fn key_of(nodes: &[Node]) -> Option<String> {
    match nodes {
        [] => None,
        [only] => only.name().map(|_| only.path.clone()),
        [first, .., last] => {
            Some(format!("{}..{}", first.name().map(|_| first.path.as_str())?, last.name()?))
        }
    }
}

/// The plan in which a segment is cut by its split rule; `None`: it cannot be split in space. The first part has the segment's
/// compressor, unless the options say one for it.
pub(super) fn split_in_space(plan: &Plan, key: &str, nodes: &[Node], options: &Options) -> Option<Plan> {
    let segment = plan.segments().find(|(path, _)| *path == key).map(|(_, segment)| segment.clone())?;
    let parts = parts_of(nodes)?;
    let mut plan = plan.clone().without(key);
    for (index, part) in parts.iter().enumerate() {
        let compressor = match index {
            0 if !options.compressors.contains_key(&part.path) => segment.compressor.clone(),
            _ => compressor_of(options, &part.path, part),
        };
        plan = plan.with(part.path.clone(), Segment { keep: Keep::Recompute, compressor });
    }
    Some(plan)
}

/// The parts that a segment's nodes are split into.
fn parts_of(nodes: &[Node]) -> Option<Vec<&Node>> {
    if let [only] = nodes {
        return match &only.body {
            Body::Chain(inside) => parts_of(inside),
            Body::Join { branches, .. } => Some(parts_in(branches.iter().flatten())),
            Body::Layer { .. } => None,
        };
    }
    let parts = parts_in(nodes.iter());
    (parts.len() > 1).then_some(parts)
}

fn parts_in<'n>(nodes: impl Iterator<Item = &'n Node>) -> Vec<&'n Node> {
    let mut parts = Vec::new();
    for node in nodes.filter(|node| !node.is_view()) {
        match &node.body {
            Body::Join { branches, .. } => parts.extend(parts_in(branches.iter().flatten())),
            _ => parts.push(node),
        }
    }
    parts
}

/// The compressor of a segment's input, in a plan: said by the options, `None` if the model declares one, else found.
pub(super) fn compressor_of(options: &Options, key: &str, first: &Node) -> Option<Compressor> {
    match options.compressors.get(key) {
        Some(named) => Some(named.clone()),
        None if !options.compress => Some(Compressor::Null),
        None => found(first),
    }
}

/// The compressor for the input of a segment that begins with this part: the declared one, else the smallest exact one
/// for what was seen.
pub(super) fn found(node: &Node) -> Option<Compressor> {
    if let Step::Part { compressor: Some(_), .. } = &node.step {
        return None;
    }
    Some(match node.packing.encoding.as_str() {
        "bit" => Compressor::Bit,
        "byte" => Compressor::Byte,
        "sparse" => Compressor::Sparse,
        _ => Compressor::Null,
    })
}

/// The ways to run a segment in more chunks than now.
pub(super) fn chunked(keep: Keep, factor: usize, nodes: &[Node]) -> Vec<Keep> {
    let window = nodes.first().and_then(|node| node.input.dims.first().copied()).unwrap_or(1);
    let steps: Vec<Step> = nodes.iter().map(|node| node.step.clone()).collect();
    let time = |chunks: usize| (chunks > 1).then_some(Keep::TimeChunks(chunks.min(window)));
    let channels = |chunks: usize| Some(Keep::ChannelChunks(chunks));
    let wanted = match keep {
        Keep::TimeChunks(chunks) if chunks >= window => vec![],
        Keep::TimeChunks(chunks) => vec![time(chunks.saturating_mul(factor))],
        Keep::ChannelChunks(chunks) => vec![channels(chunks.saturating_mul(factor))],
        // As a whole, a large block runs in some groups of channels already.
        _ => vec![time(factor.min(window)), channels(factor), channels(factor.saturating_mul(factor))],
    };
    let possible = |keep: &Keep| check_keep(&steps, "", *keep).is_ok();
    wanted.into_iter().flatten().filter(possible).collect()
}
