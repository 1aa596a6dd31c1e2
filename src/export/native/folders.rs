//! What agents call the folder of a project.

/// How long such a name may be before Claude Code cuts it.
const LONGEST: usize = 200;

/// Returns what Claude Code calls a folder: a dash for all but ASCII letters and digits. A long name is
/// cut, and ends with a hash of the path.
pub(super) fn claude_code(folder: &str) -> String {
    // Its strings are UTF-16: what takes two units gives two dashes.
    let units: Vec<u16> = folder.encode_utf16().collect();
    let mark = |unit: &u16| match u8::try_from(*unit) {
        Ok(byte) if byte.is_ascii_alphanumeric() => char::from(byte),
        _ => '-',
    };
    let mut name: String = units.iter().map(mark).collect();
    if name.len() > LONGEST {
        let step = |hash: i32, unit: &u16| {
            let shifted = hash.wrapping_shl(5).wrapping_sub(hash);
            shifted.wrapping_add(i32::from(*unit))
        };
        let hash = units.iter().fold(0, step).unsigned_abs();
        name.truncate(LONGEST);
        name.push('-');
        name.push_str(&base36(hash));
    }
    name
}

/// Returns what pi calls a folder.
pub(super) fn pi(folder: &str) -> String {
    let path = folder.strip_prefix(['/', '\\']).unwrap_or(folder);
    format!("--{}--", path.replace(['/', '\\', ':'], "-"))
}

fn base36(mut number: u32) -> String {
    let mut digits = Vec::new();
    loop {
        digits.extend(char::from_digit(number % 36, 36));
        number /= 36;
        if number == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_the_name_that_claude_code_looks_for() {
        assert_eq!(claude_code("/home/me/my.app"), "-home-me-my-app");
        assert_eq!(claude_code("/a/../b c"), "-a----b-c");
        assert_eq!(claude_code("/\u{e9}/\u{1f600}"), "-----");
    }

    #[test]
    fn a_long_folder_is_cut_and_told_apart_by_its_hash() {
        let long = |end: &str| claude_code(&format!("/{}{end}", "x".repeat(300)));
        assert_ne!(long("a"), long("b"));
        let (name, hash) = (long("a"), long("a").split_off(LONGEST));
        assert!(name.starts_with("-xxx") && hash.starts_with('-'), "{name}");
        assert_eq!(base36(0), "0");
        assert_eq!(base36(u32::MAX), "1z141z3");
    }

    #[test]
    fn no_folder_leads_out_of_the_agents_own() {
        for folder in ["/..", "/../../etc", "..", "C:\\..\\x", "/a/./b", ""] {
            for name in [claude_code(folder), pi(folder)] {
                assert!(!name.contains(['/', '\\', ':']), "{name}");
                assert!(name != ".." && name != ".", "{name}");
            }
        }
        assert_eq!(pi("/home/me/app"), "--home-me-app--");
    }
}
