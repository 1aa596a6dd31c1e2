//! `loopstore hide` and `loopstore unhide`

use loopstore::extend::{self as store, SessionRow, StoreRead, StoreResult, session};
use loopstore::{SessionId, StoreError};
use loopstore_terminal::{App, CliError, Done, select, text};
use serde::Serialize;

/// Hide a session from lists and search
///
/// Nothing is removed, and its id may be used again. The session stays under an id of its own, which is
/// printed; `sessions --hidden` lists such sessions, `unhide` brings one back, and `erase` and `prune` remove
/// them like others.
#[derive(clap::Args)]
pub struct HideArgs {
    /// The session: its id or a unique prefix.
    session: String,
}

/// Bring a hidden session back
#[derive(clap::Args)]
pub struct UnhideArgs {
    /// The hidden session: its whole id, as `sessions --hidden` lists it, or its earlier id.
    session: String,
    /// The new id of the session [default: its earlier id].
    #[arg(long = "as", value_name = "ID")]
    id: Option<String>,
}

#[derive(Serialize)]
struct HiddenSession<'a> {
    /// The id of the session while it is visible.
    session_id: &'a str,
    /// The id of the session while it is hidden.
    hidden_as: &'a str,
}

/// Hides the session.
pub fn run(app: &mut App, args: &HideArgs) -> Result<Done, CliError> {
    let store = app.open_to_write()?;
    let row = select::session(&*store, &args.session)?;
    let id = store::write(&*store, |write| session::hide(write, row.key))?;
    let hidden = HiddenSession {
        session_id: row.session_id.as_str(),
        hidden_as: id.as_str(),
    };
    let (was, now) = (text::line(hidden.session_id), text::line(hidden.hidden_as));
    app.print(&hidden, || {
        format!("Session {was} is hidden as {now}; its id may be used again.")
    })?;
    Ok(Done::Well)
}

/// Makes a hidden session visible.
pub fn unhide(app: &mut App, args: &UnhideArgs) -> Result<Done, CliError> {
    let store = app.open_to_write()?;
    let row = store::read(&*store, |read| hidden(read, &args.session))?;
    let given = args.id.as_deref().map(SessionId::new).transpose();
    let given = given.map_err(|error| CliError::Usage(format!("--as: {error}")))?;
    let id = store::write(&*store, |write| {
        let hides = write.hides(row.key)?;
        let had = hides.into_iter().next_back().map(|last| last.was);
        let id = given.or(had);
        let id = id.ok_or_else(|| {
            let id = &row.session_id;
            StoreError::Invalid(format!("session `{id}` is not hidden"))
        })?;
        session::unhide(write, row.key, &id)?;
        Ok(id)
    })?;
    let shown = HiddenSession {
        session_id: id.as_str(),
        hidden_as: row.session_id.as_str(),
    };
    let (was, now) = (text::line(shown.hidden_as), text::line(shown.session_id));
    app.print(&shown, || format!("Session {was} is {now} again."))?;
    Ok(Done::Well)
}

/// Returns the hidden session with this id, or else the only one that had it before.
fn hidden(read: &dyn StoreRead, given: &str) -> StoreResult<SessionRow> {
    let none = || StoreError::NoSession(given.to_owned());
    let id = SessionId::new(given).map_err(|_| none())?;
    let is_hidden = |row: &SessionRow| session::is_hidden(read, row.key);
    if let Some(row) = read.session(&id)?
        && is_hidden(&row)?
    {
        return Ok(row);
    }
    let mut had = Vec::new();
    for key in read.renamed_from(&id)? {
        let last = read.hides(key)?.pop();
        if last.is_some_and(|last| last.hidden && last.was == id) {
            had.push(read.session_by_key(key)?);
        }
    }
    match (had.len(), had.pop()) {
        (0, _) | (_, None) => match read.session(&id)? {
            Some(_) => Err(StoreError::Invalid(format!("session `{id}` is not hidden"))),
            None => Err(none()),
        },
        (1, Some(row)) => Ok(row),
        (count, Some(last)) => {
            had.push(last);
            let ids = had.iter().map(|row| row.session_id.to_string());
            Err(StoreError::Ambiguous {
                given: given.to_owned(),
                count,
                ids: ids.take(4).collect(),
            })
        }
    }
}
