//! The state of one function between its forward and the end of its backward.

use super::edge::{Edge, Target};
use super::gradient::Gradient;
use crate::panics::caught;
use crate::{Error, Phase, Result};
use parking_lot::Mutex;

/// The backward closure: gradients of the outputs in, gradients of the inputs out.
pub(super) type Backward = Box<dyn FnOnce(Vec<Option<Gradient>>) -> Result<Vec<Option<Gradient>>> + Send>;

/// One function's gradients and its closure.
pub(super) struct Cell {
    pub(super) function: String,
    state: Mutex<State>,
}

enum State {
    /// Waiting for backward, or collecting the gradients of the outputs.
    Open { backward: Backward, inputs: Vec<Edge>, gradients: Vec<Option<Gradient>>, deposits: usize },
    /// The closure has run (or failed); its answers wait for the joins.
    Done { answers: Vec<Answer> },
}

/// What a join finds for one input.
pub(super) enum Answer {
    /// No gradient.
    Nothing,
    /// Already in the cell of the function that made the input.
    Delivered,
    /// To be given to Candle.
    Gradient(Gradient),
}

impl Cell {
    pub(super) fn new(function: String, inputs: Vec<Edge>, outputs: usize, backward: Backward) -> Self {
        let gradients = std::iter::repeat_with(|| None).take(outputs).collect();
        Cell { function, state: Mutex::new(State::Open { backward, inputs, gradients, deposits: 0 }) }
    }

    /// Adds a gradient of one output.
    pub(super) fn deposit(&self, output: usize, gradient: Gradient) -> Result<()> {
        match &mut *self.state.lock() {
            State::Done { .. } => Err(self.second_backward()),
            State::Open { gradients, deposits, .. } => {
                *deposits += 1;
                let sum = match gradients[output].take() {
                    None => gradient,
                    Some(earlier) => earlier.plus(gradient)?,
                };
                gradients[output] = Some(sum);
                Ok(())
            }
        }
    }

    /// Runs the closure once and hands its answers on. `deliveries` is how many gradients this backward put in.
    pub(super) fn run(&self, deliveries: usize) -> Result<()> {
        let mut state = self.state.lock();
        // The answers of a backward that runs in another thread stay where its joins will look for them.
        if let State::Done { .. } = *state {
            return Err(self.second_backward());
        }
        let open = std::mem::replace(&mut *state, State::Done { answers: Vec::new() });
        drop(state);
        let State::Open { backward, inputs, gradients, deposits } = open else {
            return Err(self.second_backward());
        };
        if deposits != deliveries {
            return Err(Error::StaleGradient { function: self.function.clone() });
        }
        let answers = if gradients.iter().all(Option::is_none) {
            drop(backward);
            inputs.iter().map(|_| None).collect()
        } else {
            caught(&self.function, Phase::Backward, || backward(gradients)).map_err(|e| match e {
                Error::Candle(_) => e.in_segment(&self.function, Phase::Backward),
                typed => typed,
            })?
        };
        let answers = self.deliver(inputs, answers)?;
        *self.state.lock() = State::Done { answers };
        Ok(())
    }

    /// The closure's answer for one input; a join takes it once.
    pub(super) fn take_answer(&self, input: usize) -> Answer {
        match &mut *self.state.lock() {
            State::Done { answers } if input < answers.len() => {
                std::mem::replace(&mut answers[input], Answer::Nothing)
            }
            _ => Answer::Nothing,
        }
    }

    /// Moves the gradients of inputs that functions made into their cells, in the order of the inputs.
    fn deliver(&self, inputs: Vec<Edge>, gradients: Vec<Option<Gradient>>) -> Result<Vec<Answer>> {
        if gradients.len() != inputs.len() {
            return Err(Error::GradientCount {
                function: self.function.clone(),
                expected: inputs.len(),
                got: gradients.len(),
            });
        }
        for (index, (edge, gradient)) in inputs.iter().zip(&gradients).enumerate() {
            if let (true, Some(gradient)) = (edge.is_tracked(), gradient) {
                let name = || format!("input {index}");
                gradient.check(&self.function, name, &edge.shape, edge.dtype, &edge.device)?;
            }
        }
        let mut answers = Vec::with_capacity(inputs.len());
        for (edge, gradient) in inputs.into_iter().zip(gradients) {
            answers.push(match (edge.target, gradient) {
                (_, None) | (Target::Untracked, _) => Answer::Nothing,
                (Target::Function(producer), Some(gradient)) => {
                    producer.deposit(gradient)?;
                    Answer::Delivered
                }
                (Target::Tensor(_), Some(gradient)) => Answer::Gradient(gradient),
            });
        }
        Ok(answers)
    }

    fn second_backward(&self) -> Error {
        Error::SecondBackward { function: self.function.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{CpuStorage, Device, Var};

    /// A second backward in another thread, between the first one's `Run` and its joins, must not take its answers.
    #[test]
    fn answers_stay_for_the_backward_that_they_are_of() -> Result<()> {
        let x = Var::new(1f32, &Device::Cpu)?;
        let cell = Cell::new("f".into(), vec![Edge::to(&x)], 1, Box::new(Ok));
        cell.deposit(0, Gradient::new(CpuStorage::F32(vec![1.]), ()))?;
        cell.run(1)?;
        assert!(matches!(cell.run(0), Err(Error::SecondBackward { .. })));
        assert!(matches!(cell.take_answer(0), Answer::Gradient(_)));
        Ok(())
    }
}
