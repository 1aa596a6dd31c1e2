//! `loopstore index`

use indicatif::ProgressBar;
use loopstore::Database;
use loopstore::extend::search::Indexed;
use loopstore_terminal::{App, CliError, Done, progress, text};

/// Update the search index
///
/// A search does this too. Recording continues meanwhile.
#[derive(clap::Args)]
pub struct IndexArgs {
    /// Rebuild it, even if it is damaged.
    #[arg(long)]
    rebuild: bool,
}

/// Updates the index and prints its state.
pub fn run(app: &mut App, args: &IndexArgs) -> Result<Done, CliError> {
    let store = app.open_to_write()?;
    let bar = progress::bar("messages indexed");
    let mut progress = |far: Indexed| show(&bar, far);
    let done = if args.rebuild {
        loopstore::extend::search::rebuild_index(&*store, &mut progress)
    } else {
        loopstore::extend::search::index(&*store, &mut progress)
    };
    bar.finish_and_clear();
    let far = done?;
    app.print(&far, || {
        let all = text::count(far.total, "message");
        let rest = match far.indexed < far.total {
            true => " The others are in turns that are still open; a search reads them directly.",
            false => "",
        };
        format!("{} of {all} indexed.{rest}", text::number(far.indexed))
    })?;
    Ok(Done::Well)
}

/// Updates the index with a progress bar.
pub fn update(store: &dyn Database) -> Result<Indexed, CliError> {
    let bar = progress::bar("messages indexed");
    let done = loopstore::extend::search::index(store, &mut |far| show(&bar, far));
    bar.finish_and_clear();
    Ok(done?)
}

/// Updates the index with a progress bar, if it is visible. The search reports errors.
pub fn catch_up_with_bar(store: &dyn Database) {
    let bar = progress::bar("messages indexed");
    if !bar.is_hidden() {
        let _ = loopstore::extend::search::index(store, &mut |far| show(&bar, far));
    }
    bar.finish_and_clear();
}

fn show(bar: &ProgressBar, far: Indexed) {
    bar.set_length(far.total);
    bar.set_position(far.indexed);
}
