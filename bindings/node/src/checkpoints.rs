//! Checkpoints of LangGraph.js; the saver itself is `ts/dropins/langgraph.ts`.

use std::sync::Arc;

use loopstore_bindings::checkpoints::answer;
use loopstore_bindings::{CallError, Handle};
use loopstore_checkpoints::{Checkpoints, Language, ListQuery, OnDelete};
use napi_derive::napi;

use crate::store::NativeStore;
use crate::work::{GivenJson, Promised, bytes, json, promised, text};

/// The checkpoints of a store.
#[napi]
pub struct NativeCheckpoints {
    handle: Arc<Handle>,
}

impl NativeCheckpoints {
    fn call<
        T: napi::bindgen_prelude::ToNapiValue + napi::bindgen_prelude::TypeName + Send + 'static,
    >(
        &self,
        work: impl FnOnce(Checkpoints) -> Result<T, CallError> + Send + 'static,
    ) -> Promised<T> {
        let handle = Arc::clone(&self.handle);
        promised(None, move || {
            work(Checkpoints::new(handle.store()?, Language::JavaScript))
        })
    }
}

#[napi]
impl NativeCheckpoints {
    #[napi(constructor)]
    pub fn new(store: &NativeStore) -> Self {
        Self {
            handle: Arc::clone(store.handle()),
        }
    }

    /// Stores a checkpoint. Instead of an error the result may request another call: `missing` lists channels
    /// whose values are needed, `stale` names a thread that was deleted since the caller read it.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn put(&self, thread: String, checkpoint: GivenJson) -> Promised<String> {
        let checkpoint = bytes(checkpoint);
        self.call(move |kept| {
            let new = serde_json::from_slice(&checkpoint)?;
            text(answer(kept.put(&thread, new))?)
        })
    }

    /// Stores the writes of a task; the result is that of `put`.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn put_writes(&self, thread: String, writes: GivenJson) -> Promised<String> {
        let writes = bytes(writes);
        self.call(move |kept| {
            let new = serde_json::from_slice(&writes)?;
            text(answer(kept.put_writes(&thread, new))?)
        })
    }

    #[napi(ts_return_type = "Promise<string | null>")]
    pub fn get(&self, thread: String, ns: String, id: Option<String>) -> Promised<Option<String>> {
        self.call(move |kept| {
            let found = kept.get(&thread, &ns, id.as_deref())?;
            found.map(|found| json(&found)).transpose()
        })
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn list(&self, query: String) -> Promised<String> {
        self.call(move |kept| {
            let query: ListQuery = serde_json::from_str(&query)?;
            json(&kept.list(&query)?)
        })
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn history(
        &self,
        thread: String,
        ns: String,
        id: Option<String>,
        channels: Vec<String>,
    ) -> Promised<String> {
        self.call(move |kept| json(&kept.history(&thread, &ns, id.as_deref(), &channels)?))
    }

    #[napi(ts_return_type = "Promise<void>")]
    pub fn delete_thread(&self, thread: String, erase: bool) -> Promised<()> {
        let how = match erase {
            true => OnDelete::Erase,
            false => OnDelete::Hide,
        };
        self.call(move |kept| Ok(kept.delete_thread(&thread, how)?))
    }
}
