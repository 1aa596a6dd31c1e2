//! The choice of the token counter when a database is opened.

use std::sync::Arc;

use super::error::OpenError;
use crate::tokens::{TokenCounter, counter_named};

/// The treatment of a database that was written with another token counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherCounter {
    /// Opening fails.
    #[default]
    Refuse,
    /// The counter of the database is used, if this program knows it.
    Use,
    /// The given counter is used, since the tokens of the database are about to be recounted.
    Recount,
}

impl OtherCounter {
    /// Returns the counter to use for a database that was written with the counter named `stored`;
    /// `recounting` is the name of the counter of an unfinished recount.
    ///
    /// # Errors
    /// If a recount is unfinished, or the counter is another one and may not or cannot be used.
    pub fn choose(
        self,
        given: Arc<dyn TokenCounter>,
        stored: String,
        recounting: Option<String>,
    ) -> Result<Arc<dyn TokenCounter>, OpenError> {
        if self == Self::Recount {
            return Ok(given);
        }
        if let Some(to) = recounting {
            return Err(OpenError::Recounting { to });
        }
        if stored == given.name() {
            return Ok(given);
        }
        let known = counter_named(&stored).filter(|_| self == Self::Use);
        known.ok_or_else(|| OpenError::Counter {
            stored,
            given: given.name().to_owned(),
        })
    }
}
