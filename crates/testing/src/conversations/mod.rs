//! Random conversations in the forms of providers, with every kind of item and block: `provider::write` returns
//! each unchanged after it was read.
#![allow(dead_code, unused_imports)]

mod anthropic;
mod openai;

pub use openai::{KINDS, piece};

use loopstore::provider::Form;
use serde_json::{Value, json};

use crate::histories::Random;

/// A base64 image of one pixel.
const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=";

/// A request.
pub fn request(form: Form, random: &mut Random) -> Value {
    match form {
        Form::OpenAiChat => json!({"messages": openai::chat(random)}),
        Form::OpenAiResponses => {
            let input = openai::items(random);
            match random.one_in(2) {
                true => json!({"instructions": "Be brief.", "input": input}),
                false => json!({"input": input}),
            }
        }
        Form::Anthropic => {
            let messages = anthropic::messages(random);
            match random.below(3) {
                0 => json!({"system": "Be brief.", "messages": messages}),
                1 => json!({"system": [{"type": "text", "text": "Be brief.",
                    "cache_control": {"type": "ephemeral", "ttl": "1h"}}], "messages": messages}),
                _ => json!({"messages": messages}),
            }
        }
        _ => panic!("no conversations in the form {form}"),
    }
}

/// The messages or items of a request.
pub fn list(request: &Value) -> &[Value] {
    let list = request.get("messages").or(request.get("input"));
    list.and_then(Value::as_array).unwrap()
}

/// Returns the fields of an object in another order than a map sorts them.
pub fn reversed(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let field =
                |(key, value): (&String, &Value)| format!("{}:{}", json!(key), reversed(value));
            let fields: Vec<String> = map.iter().rev().map(field).collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(list) => {
            let list: Vec<String> = list.iter().map(reversed).collect();
            format!("[{}]", list.join(","))
        }
        plain => plain.to_string(),
    }
}

fn one_of(random: &mut Random, of: Vec<Value>) -> Value {
    let at = random.below(of.len() as u64) as usize;
    of[at].clone()
}

fn image_url() -> String {
    format!("data:image/png;base64,{PIXEL}")
}
