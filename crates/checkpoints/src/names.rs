//! The names of the appends of checkpoints and writes.
//!
//! A name has the language of the encoding, the kind, the namespace, the checkpoint (and the task), and a revision:
//! `lg-py/c/NAMESPACE/CHECKPOINT/0000`. Within a namespace names are in the order of the checkpoints' ids,
//! which is the order of time, and of one checkpoint in the order of its revisions. A revision that ends with `-`
//! marks the checkpoint as deleted.

use loopstore::extend::{AppendKey, AppendKeyRange, SessionKey, StoreRead};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};

/// The language of LangGraph: values are in an encoding of this language, which the other cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// LangGraph.
    Python,
    /// LangGraph.js.
    JavaScript,
}

impl Language {
    /// Returns its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Python => "Python",
            Self::JavaScript => "JavaScript",
        }
    }

    /// Returns the prefix of the names of its appends.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::Python => "lg-py/",
            Self::JavaScript => "lg-js/",
        }
    }

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Python => Self::JavaScript,
            Self::JavaScript => Self::Python,
        }
    }
}

/// A name may have 512 bytes; a longer namespace or task is replaced by its digest.
const LONGEST_PART: usize = 120;
/// Ids of checkpoints are never shortened, as their order counts.
const LONGEST_ID: usize = 200;

/// Returns a part of a name, without separators.
fn part(text: &str) -> String {
    let escaped = escaped(text);
    if escaped.len() <= LONGEST_PART {
        return escaped;
    }
    let digest = Sha256::digest(text);
    let hex = digest.iter().take(16).map(|byte| format!("{byte:02x}"));
    format!("%{}", hex.collect::<String>())
}

fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('/', "%2F")
}

fn id_part(id: &str) -> Result<String> {
    let escaped = escaped(id);
    if escaped.is_empty() || escaped.len() > LONGEST_ID {
        let reason = format!(
            "a checkpoint's id has 1 to {LONGEST_ID} bytes, not {}",
            id.len()
        );
        return Err(Error::Invalid(reason));
    }
    Ok(escaped)
}

/// Returns the id in the name of a checkpoint's revision.
pub(crate) fn id(name: &str) -> String {
    let escaped = name.rsplit('/').nth(1).unwrap_or_default();
    escaped.replace("%2F", "/").replace("%25", "%")
}

/// Returns the prefix of all checkpoints of a thread.
pub(crate) fn checkpoints(language: Language) -> String {
    format!("{}c/", language.prefix())
}

/// Returns the prefix of the checkpoints of a namespace.
pub(crate) fn namespace(language: Language, ns: &str) -> String {
    format!("{}c/{}/", language.prefix(), part(ns))
}

/// Returns the prefix of the revisions of a checkpoint.
pub(crate) fn checkpoint(language: Language, ns: &str, id: &str) -> Result<String> {
    Ok(format!("{}{}/", namespace(language, ns), id_part(id)?))
}

/// Returns the prefix of the writes of a checkpoint. Other checkpoints with the same short digest may share it:
/// the records have the id. The beginning of the id keeps names of one time together.
pub(crate) fn writes(language: Language, ns: &str, id: &str) -> Result<String> {
    let id = id_part(id)?;
    let begin: String = id.chars().take(18).collect();
    let digest = digest(&[ns, &id]);
    Ok(format!("{}w/{begin}{digest}/", language.prefix()))
}

/// Returns the prefix of the writes of a task, in its revisions; as with [`writes`], others may share it.
pub(crate) fn task(language: Language, ns: &str, id: &str, task: &str) -> Result<String> {
    let writes = writes(language, ns, id)?;
    Ok(format!("{writes}{}/", digest(&[task])))
}

/// Returns the prefix of the checkpoints of a run; other runs may share it.
pub(crate) fn run(language: Language, run: &str) -> String {
    format!("{}r/{}/", language.prefix(), digest(&[run]))
}

/// Returns the name of a checkpoint's revision among the names of its run.
pub(crate) fn of_run(language: Language, run: &str, revision: &str) -> String {
    let checkpoint = revision.strip_prefix(&checkpoints(language));
    format!(
        "{}{}",
        self::run(language, run),
        checkpoint.unwrap_or(revision)
    )
}

/// Returns six letters of the digest of texts.
fn digest(texts: &[&str]) -> String {
    let mut sha256 = Sha256::new();
    for text in texts {
        sha256.update((text.len() as u64).to_le_bytes());
        sha256.update(text);
    }
    let digest = sha256.finalize();
    let hex = digest.iter().take(3).map(|byte| format!("{byte:02x}"));
    hex.collect()
}

/// A revision of a checkpoint, from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Revision {
    pub(crate) number: u32,
    pub(crate) is_deleted: bool,
}

impl Revision {
    /// Parses the end of a name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let end = name.rsplit('/').next()?;
        let (digits, is_deleted) = match end.strip_suffix('-') {
            Some(digits) => (digits, true),
            None => (end, false),
        };
        let number = u32::from_str_radix(digits, 16).ok()?;
        Some(Self { number, is_deleted })
    }

    /// Returns the name of the revision after `last`.
    pub(crate) fn next(last: Option<Self>, beginning: &str, is_deleted: bool) -> String {
        let number = last.map_or(0, |last| last.number.saturating_add(1));
        let end = if is_deleted { "-" } else { "" };
        format!("{beginning}{number:04x}{end}")
    }
}

/// Returns the prefix of the names of all revisions of a checkpoint.
pub(crate) fn without_revision(name: &str) -> &str {
    name.rfind('/').map_or(name, |at| &name[..=at])
}

/// Returns the newest append whose name has this prefix, in the order of names.
pub(crate) fn last(
    read: &dyn StoreRead,
    session: SessionKey,
    beginning: &str,
) -> Result<Option<AppendKey>> {
    Ok(before(read, session, beginning, None, 1)?.pop())
}

/// Returns at most `limit` appends whose names have this prefix and are before `end`, the last first.
pub(crate) fn before(
    read: &dyn StoreRead,
    session: SessionKey,
    beginning: &str,
    end: Option<&str>,
    limit: u32,
) -> Result<Vec<AppendKey>> {
    let range = AppendKeyRange {
        prefix: beginning.to_owned(),
        before: end.map(str::to_owned),
        descending: true,
        limit: Some(limit),
        ..AppendKeyRange::default()
    };
    Ok(read.append_keys_within(session, &range)?)
}

/// Returns all appends whose names have this prefix, in the order of their names.
pub(crate) fn all(
    read: &dyn StoreRead,
    session: SessionKey,
    beginning: &str,
) -> Result<Vec<AppendKey>> {
    let range = AppendKeyRange {
        prefix: beginning.to_owned(),
        ..AppendKeyRange::default()
    };
    Ok(read.append_keys_within(session, &range)?)
}
