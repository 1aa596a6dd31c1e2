//! One connection, its prepared statements, and the time limit of a statement.
//!
//! The driver is asynchronous; each connection has its own runtime, which runs on the calling thread. The limit
//! is needed in addition to those of the server and of TCP: the server process of this connection enforces
//! `statement_timeout` and `lock_timeout`, and a process that is stopped or starved enforces nothing. Its
//! machine still acknowledges every byte, so that keepalives and `tcp_user_timeout`, which detect a lost
//! machine, report nothing. A connection whose server was silent for too long is closed: the state of its
//! transaction is unknown.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Row, SimpleQueryMessage, Socket, Statement};

use super::errors::StatementError;
use super::pooler::named_process;

/// The number of prepared statements that a connection keeps.
const MAX_STATEMENTS: usize = 256;

/// The factor of the time limit for a statement that reads much of the database.
const LONG_FACTOR: u32 = 10;

/// A value for a statement.
pub(super) type Param<'a> = &'a (dyn ToSql + Sync);

/// The future that reads from and writes to the socket; it ends when the connection does.
type Traffic = Pin<Box<dyn Future<Output = Result<(), tokio_postgres::Error>> + Send>>;

/// A connection.
pub(super) struct Connection {
    client: Client,
    wire: Wire,
    statements: HashMap<String, Statement>,
    /// True if the next transaction may run in another process of the server: prepared statements and settings
    /// end with the transaction. Only the types of a statement's values are then kept.
    is_shared: bool,
    types: HashMap<String, Vec<Type>>,
    limit: Option<Duration>,
}

/// The driver side of a client: the runtime and the socket.
struct Wire {
    /// `None` after the connection was closed.
    traffic: Option<Traffic>,
    /// `None` only while the value is dropped.
    runtime: Option<Runtime>,
}

impl Wire {
    /// Waits for an answer, no longer than `limit`.
    fn wait<T>(
        &mut self,
        limit: Option<Duration>,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, StatementError> {
        let (Some(runtime), Some(traffic)) = (&self.runtime, &mut self.traffic) else {
            return Err(StatementError::GivenUp);
        };
        let mut answer = pin!(answer);
        let (mut is_over, mut answered) = (false, None);
        let both = poll_fn(|context| {
            // Unsolicited messages of the server, such as a notice of its shutdown, come first.
            if !is_over && let Poll::Ready(ended) = traffic.as_mut().poll(context) {
                is_over = true;
                if let Err(error) = ended {
                    answered = Some(Err(error));
                    return Poll::Ready(());
                }
            }
            answer
                .as_mut()
                .poll(context)
                .map(|answer| answered = Some(answer))
        });
        let in_time = runtime.block_on(async {
            match limit {
                Some(limit) => tokio::time::timeout(limit, both).await.is_ok(),
                None => {
                    both.await;
                    true
                }
            }
        });
        if is_over || !in_time {
            self.traffic = None;
        }
        match (answered, limit) {
            (Some(answered), _) => answered.map_err(StatementError::Driver),
            (None, Some(limit)) => Err(StatementError::StatementTimeout(limit)),
            (None, None) => Err(StatementError::GivenUp),
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // Tokio panics if a runtime is dropped on a thread of another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Connection {
    /// Connects to one host within the time `within`. `limit` is the time limit of a statement.
    pub(super) fn connect<T>(
        host: &Config,
        tls: T,
        within: Duration,
        limit: Option<Duration>,
    ) -> Result<Self, StatementError>
    where
        T: MakeTlsConnect<Socket>,
        T::TlsConnect: Send,
        T::Stream: Send + 'static,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| StatementError::Local(error.to_string()))?;
        let connected = runtime.block_on(async {
            // The driver limits the time to open the socket, but not the time for the server's answer.
            tokio::time::timeout(within, host.connect(tls)).await
        });
        let mut wire = Wire {
            traffic: None,
            runtime: Some(runtime),
        };
        let (client, traffic) = connected
            .map_err(|_| StatementError::StatementTimeout(within))?
            .map_err(StatementError::Driver)?;
        wire.traffic = Some(Box::pin(traffic));
        Ok(Self {
            client,
            wire,
            statements: HashMap::new(),
            is_shared: false,
            types: HashMap::new(),
            limit,
        })
    }

    /// True if the next transaction may run in another process of the server.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Sets whether the next transaction may run in another process of the server.
    pub(super) fn share(&mut self, is_shared: bool) {
        self.is_shared = is_shared;
    }

    /// Returns true if the connection goes through a pooler.
    pub(super) fn is_pooled(&mut self) -> Result<bool, StatementError> {
        let rows = self.simple("SELECT pg_backend_pid()")?;
        let reported = rows.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
            _ => None,
        });
        Ok(reported != named_process(&self.client.cancel_token()))
    }

    /// Returns the types of a statement's values, for a statement that is not prepared on the server.
    fn types_of(&mut self, sql: &str) -> Result<Vec<Type>, StatementError> {
        if let Some(types) = self.types.get(sql) {
            return Ok(types.clone());
        }
        if self.types.len() >= MAX_STATEMENTS {
            self.types.clear();
        }
        let types = self.prepare(sql)?.params().to_vec();
        self.types.insert(sql.to_owned(), types.clone());
        Ok(types)
    }

    /// True if the connection is known to be lost.
    pub(super) fn is_closed(&self) -> bool {
        self.wire.traffic.is_none() || self.client.is_closed()
    }

    fn prepared(&mut self, sql: &str) -> Result<Statement, StatementError> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        if self.statements.len() >= MAX_STATEMENTS {
            self.statements.clear();
        }
        let statement = self.prepare(sql)?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Prepares a statement that is not kept.
    pub(super) fn prepare(&mut self, sql: &str) -> Result<Statement, StatementError> {
        self.wire.wait(self.limit, self.client.prepare(sql))
    }

    pub(super) fn query(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, StatementError> {
        if self.is_shared {
            let typed = typed(params, self.types_of(sql)?)?;
            let answer = self.client.query_typed(sql, &typed);
            return self.wire.wait(self.limit, answer);
        }
        let statement = self.prepared(sql)?;
        self.wire
            .wait(self.limit, self.client.query(&statement, params))
    }

    /// Returns the first row.
    pub(super) fn first(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Option<Row>, StatementError> {
        Ok(self.query(sql, params)?.into_iter().next())
    }

    pub(super) fn execute(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<u64, StatementError> {
        if self.is_shared {
            let typed = typed(params, self.types_of(sql)?)?;
            let answer = self.client.execute_typed(sql, &typed);
            return self.wire.wait(self.limit, answer);
        }
        let statement = self.prepared(sql)?;
        self.wire
            .wait(self.limit, self.client.execute(&statement, params))
    }

    /// Runs a statement that is not kept.
    pub(super) fn execute_once(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<u64, StatementError> {
        self.wire.wait(self.limit, self.client.execute(sql, params))
    }

    /// Runs statements without values.
    pub(super) fn batch(&mut self, sql: &str) -> Result<(), StatementError> {
        self.wire.wait(self.limit, self.client.batch_execute(sql))
    }

    /// Runs statements without values, each sent on its own without waiting for the result of the one before.
    /// The error is that of the first statement that failed.
    pub(super) fn batches(&mut self, all: &[impl AsRef<str>]) -> Result<(), StatementError> {
        if let [only] = all {
            return self.batch(only.as_ref());
        }
        let client = &self.client;
        let mut running: Vec<_> = all
            .iter()
            .map(|sql| Some(Box::pin(client.batch_execute(sql.as_ref()))))
            .collect();
        let mut done = Ok(());
        let all_of_them = poll_fn(|context| {
            let mut is_over = true;
            for one in &mut running {
                let Some(waiting) = one else { continue };
                match waiting.as_mut().poll(context) {
                    Poll::Ready(ended) => {
                        *one = None;
                        done = std::mem::replace(&mut done, Ok(())).and(ended);
                    }
                    Poll::Pending => is_over = false,
                }
            }
            match is_over {
                true => Poll::Ready(std::mem::replace(&mut done, Ok(()))),
                false => Poll::Pending,
            }
        });
        self.wire.wait(self.limit, all_of_them)
    }

    /// Runs a statement without values; returns its rows as text.
    pub(super) fn simple(&mut self, sql: &str) -> Result<Vec<SimpleQueryMessage>, StatementError> {
        self.wire.wait(self.limit, self.client.simple_query(sql))
    }

    /// Runs `work` with another time limit for its statements.
    pub(super) fn with_limit<T>(
        &mut self,
        limit: Option<Duration>,
        work: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let usual = std::mem::replace(&mut self.limit, limit);
        let done = work(self);
        self.limit = usual;
        done
    }

    /// Runs `work`, whose statements may read much of the database.
    pub(super) fn with_long_limit<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let limit = self.limit.map(|limit| limit.saturating_mul(LONG_FACTOR));
        self.with_limit(limit, work)
    }

    /// Runs migrations, however long they take.
    pub(super) fn migrate(
        &mut self,
        runner: &refinery::Runner,
    ) -> Result<Result<(), refinery::Error>, StatementError> {
        let client = &mut self.client;
        self.wire
            .wait(None, async { Ok(runner.run_async(client).await.map(drop)) })
    }
}

/// Gives each value its type.
fn typed<'a>(
    params: &[Param<'a>],
    types: Vec<Type>,
) -> Result<Vec<(Param<'a>, Type)>, StatementError> {
    if params.len() != types.len() {
        let (given, wanted) = (params.len(), types.len());
        let detail = format!("a statement takes {wanted} values and was given {given}");
        return Err(StatementError::Local(detail));
    }
    Ok(params.iter().copied().zip(types).collect())
}
