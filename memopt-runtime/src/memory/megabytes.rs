//! How bytes are written for people: MB = 10^6 bytes, to the nearest thousand bytes.

use std::fmt;

/// Bytes that display as a number of megabytes, without the unit.
pub(super) struct Megabytes(pub(super) isize);

impl fmt::Display for Megabytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let thousands = (self.0.unsigned_abs() + 500) / 1000;
        let sign = if self.0 < 0 && thousands > 0 { "-" } else { "" };
        write!(f, "{sign}{}.{:03}", thousands / 1000, thousands % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::Megabytes;

    #[test]
    fn rounds_to_thousands_and_has_no_negative_zero() {
        let texts = [0, 499, 500, 1_234_567, -1_234_567, -400].map(|bytes| Megabytes(bytes).to_string());
        assert_eq!(texts, ["0.000", "0.000", "0.001", "1.235", "-1.235", "0.000"]);
    }
}
