//! `loopstore undo`

use loopstore::StoreError;
use loopstore::compact::FlipRequest;
use loopstore::extend::sqlite::Record;
use loopstore::extend::{self as store, leaf_of};
use loopstore_terminal::runs::flip_summary;
use loopstore_terminal::{App, CliError, Done, select, text};

/// Undo a compaction or an edit: the originals are read again
///
/// Without --run, the last active compaction or edit. `loopstore history` lists both, and `loopstore restore` undoes
/// the edits of a message. Nothing is deleted: `loopstore redo` brings it back.
#[derive(clap::Args)]
pub struct UndoArgs {
    #[command(flatten)]
    flip: FlipArgs,
}

/// The run to undo or redo.
#[derive(clap::Args)]
pub struct FlipArgs {
    /// The session: its id or a unique prefix.
    session: String,
    /// The loop whose chain is searched [default: the current one].
    #[arg(long = "loop", value_name = "LOOP")]
    loop_id: Option<String>,
    /// The run: its id or a unique prefix.
    #[arg(long)]
    run: Option<String>,
    /// The reason, stored with the undo or redo.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Undoes a run.
pub fn run(app: &mut App, args: &UndoArgs) -> Result<Done, CliError> {
    flip(app, &args.flip, false)
}

/// Undoes or redoes a run and prints what changed.
pub fn flip(app: &mut App, args: &FlipArgs, redo: bool) -> Result<Done, CliError> {
    let store = app.open_to_write()?;
    let session = select::session(&*store, &args.session)?;
    let request = FlipRequest {
        leaf: select::loop_id(&*store, &session, args.loop_id.as_deref())?,
        run: select::run_id(&*store, &session, args.run.as_deref())?,
        reason: args.reason.clone(),
    };
    let report = if redo {
        loopstore::redo(&*store, &session.session_id, &request)?
    } else {
        loopstore::undo(&*store, &session.session_id, &request)?
    };
    let leaf = store::read(&*store, |read| {
        Ok::<_, StoreError>(leaf_of(read, &session, request.leaf.as_ref())?.core.loop_id)
    })?;
    let leaf = text::line(leaf.as_str());
    let reader = || {
        // The run is undone or redone, even if its row cannot be read.
        let runs = store.run_rows(Some(&session.session_id)).ok()?;
        let flipped = |run: &&Record| run.text("run_id").as_deref() == Some(&*report.run_id);
        runs.iter().find(flipped).and_then(select::sealed_by)
    };
    app.print(&report, || {
        let summary = flip_summary(&report);
        match reader() {
            Some(provider) => format!(
                "{summary} of what {} reads, from loop {leaf}; nothing changed for others",
                provider.as_str()
            ),
            None => format!("{summary}, from loop {leaf}"),
        }
    })?;
    Ok(Done::Well)
}
