//! Shell completion.
//!
//! The script of `loopstore completions` runs the program with [`VARIABLE`] set; commands, options and words come from
//! clap, ids from the database on the command line. Completion only reads and never prints an error: it creates and
//! upgrades no database, and prompts for no key.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use clap::{ArgMatches, Command, CommandFactory, FromArgMatches};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::CompleteEnv;
use loopstore::extend::{
    self as store, SessionRow, StoreError, StoreRead, StoreResult, lookup, prompt,
};
use loopstore::{Database, SqliteStore};
use loopstore_terminal::output::Out;
use loopstore_terminal::server::Access;
use loopstore_terminal::{App, server, text};

use super::Cli;
use super::key::KeyArgs;

/// Set by the scripts; names the shell.
pub const VARIABLE: &str = "LOOPSTORE_COMPLETE";
/// The maximum number of ids that are offered.
const OFFERED: u32 = 100;
/// The maximum time that a shell waits for ids.
const PATIENCE: Duration = Duration::from_secs(1);
/// The maximum width of a title next to an id.
const TITLE: usize = 50;

/// The arguments that the shell called the program with.
static ARGS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Answers a shell that requests completions. Returns false if no shell does.
pub fn answer_shell(args: &[OsString]) -> bool {
    let args = ARGS.get_or_init(|| args.to_vec());
    let folder = std::env::current_dir().ok();
    let completer = CompleteEnv::with_factory(command).var(VARIABLE);
    match completer.try_complete(args, folder.as_deref()) {
        Ok(answered) => answered,
        Err(error) => {
            let _ = error.print();
            true
        }
    }
}

/// The kind of id that an argument takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ArgumentKind {
    Session,
    Loop,
    Run,
    /// A run or `LOOP:TURN`.
    AsOf,
    /// An `--as-of` argument, `raw` or `now`.
    Side,
}

/// Returns the command line, with completers on the arguments that take ids.
fn command() -> Command {
    Cli::command().mut_subcommands(|command| {
        command.mut_args(|arg| {
            let kind = match arg.get_id().as_str() {
                "session" | "after" => ArgumentKind::Session,
                "loop_id" => ArgumentKind::Loop,
                "run" => ArgumentKind::Run,
                "as_of" => ArgumentKind::AsOf,
                "from" | "to" => ArgumentKind::Side,
                _ => return arg,
            };
            let ids = move |given: &OsStr| ids(kind, given);
            arg.add(ArgValueCompleter::new(ids))
        })
    })
}

/// An id and its description.
type IdOffer = (String, Option<String>);

fn ids(kind: ArgumentKind, given: &OsStr) -> Vec<CompletionCandidate> {
    let Some(given) = given.to_str().map(str::to_owned) else {
        return Vec::new();
    };
    let (sender, offers) = mpsc::channel();
    // On a separate thread, which ends with the program: a server may be slow.
    std::thread::spawn(move || {
        let line = TypedLine::read(ARGS.get().into_iter().flatten().cloned());
        let _ = sender.send(line.and_then(|line| line.offers(kind, &given)));
    });
    let offers = offers.recv_timeout(PATIENCE).ok().flatten();
    let offers = offers.unwrap_or_default().into_iter();
    // Shells insert an id unquoted, and a transcript may contain any id.
    let offers = offers.filter(|(id, _)| text::is_plain(id));
    offers
        .map(|(id, help)| CompletionCandidate::new(id).help(help.map(Into::into)))
        .collect()
}

/// The command line as far as it was typed.
struct TypedLine {
    app: App,
    /// The session that it names.
    session: Option<String>,
}

impl TypedLine {
    /// Reads the words after the `--` behind which the script passes them.
    fn read(arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let words = arguments.skip_while(|word| word != "--").skip(1);
        let read = Cli::command().ignore_errors(true);
        let found = read.try_get_matches_from(words).ok()?;
        let key = KeyArgs::from_arg_matches(&found).ok()?.read_silently();
        let db = found.get_one::<PathBuf>("db").cloned();
        let app = App::new(db, key, Vec::new(), false, Out::plain());
        let named = |(_, found): (&str, &ArgMatches)| {
            let session = found.try_get_one::<String>("session").ok()??;
            Some(session.clone())
        };
        Some(Self {
            app,
            session: found.subcommand().and_then(named),
        })
    }

    fn open(&self) -> Option<Box<dyn Database>> {
        if let Some(address) = self.app.address() {
            return server::open(address, Access::Read).ok();
        }
        let options = self.app.options().stored_counter().read_only(true);
        let store = SqliteStore::open_with(&self.app.db, options).ok()?;
        Some(Box::new(store))
    }

    fn offers(&self, kind: ArgumentKind, given: &str) -> Option<Vec<IdOffer>> {
        let store = self.open()?;
        let offers = store::read(&*store, |read| {
            if kind == ArgumentKind::Session {
                return sessions(read, given);
            }
            let Some(session) = &self.session else {
                return Ok(Vec::new());
            };
            let session = lookup::session(read, session)?;
            of_session(read, &session, kind, given)
        });
        offers.ok()
    }
}

fn sessions(read: &dyn StoreRead, given: &str) -> StoreResult<Vec<IdOffer>> {
    let ids = lookup::sessions_beginning(read, given, OFFERED)?;
    let mut offers = Vec::new();
    for id in ids {
        let row = read.session(&id)?;
        let title = row.map(|row| prompt::session_title(read, &row));
        let title = title.transpose()?.flatten();
        let title = title.map(|title| text::fit(&text::line(&title), TITLE).into_owned());
        offers.push((id.to_string(), title));
    }
    Ok(offers)
}

fn of_session(
    read: &dyn StoreRead,
    session: &SessionRow,
    kind: ArgumentKind,
    given: &str,
) -> StoreResult<Vec<IdOffer>> {
    let mut offers = Vec::new();
    if kind == ArgumentKind::Side {
        offers.push(("now".to_owned(), Some("the current context".to_owned())));
        offers.push(("raw".to_owned(), Some("the originals".to_owned())));
    }
    if kind != ArgumentKind::Loop {
        runs(read, session, given, &mut offers)?;
    }
    if kind != ArgumentKind::Run {
        let end = if kind == ArgumentKind::Loop { "" } else { ":" };
        let loops = read.loops(session.key)?;
        for row in loops.iter().rev() {
            let help = text::count(row.totals.turns, "turn");
            offers.push((format!("{}{end}", row.loop_id), Some(help)));
        }
    }
    offers.retain(|(id, _)| id.starts_with(given));
    offers.truncate(OFFERED as usize);
    Ok(offers)
}

fn runs(
    read: &dyn StoreRead,
    session: &SessionRow,
    given: &str,
    offers: &mut Vec<IdOffer>,
) -> StoreResult<()> {
    read.runs(session.key, &mut |run| {
        if run.run_id.starts_with(given) {
            let help = format!("{}, {}", run.strategy, run.outcome.as_str());
            offers.push((run.run_id, Some(help)));
        }
        Ok::<_, StoreError>(match offers.len() < OFFERED as usize {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_that_no_shell_would_read_otherwise_are_offered() {
        for plain in ["kite-1", "new/side_s1", "01a200a3-df00", "a:b", "日本"] {
            assert!(text::is_plain(plain), "{plain}");
        }
        for odd in [
            "-rf",
            "a b",
            "$(reboot)",
            "a;b",
            "`a`",
            "a'b",
            "a\nb",
            "~root",
            "a*",
            "!!",
        ] {
            assert!(!text::is_plain(odd), "{odd}");
        }
    }

    #[test]
    fn what_is_typed_already_names_database_and_session() {
        let line = |words: &str| {
            let words = words.split(' ').map(OsString::from);
            let line = TypedLine::read(words).unwrap();
            (line.app.db.display().to_string(), line.session)
        };
        assert_eq!(
            line("loopstore -- loopstore --db a.db context kite --loop "),
            ("a.db".into(), Some("kite".into()))
        );
        assert_eq!(
            line("x -- x undo kite --run=01 --db b.db --reason "),
            ("b.db".into(), Some("kite".into()))
        );
        assert_eq!(line("x -- x --db c.db show").1, None);
    }
}
