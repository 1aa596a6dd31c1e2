//! Random secrets of twenty kinds, as they occur in a text, with their random part.

use super::histories::Random;

/// A secret.
pub struct Secret {
    /// The secret as it occurs in a text: a rule finds it there.
    pub text: String,
    /// The secret.
    pub value: String,
    /// The random parts of the secret.
    pub random: Vec<String>,
}

const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const LOWER: &str = "abcdefghijklmnopqrstuvwxyz0123456789";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const DIGITS: &str = "0123456789";
const HEX: &str = "0123456789abcdef";
const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The number of kinds.
pub const KINDS: u64 = 20;

fn random(random: &mut Random, letters: &str, length: usize) -> String {
    let letters = letters.as_bytes();
    let one = |_| char::from(letters[random.below(letters.len() as u64) as usize]);
    (0..length).map(one).collect()
}

fn after(prefix: &str, tail: String) -> (String, Vec<String>) {
    (format!("{prefix}{tail}"), vec![tail])
}

fn key(random_of: &mut Random, kind: &str, lines: usize) -> (String, Vec<String>) {
    let mut lines: Vec<String> = (0..lines).map(|_| random(random_of, BASE64, 64)).collect();
    lines.push(format!("{}==", random(random_of, BASE64, 22)));
    let body = lines.join("\n");
    let text =
        format!("-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----");
    (text, lines)
}

fn token(random_of: &mut Random, parts: [usize; 2]) -> (String, Vec<String>) {
    let head = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";
    let parts: Vec<String> = parts.map(|length| random(random_of, ALNUM, length)).into();
    (format!("{head}.eyJ{}.{}", parts[0], parts[1]), parts)
}

/// Makes a secret of a kind.
pub fn secret(from: &mut Random, kind: u64) -> Secret {
    let mut frame = ["", ""];
    let (value, random) = match kind {
        0 => after("ghp_", random(from, ALNUM, 36)),
        1 => after("AKIA", random(from, UPPER, 16)),
        2 => {
            let (team, bot) = (random(from, DIGITS, 12), random(from, DIGITS, 12));
            after(&format!("xoxb-{team}-{bot}-"), random(from, ALNUM, 24))
        }
        3 => token(from, [60, 43]),
        4 => key(from, "RSA ", 12),
        5 => key(from, "EC ", 2),
        6 => {
            frame = ["postgres://app:", "@db.example.org/app"];
            after("", random(from, ALNUM, 20))
        }
        7 => {
            frame = ["Authorization: Bearer ", ""];
            after("", random(from, URL, 40))
        }
        8 => {
            frame = ["DB_PASSWORD=\"", "\""];
            after("", format!("{}7", random(from, ALNUM, 18)))
        }
        9 => {
            frame = ["api_key = \"", "\""];
            after("", random(from, HEX, 32))
        }
        10 => after("sk_live_", random(from, ALNUM, 24)),
        11 => after("AIza", random(from, ALNUM, 35)),
        12 => after("glpat-", random(from, ALNUM, 20)),
        13 => after("npm_", random(from, LOWER, 36)),
        14 => {
            let (a, b) = (random(from, ALNUM, 22), random(from, ALNUM, 43));
            (format!("SG.{a}.{b}"), vec![a, b])
        }
        15 => after("dop_v1_", random(from, HEX, 64)),
        16 => {
            let tail = random(from, URL, 93);
            (format!("sk-ant-api03-{tail}AA"), vec![tail])
        }
        17 => after("github_pat_", random(from, ALNUM, 82)),
        18 => {
            frame = ["password: '", "'"];
            after("", format!("{}7", random(from, BASE64, 24)))
        }
        _ => {
            frame = ["https://:", "@host.example.org/x"];
            after("", random(from, ALNUM, 30))
        }
    };
    Secret {
        text: format!("{}{value}{}", frame[0], frame[1]),
        value,
        random,
    }
}
