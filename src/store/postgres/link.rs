//! One connection and the statements that are prepared on it.

use std::collections::HashMap;

use ::postgres::types::ToSql;
use ::postgres::{Client, Error, Row, Statement};

/// How many statements a connection keeps.
const MAX_STATEMENTS: usize = 256;

/// A value for a statement.
pub(super) type Param<'a> = &'a (dyn ToSql + Sync);

/// A connection.
pub(super) struct Link {
    client: Client,
    statements: HashMap<String, Statement>,
}

impl Link {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            statements: HashMap::new(),
        }
    }

    /// Whether it is known to be of no use any more.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// The bare connection.
    pub(super) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    fn prepared(&mut self, sql: &str) -> Result<Statement, Error> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        if self.statements.len() >= MAX_STATEMENTS {
            self.statements.clear();
        }
        let statement = self.client.prepare(sql)?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    pub(super) fn query(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Error> {
        let statement = self.prepared(sql)?;
        self.client.query(&statement, params)
    }

    pub(super) fn execute(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64, Error> {
        let statement = self.prepared(sql)?;
        self.client.execute(&statement, params)
    }

    /// Runs statements without values.
    pub(super) fn batch(&mut self, sql: &str) -> Result<(), Error> {
        self.client.batch_execute(sql)
    }
}
