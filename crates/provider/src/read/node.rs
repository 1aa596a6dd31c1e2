//! A JSON value with its position.

use std::cell::OnceCell;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::ReadResult;
use crate::kept::{keep, keep_call};
use crate::{Form, ProviderError};
use loopstore_model::{Content, Extra, Json};

/// The most characters of foreign text in an error.
const SHOWN: usize = 60;

/// A value and its position.
#[derive(Clone)]
pub(super) struct JsonNode<'a> {
    form: Form,
    at: String,
    value: &'a Value,
    /// The text that the value was parsed from, if that is known; values that are kept whole keep this text.
    text: Option<&'a str>,
}

impl<'a> JsonNode<'a> {
    pub(super) fn root(form: Form, value: &'a Value, text: Option<&'a str>) -> Self {
        Self {
            form,
            at: String::new(),
            value,
            text,
        }
    }

    /// Returns the text.
    pub(super) fn text(&self) -> ReadResult<&'a str> {
        self.value.as_str().ok_or_else(|| self.wrong_type("a text"))
    }

    /// Returns the text, which must not be empty.
    pub(super) fn id(&self) -> ReadResult<String> {
        match self.text()? {
            "" => Err(self.invalid("it is empty")),
            id => Ok(id.to_owned()),
        }
    }

    /// Returns a number of tokens.
    pub(super) fn count(&self) -> ReadResult<i64> {
        let count = self.value.as_i64().filter(|count| *count >= 0);
        count.ok_or_else(|| self.wrong_type("a whole number"))
    }

    /// Returns any number.
    pub(super) fn number(&self) -> ReadResult<f64> {
        let number = self.value.as_f64();
        number.ok_or_else(|| self.wrong_type("a number"))
    }

    /// Returns seconds since 1970 as milliseconds; `None` for 0, which servers without a clock send.
    pub(super) fn seconds(&self) -> ReadResult<Option<i64>> {
        let seconds = self.number()?;
        // `as` saturates.
        Ok((seconds > 0.0).then_some((seconds * 1_000.0) as i64))
    }

    /// Returns a boolean.
    pub(super) fn flag(&self) -> ReadResult<bool> {
        let flag = self.value.as_bool();
        flag.ok_or_else(|| self.wrong_type("a boolean"))
    }

    /// Returns the digits of a number.
    pub(super) fn number_text(&self) -> Option<String> {
        self.value.is_number().then(|| self.value.to_string())
    }

    pub(super) fn is_object(&self) -> bool {
        self.value.is_object()
    }

    pub(super) fn is_list(&self) -> bool {
        self.value.is_array()
    }

    pub(super) fn is_text(&self) -> bool {
        self.value.is_string()
    }

    /// Returns the elements of a list.
    pub(super) fn list(&self) -> ReadResult<Vec<JsonNode<'a>>> {
        let list = self.value.as_array();
        let list = list.ok_or_else(|| self.wrong_type("a list"))?;
        let texts: Option<Vec<&RawValue>> = self.texts();
        let element = |(nth, value): (usize, _)| JsonNode {
            form: self.form,
            at: format!("{}/{nth}", self.at),
            value,
            text: texts.as_ref().and_then(|texts| Some(texts.get(nth)?.get())),
        };
        Ok(list.iter().enumerate().map(element).collect())
    }

    /// Returns the fields of an object.
    pub(super) fn fields(&self) -> ReadResult<NodeFields<'a>> {
        let map = self.value.as_object();
        Ok(NodeFields {
            node: self.clone(),
            map: map.ok_or_else(|| self.wrong_type("an object"))?,
            texts: OnceCell::new(),
            taken: Vec::new(),
        })
    }

    /// Returns the texts of its parts.
    fn texts<T: Deserialize<'a>>(&self) -> Option<T> {
        serde_json::from_str(self.text?).ok()
    }

    /// Returns the value as JSON, with its text if that is known.
    pub(super) fn json(&self) -> ReadResult<Json> {
        match self.text {
            Some(text) => Json::parse(text).map_err(|error| self.invalid(error.to_string())),
            None => self.kept(self.value),
        }
    }

    /// Returns an object with the value as its only field.
    pub(super) fn json_in(&self, key: &str) -> ReadResult<Json> {
        self.kept(&HashMap::from([(key, self.value)]))
    }

    /// Returns the value as state that only the provider can read.
    pub(super) fn sealed(&self) -> ReadResult<Content> {
        Ok(Content::sealed(self.form.provider(), self.json()?))
    }

    /// Returns the whole value as a block that is sent back to the provider.
    pub(super) fn whole(&self) -> ReadResult<Content> {
        keep(self.form, &self.json()?).map_err(|error| self.invalid(error.to_string()))
    }

    /// Keeps the whole value in the call that was read from it.
    pub(super) fn keep_whole_in(&self, extra: &mut Extra) -> ReadResult<()> {
        keep_call(self.form, &self.json()?, extra).map_err(|error| self.invalid(error.to_string()))
    }

    fn kept(&self, value: &impl serde::Serialize) -> ReadResult<Json> {
        Json::of(value).map_err(|error| self.invalid(error.to_string()))
    }

    pub(super) fn wrong_type(&self, expected: &'static str) -> ProviderError {
        ProviderError::WrongType {
            form: self.form,
            at: self.at.clone(),
            expected,
            found: self.type_word(),
        }
    }

    /// Returns the kind of the value.
    pub(super) fn type_word(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a text",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        }
    }

    pub(super) fn invalid(&self, reason: impl Into<String>) -> ProviderError {
        ProviderError::Invalid {
            form: self.form,
            at: self.at.clone(),
            reason: reason.into(),
        }
    }

    /// Returns the error for an unsupported kind of thing, such as a `block type`.
    pub(super) fn unsupported(&self, kind: &str, name: &str) -> ProviderError {
        let mut shown: String = name.chars().take(SHOWN).collect();
        if shown.len() < name.len() {
            shown.push('…');
        }
        ProviderError::Unsupported {
            form: self.form,
            at: self.at.clone(),
            what: format!("{kind} `{}`", shown.escape_debug()),
        }
    }

    pub(super) fn choices(&self, count: usize) -> ProviderError {
        ProviderError::Choices {
            form: self.form,
            at: self.at.clone(),
            count,
        }
    }
}

/// The remaining fields of an object, from which known fields are taken. `null` counts as absent.
pub(super) struct NodeFields<'a> {
    pub(super) node: JsonNode<'a>,
    map: &'a Map<String, Value>,
    texts: OnceCell<HashMap<String, &'a RawValue>>,
    taken: Vec<&'static str>,
}

impl<'a> NodeFields<'a> {
    pub(super) fn has(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(|value| !value.is_null())
    }

    /// Takes a field.
    pub(super) fn take(&mut self, key: &'static str) -> Option<JsonNode<'a>> {
        self.taken.push(key);
        let value = self.map.get(key).filter(|value| !value.is_null())?;
        Some(JsonNode {
            form: self.node.form,
            at: self.place(key),
            value,
            text: self.text_of(key, value),
        })
    }

    /// Returns the JSON text of a field, unless the field is a string.
    fn text_of(&self, key: &str, value: &Value) -> Option<&'a str> {
        if matches!(value, Value::String(_) | Value::Bool(_)) {
            return None;
        }
        let texts = self
            .texts
            .get_or_init(|| self.node.texts().unwrap_or_default());
        texts.get(key).map(|text| text.get())
    }

    /// Takes a required field.
    pub(super) fn need(&mut self, key: &'static str) -> ReadResult<JsonNode<'a>> {
        self.take(key).ok_or_else(|| ProviderError::Missing {
            form: self.node.form,
            at: self.place(key),
        })
    }

    /// Takes a text.
    pub(super) fn text(&mut self, key: &'static str) -> ReadResult<Option<String>> {
        let text = self.take(key).map(|node| node.text().map(str::to_owned));
        text.transpose()
    }

    /// Takes a text that is not empty; any other value is left.
    pub(super) fn text_if_any(&mut self, key: &'static str) -> Option<String> {
        let text = self
            .map
            .get(key)?
            .as_str()
            .filter(|text| !text.is_empty())?;
        self.taken.push(key);
        Some(text.to_owned())
    }

    /// Takes a list that is not empty; any other value is left.
    pub(super) fn list_if_any(&mut self, key: &'static str) -> Option<JsonNode<'a>> {
        let list = self.map.get(key)?.as_array();
        list.filter(|list| !list.is_empty())?;
        self.take(key)
    }

    /// Takes a value that `read` returns something for; any other value is left.
    pub(super) fn take_if<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&JsonNode<'a>) -> Option<T>,
    ) -> Option<T> {
        let found = self.take(key).and_then(|node| read(&node));
        if found.is_none() {
            self.taken.pop();
        }
        found
    }

    /// Takes a number of tokens.
    pub(super) fn count(&mut self, key: &'static str) -> ReadResult<Option<i64>> {
        self.take(key).map(|node| node.count()).transpose()
    }

    /// Rejects a field that no message can represent.
    pub(super) fn refuse(&mut self, key: &'static str) -> ReadResult<()> {
        match self.take(key) {
            Some(node) => Err(node.unsupported("field", key)),
            None => Ok(()),
        }
    }

    /// Rejects all fields that were not taken.
    pub(super) fn refuse_rest(&self) -> ReadResult<()> {
        match self.rest().next() {
            Some((key, value)) => Err(JsonNode {
                form: self.node.form,
                at: self.place(key),
                value,
                text: None,
            }
            .unsupported("field", key)),
            None => Ok(()),
        }
    }

    /// Keeps the fields that were not taken, as the field `source`.
    pub(super) fn keep_rest(&self, extra: &mut Extra) -> ReadResult<()> {
        self.keep_rest_as("source", extra)
    }

    /// Keeps the fields that were not taken, as the field `key`.
    pub(super) fn keep_rest_as(&self, key: &str, extra: &mut Extra) -> ReadResult<()> {
        let rest: Map<String, Value> = self
            .rest()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if !rest.is_empty() {
            extra.insert(key, self.node.kept(&rest)?);
        }
        Ok(())
    }

    /// Returns the fields that were not taken, without `null` and empty lists.
    fn rest(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        let has_value = |value: &Value| match value {
            Value::Array(list) => !list.is_empty(),
            value => !value.is_null(),
        };
        let is_left = move |(key, value): &(&String, &Value)| {
            has_value(value) && !self.taken.contains(&key.as_str())
        };
        self.map.iter().filter(is_left)
    }

    fn place(&self, key: &str) -> String {
        let at = &self.node.at;
        match key.contains(['~', '/']) {
            true => format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")),
            false => [at, "/", key].concat(),
        }
    }
}
