//! The message of a thread's last panic: while it unwinds, nobody can be asked for it.

use crate::panics::message;
use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on panics leave their message here, and go on to the hook that was there.
pub(super) fn remember() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let message = message(info.payload());
            let place = info.location().map_or_else(String::new, |place| format!(" ({place})"));
            LAST.with(|last| {
                // A panic inside of this very hook finds it borrowed.
                if let Ok(mut last) = last.try_borrow_mut() {
                    *last = Some(format!("{message}{place}"));
                }
            });
            before(info);
        }));
    });
}

/// This thread's last panic.
pub(super) fn last() -> String {
    LAST.with(|last| last.borrow().clone()).unwrap_or_else(|| "before it had a rank".to_owned())
}
