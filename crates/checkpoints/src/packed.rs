//! The stored form of records in their extensions.
//!
//! LangGraph stores several records per turn, each with the versions of all channels and the ids of others. That text
//! repeats itself and is compressed, with a dictionary of frequent parts of such records. Content of a program is not
//! compressed, so that search and redaction find it: values, and the entries of metadata other than LangGraph's own.

use std::cell::RefCell;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use loopstore::Json;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::shorten::{lengthened, shortened};

/// Frequent parts of records, the most frequent last; ids, versions and times are in the form of `shortened`. The
/// dictionary must not change: records were written with it.
const DICTIONARY: &[u8] = b"\"counters_since_delta_snapshot\":[{\"messages\":[1,1]}],\"fork\"],\"update\"],\
\"__resume__\",\"__error__\",\"__no_writes__\",\"__pregel_tasks\",\"files\",\"todos\",\"context\",\"remaining_steps\",\
\"structured_response\",[{\"value\":true}],[{\"value\":false}],\"__interrupt__\":{\"messages\":\"\x02\0\0\
\"~__pregel_push, 0\",\"~__pregel_pull, agent\",\"~__pregel_pull, tools\",\
\"supervisor\":{\"branch:to:supervisor\":\"\x02\0\0\"agent\":{\"branch:to:agent\":\"\x02\0\0\"},\
\"tools\":{\"branch:to:tools\":\"\x02\0\0\"}},\"updated_channels\":[\"branch:to:agent\",\"messages\"]}}],\
\"updated_channels\":[\"branch:to:tools\",\"messages\"]}}],\"branch:to:agent\":{\"data\":[{\"value\":null}]},\
\"branch:to:tools\":{\"data\":[{\"value\":null}]},[[0,\"messages\",[{\"said\":[[0,2]]}]],\
[1,\"branch:to:tools\",[{\"value\":null}]]],[1,\"branch:to:agent\",[{\"value\":null}]]],\
\"~__pregel_pull, model\",[[0,\"messages\",[{\"said\":[[0,1]]}]]],[[[\"loop-1\
\"~__pregel_pull, __start__\",[[0,\"messages\",[{\"said\":[[0,1]]}]],[1,\"branch:to:model\",[{\"value\":null}]]],[[[\"loop-1\
\",1]]]]{\"parents\":[{}],\"source\":[\"input\"],\"step\":[-1]},\
{\"__start__\":{\"data\":[{\"said\":{\"messages\":[[0,1]]}}]}},{\"messages\":[\"loop-1\",3]},[[[\"loop-1\
\"updated_channels\":[\"__start__\"]}}],\"updated_channels\":[\"branch:to:model\",\"messages\"]}}],\
{\"branch:to:model\":{\"data\":[{\"value\":null}]},\"messages\":{\"list\":[[[\"loop-1\",0],[\"loop-1\",1]]]}},{},[]]\
[\"\",\"\x01\x1f\x1e\",[{\"value\":{\"v\":4,\"ts\":\"\x03\0\",\"versions_seen\":{\"__input__\":{},\
\"__start__\":{\"__start__\":\"\x02\0\0\"},\"model\":{\"branch:to:model\":\"\x02\0\0\"}},\
\"updated_channels\":[\"messages\"]}}],{\"__start__\":\"\x02\0\0\",\"branch:to:model\":\"\x02\0\0\",\
\"messages\":\"\x02\0\0\"},{\"parents\":[{}],\"source\":[\"loop\"],\"step\":[1]},\
{\"messages\":{\"list\":[[[\"loop-1\",0],[\"loop-";

/// The largest size of an unpacked record in bytes.
const LONGEST: usize = 256 << 20;

/// A record in its extension, if some values are not packed: else it is a text.
#[derive(Serialize, Deserialize)]
struct PackedRecord {
    packed: String,
    /// The values that are not packed, in order.
    open: Vec<Json>,
}

/// A value of a record: itself, or the next one that is not packed.
pub(crate) type Slot = Option<(Json,)>;

/// Values that are stored unpacked.
#[derive(Default)]
pub(crate) struct OpenValues(Vec<Json>);

impl OpenValues {
    /// Adds a value, which is packed if it has no content of a program.
    pub(crate) fn add(&mut self, value: Json) -> Slot {
        if has_no_content(value.as_str()) {
            Some((value,))
        } else {
            self.add_open(value)
        }
    }

    /// Adds a value that is not packed, whatever its content.
    pub(crate) fn add_open(&mut self, value: Json) -> Slot {
        self.0.push(value);
        None
    }
}

/// True if a value is one of LangGraph's own, or only refers to messages.
fn has_no_content(text: &str) -> bool {
    matches!(
        text,
        "null"
            | "{}"
            | "[]"
            | "\"input\""
            | "\"loop\""
            | "\"update\""
            | "\"fork\""
            | r#"{"value":null}"#
            | r#"{"value":true}"#
            | r#"{"value":false}"#
    ) || (text.starts_with(r#"{"said":"#) && !text.contains(r#""value""#))
}

/// Writes the data of an extension.
pub(crate) fn pack(skeleton: &impl Serialize, open: OpenValues) -> Result<Json> {
    let text = serde_json::to_vec(skeleton).map_err(|error| invalid(&error))?;
    let packed = BASE64.encode(deflated(&shortened(&text))?);
    if open.0.is_empty() {
        return Ok(Json::string(&packed));
    }
    let stored = PackedRecord {
        packed,
        open: open.0,
    };
    Json::of(&stored).map_err(|error| invalid(&error))
}

/// Reads the data of an extension, with the unpacked values in order. The error is a text.
pub(crate) fn unpack<T: DeserializeOwned>(
    data: &Json,
) -> Result<(T, std::vec::IntoIter<Json>), String> {
    let read = match data.as_str().starts_with('"') {
        true => data.read().map(|packed| (packed, Vec::new())),
        false => data
            .read()
            .map(|PackedRecord { packed, open }| (packed, open)),
    };
    let (packed, open): (String, _) = read.map_err(|error| error.to_string())?;
    let bytes = BASE64.decode(packed).map_err(|error| error.to_string())?;
    let text = lengthened(&inflated(&bytes)?)?;
    let skeleton = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    Ok((skeleton, open.into_iter()))
}

/// Returns the value of a slot.
pub(crate) fn filled(slot: Slot, open: &mut impl Iterator<Item = Json>) -> Result<Json, String> {
    match slot {
        Some((value,)) => Ok(value),
        None => open.next().ok_or_else(|| "a value is missing".to_owned()),
    }
}

fn invalid(error: &serde_json::Error) -> Error {
    Error::Invalid(error.to_string())
}

thread_local! {
    /// Creating one takes longer than using it.
    static DEFLATE: RefCell<Compress> = RefCell::new(Compress::new(Compression::new(6), false));
    static INFLATE: RefCell<Decompress> = RefCell::new(Decompress::new(false));
}

fn deflated(text: &[u8]) -> Result<Vec<u8>> {
    DEFLATE.with_borrow_mut(|deflate| {
        deflate.reset();
        let failed = |error: flate2::CompressError| Error::Invalid(error.to_string());
        deflate.set_dictionary(DICTIONARY).map_err(failed)?;
        let mut packed = Vec::with_capacity(text.len() / 2 + 64);
        loop {
            let read = usize::try_from(deflate.total_in()).unwrap_or(usize::MAX);
            let rest = text.get(read..).unwrap_or_default();
            let status = deflate
                .compress_vec(rest, &mut packed, FlushCompress::Finish)
                .map_err(failed)?;
            if status == Status::StreamEnd {
                return Ok(packed);
            }
            packed.reserve(text.len() + 64);
        }
    })
}

fn inflated(packed: &[u8]) -> Result<Vec<u8>, String> {
    INFLATE.with_borrow_mut(|inflate| {
        inflate.reset(false);
        let failed = |error: flate2::DecompressError| error.to_string();
        inflate.set_dictionary(DICTIONARY).map_err(failed)?;
        let mut text = Vec::with_capacity(packed.len().saturating_mul(6) + 256);
        loop {
            let read = usize::try_from(inflate.total_in()).unwrap_or(usize::MAX);
            let rest = packed.get(read..).unwrap_or_default();
            let before = (inflate.total_in(), inflate.total_out());
            let status = inflate
                .decompress_vec(rest, &mut text, FlushDecompress::Finish)
                .map_err(failed)?;
            if status == Status::StreamEnd {
                return Ok(text);
            }
            let has_room = text.len() < text.capacity();
            if has_room && before == (inflate.total_in(), inflate.total_out()) {
                return Err("a packed record ends too early".into());
            }
            if text.len() > LONGEST {
                return Err("a packed record is too large".into());
            }
            text.reserve(text.len() + 256);
        }
    })
}
