//! `loopstore recall`

use loopstore_terminal::output::within;
use loopstore_terminal::{App, CliError, Done, amount};

use super::index;
use super::search;

/// The start of the next page.
const HINT: &str = "add --offset ";

/// Answer a question from the stored messages: excerpts of the best matches, within a number of tokens
///
/// The question has the syntax of `search`. The answer shows the lines around the words of each match, the call of a
/// result and the prompt of an answer, in the order of the conversation. The smallest answer has about 100 tokens.
#[derive(clap::Args)]
pub struct RecallArgs {
    /// The question; several words need no quotes.
    #[arg(required = true, num_args = 1..)]
    question: Vec<String>,
    /// The maximum number of tokens of the answer.
    #[arg(long, value_name = "N", default_value = "2000", value_parser = amount::tokens)]
    max_tokens: u64,
    #[command(flatten)]
    filter: search::FilterArgs,
    /// The maximum number of matches to read, the best first [default: 50].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// The number of best matches to skip; an answer prints how many it contains.
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: u32,
}

/// Answers the question.
pub fn run(app: &mut App, args: &RecallArgs) -> Result<Done, CliError> {
    let store = search::open(app)?;
    let mut query = search::query(&*store, &search::joined(&args.question), &args.filter)?;
    query.limit = args.limit.map(|limit| limit as usize);
    query.offset = args.offset as usize;
    index::catch_up_with_bar(&*store);
    if app.json {
        let answer = loopstore::recall(&*store, &query, args.max_tokens)?;
        app.out.json(&answer)?;
        return Ok(Done::Well);
    }
    let make = |tokens: Option<u64>| {
        let answer = loopstore::recall(&*store, &query, tokens.unwrap_or(u64::MAX))?;
        let mut text = answer.text();
        if let Some(left_out) = &answer.left_out {
            let offset = left_out.offset;
            let end = format!("go on at offset {offset}\n");
            text.truncate(text.strip_suffix(&end).unwrap_or(&text).len());
            text.push_str(&format!("{HINT}{offset}"));
        }
        Ok(text)
    };
    let text = within(&*store, Some(args.max_tokens), HINT, make)?;
    app.out.text(text.trim_end_matches('\n'))?;
    Ok(Done::Well)
}
