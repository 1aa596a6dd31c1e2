//! The options of a store, and its policy.

use loopstore::{Durability, Key, Policy, SealingProvider, Settings, SqliteOptions, counter_named};

use crate::errors::{CallError, with_causes};

/// The options of a store.
#[derive(Default)]
pub struct OpenOptions {
    pub counter: Option<String>,
    pub durability: Option<String>,
    pub key: Option<Vec<u8>>,
    pub read_only: bool,
}

impl OpenOptions {
    pub fn sqlite(self) -> Result<SqliteOptions, CallError> {
        let durability = match self.durability.as_deref() {
            None | Some("full") => Durability::Full,
            Some("normal") => Durability::Normal,
            Some(other) => {
                let text = format!("unknown durability `{other}`; known are full, normal");
                return Err(CallError::Input(text));
            }
        };
        let options = SqliteOptions::new()
            .durability(durability)
            .read_only(self.read_only);
        let options = match &self.counter {
            None => options.stored_counter(),
            Some(name) => options.counter(counter(name)?),
        };
        Ok(match self.key {
            Some(key) => options.key(Key::parse(key)?),
            None => options,
        })
    }

    #[cfg(feature = "postgres")]
    pub fn postgres(self) -> Result<loopstore_postgres::PostgresOptions, CallError> {
        if self.key.is_some() || self.durability.is_some() {
            let text = "key and durability only apply to a database file; a server has its own";
            return Err(CallError::Input(text.into()));
        }
        let options = loopstore_postgres::PostgresOptions::new().read_only(self.read_only);
        Ok(match &self.counter {
            None => options.stored_counter(),
            Some(name) => options.counter(counter(name)?),
        })
    }
}

fn counter(name: &str) -> Result<std::sync::Arc<dyn loopstore::TokenCounter>, CallError> {
    counter_named(name).ok_or_else(|| match name.starts_with("tiktoken:") {
        true if !loopstore::COUNTERS.contains(&"tiktoken:o200k_base") => {
            CallError::Feature("tiktoken")
        }
        _ => CallError::Input(format!(
            "unknown counter `{name}`; known are {}",
            loopstore::COUNTERS.join(", ")
        )),
    })
}

/// Returns the policy of settings as JSON, with the provider that contexts are made for.
pub fn policy(settings: &[u8], provider: Option<&str>) -> Result<Policy, CallError> {
    let settings: Settings = serde_json::from_slice(settings)?;
    // The remedy of the error is a function of Rust.
    let policy = settings.policy().map_err(|error| {
        let text = with_causes(&error);
        CallError::Input(text.replace("it with `ModelWindows::with`", "it to `models`"))
    })?;
    Ok(match provider {
        Some(name) => policy.provider(provider_named(name)?),
        None => policy,
    })
}

/// Returns the provider of this name.
pub fn provider_named(name: &str) -> Result<SealingProvider, CallError> {
    let mut all = SealingProvider::ALL.into_iter();
    let found = all.find(|provider| provider.as_str() == name);
    found.ok_or_else(|| {
        let text = format!("unknown provider `{name}`; known are openai, anthropic");
        CallError::Input(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use loopstore::ClearToolResults;

    #[test]
    fn an_unknown_model_is_an_error_without_a_function_of_rust() {
        let error = format!("{:?}", policy(br#"{"model": "own"}"#, None).unwrap_err());
        assert!(error.contains("add it to `models`"), "{error}");
    }

    #[test]
    fn a_policy_has_the_tool_results_that_it_clears() {
        let of = |json: &str| policy(json.as_bytes(), None);
        let given = r#"{"clear_tool_results": {"keep": 1, "exclude_tools": ["ls"]}}"#;
        let clear = of(given).unwrap().clear_tool_results;
        let expected = ClearToolResults::new().keep(1).exclude_tools(["ls"]);
        assert_eq!(clear, Some(expected));
        assert_eq!(of("{}").unwrap().clear_tool_results, None);
        for (wrong, why) in [
            ("true", "a table of `keep`"),
            (r#"{"keep": -1}"#, "-1"),
            (r#"{"keep": "all"}"#, "all"),
            (r#"{"at_least": 1.5}"#, "1.5"),
            (r#"{"exclude_tools": "ls"}"#, "a sequence"),
            (r#"{"kept": 5}"#, "unknown field `kept`"),
        ] {
            let error = of(&format!(r#"{{"clear_tool_results": {wrong}}}"#)).unwrap_err();
            let error = format!("{error:?}");
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }
}
