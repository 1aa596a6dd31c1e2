//! `loopstore expand --block` and `--run`

use loopstore::extend::SessionRow;
use loopstore::{Database, LoopId};
use loopstore_admin::inspect::{self, BlockName, BlockSection, ReplacedTurns};
use loopstore_terminal::{CliError, select, text};

use super::expand::ExpandArgs;

/// A section in the form of an argument.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum SectionName {
    /// Kept verbatim.
    First,
    /// Replaced by a summary.
    Compacted,
    /// Kept, with long tool outputs cut.
    Recent,
}

/// Returns the turns that the named block replaced; `None` if no block is named.
pub fn find(
    store: &dyn Database,
    session: &SessionRow,
    loop_id: Option<&LoopId>,
    args: &ExpandArgs,
) -> Result<Option<ReplacedTurns>, CliError> {
    let run = select::run_id(store, session, args.run.as_deref())?;
    let name = match (args.block, run) {
        (Some(generation), _) => BlockName::Generation(generation),
        (None, Some(run)) => BlockName::Run(run),
        (None, None) => return Ok(None),
    };
    let section = args.section.map(|section| match section {
        SectionName::First => BlockSection::First,
        SectionName::Compacted => BlockSection::Compacted,
        SectionName::Recent => BlockSection::Recent,
    });
    let found = inspect::replaced(store, &session.session_id, loop_id, &name, section)?;
    Ok(Some(found))
}

/// Returns the heading of the turns.
pub fn heading(block: &ReplacedTurns) -> String {
    let others = block.covers.iter();
    let others = others.filter(|part| part.loop_id != block.loop_id);
    let mut others: Vec<String> = others
        .map(|part| text::line(part.loop_id.as_str()))
        .collect();
    others.dedup();
    let mut lines = vec![format!(
        "── loop {}, turns {}: covered by the {} section of block {}",
        text::line(block.loop_id.as_str()),
        text::turns(block.turns.0, block.turns.1),
        block.section.as_str(),
        block.generation,
    )];
    if !others.is_empty() {
        lines.push(format!(
            "It also covers other loops, which --loop and --turns read: {}.",
            others.join(", ")
        ));
    }
    lines.push(String::new());
    lines.join("\n")
}
