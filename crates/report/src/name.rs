//! The name of a session's file.

use sha2::{Digest as _, Sha256};

use loopstore::model::SessionId;

/// The number of characters of an id in a name.
const MAX: usize = 80;

/// Returns a file name for a session's report. The name has only letters, digits, `.`, `-` and `_`. If the id has
/// other characters, a part of its digest is added, so that no two ids share a name.
///
/// ```
/// use loopstore::SessionId;
/// use loopstore_report::file_name;
/// # fn main() -> Result<(), loopstore::InvalidId> {
/// assert_eq!(file_name(&SessionId::new("work-1")?), "work-1.html");
/// assert_eq!(file_name(&SessionId::new("../a b")?), "a-b-2c2c791a.html");
/// # Ok(())
/// # }
/// ```
pub fn file_name(session: &SessionId) -> String {
    let id = session.as_str();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let plain = |c: char| if is_plain(c) { c } else { '-' };
    let safe: String = id.chars().map(plain).take(MAX).collect();
    let safe = safe.trim_matches(['.', '-']);
    // Some file systems treat `A` and `a` as the same name.
    let is_same = safe == id && !id.contains(|c: char| c.is_ascii_uppercase()) && safe != "index";
    if is_same {
        return format!("{safe}.html");
    }
    let digest = Sha256::digest(id.as_bytes());
    let digest: String = digest
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    match safe {
        "" => format!("session-{digest}.html"),
        safe => format!("{safe}-{digest}.html"),
    }
}
