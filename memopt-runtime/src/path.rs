//! Paths of parts: names joined by dots; the model itself has the empty one.

/// The path of the part called `name` inside of `parent`.
pub(crate) fn joined(parent: &str, name: &str) -> String {
    match parent {
        "" => name.to_owned(),
        parent => format!("{parent}.{name}"),
    }
}
