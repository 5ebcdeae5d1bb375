//! The layers of a segment of channel chunks.

use crate::checkpoint::leaves::Leaf;
use crate::checkpoint::norm_neurons::{lost, NormNeurons};
use crate::module::{ChannelLayer, WindowNorm};
use crate::{Error, Result};
use candle_core::Tensor;
use std::ops::Range;

/// Bytes of the output of a group that is recomputed at a time, where no number of groups is asked for.
const FITTING: usize = 24 << 20;

/// How many groups.
#[derive(Debug, Clone, Copy)]
pub(super) enum Groups {
    /// So many.
    Asked(usize),
    /// As many as keep one small.
    Fitting,
}

/// The layers of such a segment: F, a layer with weights, a norm, neurons.
pub(super) struct Sliced {
    pub(super) leaves: Vec<Leaf>,
    /// Which is the layer with weights; the norm follows it.
    pub(super) layer: usize,
    groups: Groups,
}

impl Sliced {
    pub(super) fn of(leaves: Vec<Leaf>, groups: Groups, segment: &str) -> Result<Self> {
        let wrong =
            |what: &str| Error::NotChannelChunkable { segment: segment.to_owned(), what: what.to_owned() };
        let layer = leaves
            .windows(2)
            .position(|pair| pair[0].channel_layer().is_some() && pair[1].window_norm().is_some())
            .ok_or_else(|| {
                wrong("it has no convolution of one group and no linear layer with a norm behind it")
            })?;
        let (with_weights, norm) = (&leaves[layer], &leaves[layer + 1]);
        for leaf in [with_weights, norm] {
            let slice =
                leaf.for_channels(0..1).map_err(|error| error.of_part(&format!("{segment}.{}", leaf.path())));
            if slice?.is_none() {
                return Err(wrong(&format!("`{}` cannot be run for some of its channels", leaf.path())));
            }
        }
        let channels = |leaf: &Leaf| {
            leaf.channel_layer().map(ChannelLayer::channels).or(leaf.window_norm().map(WindowNorm::channels))
        };
        if channels(with_weights) != channels(norm) {
            let (gives, takes) = (with_weights.path(), norm.path());
            return Err(wrong(&format!("`{gives}` gives another number of channels than `{takes}` takes")));
        }
        for leaf in &leaves[layer + 2..] {
            let mixes = leaf.channel_layer().is_some() || leaf.window_norm().is_some();
            if mixes || leaf.for_channels(0..1)?.is_none() {
                return Err(wrong(&format!("`{}` needs all channels at once", leaf.path())));
            }
        }
        if leaves[..layer].iter().any(|leaf| leaf.window_norm().is_some()) {
            return Err(wrong("it has several norms over the window; split in space first"));
        }
        Ok(Sliced { leaves, layer, groups })
    }

    /// Norm and neurons, if these are one layer that can be run on raw buffers.
    pub(super) fn norm_neurons(&self) -> Option<NormNeurons<'_>> {
        match self.leaves.get(self.layer + 1..)? {
            [norm, neurons] => NormNeurons::of(norm, neurons),
            _ => None,
        }
    }

    /// Whether channels will be where they are cut for this input, as far as it can be known before anything runs.
    pub(super) fn takes(&self, dims: &[usize]) -> bool {
        // What comes before may give other dimensions.
        let input = (self.layer == 0).then_some(dims);
        self.middle().is_some_and(|(_, layer, ..)| layer.gives_channels_third(input))
    }

    /// An error if channels are not where they are cut.
    pub(super) fn check_channels(&self, z: &Tensor, segment: &str) -> Result<()> {
        let (leaf, layer, ..) = self.middle().ok_or_else(lost)?;
        if layer.channels_are_third(z.dims()) {
            return Ok(());
        }
        let what =
            format!("`{}` gives {:?}, whose channels are not the third dimension", leaf.path(), z.dims());
        Err(Error::NotChannelChunkable { segment: segment.to_owned(), what })
    }

    pub(super) fn before(&self) -> &[Leaf] {
        &self.leaves[..self.layer]
    }

    /// The layer with weights, and the norm.
    pub(super) fn middle(&self) -> Option<(&Leaf, &dyn ChannelLayer, &Leaf, &dyn WindowNorm)> {
        let (layer, norm) = (self.leaves.get(self.layer)?, self.leaves.get(self.layer + 1)?);
        Some((layer, layer.channel_layer()?, norm, norm.window_norm()?))
    }

    /// The groups of channels of an output that takes so many bytes: as equal as can be, and begun where the layer's own
    /// groups begin.
    pub(super) fn ranges(&self, layer: &dyn ChannelLayer, bytes: usize) -> Vec<Range<usize>> {
        let (channels, group) = (layer.channels(), layer.group().max(1));
        let groups = channels.div_ceil(group);
        let wanted = match self.groups {
            Groups::Asked(groups) => groups,
            Groups::Fitting => bytes.div_ceil(FITTING),
        };
        let chunks = wanted.clamp(1, groups.max(1));
        let border = |i: usize| (i * groups / chunks * group).min(channels);
        (0..chunks).map(|i| border(i)..border(i + 1)).collect()
    }

    /// The layers from the one with weights on, for some channels, detached but for the neurons.
    pub(super) fn for_channels(&self, range: &Range<usize>) -> Result<Vec<Leaf>> {
        let sliced = self.leaves[self.layer..].iter().map(|leaf| leaf.for_channels(range.clone()));
        sliced.map(|leaf| leaf?.ok_or_else(lost)).collect()
    }
}
