//! Redaction policies as JSON, and the redaction of a session.

use std::collections::BTreeSet;

use loopstore::SessionHandle;
use loopstore_admin::retention::{RedactReport, RedactRequest, redact_session};
use loopstore_redact::{Confidence, RedactionPolicy};
use serde::Deserialize;

use crate::errors::CallError;

/// The secrets that are replaced: see `RedactionPolicy`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GivenRedaction {
    /// Values that are not secrets, or the ids of false findings.
    allow: BTreeSet<String>,
    /// The rules that apply; all if it is empty.
    only: BTreeSet<String>,
    min_confidence: Option<String>,
}

impl GivenRedaction {
    /// Reads the policy from JSON.
    pub fn of(json: &[u8]) -> Result<RedactionPolicy, CallError> {
        let given: Self = serde_json::from_slice(json)?;
        given.policy()
    }

    fn policy(self) -> Result<RedactionPolicy, CallError> {
        let mut policy = RedactionPolicy::default();
        if let Some(name) = self.min_confidence {
            policy = policy.min_confidence(confidence(&name)?);
        }
        for value in self.allow {
            policy = policy.allow(value);
        }
        for rule in self.only {
            let known = policy.only(rule);
            policy = known.map_err(|error| CallError::Input(error.to_string()))?;
        }
        Ok(policy)
    }
}

fn confidence(name: &str) -> Result<Confidence, CallError> {
    let mut known = [Confidence::Low, Confidence::Medium, Confidence::High].into_iter();
    let found = known.find(|one| one.name() == name);
    found.ok_or_else(|| {
        CallError::Input(format!(
            "the confidence is `low`, `medium` or `high`, not `{name}`"
        ))
    })
}

/// The request of a redaction.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct GivenRequest {
    reason: Option<String>,
    /// True to remove also kept files that other sessions use.
    with_files: bool,
    /// True to only report the secrets found.
    dry_run: bool,
    policy: GivenRedaction,
}

/// Replaces the secrets in a session by markers; the request is JSON.
pub fn redact(session: &SessionHandle, request: &[u8]) -> Result<RedactReport, CallError> {
    let given: GivenRequest = serde_json::from_slice(request)?;
    let request = RedactRequest {
        reason: given.reason,
        with_files: given.with_files,
        dry_run: given.dry_run,
        policy: given.policy.policy()?,
        ..RedactRequest::new(session.id().clone())
    };
    Ok(redact_session(session.store().database(), &request)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use loopstore::{Message, Store};

    #[test]
    fn a_request_is_read_and_says_what_is_wrong_with_it() {
        let session = Store::in_memory().unwrap().session("s").unwrap();
        let said = "git clone https://me:hunter2@example.org/x";
        session.append([Message::user(said)]).unwrap();
        let found = |json: &str| redact(&session, json.as_bytes()).map(|report| report.secrets);
        for json in [
            r#"{"dry_run": true, "policy": {"allow": ["hunter2"]}}"#,
            r#"{"dry_run": true, "policy": {"only": ["github-pat"]}}"#,
        ] {
            assert!(found(json).unwrap().is_empty(), "{json}");
        }
        let dry = r#"{"dry_run": true, "policy": {"min_confidence": "low"}}"#;
        assert_eq!(found(dry).unwrap()["url-password"], 1);
        for (json, wrong) in [
            (r#"{"policy": {"only": ["no-such"]}}"#, "no rule `no-such`"),
            (r#"{"policy": {"min_confidence": "some"}}"#, "not `some`"),
            (r#"{"policy": {"other": 1}}"#, "unknown field"),
        ] {
            let error = format!("{:?}", found(json).unwrap_err());
            assert!(error.contains(wrong), "{json}: {error}");
        }
        assert_eq!(found(r#"{"reason": "leaked"}"#).unwrap()["url-password"], 1);
        let context = format!("{:?}", session.context().unwrap().messages);
        assert!(!context.contains("hunter2"), "{context}");
    }
}
