//! How the ranks of a group come to one plan.

use super::communicator::{Communicator, Reduce, Values};
use super::together::refuse;
use crate::Result;
use std::fmt::Debug;

/// How the processes of a group come to one plan: each calls it with what it found, in the same order.
pub trait Agreement: Debug + Send + Sync {
    /// The largest of what the processes give, number by number.
    ///
    /// # Errors
    /// If a process cannot be reached, or gives another count of numbers.
    fn largest(&self, values: &[u64]) -> Result<Vec<u64>>;

    /// The text that the first process gives.
    ///
    /// # Errors
    /// If a process cannot be reached.
    fn of_first(&self, text: &str) -> Result<String>;
}

/// The agreement of a group's ranks, by its communicator (or a reference to it, or an `Arc` of it).
///
/// ```
/// use memopt_runtime::dist::{agreement, Agreement, Communicator, Single};
/// use memopt_runtime::search::Options;
/// use std::sync::Arc;
///
/// let group: Arc<dyn Communicator> = Arc::new(Single::new());
/// assert_eq!(agreement(&*group).largest(&[7])?, [7]);
/// let options = Options::default().agreement(Arc::new(agreement(group)));
/// # let _ = options;
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
pub fn agreement<C: Communicator>(communicator: C) -> GroupAgreement<C> {
    GroupAgreement(communicator)
}

/// See [`agreement`].
#[derive(Debug, Clone)]
pub struct GroupAgreement<C>(C);

impl<C: Communicator> Agreement for GroupAgreement<C> {
    fn largest(&self, values: &[u64]) -> Result<Vec<u64>> {
        let mut values = values.to_vec();
        self.0.all_reduce(Values::U64(&mut values), Reduce::Max)?;
        Ok(values)
    }

    fn of_first(&self, text: &str) -> Result<String> {
        let mut bytes = text.as_bytes().to_vec();
        self.0.broadcast(0, &mut bytes)?;
        String::from_utf8(bytes).map_err(|error| refuse(0, format!("its text is not UTF-8 ({error})")))
    }
}
