//! Sizes of a convolution of one image.

use super::config::ConvConfig;
use crate::nn::product::packed;
use std::ops::Range;

/// Elements of the unfolded image that exist at a time, where one row of the output does not need more.
const BAND: usize = 1 << 16;
/// Output channels of one weight gradient product, at most: every product unfolds its input channels again.
const WEIGHT_ROWS: usize = 512;
/// The same, at least, where there are as many.
const WEIGHT_ROWS_LEAST: usize = 64;
/// Tasks of the weight gradient that are aimed at. Fixed, because the bits of a product depend on its size.
const WEIGHT_TASKS: usize = 8;
/// Columns of one weight gradient product, about.
const WEIGHT_COLUMNS: usize = 144;

/// Elements of an image's output, and of one of its rows unfolded, at most: more would not fit anyway, and products of sizes
/// below do not overflow.
const LARGEST: usize = 1 << 40;

/// Sizes of a convolution of one image `[C, H, W]`; nothing here depends on the number of images or time steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    pub groups: usize,
    /// Input channels of a group.
    pub inputs: usize,
    /// Output channels of a group.
    pub outputs: usize,
    pub from: [usize; 2],
    pub kernel: [usize; 2],
    pub to: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
    pub dilation: [usize; 2],
}

/// One task of the weight gradient.
pub(super) struct WeightBlock {
    /// Output channels.
    pub outputs: Range<usize>,
    /// Input channels.
    pub inputs: Range<usize>,
}

impl Geometry {
    /// The sizes for images of `channels` times `size` and a weight `[out, channels / groups, ...kernel]`, or what is
    /// wrong. One dimension is the second of two.
    pub fn new<const D: usize>(
        config: &ConvConfig<D>,
        weight: &[usize],
        channels: usize,
        size: &[usize],
    ) -> Result<Self, String> {
        let wide = |sizes: &[usize], missing: usize| match *sizes {
            [x] => Some([missing, x]),
            [y, x] => Some([y, x]),
            _ => None,
        };
        let [out, inputs, ref kernel @ ..] = *weight else {
            return Err(format!("a weight [out, in / groups, kernel] expected, {weight:?} given"));
        };
        let (Some(kernel), Some(from), Some(stride), Some(padding), Some(dilation)) = (
            wide(kernel, 1),
            wide(size, 1),
            wide(&config.stride, 1),
            wide(&config.padding, 0),
            wide(&config.dilation, 1),
        ) else {
            return Err(format!("convolutions go over one or two dimensions, not {D}"));
        };
        let groups = config.groups;
        if out == 0 || inputs == 0 {
            return Err(format!("a weight of shape {weight:?} has no channels"));
        }
        if groups == 0 || !out.is_multiple_of(groups) {
            return Err(format!("{groups} groups do not divide a weight of shape {weight:?}"));
        }
        if channels != groups * inputs {
            return Err(format!("{} channels expected, {channels} given", groups * inputs));
        }
        for (name, sizes) in [("kernel", kernel), ("stride", stride), ("dilation", dilation)] {
            if sizes.contains(&0) {
                return Err(format!("{name} must be at least 1"));
            }
        }
        let mut to = [0; 2];
        for axis in 0..2 {
            let (kernel, dilation, padding) = (kernel[axis], dilation[axis], padding[axis]);
            let padded = padding.checked_mul(2).and_then(|both| both.checked_add(from[axis]));
            let padded = padded.ok_or_else(|| format!("a padding of {padding} is too large"))?;
            let reach = dilation.checked_mul(kernel - 1).and_then(|reach| reach.checked_add(1));
            let reach = reach
                .ok_or_else(|| format!("a dilation of {dilation} is too large for a kernel of {kernel}"))?;
            if from[axis] == 0 || reach > padded {
                let spans = format!("a kernel of {kernel} that spans {reach} (dilation {dilation})");
                return Err(format!(
                    "images of {size:?} with a padding of {padding} are too small for {spans}"
                ));
            }
            to[axis] = (padded - reach) / stride[axis] + 1;
        }
        let outputs = out / groups;
        let product = |sizes: &[usize]| sizes.iter().try_fold(1usize, |all, &size| all.checked_mul(size));
        let image = product(&[out, to[0], to[1]]);
        let unfolded = product(&[inputs, kernel[0], kernel[1], to[1]]);
        if [image, unfolded].iter().any(|size| size.is_none_or(|size| size > LARGEST)) {
            let padding = &padding[2 - D..];
            return Err(format!("a padding of {padding:?} makes outputs of {:?}: too large", &to[2 - D..]));
        }
        Ok(Geometry { groups, inputs, outputs, from, kernel, to, stride, padding, dilation })
    }

    /// Elements of an input plane.
    pub fn input_plane(&self) -> usize {
        self.from[0] * self.from[1]
    }

    /// Elements of an output plane.
    pub fn output_plane(&self) -> usize {
        self.to[0] * self.to[1]
    }

    /// Elements of an input image.
    pub fn input_image(&self) -> usize {
        self.groups * self.inputs * self.input_plane()
    }

    /// Elements of an output image.
    pub fn output_image(&self) -> usize {
        self.groups * self.outputs * self.output_plane()
    }

    /// Multiplications of an image's product; the largest number if there are more.
    pub fn work(&self) -> usize {
        self.output_image().saturating_mul(self.inputs).saturating_mul(self.area())
    }

    /// Elements of the kernel over one channel.
    pub fn area(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Whether the unfolded image is the image itself.
    pub fn is_pointwise(&self) -> bool {
        self.kernel == [1, 1] && self.stride == [1, 1] && self.padding == [0, 0]
    }

    /// Whether the kernel is 3x3 and goes over every pixel, once for all channels, with no more than its own reach of padding.
    pub fn is_plain_3x3(&self) -> bool {
        self.kernel == [3, 3]
            && self.groups == 1
            && (self.stride, self.dilation) == ([1, 1], [1, 1])
            && self.padding.iter().all(|&padding| padding <= 2)
    }

    /// Bands of output rows for which `channels` are unfolded at a time.
    pub fn bands(&self, channels: usize) -> impl Iterator<Item = Range<usize>> {
        let rows = self.to[0];
        let band = (BAND / (channels * self.area() * self.to[1])).clamp(1, rows);
        (0..rows).step_by(band).map(move |start| start..(start + band).min(rows))
    }

    /// The tasks of the weight gradient.
    pub fn weight_blocks(&self) -> Vec<WeightBlock> {
        let width = (WEIGHT_COLUMNS / self.area()).clamp(1, self.inputs);
        let across = self.groups * self.inputs.div_ceil(width);
        let mut height = WEIGHT_ROWS;
        while height > WEIGHT_ROWS_LEAST && across * self.outputs.div_ceil(height) < WEIGHT_TASKS {
            height /= 2;
        }
        let split = |range: Range<usize>, step: usize| {
            let end = range.end;
            range.step_by(step).map(move |start| start..(start + step).min(end))
        };
        let mut blocks = Vec::new();
        for group in 0..self.groups {
            for outputs in split(group * self.outputs..(group + 1) * self.outputs, height) {
                for inputs in split(group * self.inputs..(group + 1) * self.inputs, width) {
                    blocks.push(WeightBlock { outputs: outputs.clone(), inputs });
                }
            }
        }
        blocks
    }

    /// Elements of the buffers of a thread that makes the gradient of the weight by products.
    pub fn weight_gradient_scratch(&self) -> usize {
        let Some(block) = self.weight_blocks().into_iter().next() else { return 0 };
        let (inputs, outputs) = (block.inputs.len(), block.outputs.len());
        let band = self.bands(inputs).next().map_or(0, |rows| rows.len());
        let (pixels, columns) = (band * self.to[1], inputs * self.area());
        let unfolded = if self.is_pointwise() { 0 } else { pixels };
        columns * (unfolded + outputs) + packed((outputs, columns, pixels), [true, false])
    }

    /// Rows, columns and depth of a product for the gradient of the input.
    pub fn input_gradient_product(&self) -> (usize, usize, usize) {
        let band = self.bands(self.inputs).next().map_or(0, |rows| rows.len());
        (self.inputs * self.area(), band * self.to[1], self.outputs)
    }

    /// The input row under kernel row `ky` at output row `y`, if it is not padding.
    pub fn source_row(&self, y: usize, ky: usize) -> Option<usize> {
        let row = (y * self.stride[0] + ky * self.dilation[0]).checked_sub(self.padding[0])?;
        (row < self.from[0]).then_some(row)
    }

    /// The output columns over which kernel column `kx` is not over padding, and the input column of the first.
    pub fn source_columns(&self, kx: usize) -> (Range<usize>, usize) {
        let (offset, stride, padding) = (kx * self.dilation[1], self.stride[1], self.padding[1]);
        let first = padding.saturating_sub(offset).div_ceil(stride).min(self.to[1]);
        let end = (self.from[1] + padding).saturating_sub(offset).div_ceil(stride).clamp(first, self.to[1]);
        // Where no output column sees the image, the first is not used.
        (first..end, first.saturating_mul(stride).saturating_add(offset).saturating_sub(padding))
    }

    /// Distance of the input columns of two neighbouring output columns.
    pub fn column_step(&self) -> usize {
        self.stride[1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_beyond_all_numbers_is_the_largest() {
        let config = ConvConfig::<2>::default();
        let geometry =
            |size: [usize; 2]| Geometry::new(&config, &[1 << 10, 1 << 12, 3, 3], 1 << 12, &size).unwrap();
        assert_eq!(geometry([4, 5]).work(), (1 << 22) * 2 * 3 * 9);
        let largest = Geometry { outputs: 1 << 30, inputs: 1 << 40, ..geometry([4, 5]) };
        assert_eq!(largest.work(), usize::MAX);
    }
}
