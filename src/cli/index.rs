//! `loopstore index`

use indicatif::ProgressBar;
use loopstore::Database;
use loopstore::search::{self, Indexed};

use super::error::CliError;
use super::{App, Done, progress, text};

/// Bring the index of `search` up to date
///
/// A search does it too. Recording goes on meanwhile.
#[derive(clap::Args)]
pub struct Args {
    /// Make it anew, also if it is damaged.
    #[arg(long)]
    rebuild: bool,
}

/// Indexes and tells how far the index is.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    let store = app.open_to_write()?;
    let bar = progress::bar("messages indexed");
    let mut progress = |far: Indexed| show(&bar, far);
    let done = if args.rebuild {
        search::rebuild_index(&*store, &mut progress)
    } else {
        search::index(&*store, &mut progress)
    };
    bar.finish_and_clear();
    let far = done?;
    if app.json {
        app.out.json(&far)?;
    } else {
        let all = text::count(far.total, "message");
        let mut line = format!("{} of {all} indexed.", text::number(far.indexed));
        if far.indexed < far.total {
            line.push_str(
                " The others are in turns that are still open; a search looks at them itself.",
            );
        }
        app.out.text(&line)?;
    }
    Ok(Done::Well)
}

/// Lets the index catch up where somebody sees how far it is. What goes wrong, the search tells.
pub fn catch_up_with_bar(store: &dyn Database) {
    let bar = progress::bar("messages indexed");
    if !bar.is_hidden() {
        let _ = search::index(store, &mut |far| show(&bar, far));
    }
    bar.finish_and_clear();
}

fn show(bar: &ProgressBar, far: Indexed) {
    bar.set_length(far.total);
    bar.set_position(far.indexed);
}
