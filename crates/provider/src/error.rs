//! Why something a provider gave or takes could not be read or written.

use super::Form;

/// Why JSON is not read as messages, or a context not written as JSON.
///
/// `at` is a JSON pointer to the place (RFC 6901); the empty pointer is the whole value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// A value has another type than it must.
    #[error("{form}: expected {expected} at `{at}`, found {found}")]
    WrongType {
        /// The form that was read.
        form: Form,
        /// Where.
        at: String,
        /// What must be there.
        expected: &'static str,
        /// What is there.
        found: &'static str,
    },
    /// A field that must be there is missing or null.
    #[error("{form}: `{at}` is missing")]
    Missing {
        /// The form that was read.
        form: Form,
        /// The field.
        at: String,
    },
    /// A value is of the right type, but not one that the form allows.
    #[error("{form}: invalid value at `{at}`: {reason}")]
    Invalid {
        /// The form that was read.
        form: Form,
        /// Where.
        at: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A message, item or block of a kind that no message here can hold.
    #[error("{form}: {what} at `{at}` is not supported")]
    Unsupported {
        /// The form that was read.
        form: Form,
        /// Where.
        at: String,
        /// What it is.
        what: String,
    },
    /// The context begins with a compaction that only another provider, or another form of its, can read.
    #[error(
        "{form}: the context was built for {built_for}, whose compaction stands for all before it; \
         build it for the provider that it goes to"
    )]
    BuiltForAnother {
        /// The form that was asked for.
        form: Form,
        /// Whom the context was built for.
        built_for: &'static str,
    },
    /// An answer with no choice, or with several, of which a history can hold only one.
    #[error("{form}: expected exactly one choice at `{at}`, found {count}")]
    Choices {
        /// The form that was read.
        form: Form,
        /// Where.
        at: String,
        /// How many there are.
        count: usize,
    },
    /// A text is not one JSON value.
    #[error("{form}: not JSON: {source}")]
    Unreadable {
        /// The form that was read.
        form: Form,
        /// Why.
        source: serde_json::Error,
    },
    /// A request cannot be written as a JSON value.
    #[error("{form}: the request cannot be written: {source}")]
    Unwritable {
        /// The form that was written.
        form: Form,
        /// Why.
        source: serde_json::Error,
    },
}

impl ProviderError {
    /// Returns the form that was read or written.
    pub fn form(&self) -> Form {
        match self {
            Self::WrongType { form, .. }
            | Self::Missing { form, .. }
            | Self::Invalid { form, .. }
            | Self::Unsupported { form, .. }
            | Self::Choices { form, .. }
            | Self::Unreadable { form, .. }
            | Self::BuiltForAnother { form, .. }
            | Self::Unwritable { form, .. } => *form,
        }
    }

    /// Returns the JSON pointer to the place; empty for the whole value.
    pub fn pointer(&self) -> &str {
        match self {
            Self::WrongType { at, .. }
            | Self::Missing { at, .. }
            | Self::Invalid { at, .. }
            | Self::Unsupported { at, .. }
            | Self::Choices { at, .. } => at,
            Self::BuiltForAnother { .. } | Self::Unreadable { .. } | Self::Unwritable { .. } => "",
        }
    }
}
