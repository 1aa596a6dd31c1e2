//! What a value looks like: how likely it names one thing and no other.

/// The look of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Shape {
    /// Letters only, in ordinary case.
    Word,
    /// Several words.
    Phrase,
    /// A change of case within.
    Camel,
    /// Words joined by dots, dashes or underscores.
    Joined,
    /// Capitals only.
    Capitals,
    /// Digits only.
    Number,
    /// Digits with dashes, colons or slashes.
    Stamp,
    /// Letters and digits mixed.
    Identifier,
    /// With slashes.
    Path,
    /// With a scheme, or with an at sign.
    Address,
}

impl Shape {
    /// Returns the look of `value`.
    pub(crate) fn of(value: &str) -> Self {
        let digits = value.chars().any(|c| c.is_ascii_digit());
        let letters = value.chars().any(char::is_alphabetic);
        if value.contains(char::is_whitespace) {
            return Self::Phrase;
        }
        if value.contains("://") || (value.contains('@') && value.contains('.')) {
            return Self::Address;
        }
        if letters && value.contains('/') {
            return Self::Path;
        }
        match (digits, letters) {
            (true, true) => Self::Identifier,
            (true, false) if value.contains(['-', ':', '/']) => Self::Stamp,
            (true, false) => Self::Number,
            _ if value.contains(['.', '-', '_']) => Self::Joined,
            _ => Self::of_letters(value),
        }
    }

    fn of_letters(value: &str) -> Self {
        let mut before_is_low = false;
        let mut any_low = false;
        for c in value.chars() {
            if before_is_low && c.is_uppercase() {
                return Self::Camel;
            }
            before_is_low = c.is_lowercase();
            any_low |= before_is_low || !c.is_uppercase();
        }
        if any_low { Self::Word } else { Self::Capitals }
    }

    /// Returns how much values of this look are worth against each other.
    pub(crate) fn weight(self) -> f64 {
        match self {
            Self::Word => 0.08,
            Self::Phrase | Self::Camel => 0.5,
            Self::Joined => 0.7,
            Self::Number => 0.6,
            Self::Capitals | Self::Stamp | Self::Address => 1.0,
            Self::Path => 1.2,
            Self::Identifier => 1.6,
        }
    }
}

/// Whether a value may be a fact: 3 to 120 characters on one line; a number has three digits.
pub(crate) fn is_value(value: &str) -> bool {
    if value.len() < 3 || value.len() > 480 || value.contains(char::is_control) {
        return false;
    }
    let digits = value.chars().filter(char::is_ascii_digit).count();
    let letters = value.chars().any(char::is_alphabetic);
    (3..=120).contains(&value.chars().count()) && value.trim() == value && (letters || digits >= 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_told_apart() {
        let cases = [
            ("hello", Shape::Word),
            ("git status", Shape::Phrase),
            ("readFile", Shape::Camel),
            ("max_tokens", Shape::Joined),
            ("JFK", Shape::Capitals),
            ("12000", Shape::Number),
            ("2024-05-21", Shape::Stamp),
            ("4WQ150", Shape::Identifier),
            ("/etc/hosts", Shape::Path),
            ("a@b.example", Shape::Address),
            ("https://a.example/b", Shape::Address),
            ("注文番号", Shape::Word),
        ];
        for (value, shape) in cases {
            assert_eq!(Shape::of(value), shape, "{value}");
        }
    }

    #[test]
    fn values_are_short_single_lines() {
        assert!(is_value("abc") && is_value("140") && is_value("注文番号"));
        for bad in [
            "ab",
            "12",
            "a\nb c",
            " abc",
            "----",
            "🦀🦀🦀",
            &"x".repeat(121),
        ] {
            assert!(!is_value(bad), "{bad}");
        }
    }
}
