//! The state of an accumulator as named tensors.

use super::step::Totals;
use super::window::Window;
use super::Accumulator;
use crate::storage;
use crate::train::gradients::tensor_of;
use crate::train::state::{count, number, Loading};
use crate::train::{real_dtype, NamedParameters, Optimizer};
use crate::{Error, Result};
use candle_core::{DType, Tensor};

type State = Vec<(String, Tensor)>;

impl<O: Optimizer> Accumulator<O> {
    /// All that the next steps depend on besides parameters, configuration and data, as named tensors: the optimizer's state
    /// (`optimizer.`), the loss scale (`scaler.`) and the totals (`totals.`).
    ///
    /// # Errors
    /// If micro-batches are accumulated that no step was made of, or the optimizer cannot be saved.
    ///
    /// ```
    /// use candle_core::{Device, Var};
    /// use memopt_runtime::train::{Accumulator, AccumulatorConfig, AdamW, AdamWConfig, NamedParameters};
    /// use memopt_runtime::Error;
    ///
    /// let w = Var::new(&[1f32, -2.], &Device::Cpu)?;
    /// let parameters = NamedParameters::new([("w".to_owned(), w.as_tensor().clone())])?;
    /// let make = || {
    ///     let adamw = AdamW::new(&parameters, AdamWConfig::new(0.1))?;
    ///     Accumulator::new(adamw, AccumulatorConfig { steps: 2, ..Default::default() })
    /// };
    /// let loss = || w.sqr()?.mean_all();
    /// let mut accumulator = make()?;
    /// accumulator.backward(&loss()?, 4)?;
    /// assert!(matches!(accumulator.state(), Err(Error::MidAccumulation { micro_batches: 1 })));
    /// accumulator.backward(&loss()?, 4)?;
    ///
    /// let state = accumulator.state()?; // candle_core::safetensors::save writes it into a file
    /// let mut resumed = make()?;
    /// resumed.load_state(&state)?;
    /// assert_eq!(resumed.totals(), accumulator.totals());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn state(&self) -> Result<State> {
        match self.window.micro_batches {
            0 => self.state_with_window(),
            pending => {
                Err(Error::MidAccumulation { micro_batches: usize::try_from(pending).unwrap_or(usize::MAX) })
            }
        }
    }

    /// The same, and with it what is accumulated since the last step (`window.`).
    ///
    /// # Errors
    /// If the optimizer cannot be saved.
    pub fn state_with_window(&self) -> Result<State> {
        let mut state = State::new();
        let mut add = |part: &str, own: State| {
            state.extend(own.into_iter().map(|(name, tensor)| (format!("{part}.{name}"), tensor)));
        };
        add("optimizer", self.optimizer.state()?);
        if let Some(scaler) = &self.scaler {
            add("scaler", scaler.state()?);
        }
        add("totals", state_of_totals(self.totals)?);
        if self.window.micro_batches > 0 {
            add("window", state_of_window(&self.window)?);
        }
        Ok(state)
    }

    /// Goes on where an accumulator of the same configuration left this state: with the same parameters and data, the next
    /// steps have the same bits. What was accumulated here is discarded, and counted as lost.
    ///
    /// # Errors
    /// If a tensor is missing, is foreign or does not fit, or the optimizer cannot be loaded; then nothing has changed.
    pub fn load_state(&mut self, state: &[(String, Tensor)]) -> Result<()> {
        let mut loading = Loading::new("the accumulator", state)?;
        let mut scaler = self.scaler.clone();
        if let Some(scaler) = &mut scaler {
            scaler.load_state(&loading.take_all_with("scaler."))?;
        }
        let optimizer = loading.take_all_with("optimizer.");
        let totals = totals_of(&mut loading)?;
        let window = window_of(&mut loading, self.optimizer.parameters())?;
        loading.finish()?;
        self.optimizer.load_state(&optimizer)?;
        self.discard();
        (self.scaler, self.totals, self.window) = (scaler, totals, window);
        Ok(())
    }
}

fn state_of_totals(totals: Totals) -> Result<State> {
    let Totals { steps, samples, skipped_steps, skipped_samples } = totals;
    let all = [
        ("steps", steps),
        ("samples", samples),
        ("skipped_steps", skipped_steps),
        ("skipped_samples", skipped_samples),
    ];
    all.into_iter().map(|(name, value)| Ok((name.to_owned(), count(value)?))).collect()
}

fn totals_of(loading: &mut Loading) -> Result<Totals> {
    Ok(Totals {
        steps: loading.take_count("totals.steps")?,
        samples: loading.take_count("totals.samples")?,
        skipped_steps: loading.take_count("totals.skipped_steps")?,
        skipped_samples: loading.take_count("totals.skipped_samples")?,
    })
}

fn state_of_window(window: &Window) -> Result<State> {
    let mut state = vec![
        ("unit".to_owned(), count(window.unit)?),
        ("samples".to_owned(), count(window.samples)?),
        ("micro_batches".to_owned(), count(window.micro_batches)?),
        ("loss".to_owned(), number(window.loss)?),
        ("has_bad_loss".to_owned(), count(window.has_bad_loss.into())?),
    ];
    let sums = window.sums.iter().filter_map(|(parameter, buffer)| {
        Some((format!("gradient.{}", parameter.name()), tensor_of(parameter, buffer?)))
    });
    state.extend(sums);
    Ok(state)
}

/// The window of a state; an empty one if it was saved behind a step.
fn window_of(loading: &mut Loading, parameters: &NamedParameters) -> Result<Window> {
    let mut window = Window::new(parameters);
    if !loading.has("window.unit") {
        return Ok(window);
    }
    window.unit = loading.take_count("window.unit")?;
    window.samples = loading.take_count("window.samples")?;
    window.micro_batches = loading.take_count("window.micro_batches")?;
    window.loss = loading.take_number("window.loss")?;
    window.has_bad_loss = loading.take_count("window.has_bad_loss")? > 0;
    for (parameter, place) in parameters.iter().zip(window.sums.places_mut()) {
        let name = format!("window.gradient.{}", parameter.name());
        let real = real_dtype(parameter.tensor().dtype()).unwrap_or(DType::F32);
        if loading.has(&name) {
            let sum = loading.take_like(&name, parameter.dims(), real)?;
            *place = Some(storage::owned(&sum)?);
        }
    }
    Ok(window)
}
