//! The heading of a search hit, for `loopstore search` and the browser.

use loopstore::Role;
use loopstore::extend::Disposition;
use loopstore::search::SearchHit;

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
        covering_block(hit),
    )
}

/// Returns the name of a role, as `--role` takes it.
fn role(role: Role) -> &'static str {
    match role {
        Role::ToolResult => "tool-result",
        other => other.as_str(),
    }
}

/// Returns the block that covers the message, if the context does not contain it verbatim.
fn covering_block(hit: &SearchHit) -> String {
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
    let on = match &hit.block_loop_id {
        Some(other) if *other != hit.loop_id => format!(" on {}", text::line(other.as_str())),
        _ => String::new(),
    };
    format!(
        "; {word} by block {generation}{on} of run {}",
        text::line(run)
    )
}
