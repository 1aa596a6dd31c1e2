//! Objects that another program added to the schema, on the tables of the store or in their place.
//!
//! A trigger runs inside the statements of this program: it can copy what is written, swallow a row, or never
//! end. An index or a reference can refuse a row. A view in place of a table answers what it wants, and may
//! never end either. So a write begins with a look at the schema, as long as it may have changed, and is refused
//! if there is such an object; a read goes on, but only for some time. Tables that a user adds, with their own
//! indexes and triggers, and views over ours are left alone: no statement of this program reaches them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rusqlite::{Connection, Rows, Statement, StatementStatus};

use super::migration::{self, Formats};
use super::query::in_time;
use super::{from_sqlite, index};
use crate::store::error::{OpenError, StoreError, StoreResult};

/// The longest time of a read in a database in which another object has the name of a table or view.
pub(super) const MOST_READING: Duration = Duration::from_secs(10);

/// The scripts that make the schema. SQLite keeps the text of each statement.
const SCRIPTS: [&str; 1] = [include_str!("../../migrations/sqlite/V1__store.sql")];

/// The table in which the migrations note which of them were applied.
const HISTORY: &str = "refinery_schema_history";

/// The objects of a schema that are not of this store and can change what its statements do.
#[derive(Debug, Default)]
pub(super) struct ForeignObjects {
    /// Triggers and indexes on tables of the store, and tables that refer to them.
    pub(super) added: Vec<String>,
    /// Objects that have the name of one of the store, and are another one.
    pub(super) replaced: Vec<String>,
}

impl ForeignObjects {
    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.replaced.is_empty()
    }

    /// Returns why a file with them cannot be opened.
    pub(super) fn refusal(&self, path: PathBuf) -> OpenError {
        let objects = self.list();
        OpenError::ForeignSchema { path, objects }
    }

    /// Returns all of them as one line.
    fn list(&self) -> String {
        let all: Vec<&str> = [&self.replaced, &self.added]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        all.join(", ")
    }

    fn error(&self) -> StoreError {
        StoreError::ForeignSchema(self.list())
    }
}

/// Refuses to write where there are foreign objects. In a transaction, so that none is added meanwhile.
///
/// # Errors
/// [`StoreError::ForeignSchema`] if there are.
pub(super) fn refuse(connection: &Connection) -> StoreResult<()> {
    let found = look(connection, migration::formats()).map_err(from_sqlite)?;
    match found.is_empty() {
        true => Ok(()),
        false => Err(found.error()),
    }
}

/// Runs a read on one snapshot, without a limit of time; if something stands in place of a table or view, for
/// `most` at most.
///
/// The statement that looks at the schema also holds the snapshot: SQLite keeps the snapshot of a connection
/// while one of its statements is on a row. `BEGIN` and `COMMIT` would be two more statements for each read.
///
/// # Errors
/// [`StoreError::ForeignSchema`] if the time is over, or what `work` returns.
pub(super) fn snapshot<T>(
    connection: &mut Connection,
    most: Duration,
    work: impl FnOnce(&Connection) -> StoreResult<T>,
) -> StoreResult<T> {
    let found = {
        let mut look = connection.prepare_cached(LOOK).map_err(from_sqlite)?;
        let rows = first_row(&mut look).map_err(from_sqlite)?;
        let found = changes(connection, &rows, migration::formats()).map_err(from_sqlite)?;
        if found.replaced.is_empty() {
            return work(connection);
        }
        found
    };
    let end = Instant::now() + most;
    let done = in_time(connection, Some(most), |connection| {
        let mut look = connection.prepare_cached(LOOK).map_err(from_sqlite)?;
        let rows = first_row(&mut look).map_err(from_sqlite)?;
        look_again(&rows);
        work(connection)
    });
    match done {
        Err(_) if Instant::now() >= end => Err(found.error()),
        done => done,
    }
}

/// Returns the foreign objects, if the schema may have changed since this connection last looked; else none.
pub(super) fn look(connection: &Connection, formats: &Formats) -> rusqlite::Result<ForeignObjects> {
    let mut look = connection.prepare_cached(LOOK)?;
    let rows = first_row(&mut look)?;
    changes(connection, &rows, formats)
}

/// A statement that SQLite prepares anew when the schema has changed, and counts that it did: a fraction of the
/// cost of reading the number of the schema. Its first row is of no table, so that none is opened.
const LOOK: &str = "SELECT 1 UNION ALL SELECT 1 FROM sqlite_schema";

fn first_row<'s>(look: &'s mut Statement<'_>) -> rusqlite::Result<Rows<'s>> {
    let mut rows = look.query([])?;
    rows.next()?;
    Ok(rows)
}

/// Returns the foreign objects, if the schema may have changed since the statement of `rows` last ran.
fn changes(
    connection: &Connection,
    rows: &Rows<'_>,
    formats: &Formats,
) -> rusqlite::Result<ForeignObjects> {
    if let Some(look) = rows.as_ref() {
        let is_first = look.get_status(StatementStatus::Run) <= 1;
        let is_renewed = look.reset_status(StatementStatus::RePrepare) > 0;
        if !is_first && !is_renewed {
            return Ok(ForeignObjects::default());
        }
    }
    let found = find(connection, formats);
    if !found.as_ref().is_ok_and(ForeignObjects::is_empty) {
        look_again(rows);
    }
    found
}

/// Has the next look read the whole schema.
fn look_again(rows: &Rows<'_>) {
    if let Some(look) = rows.as_ref() {
        look.reset_status(StatementStatus::Run);
    }
}

/// Returns the foreign objects of the main schema. A temporary one belongs to a connection, and those of this
/// program have none.
pub(super) fn find(connection: &Connection, formats: &Formats) -> rusqlite::Result<ForeignObjects> {
    let mut candidates = Vec::new();
    let mut statement =
        connection.prepare("SELECT CAST(sql AS TEXT) FROM sqlite_schema WHERE sql IS NOT NULL")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let bytes = row.get_ref(0)?.as_bytes()?;
        if simdutf8::basic::from_utf8(bytes).is_ok_and(|sql| OWN.has(sql)) {
            continue;
        }
        candidates.push(String::from_utf8_lossy(bytes).into_owned());
    }
    drop(rows);
    let mut found = ForeignObjects::default();
    // A statement that a later migration changed is in no script in its present form.
    let mut wanted = None;
    for sql in candidates {
        let Some(verdict) = judge(connection, &sql)? else {
            continue;
        };
        let wanted: &BTreeSet<String> = match &wanted {
            Some(wanted) => wanted,
            None => wanted.insert(formats.statements()?),
        };
        match verdict {
            _ if wanted.contains(&sql) => {}
            Verdict::Added(what) => found.added.push(what),
            Verdict::Replaced(what) => found.replaced.push(what),
        }
    }
    Ok(found)
}

/// The effect of an object that is in no script.
enum Verdict {
    Added(String),
    Replaced(String),
}

/// Returns the effect of a foreign object on the store, if it has one.
fn judge(connection: &Connection, sql: &str) -> rusqlite::Result<Option<Verdict>> {
    let Some(made) = CreatedObject::read(sql) else {
        let line = sql.lines().next().unwrap_or_default();
        let beginning: String = line.chars().take(60).collect();
        let what = format!("an object that SQLite has as `{beginning}`");
        return Ok(Some(Verdict::Added(what)));
    };
    let (kind, word, shown) = (made.kind, made.kind.word(), &made.name);
    let name = made.name.to_ascii_lowercase();
    let is_trigger = kind == ObjectKind::Trigger;
    if OWN.names(is_trigger).contains(&name) {
        let what = format!("{word} `{shown}`, which is not the one of this format");
        return Ok(Some(Verdict::Replaced(what)));
    }
    // The tables of the search index are SQLite's own, and it is checked apart. So are those of SQLite.
    let is_table = matches!(kind, ObjectKind::Table | ObjectKind::VirtualTable);
    if is_table && (index::is_index(&name) || name == HISTORY || name.starts_with("sqlite_")) {
        return Ok(None);
    }
    let is_own = |table: &String| {
        OWN.names(false).contains(table) || index::is_index(table) || table == HISTORY
    };
    if let Some(table) = made.on.as_ref().filter(|table| is_own(table)) {
        let what = format!("{word} `{shown}` on `{table}`");
        return Ok(Some(Verdict::Added(what)));
    }
    if kind != ObjectKind::Table {
        return Ok(None);
    }
    let parent = parents(connection, &name)?.into_iter().find(is_own);
    Ok(parent.map(|parent| {
        let what = format!("{word} `{shown}`, which references `{parent}`");
        Verdict::Added(what)
    }))
}

/// Returns the tables that a table references.
fn parents(connection: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let sql = "SELECT lower(\"table\") FROM pragma_foreign_key_list(?1)";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([table], |row| row.get(0))?;
    rows.collect()
}

/// The statements and names of this store.
struct Own {
    /// The rest of the script from each statement on, by the first line of the statement.
    statements: HashMap<&'static str, &'static str>,
    triggers: HashSet<String>,
    others: HashSet<String>,
}

static OWN: LazyLock<Own> = LazyLock::new(|| {
    let mut own = Own {
        statements: HashMap::new(),
        triggers: HashSet::new(),
        others: HashSet::new(),
    };
    for script in SCRIPTS {
        let breaks = script.match_indices("\nCREATE ").map(|(at, _)| at + 1);
        for rest in breaks.map(|at| &script[at..]) {
            let first = rest.lines().next().unwrap_or_default();
            own.statements.insert(first, rest);
            match CreatedObject::read(rest) {
                Some(made) if made.kind == ObjectKind::Trigger => {
                    own.triggers.insert(made.name.to_ascii_lowercase())
                }
                Some(made) => own.others.insert(made.name.to_ascii_lowercase()),
                None => false,
            };
        }
    }
    own
});

impl Own {
    /// True if a script makes an object by this text, and by all of it.
    fn has(&self, sql: &str) -> bool {
        let first = sql.lines().next().unwrap_or_default();
        // A statement of one line ends with a semicolon in the script.
        let with_end = || self.statements.get(format!("{first};").as_str());
        let rest = self.statements.get(first).or_else(with_end);
        let rest = rest.and_then(|rest| rest.strip_prefix(sql));
        rest.is_some_and(|rest| rest.starts_with(';'))
    }

    fn names(&self, of_triggers: bool) -> &HashSet<String> {
        match of_triggers {
            true => &self.triggers,
            false => &self.others,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ObjectKind {
    Table,
    VirtualTable,
    View,
    Index,
    Trigger,
}

impl ObjectKind {
    fn word(self) -> &'static str {
        match self {
            Self::Table | Self::VirtualTable => "table",
            Self::View => "view",
            Self::Index => "index",
            Self::Trigger => "trigger",
        }
    }
}

/// The object that a `CREATE` statement makes.
struct CreatedObject {
    kind: ObjectKind,
    name: String,
    /// The table or view of a trigger or index, in lower case, as SQLite compares names.
    on: Option<String>,
}

impl CreatedObject {
    /// Reads the beginning of a statement; `None` if it makes nothing that is known.
    fn read(sql: &str) -> Option<Self> {
        let mut tokens = SqlTokens(sql);
        tokens.next()?.is("create").then_some(())?;
        let mut token = tokens.next()?;
        while ["temp", "temporary", "unique"]
            .iter()
            .any(|word| token.is(word))
        {
            token = tokens.next()?;
        }
        let kind = match () {
            () if token.is("table") => ObjectKind::Table,
            () if token.is("view") => ObjectKind::View,
            () if token.is("index") => ObjectKind::Index,
            () if token.is("trigger") => ObjectKind::Trigger,
            () if token.is("virtual") && tokens.next()?.is("table") => ObjectKind::VirtualTable,
            () => return None,
        };
        let mut token = tokens.next()?;
        if token.is("if") {
            // IF NOT EXISTS
            token = tokens.nth(2)?;
        }
        let name = tokens.qualified(token)?;
        let on = match kind {
            ObjectKind::Index | ObjectKind::Trigger => {
                tokens.find(|token| token.is("on"))?;
                let token = tokens.next()?;
                Some(tokens.qualified(token)?.to_ascii_lowercase())
            }
            _ => None,
        };
        Some(Self { kind, name, on })
    }
}

/// A word, a quoted name or a sign of a statement.
enum SqlToken<'a> {
    Word(&'a str),
    Quoted(String),
    Sign(char),
}

impl SqlToken<'_> {
    fn is(&self, keyword: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    fn name(self) -> Option<String> {
        match self {
            Self::Word(word) => Some(word.to_owned()),
            Self::Quoted(name) => Some(name),
            Self::Sign(_) => None,
        }
    }
}

/// The tokens of a statement, without its comments.
struct SqlTokens<'a>(&'a str);

impl<'a> SqlTokens<'a> {
    /// Returns a name that may stand behind that of its schema.
    fn qualified(&mut self, first: SqlToken<'a>) -> Option<String> {
        let rest = self.0;
        if let Some(SqlToken::Sign('.')) = self.next() {
            return self.next()?.name();
        }
        self.0 = rest;
        first.name()
    }

    fn quoted(&mut self, open: char) -> SqlToken<'a> {
        let close = if open == '[' { ']' } else { open };
        let (mut name, mut rest) = (String::new(), &self.0[1..]);
        while let Some((part, behind)) = rest.split_once(close) {
            name.push_str(part);
            rest = behind;
            // Twice stands for once, but for brackets.
            match rest.strip_prefix(close).filter(|_| close != ']') {
                Some(behind) => {
                    name.push(close);
                    rest = behind;
                }
                None => break,
            }
        }
        self.0 = rest;
        SqlToken::Quoted(name)
    }
}

impl<'a> Iterator for SqlTokens<'a> {
    type Item = SqlToken<'a>;

    fn next(&mut self) -> Option<SqlToken<'a>> {
        loop {
            // A byte order mark is white space to SQLite.
            let is_space = |c: char| c.is_ascii_whitespace() || c == '\u{b}' || c == '\u{feff}';
            self.0 = self.0.trim_start_matches(is_space);
            let behind =
                |end: &str, rest: &'a str| rest.split_once(end).map_or("", |(_, behind)| behind);
            self.0 = match self.0 {
                rest if rest.starts_with("--") => behind("\n", rest),
                rest if rest.starts_with("/*") => behind("*/", &rest[2..]),
                _ => break,
            };
        }
        let first = self.0.chars().next()?;
        if matches!(first, '"' | '\'' | '`' | '[') {
            return Some(self.quoted(first));
        }
        let is_of_word = |c: char| c.is_ascii_alphanumeric() || "_$".contains(c) || !c.is_ascii();
        let end = self.0.find(|c| !is_of_word(c)).unwrap_or(self.0.len());
        let (token, rest) = match end {
            0 => (SqlToken::Sign(first), &self.0[first.len_utf8()..]),
            end => (SqlToken::Word(&self.0[..end]), &self.0[end..]),
        };
        self.0 = rest;
        Some(token)
    }
}

#[cfg(test)]
mod tests;
