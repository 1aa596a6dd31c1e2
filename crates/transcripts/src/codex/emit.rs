//! The second pass: reads the records again and emits them.

use std::collections::VecDeque;

use loopstore::model::{AgentMessage, Content, Json, Message, Time};

use super::TOOL;
use super::bare::{enveloped, with_envelope};
use super::index::{CodexIndex, IndexStep};
use super::items::{CodexRecord, answer, history};
use crate::authors::by_harness;
use crate::extension::{extension_of, system_prompt, unreadable};
use crate::fields::Fields;
use crate::lines::SourceLocation;
use crate::records::RecordReader;
use crate::transcript::{LoopTurn, Style, TranscriptBuilder};
use crate::values::{text_of, user, with_source};
use crate::{FoundEffect, ImportError, SessionHead, Sink, Source};

/// The maximum size of the prompts that Codex keeps with a summary, in bytes: 20,000 tokens of four bytes.
const MOST_PROMPTS: usize = 80_000;

/// Emits the whole transcript. Returns true if there was a conversation.
pub(super) fn emit(
    source: &mut Source<'_>,
    index: &CodexIndex,
    head: SessionHead,
    sink: &mut dyn Sink,
) -> Result<bool, ImportError> {
    let mut emitter = CodexEmitter {
        records: RecordReader::new(source.path, &mut *source.reader)?,
        index,
        transcript: TranscriptBuilder::new(sink, head, Style::Log),
        prompts: VecDeque::new(),
        path: Vec::new(),
        spoken: None,
    };
    if index.meta.as_ref().is_some_and(|meta| meta.is_subagent) {
        emitter.transcript.is_of_agent();
    }
    for step in &index.steps {
        emitter.step(step)?;
    }
    emitter.transcript.finish()
}

struct CodexEmitter<'a> {
    records: RecordReader<'a>,
    index: &'a CodexIndex,
    transcript: TranscriptBuilder<'a>,
    /// The newest prompts, which Codex keeps with a summary that does not list the kept messages.
    prompts: VecDeque<String>,
    /// The turn before each prompt that was not rolled back.
    path: Vec<Option<LoopTurn>>,
    /// The last turn with more than the items that Codex adds before a prompt.
    spoken: Option<LoopTurn>,
}

impl CodexEmitter<'_> {
    /// Adds a prompt, and drops the oldest ones over the limit.
    fn keep_prompt(&mut self, message: &AgentMessage) {
        let texts: Vec<&str> = message
            .message()
            .into_iter()
            .flat_map(Message::texts)
            .collect();
        self.prompts.push_back(texts.join("\n"));
        let mut bytes: usize = self.prompts.iter().map(String::len).sum();
        while bytes > MOST_PROMPTS && self.prompts.len() > 1 {
            bytes -= self
                .prompts
                .pop_front()
                .map_or(bytes, |oldest| oldest.len());
        }
    }

    fn step(&mut self, step: &IndexStep) -> Result<(), ImportError> {
        let place = match step {
            IndexStep::Answer(number) => return self.answer(*number),
            IndexStep::Copy => return Ok(()),
            IndexStep::Unreadable(place)
            | IndexStep::Meta(place)
            | IndexStep::Extension(place)
            | IndexStep::Aborted(place)
            | IndexStep::RolledBack(place)
            | IndexStep::System(place)
            | IndexStep::Result(place)
            | IndexStep::Compacted(place)
            | IndexStep::User { place, .. } => *place,
        };
        let raw = self.records.bytes(place)?;
        if let IndexStep::Unreadable(_) = step {
            return self.transcript.extension(unreadable(&raw), &raw);
        }
        let taken = with_envelope(&String::from_utf8_lossy(&raw), |json, fields| {
            let time = fields.text("timestamp").map(Time::from_text);
            self.transcript.at(time);
            let (message, record) = message_of(step, json, fields)?;
            Ok(self.record(step, (message, record), json, &raw, place))
        });
        taken.unwrap_or_else(|reason| {
            self.transcript.skip(place.line, reason);
            self.transcript.extension(unreadable(&raw), &raw)
        })
    }

    fn record(
        &mut self,
        step: &IndexStep,
        (message, record): (AgentMessage, Option<CodexRecord<'_>>),
        json: &str,
        raw: &[u8],
        place: SourceLocation,
    ) -> Result<(), ImportError> {
        match step {
            IndexStep::Compacted(_) => self.compacted(message, record, json, raw),
            IndexStep::RolledBack(_) => self.rolled_back(message, record, raw, place),
            IndexStep::Result(_) => {
                self.transcript.result(|| line_id(place), message, raw)?;
                self.spoken = self.transcript.last_turn();
                Ok(())
            }
            IndexStep::User { prompt, .. } => match prompt {
                Some(name) => {
                    self.keep_prompt(&message);
                    self.path.push(self.spoken);
                    self.transcript.prompt(name.as_str(), message, raw)?;
                    self.spoken = self.transcript.last_turn();
                    Ok(())
                }
                None => self.transcript.input(message, raw, false),
            },
            IndexStep::Meta(_) => {
                self.transcript.extension(message, raw)?;
                match record.as_ref().and_then(instructions) {
                    Some(prompt) => self.transcript.extension(prompt, raw),
                    None => Ok(()),
                }
            }
            IndexStep::Aborted(_) => {
                self.transcript.extension(message, raw)?;
                self.transcript.interrupted();
                Ok(())
            }
            _ => self.transcript.extension(message, raw),
        }
    }

    fn answer(&mut self, number: usize) -> Result<(), ImportError> {
        let found = &self.index.answers[number];
        let mut raws = Vec::new();
        for place in &found.places {
            let bytes = self.records.bytes(*place)?;
            raws.push((place.line, String::from_utf8_lossy(&bytes).into_owned()));
        }
        let parsed: Vec<_> = raws.iter().map(|(_, json)| Fields::parse(json)).collect();
        let wrapped = raws.iter().zip(&parsed).map(|((_, json), fields)| {
            let fields = fields.as_ref().ok()?;
            enveloped(json, fields)
        });
        let wrapped: Vec<Option<String>> = wrapped.collect();
        let mut records = Vec::new();
        for (((line, _), fields), wrapped) in raws.iter().zip(parsed).zip(&wrapped) {
            let fields = wrapped.as_ref().map_or(fields, |json| Fields::parse(json));
            match fields.and_then(CodexRecord::of) {
                Ok(record) => records.push((*line, record)),
                Err(reason) => self.transcript.skip(*line, reason),
            }
        }
        self.transcript
            .at(records.first().and_then(|(_, record)| record.time.clone()));
        let provider = self.index.meta.as_ref().and_then(|m| m.provider.clone());
        let message = answer(
            records,
            found.model.clone(),
            provider,
            found.usage.clone(),
            &mut |line, reason| self.transcript.skip(line, reason),
        );
        let raws: Vec<&str> = raws.iter().map(|(_, json)| json.as_str()).collect();
        let raw = raws.join("\n");
        let name = || line_id(found.places[0]);
        self.transcript.answer(name, message, raw.as_bytes())?;
        self.spoken = self.transcript.last_turn();
        Ok(())
    }

    /// Rolls the last turns back: the next record continues from the turn before the first of them. If there are fewer
    /// turns, everything after the content before the first prompt is rolled back.
    fn rolled_back(
        &mut self,
        note: AgentMessage,
        record: Option<CodexRecord<'_>>,
        raw: &[u8],
        place: SourceLocation,
    ) -> Result<(), ImportError> {
        let Some(turns) = record.and_then(|record| record.item.read::<u64>("num_turns")) else {
            let reason = "how many turns it takes back is not a number";
            self.transcript.skip(place.line, reason);
            return self.transcript.extension(note, raw);
        };
        let turns = usize::try_from(turns).unwrap_or(usize::MAX);
        let kept = self.path.len().saturating_sub(turns);
        let Some(after) = self.path.get(kept).copied() else {
            return self.transcript.extension(note, raw);
        };
        let taken = self.path.len() - kept;
        let prompts = self.prompts.len().saturating_sub(taken);
        self.prompts.truncate(prompts);
        self.path.truncate(kept);
        self.spoken = after;
        self.transcript.go_back(after, line_id(place))?;
        self.transcript.extension(note, raw)?;
        match after {
            Some(_) => Ok(()),
            None => self.repeat_preamble(),
        }
    }

    /// Emits the items that Codex added before the first prompt again: they belong to its turn.
    fn repeat_preamble(&mut self) -> Result<(), ImportError> {
        let steps = self.index.steps.iter();
        let is_prompt = |step: &&IndexStep| {
            matches!(
                step,
                IndexStep::User {
                    prompt: Some(_),
                    ..
                }
            )
        };
        for step in steps.take_while(|step| !is_prompt(step)) {
            let IndexStep::User { place, .. } = step else {
                continue;
            };
            let raw = self.records.bytes(*place)?;
            if !self.transcript.may_repeat(raw.len(), place.line) {
                break;
            }
            let message = with_envelope(&String::from_utf8_lossy(&raw), |json, fields| {
                message_of(step, json, fields).map(|(message, _)| message)
            });
            if let Ok(message) = message {
                self.transcript.input(message, &raw, false)?;
            }
        }
        Ok(())
    }

    /// Handles a compaction. The messages after it are its `replacement_history`, else the prompts so far and its
    /// message.
    fn compacted(
        &mut self,
        kept: AgentMessage,
        record: Option<CodexRecord<'_>>,
        json: &str,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        let left = record.as_ref().and_then(|record| {
            let items = record.item.get("replacement_history");
            let messages = items.map(history).unwrap_or_default();
            if !messages.is_empty() {
                return Some(messages);
            }
            let text = record.item.text("message")?;
            let summary = user(vec![Content::text(text)], None);
            let prompts = self.prompts.iter().filter(|prompt| !prompt.is_empty());
            let prompts = prompts.map(|prompt| user(vec![Content::text(prompt.as_str())], None));
            Some(prompts.chain([by_harness(summary)]).collect())
        });
        let (Some(messages), Some(_)) = (left, self.transcript.here()) else {
            return self.transcript.extension(kept, raw);
        };
        // Encrypted state replaces the conversation for its provider only.
        let mut by = messages.iter().filter_map(AgentMessage::last_compaction);
        let strategy = match by.next() {
            Some((_, provider)) => provider.strategy(),
            None => TOOL.to_owned(),
        };
        let effect = FoundEffect::Summary {
            messages,
            first_kept: None,
        };
        let record = Json::parse(json).unwrap_or_default();
        self.transcript.compaction(&strategy, effect, record)
    }
}

/// Reads the message of a record that is not part of an answer. If the record is kept unchanged and has an effect, it
/// is returned too.
fn message_of<'a>(
    step: &IndexStep,
    json: &str,
    fields: Fields<'a>,
) -> Result<(AgentMessage, Option<CodexRecord<'a>>), String> {
    let message = match step {
        IndexStep::User { .. } => CodexRecord::of(fields)?.user()?,
        IndexStep::Result(_) => CodexRecord::of(fields)?.result()?,
        IndexStep::System(_) => system_item(CodexRecord::of(fields)?)?,
        IndexStep::Meta(_) | IndexStep::Compacted(_) | IndexStep::RolledBack(_) => {
            return Ok((kept(json, &fields), CodexRecord::of(fields).ok()));
        }
        _ => kept(json, &fields),
    };
    Ok((message, None))
}

/// Returns the system prompt in the session metadata.
fn instructions(record: &CodexRecord<'_>) -> Option<AgentMessage> {
    let instructions = record.item.get("base_instructions")?;
    let text = Fields::parse(instructions.get()).ok();
    let text = text.and_then(|fields| fields.text("text"));
    let text = text.or_else(|| text_of(Some(instructions)))?;
    system_prompt(&Json::string(&text)).ok()
}

fn line_id(place: SourceLocation) -> String {
    format!("line-{}", place.line)
}

fn system_item(mut record: CodexRecord<'_>) -> Result<AgentMessage, String> {
    record.item.take("type");
    let content = record.item.take("content").map(|content| content.get());
    let content = Json::parse(content.unwrap_or("null")).unwrap_or_default();
    Ok(with_source(system_prompt(&content)?, record.rest()))
}

/// Keeps a record unchanged, under the name of its payload.
fn kept(json: &str, record: &Fields<'_>) -> AgentMessage {
    let payload = record.child("payload");
    let kind = payload.and_then(|payload| payload.text("type"));
    extension_of(kind.or_else(|| record.text("type")).as_deref(), json)
}
