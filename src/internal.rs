//! Items for the crates of this workspace that stand on the store, without a promise: any release may change them.

#[cfg(feature = "tokio")]
pub use crate::api::asynchronous::{CancelOnDrop, outside};
pub use crate::api::records::{CURRENT_LOOP, SessionRecords, ordered, session_record};
pub use crate::compact::provider_compaction::{
    CompactedExtent, record_appended_compactions, record_provider_compaction,
};
pub use crate::compact::recorded::{RecordedResult, RecordedRun};
pub use crate::compact::running::close_interrupted;
pub use crate::context::build::{build, originals_of};
pub use crate::context::chain::{Chain, Purpose};
pub use crate::context::manifest::{derive, was_replaced};
pub use crate::context::states::turn_states;
pub use crate::context::{LiveCompaction, live_compaction};
pub use crate::overlay::block_builder::whole_as;
pub use crate::overlay::chain_snapshot::ChainSnapshot;
pub use crate::overlay::foreign::{OWN_RUN, block_form, block_spec, restore_block};
pub use crate::overlay::imported::ImportedCompaction;
pub use crate::overlay::sealed::SealedRecord;
pub use crate::search::excerpt::{ReadableText, WindowLimits, fitting, windows};
pub use crate::search::query::question;
pub use crate::search::trust::missing as missing_from_index;
pub use crate::sqlite::salvage::{LostRows, Mender, Removable, counter_of, place_of};
pub use crate::sqlite::schema::{is_store, open_locked};
pub use crate::store::append::{LastTurn, LoopRebuild, append_leased, set_status_leased};
pub use crate::store::audit::{AuditedDigests, DIGESTED, RowDigest, row_digest};
pub use crate::store::calls::finish_calls;
pub use crate::store::codec::{to_json, unhex};
pub use crate::store::columns::{ColumnValue, Columns, FromColumn, damaged, missing};
pub use crate::store::counter_choice::OtherCounter;
pub use crate::store::encoded::EncodedMessage;
pub use crate::store::history::{history_fingerprint, restore_history, shorten_history};
pub use crate::store::lease::time_text;
pub use crate::store::listing::{
    ListedSession, LoopSums, SessionList, sessions as list_sessions, sort_by_start, view_of,
    with_flips,
};
pub use crate::store::migrations::{Applied, Migrations};
pub use crate::store::packing::Packing;
pub use crate::store::packs::{
    LastPack, MAX_PACK_BYTES, Unpacked, each_pack, fill, open, view_head,
};
pub use crate::store::receipt::{OpenReceipt, seal};
pub use crate::store::session::{edit_loop, forget_parent_seq, run_owner, set_parent_seq};
pub use crate::store::source::SourcePieces;
pub use crate::store::values::{BoundValue, ToValue};
pub use crate::store::{added_loops, quote_of};
pub use loopstore_core::edit::{
    AppliedRun, ImportedEdits, ReportedEdits, by_reports, record_applied_edits, record_report,
    unreadable_note,
};
pub use loopstore_core::session_lines;

/// Snapshots and transactions of a [`Database`](crate::Database).
pub mod database {
    pub use crate::store::database::{removing, scan};
}

/// Rows made of columns, and the values of the columns of a row.
pub mod mapping {
    pub use crate::store::mapping::*;
}

/// Counting the tokens of a database anew.
pub mod recount {
    pub use crate::store::recount::{counter_of, run};
}

/// The columns that hold texts of sessions.
pub mod content {
    pub use crate::sqlite::content::{place_of, table_names, texts};
}
