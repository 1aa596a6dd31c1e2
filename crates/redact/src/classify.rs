//! Classifies a text as random, or as made of words like names, paths and identifiers.

/// The number of consecutive consonants that hardly any word has.
const MANY_CONSONANTS: usize = 6;

/// The length of the shortest part of a name that counts as a word, in characters.
const MIN_WORD: usize = 3;

/// The most digits after a word of a name, as in `sha256`, `v2` or `nl80211`.
const MAX_NUMBER: usize = 5;

/// The most digits of a number in a name, such as a date without separators.
const MAX_DIGITS: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
enum CharClass {
    Lower,
    Upper,
    Digit,
}

/// True if a text is no word or name: it has digits between letters, many short words, or too many consonants. If in
/// doubt, a text is random: a word that is replaced does less harm than a secret that is not.
pub(super) fn looks_random(text: &str) -> bool {
    let kinds = kinds(text);
    let digits = kinds
        .windows(2)
        .filter(|pair| (pair[0] == CharClass::Digit) != (pair[1] == CharClass::Digit));
    let letters: Vec<char> = text.chars().map(|c| c.to_ascii_lowercase()).collect();
    // A consonant after a letter that a vowel nearly always follows.
    let is_odd = |pair: &[char]| "jqv".contains(pair[0]) && is_consonant(pair[1]) && pair[1] != 'y';
    digits.count() >= 2
        || has_many_words(&kinds, 5)
        || has_many_consonants(text)
        || letters.windows(2).any(is_odd)
}

fn kinds(text: &str) -> Vec<CharClass> {
    let kinds = text.chars().filter_map(|c| match c {
        'a'..='z' => Some(CharClass::Lower),
        'A'..='Z' => Some(CharClass::Upper),
        '0'..='9' => Some(CharClass::Digit),
        _ => None,
    });
    kinds.collect()
}

/// True if a text has many words, shorter than `shortest` on average, where each capital begins a word.
fn has_many_words(kinds: &[CharClass], shortest: usize) -> bool {
    let changes = kinds
        .windows(2)
        .filter(|pair| pair[0] != pair[1] && *pair != [CharClass::Upper, CharClass::Lower])
        .count();
    // The last of several capitals begins the next word.
    let capitals = kinds
        .windows(3)
        .filter(|part| *part == [CharClass::Upper, CharClass::Upper, CharClass::Lower])
        .count();
    let words = 1 + changes + capitals;
    words >= 3 && words * shortest > kinds.len()
}

fn is_consonant(c: char) -> bool {
    let c = c.to_ascii_lowercase();
    c.is_ascii_lowercase() && !"aeiou".contains(c)
}

/// True if a text has more consecutive consonants than words have.
fn has_many_consonants(text: &str) -> bool {
    let runs = text.split(|c| !is_consonant(c)).map(str::len);
    runs.max().unwrap_or(0) >= MANY_CONSONANTS
}

/// True if a text is a path, an identifier, a version or words with separators: each part is a word, a word with a
/// number, or a number, and most of the text is words.
pub(super) fn is_made_of_words(text: &str) -> bool {
    let parts = text.split(|c: char| !c.is_alphanumeric());
    let (mut letters, mut all) = (0, 0);
    for part in parts.filter(|part| !part.is_empty()) {
        let length = part.chars().count();
        let digits = part.chars().filter(char::is_ascii_digit).count();
        let is_number = digits == length && length <= MAX_DIGITS;
        if is_number {
            continue;
        }
        if !is_numbered_word(part) {
            return false;
        }
        all += length - digits;
        if length - digits >= MIN_WORD {
            letters += length - digits;
        }
    }
    letters * 2 > all
}

/// True if a text is a word, or words with numbers after them, as in `sha256` and `fts5ApiRowCount`.
fn is_numbered_word(text: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_digit();
    let numbers = text.split(|c| !is_digit(c)).filter(|run| !run.is_empty());
    let words: Vec<&str> = text.split(is_digit).filter(|run| !run.is_empty()).collect();
    let (first, more) = match words.split_first() {
        Some((first, more)) => (*first, more),
        None => return false,
    };
    let is_long = |word: &&str| word.chars().count() >= MIN_WORD;
    text.starts_with(first)
        && is_word(first)
        && numbers.map(str::len).all(|digits| digits <= MAX_NUMBER)
        && more.iter().all(|word| is_long(word) && is_word(word))
        && (more.is_empty() || first.len() >= 2)
}

/// True if a text has separators of a path or a file extension.
pub(super) fn is_path(text: &str) -> bool {
    let end = text.rsplit_once('.').map_or("", |(_, end)| end);
    let has_end = (1..=4).contains(&end.len()) && end.bytes().all(|byte| byte.is_ascii_lowercase());
    has_end || text.contains(['/', '\\']) || text.contains("::")
}

fn is_word(text: &str) -> bool {
    let is_letters = text.chars().all(char::is_alphabetic);
    is_letters && !has_many_words(&kinds(text), MIN_WORD) && !has_many_consonants(text)
}

/// True if a text is one word, possibly with a capital first letter, which may occur in any text.
pub(super) fn is_single_word(text: &str) -> bool {
    let mut rest = text.chars();
    rest.next().is_some_and(char::is_alphabetic)
        && (rest.clone().all(char::is_lowercase) || text.chars().all(char::is_uppercase))
}

/// True if a text is a UUID with dashes, as the ids of sessions, calls and rows.
pub(super) fn is_uuid(text: &str) -> bool {
    text.contains('-') && uuid::Uuid::try_parse(text).is_ok()
}

/// Returns the Shannon entropy of the bytes of a text, in bits per byte.
pub(super) fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    for byte in bytes {
        counts[usize::from(*byte)] += 1;
    }
    let all = bytes.len() as f64;
    let part = |count: &u32| f64::from(*count) / all;
    let some = counts.iter().filter(|count| **count > 0).map(part);
    some.map(|part| -part * part.log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_random_texts_are_told_apart() {
        for word in [
            "administ",
            "getUsername",
            "Password123",
            "2026-01-05",
            "PASSWORD",
            "administrator",
            "invocation",
            "lengthways",
            "verify_query",
        ] {
            assert!(!looks_random(word), "{word}");
        }
        for text in [
            "k3J9xQ2m",
            "0a1b2c3d4e",
            "AbQzTxWvyK",
            "VBAOJCKMEMYYVYNV",
            "kdfjwhtr",
            "nqFTRToMXkpfQVBoGGqut==",
        ] {
            assert!(looks_random(text), "{text}");
        }
    }

    #[test]
    fn paths_identifiers_and_versions_are_made_of_words() {
        for words in [
            "src/store/sqlite/removal/mod.rs",
            "crates/cli/tests/cli/v2/case_17.rs",
            "/home/user/.config/app-1/settings.json",
            "loopstore-2026-11-27-v2",
            "read_append_keys_within",
            "com.example.app.UserService",
            "QuietRiverStone",
            "sha256-of-the-file",
            "C:\\Users\\me\\Documents",
        ] {
            assert!(is_made_of_words(words), "{words}");
        }
        for text in [
            "ZPf1Qh6yYTWmE4lBYOvfZ8UzDzV8fUkkibjL5DZP",
            "k3J9xQ2mZ7vR4tB8nW1c",
            "9f8e7d6c5b4a39281706f5e4d3c2b1a0",
            "tr0ub4dor",
            "aB3/dE5+gH7/jK9",
            "1234567890",
        ] {
            assert!(!is_made_of_words(text), "{text}");
        }
        assert!(is_single_word("Database") && !is_single_word("QuietRiver"));
        assert!(is_path("a/b") && is_path("store4.rs") && !is_path("Walnut7532!."));
    }
}
