//! Items for the crates of this workspace that stand on the store, without a promise: any release may change them.

pub use crate::clock::{new_uuid, now};
pub use crate::context::build::build;
pub use crate::context::chain::{Chain, Purpose};
pub use crate::context::manifest::{derive, was_replaced};
pub use crate::context::settings::settings;
pub use crate::context::states::turn_states;
pub use crate::model::turn_map::GroupCursor;
pub use crate::overlay::block_builder::whole_as;
pub use crate::overlay::foreign::{block_form, restore_block};
pub use crate::overlay::sealed::SealedRecord;
pub use crate::redact::add_counts;
pub use crate::redact::sealed::drop_sealed;
pub use crate::search::excerpt::{Reach, ReadableText, fitting, windows};
pub use crate::search::query::question;
pub use crate::search::trust::missing as missing_from_index;
pub use crate::store::append::Retell;
pub use crate::store::audit::AuditedDigests;
pub use crate::store::codec::{to_json, unhex};
pub use crate::store::history::{history_fingerprint, restore_history, shorten_history};
pub use crate::store::packs::{MAX_PACK_BYTES, each_pack, view_head};
pub use crate::store::receipt::{OpenReceipt, seal};
pub use crate::store::rollups::added_loops;
pub use crate::store::sqlite::salvage::{LostRows, Mender, Removable, counter_of, place_of};

/// Snapshots and transactions of a [`Database`](crate::Database).
pub mod database {
    pub use crate::store::database::{removing, scan};
}
