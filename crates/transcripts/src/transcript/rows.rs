//! Records in the rows of a database.

use std::borrow::Cow;

use super::TranscriptBuilder;
use crate::decode::repaired;

impl TranscriptBuilder<'_> {
    /// Repairs JSON in a row of a database, and reports the damage.
    pub(crate) fn repair(&mut self, text: String, row: impl Into<Option<u64>>) -> String {
        let (Cow::Owned(mended), repairs) = repaired(text.as_bytes()) else {
            return text;
        };
        let row = row.into();
        for repair in repairs {
            self.sink
                .repaired(row, repair.count, repair.damage.reason());
        }
        mended
    }
}
