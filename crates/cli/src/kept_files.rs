//! Lines about the stored copies of the files of a session that loses content: removed, or kept for other sessions.

use loopstore::SessionId;
use loopstore_admin::retention::KeptFile;
use loopstore_terminal::text;

/// The maximum number of files in the list, and of sessions for each.
const NAMED: usize = 5;

/// The time of a list: before or after the removal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// Before: the command asks first, or only reports.
    Planned,
    /// After: the copies are removed.
    Done,
}

/// Returns lines on the stored copies that are removed and that stay, with the other sessions in them. The files
/// themselves are never touched.
pub fn lines(files: &[KeptFile], removal: Removal) -> Vec<String> {
    let line = |file| line(file, removal);
    let mut lines = text::at_most(files.iter().map(line), NAMED);
    if removal == Removal::Planned && files.iter().any(|file| file.goes) {
        lines.push("The files themselves stay where they are.".to_owned());
    }
    lines
}

fn line(file: &KeptFile, removal: Removal) -> String {
    let path = text::line(&file.path);
    let others = sessions(&file.sessions);
    let removed = match removal {
        Removal::Planned => "to be removed",
        Removal::Done => "removed",
    };
    match (file.goes, file.sessions.is_empty()) {
        (true, true) => format!("Stored copy of {path}: {removed}."),
        (true, false) => format!("Stored copy of {path}: {removed}, also for {others}."),
        (false, _) => format!(
            "Stored copy of {path}: kept, as it also belongs to {others}. It still contains the removed \
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
