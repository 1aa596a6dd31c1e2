//! Lines about the source files of a session that loses content: removed, or kept for other sessions.

use loopstore::SessionId;
use loopstore_admin::retention::KeptFile;
use loopstore_terminal::text;

/// The maximum number of files in the list, and of sessions for each.
const NAMED: usize = 5;

/// Returns lines on the files that are removed and that stay, with the other sessions in them.
pub fn lines(files: &[KeptFile]) -> Vec<String> {
    text::at_most(files.iter().map(line), NAMED)
}

fn line(file: &KeptFile) -> String {
    let path = text::line(&file.path);
    let others = sessions(&file.sessions);
    match (file.goes, file.sessions.is_empty()) {
        (true, true) => format!("Source file {path}: removed."),
        (true, false) => format!("Source file {path}: removed, also for {others}."),
        (false, _) => format!(
            "Source file {path}: kept, as it is also the file of {others}. It still holds the removed \
             text; --with-files removes it."
        ),
    }
}

fn sessions(ids: &[SessionId]) -> String {
    let names: Vec<String> = ids
        .iter()
        .take(NAMED)
        .map(|id| text::line(id.as_str()))
        .collect();
    let more = match ids.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {} more", text::number(more as u64)),
    };
    let noun = if ids.len() == 1 {
        "session"
    } else {
        "sessions"
    };
    format!("{noun} {}{more}", names.join(", "))
}
