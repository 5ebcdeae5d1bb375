//! FNV-1a (Fowler, Noll and Vo), which is the same on every platform: for names, where nobody means harm.

/// Where it begins.
pub(crate) const BEGIN: u64 = 0xcbf2_9ce4_8422_2325;

/// The hash of a text that follows what gave `before`.
pub(crate) fn fnv(before: u64, text: &str) -> u64 {
    text.bytes().fold(before, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_the_published_ones() {
        assert_eq!(fnv(BEGIN, ""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(BEGIN, "a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv(fnv(BEGIN, "foo"), "bar"), fnv(BEGIN, "foobar"));
        assert_eq!(fnv(BEGIN, "foobar"), 0x8594_4171_f739_67e8);
    }
}
