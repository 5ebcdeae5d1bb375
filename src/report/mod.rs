//! Pictures and pages of what a search found: the front of time and memory, the memory curve of a step, what is resident at
//! the peak. SVG and HTML are made without fonts, network or a system library.
//!
//! ```
//! use memopt::report;
//! use memopt::search::Resident;
//!
//! let resident = Resident { weights: 37_000_000, gradients: 37_000_000, internal: 83_000_000, ..Default::default() };
//! let svg = report::breakdown(&resident)?;
//! assert!(svg.starts_with("<svg") && svg.contains("weights"));
//! # Ok::<(), memopt::Error>(())
//! ```

mod page;
mod plots;

pub use page::page;
pub use plots::{breakdown, front, memory_curves};
