//! "Did you mean": the known word closest to a misspelt one.

/// The word of `known` that is closest to the written one, if any is within a third of its length in edits; within two
/// where it has four or five letters.
pub fn similar<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    let length = written.chars().count();
    let limit = (length / 3).max(if length < 4 { 1 } else { 2 });
    known
        .iter()
        .map(|word| (distance(written, word), *word))
        .filter(|(edits, _)| *edits <= limit)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, word)| word)
}

/// Levenshtein distance: insertions, deletions and replacements of one character that turn `from` into `to`.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut left = i + 1;
        let mut diagonal = std::mem::replace(&mut row[0], left);
        for (b, above) in to.iter().zip(&mut row[1..]) {
            let replaced = diagonal + usize::from(a != *b);
            left = replaced.min(left + 1).min(*above + 1);
            diagonal = std::mem::replace(above, left);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("", "skip"), 4);
        assert_eq!(distance("skip", ""), 4);
        assert_eq!(distance("skip", "skip"), 0);
        assert_eq!(distance("skp", "skip"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn a_misspelt_word_finds_its_neighbour_and_another_word_does_not() {
        assert_eq!(similar("skpi", &["segment", "skip"]), Some("skip"));
        assert_eq!(similar("skipped", &["skip"]), None);
        assert_eq!(similar("frozen", &["skip"]), None);
        assert_eq!(similar("sum", &["mul"]), None);
    }
}
