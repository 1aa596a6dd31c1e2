//! A JavaScript function that writes summaries.

use loopstore::{Summarizer, SummarizerError, SummaryAnswer, SummaryRequest};
use loopstore_bindings::summaries;

use crate::callback::{JsCallback, NoAnswer};

/// Calls a JavaScript function.
pub struct JsSummarizer {
    pub function: JsCallback,
    pub name: String,
}

impl Summarizer for JsSummarizer {
    fn name(&self) -> &str {
        &self.name
    }

    fn summarize(&self, request: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
        let json = summaries::request(request, request.time_left()?);
        let answer = self
            .function
            .request(json, || request.time_left().map(|_| ()));
        match answer {
            Ok(json) => summaries::answer(json.as_bytes()),
            Err(NoAnswer::Failed(_, text)) => Err(SummarizerError::Failed(text)),
            Err(NoAnswer::Unwanted(error)) => Err(error),
            Err(NoAnswer::Ended) => Err(SummarizerError::Cancelled),
        }
    }
}
