//! Helpers of calls on a session: points in time, pins, undo, and files.

use std::ops::Range;
use std::path::PathBuf;

use loopstore::{
    AsOf, BuildOptions, Context, Error, FlipReport, FlipRequest, LoopId, PinRef, SessionHandle,
    Time, build_context_from_session,
};
use loopstore_files::WholeFile;

use crate::errors::CallError;

/// An earlier point of a session: a run, a turn of a loop, a time, or a manifest.
pub type AsOfInput = (
    Option<String>,
    Option<(String, u32)>,
    Option<String>,
    Option<String>,
);

/// Returns both ends of a range.
pub fn pair(range: &Range<u32>) -> (u32, u32) {
    (range.start, range.end)
}

/// Returns the earlier point; `None` if none is given.
pub fn as_of(session: &SessionHandle, at: AsOfInput) -> Result<Option<AsOf>, CallError> {
    Ok(match at {
        (None, None, None, None) => None,
        (Some(run), None, None, None) => Some(AsOf::run(run)),
        (None, Some((loop_id, turn)), None, None) => Some(AsOf::turn(loop_id, turn)),
        (None, None, None, Some(manifest)) => Some(AsOf::manifest(manifest)),
        (None, None, Some(time), None) => Some(AsOf::time(
            session.store().database(),
            session.id(),
            None,
            &Time::from_text(time),
        )?),
        _ => {
            let text = "a moment is a run, a turn, a time or a manifest: give one of them";
            return Err(CallError::Input(text.into()));
        }
    })
}

/// Builds a context: of an earlier point, else of the end of the handle's line.
pub fn context(
    session: &SessionHandle,
    max_tokens: Option<u64>,
    max_bytes: Option<u64>,
    at: AsOfInput,
    check: bool,
) -> Result<Context, CallError> {
    let as_of = as_of(session, at)?;
    if as_of.is_none() && session.leaf()?.is_none() {
        return Ok(session.context()?);
    }
    let options = BuildOptions {
        leaf: match as_of {
            Some(_) => None,
            None => session.leaf()?,
        },
        as_of,
        budget: max_tokens,
        max_bytes,
        check,
        provider: session.policy().provider,
        system_prompts: session.policy().system_prompts,
        context_management: session.policy().context_management(),
        ..BuildOptions::default()
    };
    let built = build_context_from_session(session.store().database(), session.id(), &options);
    Ok(built.map_err(Error::from)?)
}

/// Records the context of the next model call, and writes its manifest.
pub fn record_context(session: &SessionHandle) -> Result<Vec<u8>, CallError> {
    let context = session.record_context()?;
    Ok(serde_json::to_vec(&serde_json::json!({
        "manifest_id": context.manifest,
        "messages": context.messages.len(),
        "tokens": context.tokens,
        "bytes": context.bytes,
    }))?)
}

/// Makes the request of an undo or a redo on the handle's line.
pub fn flip_request(
    session: &SessionHandle,
    run: Option<String>,
    reason: Option<String>,
) -> Result<FlipRequest, CallError> {
    Ok(FlipRequest {
        leaf: Some(leaf(session)?),
        run,
        reason,
    })
}

/// Returns the last loop of the handle's line.
pub fn leaf(session: &SessionHandle) -> Result<LoopId, CallError> {
    let missing = || Error::NotFound {
        what: "session",
        id: session.id().to_string(),
    };
    Ok(session.leaf()?.ok_or_else(missing)?)
}

/// Writes the report of an undo or a redo.
pub fn flipped(report: FlipReport) -> Result<Vec<u8>, CallError> {
    Ok(serde_json::to_vec(&report)?)
}

/// Returns the reference to a pinned turn or message.
pub fn pin_ref(loop_id: String, turn: u32, seq: Option<u32>) -> PinRef {
    match seq {
        Some(seq) => PinRef::message(loop_id, turn, seq),
        None => PinRef::turn(loop_id, turn),
    }
}

/// Runs `write`, into a file that is renamed into its place once it is whole, or into bytes.
pub fn written(
    path: Option<PathBuf>,
    write: impl FnOnce(&mut dyn std::io::Write) -> Result<(), CallError>,
) -> Result<Option<Vec<u8>>, CallError> {
    let Some(path) = path else {
        let mut bytes = Vec::new();
        write(&mut bytes)?;
        return Ok(Some(bytes));
    };
    let failed = |error: std::io::Error| {
        CallError::File(format!("cannot write {}: {error}", path.display()))
    };
    let file = WholeFile::create(&path).map_err(failed)?;
    let mut out = std::io::BufWriter::with_capacity(64 << 10, file);
    write(&mut out)?;
    let file = out
        .into_inner()
        .map_err(|error| failed(error.into_error()))?;
    file.finish().map_err(failed)?;
    Ok(None)
}
