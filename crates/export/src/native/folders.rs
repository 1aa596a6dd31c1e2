//! The names of agents for the folder of a project.

use unicode_normalization::UnicodeNormalization;

/// The length from which Claude Code cuts such a name.
const LONGEST: usize = 200;

/// The hash of long folder names in a program of Claude Code. It depends on the way of its installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FolderHash {
    /// The program in one file, which runs on Bun: its hash of the path.
    Bun,
    /// The script that Node runs: a sum over the path.
    Node,
}

impl FolderHash {
    pub(super) const ALL: [Self; 2] = [Self::Bun, Self::Node];

    /// Returns the hash of a path as the end of a folder's name.
    fn of(self, folder: &str) -> String {
        match self {
            Self::Bun => base36(wyhash(folder.as_bytes())),
            Self::Node => {
                let step = |hash: i32, unit: u16| {
                    let shifted = hash.wrapping_shl(5).wrapping_sub(hash);
                    shifted.wrapping_add(i32::from(unit))
                };
                let hash = folder.encode_utf16().fold(0, step).unsigned_abs();
                base36(u64::from(hash))
            }
        }
    }
}

/// Returns a folder as Claude Code writes it: letters and accents are composed.
pub(super) fn composed(folder: &str) -> String {
    folder.nfc().collect()
}

/// True if Claude Code cuts the name of a folder, and appends a hash.
pub(super) fn is_long(folder: &str) -> bool {
    composed(folder).encode_utf16().count() > LONGEST
}

/// Returns the name of a folder in Claude Code: a dash for all but ASCII letters and digits. A long name is
/// cut, and ends with a hash of the path.
pub(super) fn claude_code(folder: &str, hash: FolderHash) -> String {
    let folder = composed(folder);
    // Its strings are UTF-16: a character of two units gives two dashes.
    let mark = |unit: u16| match u8::try_from(unit) {
        Ok(byte) if byte.is_ascii_alphanumeric() => char::from(byte),
        _ => '-',
    };
    let mut name: String = folder.encode_utf16().map(mark).collect();
    if name.len() > LONGEST {
        name.truncate(LONGEST);
        name.push('-');
        name.push_str(&hash.of(&folder));
    }
    name
}

/// Returns the name of a folder in pi.
pub(super) fn pi(folder: &str) -> String {
    let path = folder.strip_prefix(['/', '\\']).unwrap_or(folder);
    format!("--{}--", path.replace(['/', '\\', ':'], "-"))
}

fn base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        // The remainder is below 36.
        digits.extend(char::from_digit((number % 36) as u32, 36));
        number /= 36;
        if number == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}

/// Bun's hash of more than 48 bytes: Wyhash, without a seed. Shorter folders are not hashed.
fn wyhash(bytes: &[u8]) -> u64 {
    const SECRET: [u64; 4] = [
        0xa076_1d64_78bd_642f,
        0xe703_7ed1_a0b4_28db,
        0x8ebc_6af0_9c88_c6e3,
        0x5899_65cc_7537_4cc3,
    ];
    let mut states = [mix(SECRET[0], SECRET[1]); 3];
    let mut rest = bytes;
    while rest.len() > 48 {
        for (at, state) in states.iter_mut().enumerate() {
            let (first, second) = (word(rest, 16 * at), word(rest, 16 * at + 8));
            *state = mix(first ^ SECRET[at + 1], second ^ *state);
        }
        rest = &rest[48..];
    }
    let mut state = states[0] ^ states[1] ^ states[2];
    while rest.len() > 16 {
        state = mix(word(rest, 0) ^ SECRET[1], word(rest, 8) ^ state);
        rest = &rest[16..];
    }
    let end = bytes.len().saturating_sub(16);
    let (first, second) = multiplied(word(bytes, end) ^ SECRET[1], word(bytes, end + 8) ^ state);
    mix(first ^ SECRET[0] ^ bytes.len() as u64, second ^ SECRET[1])
}

/// Returns the eight bytes at an offset as a number, zeros after the end.
fn word(bytes: &[u8], at: usize) -> u64 {
    let found = bytes.iter().skip(at).take(8).rev();
    found.fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// Returns the lower and the upper half of a product.
fn multiplied(a: u64, b: u64) -> (u64, u64) {
    let product = u128::from(a) * u128::from(b);
    (product as u64, (product >> 64) as u64)
}

fn mix(a: u64, b: u64) -> u64 {
    let (low, high) = multiplied(a, b);
    low ^ high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(folder: &str) -> String {
        claude_code(folder, FolderHash::Bun)
    }

    #[test]
    fn a_folder_has_the_name_that_claude_code_looks_for() {
        assert_eq!(named("/home/me/my.app"), "-home-me-my-app");
        assert_eq!(named("/a/../b c"), "-a----b-c");
        assert_eq!(named("/\u{e9}/\u{1f600}"), "-----");
    }

    /// It composes the path before it counts letters: `e` with an accent behind it is one.
    #[test]
    fn a_folder_in_letters_and_accents_has_the_name_of_the_composed_one() {
        assert_eq!(named("/cafe\u{301}/x"), "-caf--x");
        assert_eq!(named("/cafe\u{301}/x"), named("/caf\u{e9}/x"));
        let long = |accent: &str| named(&format!("/{}", accent.repeat(210)));
        assert_eq!(long("e\u{301}"), long("\u{e9}"));
        assert!(is_long(&"/x".repeat(101)) && !is_long(&"e\u{301}".repeat(200)));
    }

    /// The values were computed with Bun 1.4.5 and Node 20.
    #[test]
    fn a_long_folder_is_cut_and_ends_with_the_hash_of_the_program() {
        for (folder, bun, node) in [
            (format!("/{}a", "x".repeat(300)), "3rgeys208xc4i", "ypwfbm"),
            (format!("/{}b", "x".repeat(300)), "1ijmo5sbudgkl", "ypwfbn"),
            (
                format!("/data/{}", "0123456789".repeat(21)),
                "1a87p3qrapac8",
                "78xy73",
            ),
            (format!("/{}", "y".repeat(255)), "i005hd55849t", "uz7e5y"),
            (format!("/{}", "abc/".repeat(64)), "54pqj6dh6rb1", "em0ccx"),
        ] {
            for (hash, wanted) in [(FolderHash::Bun, bun), (FolderHash::Node, node)] {
                let name = claude_code(&folder, hash);
                let (start, end) = name.split_at(LONGEST);
                assert_eq!(end, format!("-{wanted}"), "{folder}");
                assert!(folder.replace('/', "-").starts_with(start));
            }
        }
        assert_eq!(
            wyhash("/é/日本".repeat(20).as_bytes()),
            246_410_710_415_284_538
        );
        assert_eq!(base36(0), "0");
        assert_eq!(base36(u64::from(u32::MAX)), "1z141z3");
    }

    #[test]
    fn no_folder_leads_out_of_the_agents_own() {
        for folder in ["/..", "/../../etc", "..", "C:\\..\\x", "/a/./b", ""] {
            for name in [named(folder), pi(folder)] {
                assert!(!name.contains(['/', '\\', ':']), "{name}");
                assert!(name != ".." && name != ".", "{name}");
            }
        }
        assert_eq!(pi("/home/me/app"), "--home-me-app--");
    }
}
