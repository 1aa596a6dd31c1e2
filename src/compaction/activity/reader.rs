use super::{Place, Work};
use crate::model::{Message, ToolResultMessage};
use std::borrow::Cow;
/// Reads.
#[derive(Default)]
pub struct Activity {
    work: Work,
}
impl Activity {
    /// Goes on.
    pub fn restore(work: Work) -> Self {
        Self { work }
    }
    /// Reads.
    pub fn message(&mut self, _: &Message, _: &Place) {}
    /// Work.
    pub fn work(&self) -> &Work {
        &self.work
    }
    /// Work.
    pub fn into_work(self) -> Work {
        self.work
    }
}
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}
pub(crate) fn refusal_words(_: &ToolResultMessage) -> Option<&str> {
    None
}
