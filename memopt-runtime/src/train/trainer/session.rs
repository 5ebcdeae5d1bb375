//! The state of a session as named tensors.

use crate::module::{Session, States};
use crate::train::state::{count, Loading};
use crate::{Error, Result};
use candle_core::{DType, Device, Tensor};

const KINDS: [&str; 2] = ["training", "evaluation"];

/// `seed` and `calls`, whether states are carried (`carries`), and these (`training.PATH`, `evaluation.PATH`).
pub(super) fn state_of(session: &Session) -> Result<Vec<(String, Tensor)>> {
    let carried = session.carried_states();
    let mut state = vec![
        ("seed".to_owned(), Tensor::new(session.seed() as i64, &Device::Cpu)?),
        ("calls".to_owned(), count(session.calls())?),
        ("carries".to_owned(), count(carried.is_some().into())?),
    ];
    for (kind, states) in KINDS.iter().zip(carried.iter().flatten()) {
        state.extend(states.iter().map(|(path, tensor)| (format!("{kind}.{path}"), tensor.detach())));
    }
    Ok(state)
}

/// What a session goes on with.
pub(super) struct SessionState {
    calls: u64,
    carried: Option<[States; 2]>,
}

/// Reads such a state for this session, which stays as it is.
///
/// # Errors
/// If the session is another one, or the state is not one.
pub(super) fn read(session: &Session, state: &[(String, Tensor)]) -> Result<SessionState> {
    let mut loading = Loading::new("the session", state)?;
    let seed = loading.take_like("seed", &[], DType::I64)?.to_scalar::<i64>()? as u64;
    let calls = loading.take_count("calls")?;
    let carries = loading.take_count("carries")? > 0;
    let states = KINDS.map(|kind| {
        let mut states = States::default();
        for (path, tensor) in loading.take_all_with(&format!("{kind}.")) {
            states.set(&path, tensor);
        }
        states
    });
    loading.finish()?;
    let mut differences = Vec::new();
    if seed != session.seed() {
        differences.push(format!("seed of the session: {seed} then, {} now", session.seed()));
    }
    let carries_now = session.carried_states().is_some();
    if carries != carries_now {
        differences.push(format!("states are carried: {carries} then, {carries_now} now"));
    }
    match differences.is_empty() {
        true => Ok(SessionState { calls, carried: carries.then_some(states) }),
        false => Err(Error::OtherConfiguration { differences: differences.join("; ") }),
    }
}

impl SessionState {
    /// Lets the session go on with it.
    pub fn give_to(self, session: &Session) {
        session.set_calls(self.calls);
        if let Some(states) = self.carried {
            session.set_carried_states(states);
        }
    }
}
