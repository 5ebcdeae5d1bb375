//! Who decides how the parts of a composition are run.

use super::composition::Step;
use super::context::Context;
use super::signal::Signal;
use crate::Result;

/// Runs the steps of a composition one after the other, each as it sees fit.
///
/// Models know no plans: a context without an executor runs everything plainly. One that follows a plan runs some steps
/// as segments.
pub trait Executor: std::fmt::Debug + Send + Sync {
    /// The output of `steps` for the window `x`; the context stands at the composition.
    ///
    /// # Errors
    /// Those of the parts.
    fn run(&self, steps: &[Step], x: Signal, context: &mut Context) -> Result<Signal>;
}
