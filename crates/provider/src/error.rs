//! The errors of reading and writing.

use super::Form;

/// The error of reading JSON as messages, or of writing a context as JSON.
///
/// `at` is a JSON pointer (RFC 6901); the empty pointer is the whole value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// A value has the wrong type.
    #[error("{form}: expected {expected} at `{at}`, found {found}")]
    WrongType {
        /// The form that was read.
        form: Form,
        /// The JSON pointer to the value.
        at: String,
        /// The expected type.
        expected: &'static str,
        /// The value found.
        found: &'static str,
    },
    /// A required field is missing or null.
    #[error("{form}: `{at}` is missing")]
    Missing {
        /// The form that was read.
        form: Form,
        /// The field.
        at: String,
    },
    /// A value has the right type, but is not allowed by the form.
    #[error("{form}: invalid value at `{at}`: {reason}")]
    Invalid {
        /// The form that was read.
        form: Form,
        /// The JSON pointer to the value.
        at: String,
        /// The defect.
        reason: String,
    },
    /// A message, item or block of a kind that no message can represent.
    #[error("{form}: {what} at `{at}` is not supported")]
    Unsupported {
        /// The form that was read.
        form: Form,
        /// The JSON pointer to the value.
        at: String,
        /// The kind.
        what: String,
    },
    /// The context begins with a compaction that only another provider, or another form of the provider, can read.
    #[error(
        "{form}: the context was built for {built_for}, whose compaction replaces all messages before it; \
         build the context for the provider of the request"
    )]
    BuiltForAnother {
        /// The requested form.
        form: Form,
        /// The provider that the context was built for.
        built_for: &'static str,
    },
    /// An answer has no choice or several choices; a session can store only one.
    #[error("{form}: expected exactly one choice at `{at}`, found {count}")]
    Choices {
        /// The form that was read.
        form: Form,
        /// The JSON pointer to the value.
        at: String,
        /// The number of choices.
        count: usize,
    },
    /// A text is not one JSON value.
    #[error("{form}: not JSON: {source}")]
    Unreadable {
        /// The form that was read.
        form: Form,
        /// The cause.
        source: serde_json::Error,
    },
    /// A request cannot be written as a JSON value.
    #[error("{form}: the request cannot be written: {source}")]
    Unwritable {
        /// The form that was written.
        form: Form,
        /// The cause.
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

    /// Returns the JSON pointer to the value; empty for the whole value.
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
