//! JSON as Python objects.
//!
//! Decoding takes most of the time of a call with a long result: `json.loads` reads each character by itself.

use loopstore_bindings::json_text::string_end;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};
use serde::de::IgnoredAny;

/// Deeper values are left to `json.loads`.
const MAX_DEPTH: usize = 256;
/// The number of field names that are cached.
const MAX_NAMES: usize = 32;

/// Returns the objects that `json.loads` would return; `None` if only `json.loads` can decode or reject the text.
pub fn decode<'py>(py: Python<'py>, json: &[u8]) -> Option<Bound<'py, PyAny>> {
    let mut reader = JsonReader {
        py,
        text: std::str::from_utf8(json).ok()?,
        at: 0,
        depth: 0,
        names: Vec::new(),
    };
    let value = reader.value()?;
    reader.skip_space();
    (reader.at == reader.text.len()).then_some(value)
}

struct JsonReader<'a, 'py> {
    py: Python<'py>,
    text: &'a str,
    at: usize,
    depth: usize,
    /// Names of fields that occur in many objects.
    names: Vec<(&'a str, Bound<'py, PyString>)>,
}

impl<'a, 'py> JsonReader<'a, 'py> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    /// Skips white space and the next byte.
    fn next(&mut self) -> Option<u8> {
        self.skip_space();
        let next = self.peek();
        self.at += 1;
        next
    }

    fn value(&mut self) -> Option<Bound<'py, PyAny>> {
        self.skip_space();
        match self.peek()? {
            b'"' => Some(self.string()?.into_any()),
            b'{' => self.nested(Self::object),
            b'[' => self.nested(Self::list),
            b't' => self.word("true", PyBool::new(self.py, true).to_owned().into_any()),
            b'f' => self.word("false", PyBool::new(self.py, false).to_owned().into_any()),
            b'n' => self.word("null", self.py.None().into_bound(self.py)),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &str, value: Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let is_it = self.text.get(self.at..)?.starts_with(word);
        self.at += word.len();
        is_it.then_some(value)
    }

    fn nested(
        &mut self,
        read: impl Fn(&mut Self) -> Option<Bound<'py, PyAny>>,
    ) -> Option<Bound<'py, PyAny>> {
        self.depth += 1;
        self.at += 1;
        let value = (self.depth < MAX_DEPTH).then(|| read(self)).flatten();
        self.depth -= 1;
        value
    }

    fn object(&mut self) -> Option<Bound<'py, PyAny>> {
        let object = PyDict::new(self.py);
        self.skip_space();
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(object.into_any());
        }
        loop {
            self.skip_space();
            let name = self.name()?;
            if self.next()? != b':' {
                return None;
            }
            object.set_item(name, self.value()?).ok()?;
            match self.next()? {
                b',' => {}
                b'}' => return Some(object.into_any()),
                _ => return None,
            }
        }
    }

    fn list(&mut self) -> Option<Bound<'py, PyAny>> {
        let mut values = Vec::new();
        self.skip_space();
        if self.peek()? == b']' {
            self.at += 1;
            return Some(PyList::empty(self.py).into_any());
        }
        loop {
            values.push(self.value()?);
            match self.next()? {
                b',' => {}
                b']' => return Some(PyList::new(self.py, values).ok()?.into_any()),
                _ => return None,
            }
        }
    }

    fn name(&mut self) -> Option<Bound<'py, PyString>> {
        let begin = self.at;
        let rest = self.text.get(begin..)?;
        let known = self
            .names
            .iter()
            .find(|(quoted, _)| rest.starts_with(quoted));
        if let Some((quoted, name)) = known {
            self.at += quoted.len();
            return Some(name.clone());
        }
        let name = self.string()?;
        if self.names.len() < MAX_NAMES {
            self.names.push((&self.text[begin..self.at], name.clone()));
        }
        Some(name)
    }

    fn string(&mut self) -> Option<Bound<'py, PyString>> {
        let rest = self
            .text
            .get(self.at..)
            .filter(|rest| rest.starts_with('"'))?;
        let (end, has_escapes) = string_end(rest)?;
        self.at += end;
        Some(match has_escapes {
            true => PyString::new(self.py, &serde_json::from_str::<String>(&rest[..end]).ok()?),
            false => PyString::new(self.py, &rest[1..end - 1]),
        })
    }

    fn number(&mut self) -> Option<Bound<'py, PyAny>> {
        let rest = self.text.get(self.at..)?;
        let is_over = |c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E');
        let number = &rest[..rest.find(is_over).unwrap_or(rest.len())];
        serde_json::from_str::<IgnoredAny>(number).ok()?;
        self.at += number.len();
        if number.contains(['.', 'e', 'E']) {
            return Some(PyFloat::new(self.py, number.parse().ok()?).into_any());
        }
        match number.parse::<i64>() {
            Ok(number) => Some(number.into_pyobject(self.py).ok()?.into_any()),
            // An integer of any size.
            Err(_) => self.py.get_type::<PyInt>().call1((number,)).ok(),
        }
    }
}
