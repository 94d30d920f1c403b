//! Texts for people: errors of the system without their numbers, several faults on one line.
//!
//! Called wherever a refusal is put into words.

use std::fmt::Display;

/// An error without ` (os error 2)`, which says the same again to nobody.
pub(crate) fn plain(error: &impl Display) -> String {
    let mut text = error.to_string();
    while let Some(start) = text.find(" (os error ") {
        let length = text[start..].find(')').map_or(text.len() - start, |end| end + 1);
        text.replace_range(start..start + length, "");
    }
    text
}

/// The first fault on one line, with the number of the others.
pub(crate) fn first_of<E: Display>(faults: &[E]) -> String {
    match faults {
        [] => String::new(),
        [only] => only.to_string(),
        [first, others @ ..] => format!("{first} (and {} more)", others.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_errors_are_left_out_wherever_they_stand() {
        let error = std::io::Error::from_raw_os_error(2);
        assert!(error.to_string().contains("os error"));
        assert_eq!(plain(&error), "No such file or directory");
        assert_eq!(
            plain(&format!("a: {error}; b: {error}")),
            "a: No such file or directory; b: No such file or directory"
        );
        assert_eq!(plain(&"broken (os error "), "broken");
        assert_eq!(plain(&"(nothing)"), "(nothing)");
    }

    #[test]
    fn one_fault_is_told_and_the_others_are_counted() {
        assert_eq!(first_of(&["a"]), "a");
        assert_eq!(first_of(&["a", "b", "c"]), "a (and 2 more)");
    }
}
