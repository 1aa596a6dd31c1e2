//! The headings of search hits, for `loopstore search` and the browser.

use loopstore::extend::Disposition;
use loopstore::search::SearchHit;
use loopstore::{LoopId, Role};

use super::short::ShortNames;
use super::text;

/// Returns the place of a hit, and whether a block covers it.
pub fn hit_heading(hit: &SearchHit) -> String {
    let turn = hit
        .turn
        .map_or(String::new(), |turn| format!(", turn {turn}"));
    let at = hit.created_at.as_ref();
    let at = at.map_or(String::new(), |at| format!(", {}", text::time(at.as_str())));
    format!(
        "{}, loop {}{turn}, message {}, {}{at}{}",
        text::line(hit.session_id.as_str()),
        text::line(hit.loop_id.as_str()),
        hit.seq,
        role(hit.role),
        covering_block(hit, None),
    )
}

/// Returns the heading of a hit below a list of sessions: the author's role, the time, and whether a block covers the
/// message.
pub fn hit_line(hit: &SearchHit, names: &mut ShortNames<'_>) -> String {
    let at = hit.created_at.as_ref();
    let at = at.map_or(String::new(), |at| format!(", {}", text::time(at.as_str())));
    format!("{}{at}{}", role(hit.role), covering_block(hit, Some(names)))
}

/// Returns the address of a hit as `--turn` takes it: `LOOP:TURN`; `None` if the message has no turn.
pub fn hit_address(hit: &SearchHit, names: &mut ShortNames<'_>) -> Option<String> {
    let turn = hit.turn?;
    let loop_id = names.loop_id(hit.session_id.as_str(), hit.loop_id.as_str());
    Some(format!("{loop_id}:{turn}"))
}

/// Returns the name of a role, as `--role` takes it.
fn role(role: Role) -> &'static str {
    match role {
        Role::ToolResult => "tool-result",
        other => other.as_str(),
    }
}

/// Returns the block that covers the message, if the context does not contain it verbatim.
fn covering_block(hit: &SearchHit, names: Option<&mut ShortNames<'_>>) -> String {
    if hit.disposition == Some(Disposition::Kept) && !hit.hidden {
        return String::new();
    }
    let (Some(run), Some(generation)) = (&hit.run_id, hit.generation) else {
        return if hit.hidden {
            "; not in the context"
        } else {
            ""
        }
        .into();
    };
    let word = match hit.disposition {
        Some(disposition) => disposition.as_str().replace('_', " "),
        None => "covered".into(),
    };
    let session = hit.session_id.as_str();
    let other = hit.block_loop_id.as_ref();
    let other = other
        .filter(|other| **other != hit.loop_id)
        .map(LoopId::as_str);
    let (run, other) = match names {
        None => (run.clone(), other.map(str::to_owned)),
        Some(names) => (
            names.run(session, run),
            other.map(|other| names.loop_id(session, other)),
        ),
    };
    let on = other.map_or_else(String::new, |other| format!(" on {}", text::line(&other)));
    format!(
        "; {word} by block {generation}{on} of run {}",
        text::line(&run)
    )
}
