//! The objects that a session takes from JavaScript and returns to it.

use loopstore_bindings::calls::pair;
use napi_derive::napi;

use crate::work::GivenJson;

/// The result of an append.
#[napi(object, js_name = "Appended", object_from_js = false)]
pub struct JsAppended {
    /// The loop of the last of the messages.
    pub loop_id: String,
    /// The turns of the messages in that loop, including turns that existed before: the first, and the one
    /// after the last.
    #[napi(ts_type = "[first: number, end: number]")]
    pub turns: Vec<u32>,
    /// The sequences of the messages in that loop: the first, and the one after the last.
    #[napi(ts_type = "[first: number, end: number]")]
    pub seqs: Vec<u32>,
    /// The tokens of all messages.
    pub tokens: f64,
    /// The loops that the messages began, in order.
    pub begun: Vec<String>,
    /// True if the session had an append of this key before, and nothing was appended now.
    pub duplicate: bool,
    /// A sentence for each tool call or result that was completed because it had no id or name.
    pub notes: Vec<String>,
}

impl From<loopstore::Appended> for JsAppended {
    fn from(done: loopstore::Appended) -> Self {
        let ends = |range| {
            let (first, end) = pair(range);
            vec![first, end]
        };
        Self {
            loop_id: done.loop_id.to_string(),
            turns: ends(&done.turns),
            seqs: ends(&done.seqs),
            tokens: done.tokens as f64,
            begun: done.begun.iter().map(ToString::to_string).collect(),
            duplicate: done.duplicate,
            notes: done.notes,
        }
    }
}

/// The messages of one append, and its key.
#[napi(object, object_to_js = false)]
pub struct NativePart {
    pub key: Option<String>,
    pub messages: GivenJson,
}

/// An append with a key.
#[napi(object, js_name = "KeyedAppend", object_from_js = false)]
pub struct JsKeyedAppend {
    /// The key.
    pub key: String,
    /// The result of the append.
    pub appended: JsAppended,
}

/// An earlier point of a session: a run, a turn of a loop, a time, or a manifest.
#[napi(object, object_to_js = false)]
pub struct NativeAsOf {
    pub run: Option<String>,
    pub loop_id: Option<String>,
    pub turn: Option<f64>,
    pub time: Option<String>,
    pub manifest: Option<String>,
}

/// A context, and its description, as JSON.
#[napi(object, object_from_js = false)]
pub struct NativePrepared {
    pub request: String,
    pub about: String,
}

/// The state of a call, its key, and the message that finished it as JSON.
#[napi(object, object_from_js = false)]
pub struct NativeCall {
    pub state: String,
    pub key: Option<String>,
    pub message: Option<String>,
}

/// A query for keys.
#[napi(object, object_to_js = false)]
pub struct NativeKeys {
    pub prefix: String,
    pub after: Option<String>,
    pub before: Option<String>,
    pub descending: bool,
    pub limit: Option<f64>,
}

/// The turns to expand, and how much of them.
#[napi(object, object_to_js = false)]
pub struct NativeExpand {
    pub first: f64,
    pub last: f64,
    pub loop_id: Option<String>,
    pub matching: Option<String>,
    pub max_tokens: Option<f64>,
    pub start: Option<String>,
}
