//! JavaScript functions that are hooks of a policy.

use loopstore::CancelFlag;
use loopstore_bindings::CallError;
use loopstore_bindings::hooks::HookFunction;

use crate::callback::{JsCallback, NoAnswer};
use crate::work::text;

/// A function that gets JSON and answers with JSON. Its error is kept in TypeScript under the number of the request.
pub struct JsHook(pub JsCallback);

impl HookFunction for JsHook {
    fn call(&self, json: Vec<u8>, cancel: &CancelFlag) -> Result<Vec<u8>, CallError> {
        let check = || match cancel.is_cancelled() {
            true => Err(()),
            false => Ok(()),
        };
        match self.0.request(text(json)?, check) {
            Ok(answer) => Ok(answer.into_bytes()),
            Err(NoAnswer::Failed(request, text)) => Err(CallError::Raised(text, Box::new(request))),
            Err(NoAnswer::Unwanted(()) | NoAnswer::Ended) => Err(CallError::Closed),
        }
    }
}
