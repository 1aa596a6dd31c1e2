//! Reads the SQLite files in which `SQLiteSession` of OpenAI's agents SDK keeps conversations.
//!
//! The tables may have any name; they are recognised by their columns. `AdvancedSQLiteSession` has a further table with
//! the branches of each row.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::Path;

use loopstore::extend::StoreError;
use rusqlite::{Connection, Row};

use crate::sqlite_file::{Unusable, open, quoted, reason, table_with, text};

/// One conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSession {
    /// Its id.
    pub id: String,
    /// The time at which the conversation began, in the form of the file.
    pub created_at: Option<String>,
    /// The time of the last change, in the form of the file.
    pub updated_at: Option<String>,
}

/// One stored item of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentItem {
    /// The row.
    pub row: i64,
    /// The item, which should be JSON.
    pub data: String,
    /// The time at which the item was stored, in the form of the file.
    pub created_at: Option<String>,
    /// The row of the item before this item on its branch; `Some(None)` if the item begins a branch; `None` if it
    /// follows the item that was returned before it.
    pub parent: Option<Option<i64>>,
}

/// The branches of a conversation. A row may belong to several branches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentBranches {
    /// The rows, each after its parent, else in the order in which they were stored.
    pub order: Vec<i64>,
    parents: HashMap<i64, Option<i64>>,
    /// The last row of the branch that was written last.
    pub tip: Option<i64>,
}

/// A file of conversations.
pub struct AgentFile {
    connection: Connection,
    messages: String,
    sessions: Option<String>,
    /// The table of branches.
    structure: Option<String>,
}

impl AgentFile {
    /// Opens the file.
    ///
    /// # Errors
    /// If the file cannot be read, or lacks a table or column; the error gives the reason.
    pub fn open(path: &Path) -> Unusable<Self> {
        let connection = open(path)?;
        let messages = table_with(&connection, &["id", "session_id", "message_data"])?;
        let messages = messages.ok_or("it has no table with session_id and message_data")?;
        let sessions = table_with(&connection, &["session_id", "created_at", "updated_at"])?;
        let of_branches = [
            "id",
            "session_id",
            "message_id",
            "branch_id",
            "sequence_number",
        ];
        let structure = table_with(&connection, &of_branches)?;
        Ok(Self {
            connection,
            messages,
            sessions,
            structure,
        })
    }

    /// Returns the conversations in the order in which they began.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn sessions(&self) -> Unusable<Vec<AgentSession>> {
        let messages = quoted(&self.messages);
        let sql = match &self.sessions {
            Some(sessions) => format!(
                "SELECT m.session_id AS id, s.created_at AS created_at, s.updated_at AS updated_at
                 FROM (SELECT session_id, min(id) AS first FROM {messages} GROUP BY session_id) m
                     LEFT JOIN {} s ON s.session_id = m.session_id
                 ORDER BY m.first",
                quoted(sessions)
            ),
            None => format!(
                "SELECT session_id AS id, NULL AS created_at, NULL AS updated_at
                 FROM {messages} GROUP BY session_id ORDER BY min(id)"
            ),
        };
        let mut statement = self.connection.prepare(&sql).map_err(reason)?;
        let rows = statement.query_map([], |row| {
            Ok(AgentSession {
                id: text(row, "id")?.unwrap_or_default(),
                created_at: text(row, "created_at")?,
                updated_at: text(row, "updated_at")?,
            })
        });
        rows.map_err(reason)?
            .collect::<Result<_, _>>()
            .map_err(reason)
    }

    /// Returns the branches of a conversation, `None` if it has only one.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn branches(&self, session: &str) -> Unusable<Option<AgentBranches>> {
        let Some(structure) = &self.structure else {
            return Ok(None);
        };
        let sql = format!(
            "SELECT branch_id, message_id FROM {} WHERE CAST(session_id AS TEXT) = ?1
             ORDER BY sequence_number, id",
            quoted(structure)
        );
        let mut statement = self.connection.prepare(&sql).map_err(reason)?;
        let rows = statement.query_map([session], |row| {
            Ok((text(row, "branch_id")?, row.get::<_, i64>("message_id")?))
        });
        let mut on: BTreeMap<Option<String>, Vec<i64>> = BTreeMap::new();
        for row in rows.map_err(reason)? {
            let (branch, message) = row.map_err(reason)?;
            on.entry(branch).or_default().push(message);
        }
        if on.len() < 2 {
            return Ok(None);
        }
        let sql = format!(
            "SELECT branch_id FROM {} WHERE CAST(session_id AS TEXT) = ?1 ORDER BY id DESC LIMIT 1",
            quoted(structure)
        );
        let current = self
            .connection
            .query_row(&sql, [session], |row| text(row, "branch_id"));
        let current = current.map_err(reason)?;
        let rows = self.rows(session)?;
        Ok(Some(AgentBranches::of(&on, &current, &rows)))
    }

    fn rows(&self, session: &str) -> Unusable<Vec<i64>> {
        let sql = format!(
            "SELECT id FROM {} WHERE CAST(session_id AS TEXT) = ?1 ORDER BY id",
            quoted(&self.messages)
        );
        let mut statement = self.connection.prepare(&sql).map_err(reason)?;
        let rows = statement.query_map([session], |row| row.get("id"));
        rows.map_err(reason)?
            .collect::<Result<_, _>>()
            .map_err(reason)
    }

    /// Returns one item.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn item(&self, row: i64, branches: &AgentBranches) -> Unusable<AgentItem> {
        let sql = format!("SELECT * FROM {} WHERE id = ?1", quoted(&self.messages));
        let mut statement = self.connection.prepare_cached(&sql).map_err(reason)?;
        let mut found = statement.query_row([row], item).map_err(reason)?;
        found.parent = branches.parents.get(&row).copied();
        Ok(found)
    }

    /// Passes the items of a conversation without branches to `each`, in order.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn items(
        &self,
        session: &str,
        each: &mut dyn FnMut(AgentItem) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<Unusable<()>, StoreError> {
        // The times do not exist in every version. An id may be stored as a number.
        let sql = format!(
            "SELECT * FROM {} WHERE CAST(session_id AS TEXT) = ?1 ORDER BY id",
            quoted(&self.messages)
        );
        let mut statement = match self.connection.prepare(&sql) {
            Ok(statement) => statement,
            Err(error) => return Ok(Err(reason(error))),
        };
        let mut rows = match statement.query([session]) {
            Ok(rows) => rows,
            Err(error) => return Ok(Err(reason(error))),
        };
        loop {
            let item = match rows.next() {
                Ok(Some(row)) => item(row),
                Ok(None) => return Ok(Ok(())),
                Err(error) => return Ok(Err(reason(error))),
            };
            match item {
                Ok(item) => {
                    if each(item)?.is_break() {
                        return Ok(Ok(()));
                    }
                }
                Err(error) => return Ok(Err(reason(error))),
            }
        }
    }
}

fn item(row: &Row<'_>) -> rusqlite::Result<AgentItem> {
    Ok(AgentItem {
        row: row.get("id")?,
        data: text(row, "message_data")?.unwrap_or_default(),
        created_at: text(row, "created_at").unwrap_or_default(),
        parent: None,
    })
}

impl AgentBranches {
    /// Returns the tree of the branches: branches that begin with the same rows share them.
    fn of(on: &BTreeMap<Option<String>, Vec<i64>>, current: &Option<String>, rows: &[i64]) -> Self {
        let there: HashSet<i64> = rows.iter().copied().collect();
        let mut parents = HashMap::new();
        for branch in on.values() {
            let mut before = None;
            // Rows that were deleted since are on no branch.
            for row in branch.iter().filter(|row| there.contains(row)) {
                // A row on several branches has the same rows before it on each.
                parents.entry(*row).or_insert(before);
                before = Some(*row);
            }
        }
        let (mut order, mut known) = (Vec::new(), HashSet::new());
        for row in rows {
            let mut path = vec![*row];
            while let Some(Some(parent)) = path.last().and_then(|row| parents.get(row))
                && !known.contains(parent)
                && path.len() <= rows.len()
            {
                path.push(*parent);
            }
            order.extend(path.into_iter().rev().filter(|row| known.insert(*row)));
        }
        let tip = on.get(current).and_then(|branch| {
            let mut rows = branch.iter().rev();
            rows.find(|row| there.contains(row)).copied()
        });
        Self {
            order,
            parents,
            tip,
        }
    }
}
