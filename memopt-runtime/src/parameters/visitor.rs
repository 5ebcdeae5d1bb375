//! The walk over a model's parameters.

use super::Parameters;
use candle_core::Tensor;
use std::fmt::Write;

/// Walks down a model and calls a closure with every trained tensor and its path.
///
/// The path is the field names and indices on the way, joined by dots: `features.1.conv.weight`.
pub struct Visitor<'a> {
    visit: &'a mut dyn FnMut(&str, &Tensor),
    path: String,
}

impl<'a> Visitor<'a> {
    /// A visitor at the root (the empty path) that calls `visit(path, tensor)`.
    pub fn new(visit: &'a mut dyn FnMut(&str, &Tensor)) -> Self {
        Self { visit, path: String::new() }
    }

    /// Visits the part that the field `name` holds.
    pub fn field<M: Parameters>(&mut self, name: &str, part: &M) {
        self.enter(name, |visitor| part.visit_parameters(visitor));
    }

    /// Visits the item at `index` of a list, an array or a tuple.
    pub fn index<M: Parameters>(&mut self, index: usize, part: &M) {
        self.step(format_args!("{index}"), |visitor| part.visit_parameters(visitor));
    }

    /// Runs `inside` one step down, at the part called `name`. What the derive macro writes for a field.
    pub fn enter(&mut self, name: &str, inside: impl FnOnce(&mut Self)) {
        self.step(format_args!("{name}"), inside);
    }

    /// Ends a path: calls the closure if `tensor` is trained, that is a variable or computed from one.
    ///
    /// An untracked tensor is a constant of the model, not a parameter, and is passed over.
    pub fn tensor(&mut self, tensor: &Tensor) {
        if tensor.track_op() {
            (self.visit)(&self.path, tensor);
        }
    }

    /// Where the walk is: field names and indices joined by dots, empty at the root.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn step(&mut self, name: std::fmt::Arguments<'_>, inside: impl FnOnce(&mut Self)) {
        let parent = self.path.len();
        let dot = if parent == 0 { "" } else { "." };
        // Writing to a String cannot fail.
        let _ = write!(self.path, "{dot}{name}");
        inside(self);
        self.path.truncate(parent);
    }
}
