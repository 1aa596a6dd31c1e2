//! The audit chains of sessions and of receipts.

use loopstore_core::store::audit::{AuditEnd, AuditEntry, RECEIPTS};
use loopstore_core::store::columns::{Columns, missing};
use loopstore_core::store::mapping::{audit_end, signed};
use loopstore_core::store::{SessionKey, StoreResult};

use super::transaction::PostgresTransaction;

impl PostgresTransaction<'_> {
    /// Returns the newest row of an audit chain. The chain of the receipts stays locked for other writers until
    /// the end of the transaction.
    pub(super) fn audit_end(&self, session: SessionKey) -> StoreResult<AuditEnd> {
        if session != RECEIPTS {
            return self.session_audit(session);
        }
        let none = AuditEnd::default();
        self.execute(
            "INSERT INTO receipt_chain (session, audit_seq, audit) VALUES (0, 0, $1)
             ON CONFLICT DO NOTHING",
            &[&&none.chain[..]],
        )?;
        // The tenant is read in a query of its own: on a shard the function cannot query a table.
        let sql = "SELECT loopstore_tenant() AS tenant";
        let tenant: Option<String> = self.first_of_any(sql, &[], |row| row.get("tenant"))?;
        let sql = "SELECT audit_seq, audit AS chain FROM receipt_chain
             WHERE session = 0 AND tenant = $1 FOR NO KEY UPDATE";
        let end = self.first_of_any(sql, &[&tenant], audit_end)?;
        end.ok_or_else(|| missing("the audit chain of session", session.0))
    }

    /// Returns the newest row of the audit chain as the session's own row records it.
    pub(super) fn session_audit(&self, session: SessionKey) -> StoreResult<AuditEnd> {
        let sql = "SELECT audit_seq, audit AS chain FROM sessions WHERE session = $1";
        let end = self.first(session.0, sql, &[&session.0], audit_end)?;
        end.ok_or_else(|| missing("the audit chain of session", session.0))
    }

    /// Writes the next row of an audit chain.
    pub(super) fn write_audit(&self, session: SessionKey, entry: &AuditEntry) -> StoreResult<()> {
        let end = self.audit_end(session)?.with(session, entry);
        self.run(
            session.0,
            "INSERT INTO audit (session, audit_seq, kind, digest, was, chain)
             VALUES ($1, $2, $3, $4, $5, $6)",
            &[
                &session.0,
                &signed(end.seq)?,
                &entry.kind.as_str(),
                &&entry.digest[..],
                &entry.was.as_ref().map(|was| &was[..]),
                &&end.chain[..],
            ],
        )
        .map(drop)
    }
}
