//! The shape of a value, from which follows how likely it identifies one thing.

/// The shape of a value.
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
    /// The number of shapes.
    pub(crate) const COUNT: usize = Self::Address as usize + 1;

    /// Returns the shape of `value`.
    pub(crate) fn of(value: &str) -> Self {
        let marks = Marks::of(value);
        if marks.space {
            return Self::Phrase;
        }
        if marks.colon && value.contains("://") || marks.at && marks.dot {
            return Self::Address;
        }
        if marks.letter && marks.slash {
            return Self::Path;
        }
        match (marks.digit, marks.letter) {
            (true, true) => Self::Identifier,
            (true, false) if marks.dash || marks.colon || marks.slash => Self::Stamp,
            (true, false) => Self::Number,
            _ if marks.dot || marks.dash || marks.underscore => Self::Joined,
            _ if marks.camel => Self::Camel,
            _ if marks.not_upper => Self::Word,
            _ => Self::Capitals,
        }
    }

    /// True if a value of this shape usually identifies one thing.
    pub(crate) fn names_one_thing(self) -> bool {
        matches!(
            self,
            Self::Capitals | Self::Stamp | Self::Identifier | Self::Path | Self::Address
        )
    }

    /// Returns the weight of values of this shape.
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

/// The kinds of characters in a value.
#[derive(Default)]
struct Marks {
    space: bool,
    digit: bool,
    letter: bool,
    slash: bool,
    colon: bool,
    at: bool,
    dot: bool,
    dash: bool,
    underscore: bool,
    /// A capital after a small letter.
    camel: bool,
    /// A character that is no capital.
    not_upper: bool,
}

impl Marks {
    fn of(value: &str) -> Self {
        let mut marks = Self::default();
        let mut before_is_low = false;
        for c in value.chars() {
            let (mut is_low, mut is_upper) = (false, false);
            match c {
                'a'..='z' => (is_low, marks.letter) = (true, true),
                'A'..='Z' => (is_upper, marks.letter) = (true, true),
                '0'..='9' => marks.digit = true,
                '/' => marks.slash = true,
                ':' => marks.colon = true,
                '@' => marks.at = true,
                '.' => marks.dot = true,
                '-' => marks.dash = true,
                '_' => marks.underscore = true,
                c => {
                    (is_low, is_upper) = (c.is_lowercase(), c.is_uppercase());
                    marks.letter |= c.is_alphabetic();
                    marks.space |= c.is_whitespace();
                }
            }
            marks.camel |= before_is_low && is_upper;
            marks.not_upper |= !is_upper;
            before_is_low = is_low;
        }
        marks
    }
}

/// True if a text may be a value: 3 to 120 characters on one line with a letter or three digits, trimmed.
pub(crate) fn is_value(value: &str) -> bool {
    if value.len() < 3 || value.len() > 480 {
        return false;
    }
    let (mut count, mut digits, mut letters) = (0, 0, false);
    for c in value.chars() {
        count += 1;
        match c {
            'a'..='z' | 'A'..='Z' => letters = true,
            '0'..='9' => digits += 1,
            c if c.is_control() => return false,
            c => letters |= c.is_alphabetic(),
        }
    }
    let is_trimmed = || value.trim().len() == value.len();
    (3..=120).contains(&count) && (letters || digits >= 3) && is_trimmed()
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
