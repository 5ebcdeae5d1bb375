//! Losses over the window of a classifier's outputs.
//!
//! `outputs` are `[T, N, classes]` (spikes or potentials), `labels` are `[N]`, integers below the number of classes. Each
//! gives a scalar. Outputs in bf16 or f16 are converted to f32 first: sums in half precision would round too much.

use super::input::{not_float, wrong};
use crate::Result;
use candle_core::{DType, Device, Tensor};

/// Cross entropy of the mean over time:
///
/// ```text
/// L = 1/N sum_n -log softmax(1/T sum_t outputs[t, n])[labels[n]]
/// ```
///
/// # Errors
/// If shapes, dtypes or labels do not fit, or if there are no elements.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use memopt_runtime::nn::cross_entropy_of_mean;
///
/// let outputs = Tensor::new(&[[[0f64, 2.]], [[0., 0.]]], &Device::Cpu)?; // T = 2, N = 1: the mean is (0, 1)
/// let labels = Tensor::new(&[1u32], &Device::Cpu)?;
/// let loss = cross_entropy_of_mean(&outputs, &labels)?.to_scalar::<f64>()?;
/// assert!((loss - (1. + (-1f64).exp()).ln()).abs() < 1e-12);
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
pub fn cross_entropy_of_mean(outputs: &Tensor, labels: &Tensor) -> Result<Tensor> {
    let window = Window::new("cross_entropy_of_mean", outputs, labels)?;
    cross_entropy(&window.outputs.mean(0)?, &window.labels)
}

/// Temporal efficient training (Deng et al., ICLR 2022): cross entropy at each time step, and a pull towards `mean`:
///
/// ```text
/// L = (1 - lambda) 1/T sum_t CE(outputs[t], labels) + lambda 1/(T N C) sum (outputs - mean)^2
/// ```
///
/// The second term keeps outputs from growing at single steps; the paper takes the threshold, 1, as `mean`.
///
/// # Errors
/// As [`cross_entropy_of_mean`]; and if `lambda` is not in [0, 1] or `mean` is not finite.
pub fn tet(outputs: &Tensor, labels: &Tensor, mean: f64, lambda: f64) -> Result<Tensor> {
    let window = Window::new("tet", outputs, labels)?;
    if !(0. ..=1.).contains(&lambda) || !mean.is_finite() {
        let what = format!("lambda is {lambda} and mean is {mean}; lambda is in [0, 1], mean is finite");
        return Err(wrong("tet", what));
    }
    let (steps, samples, classes) = window.outputs.dims3()?;
    // The mean over all steps and samples at once: all steps have the same number of samples.
    let labels: Vec<u32> = window.labels.iter().copied().cycle().take(steps * samples).collect();
    let entropy = cross_entropy(&window.outputs.reshape((steps * samples, classes))?, &labels)?;
    if lambda == 0. {
        return Ok(entropy);
    }
    let pull = window.outputs.affine(1., -mean)?.sqr()?.mean_all()?;
    Ok((entropy.affine(1. - lambda, 0.)? + pull.affine(lambda, 0.)?)?)
}

/// Mean squared error between the firing rates and the labels' one-hot vectors:
///
/// ```text
/// L = 1/(N C) sum_{n, c} (1/T sum_t outputs[t, n, c] - [c = labels[n]])^2
/// ```
///
/// # Errors
/// As [`cross_entropy_of_mean`].
pub fn mse_of_rates(outputs: &Tensor, labels: &Tensor) -> Result<Tensor> {
    let window = Window::new("mse_of_rates", outputs, labels)?;
    let (_, samples, classes) = window.outputs.dims3()?;
    let mut target = vec![0f32; samples * classes];
    for (row, &label) in target.chunks_exact_mut(classes).zip(&window.labels) {
        row[label as usize] = 1.;
    }
    let target =
        Tensor::from_vec(target, (samples, classes), &Device::Cpu)?.to_dtype(window.outputs.dtype())?;
    let target = target.to_device(outputs.device())?;
    Ok((window.outputs.mean(0)? - target)?.sqr()?.mean_all()?)
}

/// Checked arguments.
struct Window {
    /// `[T, N, C]`, f32 or f64.
    outputs: Tensor,
    /// N numbers below C.
    labels: Vec<u32>,
}

impl Window {
    fn new(loss: &str, outputs: &Tensor, labels: &Tensor) -> Result<Self> {
        let outputs = match outputs.dtype() {
            DType::F32 | DType::F64 => outputs.clone(),
            DType::BF16 | DType::F16 => outputs.to_dtype(DType::F32)?,
            other => return Err(not_float(loss, other)),
        };
        let &[steps, samples, classes] = outputs.dims() else {
            let what = format!("the outputs are {:?}; give it `[T, N, classes]`", outputs.dims());
            return Err(wrong(loss, what));
        };
        if steps * samples * classes == 0 {
            let what = format!("the mean over outputs {:?} is not defined: no elements", outputs.dims());
            return Err(wrong(loss, what));
        }
        if labels.dims() != [samples] || !labels.dtype().is_int() {
            let (dims, dtype) = (labels.dims(), labels.dtype());
            let what = format!("the labels are {dims:?} of {dtype:?}; give it u32 `[N]` with N = {samples}");
            return Err(wrong(loss, what));
        }
        // Through i64, so that a negative label does not wrap around to a class.
        let labels = labels.to_dtype(DType::I64)?.to_vec1::<i64>()?;
        let in_range = |&label: &i64| u32::try_from(label).ok().filter(|&label| (label as usize) < classes);
        match labels.iter().position(|label| in_range(label).is_none()) {
            None => Ok(Window { outputs, labels: labels.iter().filter_map(in_range).collect() }),
            Some(n) => {
                let what = format!("label {n} is {}; there are {classes} classes", labels[n]);
                Err(wrong(loss, what))
            }
        }
    }
}

/// Mean over the rows of `logits`, `[N, C]`.
fn cross_entropy(logits: &Tensor, labels: &[u32]) -> Result<Tensor> {
    let labels = Tensor::from_slice(labels, labels.len(), logits.device())?;
    Ok(candle_nn::loss::cross_entropy(logits, &labels)?)
}
