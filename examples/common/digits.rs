//! The images that several examples train on.

use candle_core::{Device, Result, Tensor};

/// 1,797 images `[1, 8, 8]` in 0..1, and their labels.
pub struct Digits {
    images: Vec<f32>,
    labels: Vec<u32>,
}

impl Digits {
    /// The images that smartcore embeds.
    pub fn load() -> Self {
        let data = smartcore::dataset::digits::load_dataset();
        Digits {
            images: data.data.iter().map(|v| v / 16.).collect(),
            labels: data.target.iter().map(|v| *v as u32).collect(),
        }
    }

    /// Number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Every fifth image is held out; the others are trained on.
    pub fn split(&self) -> (Vec<usize>, Vec<usize>) {
        (0..self.len()).partition(|i| i % 5 == 0)
    }

    /// Some of the images, each shown for `time_steps` steps: `[T, N, 1, 8, 8]`; and their labels, `[N]`.
    pub fn select(&self, which: &[usize], time_steps: u16) -> Result<(Tensor, Tensor)> {
        let pixels: Vec<f32> =
            which.iter().flat_map(|&i| self.images[64 * i..64 * (i + 1)].to_vec()).collect();
        let images = Tensor::from_vec(pixels, (1, which.len(), 1, 8, 8), &Device::Cpu)?;
        let shown = images.repeat((usize::from(time_steps), 1, 1, 1, 1))?;
        let labels: Vec<u32> = which.iter().map(|&i| self.labels[i]).collect();
        Ok((shown, Tensor::new(labels, &Device::Cpu)?))
    }
}
