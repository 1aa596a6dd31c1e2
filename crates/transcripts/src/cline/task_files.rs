//! Reads the files next to the messages of a task or a session.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use loopstore::model::{Extra, Int, Json, Time, Usage};
use serde_json::value::RawValue;

use super::words::{LISTS, OF_TASK};
use crate::decode::DecodedSource;
use crate::fields::{Fields, list, some};
use crate::json_stream::JsonStream;
use crate::signs::TASK_FILE;
use crate::{Sink, Source};

/// The maximum size of a small file, in bytes.
const SMALL: u64 = 16 << 20;
/// The maximum size of the display log of a task; a larger log is not read.
const LOG: u64 = 256 << 20;

/// The contents of the files next to the messages.
#[derive(Default)]
pub(super) struct TaskFiles {
    pub(super) id: Option<String>,
    pub(super) title: Option<String>,
    pub(super) project: Option<String>,
    pub(super) parent: Option<String>,
    pub(super) created: Option<Time>,
    /// The time of the last entry of the task in the list of tasks, in milliseconds since the epoch.
    pub(super) updated: Option<i64>,
    /// The requests to the model, in order.
    pub(super) requests: Vec<ApiRequest>,
    /// The hidden messages, in order.
    pub(super) hidden: Vec<HiddenRange>,
    /// The times at which windows were truncated, by the ids of their markers.
    pub(super) truncations: Vec<(String, i64)>,
    /// The models, each with the time from which on it was active.
    pub(super) models: Vec<(i64, String)>,
}

/// A request to the model in the display log.
pub(super) struct ApiRequest {
    pub(super) at: i64,
    /// The number of the answer, if the log has it.
    pub(super) answer: Option<usize>,
    pub(super) usage: Usage,
}

/// Messages that are hidden from the model from a later message on.
pub(super) struct HiddenRange {
    /// The number of the message before which they were hidden.
    pub(super) before: usize,
    /// The number of the first message after the hidden ones.
    pub(super) kept: usize,
    /// The text that replaces the hidden messages; in a task the first message does.
    pub(super) summary: Option<Json>,
    pub(super) record: Json,
    pub(super) at: Option<i64>,
}

/// True if a file belongs to a task or a session whose messages are in another file.
pub(super) fn is_task_file(path: &Path) -> bool {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return false;
    };
    let Some(name) = name.to_str() else {
        return false;
    };
    let session = folder.file_name().unwrap_or_default().to_string_lossy();
    let messages = format!("{session}.messages.json");
    LISTS.contains(&name)
        || OF_TASK.contains(&name) && folder.join(TASK_FILE).is_file()
        || name != messages && name.starts_with(&*session) && folder.join(messages).is_file()
}

impl TaskFiles {
    /// Reads the files in the folder of a task.
    pub(super) fn of_task(path: &Path, id: Option<&str>, sink: &mut dyn Sink) -> Self {
        let mut files = Self::default();
        let Some(folder) = path.parent() else {
            return files;
        };
        let mut ranges = Vec::new();
        for name in &OF_TASK[..2] {
            values(&folder.join(name), LOG, sink, &mut |record| {
                files.log_record(record, &mut ranges);
            });
        }
        values(
            &folder.join("history_item.json"),
            SMALL,
            sink,
            &mut |item| {
                files.item(item);
            },
        );
        values(
            &folder.join("task_metadata.json"),
            SMALL,
            sink,
            &mut |about| {
                files.models_of(about);
            },
        );
        let (Some(id), Some(tasks), None) = (id, folder.parent(), &files.id) else {
            return files;
        };
        // The list of tasks of Cline is next to the folder of all tasks, that of Roo Code in it.
        let lists = [
            tasks.join("../state/taskHistory.json"),
            tasks.join("_index.json"),
        ];
        for file in lists {
            values(&file, SMALL, sink, &mut |list_or_item| {
                let entries = list_or_item.get("entries").and_then(list);
                let entries = entries.unwrap_or_default().into_iter();
                let mut items = entries.filter_map(|item| Fields::parse(item.get()).ok());
                let is_own = |item: &Fields<'_>| item.text("id").as_deref() == Some(id);
                match items.find(is_own) {
                    Some(item) => files.item(&item),
                    None if is_own(list_or_item) => files.item(list_or_item),
                    None => {}
                }
            });
        }
        files
    }

    /// Reads the files next to a newer session of Cline.
    pub(super) fn of_session(path: &Path, sink: &mut dyn Sink) -> Self {
        let mut files = Self::default();
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(stem) = name.and_then(|name| name.strip_suffix(".messages.json")) else {
            return files;
        };
        values(
            &path.with_file_name(format!("{stem}.json")),
            SMALL,
            sink,
            &mut |about| {
                files.title = about.object("metadata").text("title");
                files.project = about.text("cwd").or_else(|| about.text("workspace_root"));
                files.created = about.text("started_at").map(Time::from_text);
            },
        );
        let state = path.with_file_name(format!("{stem}.compaction.json"));
        values(&state, SMALL, sink, &mut |state| {
            let count: Option<usize> = state.read("source_message_count");
            let (Some(count), Some(messages)) = (count, state.get("messages")) else {
                return;
            };
            files.hidden.push(HiddenRange {
                before: count,
                kept: count,
                summary: Json::parse(messages.get()).ok(),
                record: Json::parse(messages.get()).unwrap_or_default(),
                at: None,
            });
        });
        files
    }

    fn item(&mut self, item: &Fields<'_>) {
        self.id = item.text("id").or(self.id.take());
        self.title = item.text("task").or(self.title.take());
        let folder = item.text("workspace");
        let folder = folder.or_else(|| item.text("cwdOnTaskInitialization"));
        self.project = folder.or(self.project.take());
        self.parent = item.text("parentTaskId").or(self.parent.take());
        self.updated = item.read("ts").or(self.updated);
    }

    fn models_of(&mut self, about: &Fields<'_>) {
        let used = about.get("model_usage").and_then(list).unwrap_or_default();
        for raw in used {
            let used = Fields::parse(raw.get()).unwrap_or_default();
            if let (Some(at), Some(model)) = (used.read("ts"), used.text("model_id")) {
                self.models.push((at, model));
            }
        }
        self.models.sort();
    }

    fn log_record(&mut self, record: &Fields<'_>, ranges: &mut Vec<[usize; 2]>) {
        let at: Option<i64> = record.read("ts");
        // The number of the newest message when this was shown; −1 if there was none.
        let newest: Option<i64> = record.read("conversationHistoryIndex");
        let newest = newest.and_then(|newest| usize::try_from(newest.checked_add(1)?).ok());
        let answer = newest.and_then(|count| count.checked_add(1));
        match (record.text("say").as_deref(), at) {
            (Some("api_req_started"), Some(at)) => {
                let text = record.text("text").unwrap_or_default();
                if let Some(usage) = request_usage(&text) {
                    self.requests.push(ApiRequest { at, answer, usage });
                }
            }
            (Some("sliding_window_truncation"), Some(at)) => {
                let id = record.object("contextTruncation").text("truncationId");
                self.truncations.extend(id.map(|id| (id, at)));
            }
            _ => {}
        }
        // Without a position, a range cannot be distinguished from the one before it.
        if let Some(answer) = answer {
            self.hide(record, answer, at, ranges);
        }
    }

    /// Adds a hidden range, unless it was added before.
    fn hide(
        &mut self,
        record: &Fields<'_>,
        before: usize,
        at: Option<i64>,
        ranges: &mut Vec<[usize; 2]>,
    ) {
        let range: Option<[usize; 2]> = record.read("conversationHistoryDeletedRange");
        let Some(range) = range.filter(|[from, to]| from <= to && !ranges.contains(&[*from, *to]))
        else {
            return;
        };
        ranges.push(range);
        let Some(kept) = range[1].checked_add(1) else {
            return;
        };
        self.hidden.push(HiddenRange {
            before: before.max(kept.saturating_add(1)),
            kept,
            summary: None,
            record: Json::of(&serde_json::json!({ "deletedRange": range })).unwrap_or_default(),
            at,
        });
    }
}

/// Calls `each` with the values of a file, if it exists: the elements of its lists, or its objects.
fn values(path: &Path, limit: u64, sink: &mut dyn Sink, each: &mut dyn FnMut(&Fields<'_>)) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Ok(about) = path.metadata() else { return };
    if !about.is_file() || about.len() > limit {
        return sink.skip(
            None,
            format!("{name} beside it is no file that can be used"),
        );
    }
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return sink.skip(None, format!("{name} beside it: {error}")),
    };
    let mut bytes = Vec::new();
    // The file may grow meanwhile.
    if let Err(error) = BufReader::new(file).take(limit).read_to_end(&mut bytes) {
        return sink.skip(None, format!("{name} beside it: {error}"));
    }
    let mut reader = std::io::Cursor::new(bytes);
    let mut source = Source {
        path,
        reader: &mut reader,
    };
    let mut decoded = match DecodedSource::of(&mut source) {
        Ok(decoded) => decoded,
        Err(error) => return sink.skip(None, format!("{name} beside it: {error}")),
    };
    let mut source = decoded.source(&mut source);
    let mut stream = match JsonStream::new(&mut source) {
        Ok(stream) => stream,
        Err(error) => return sink.skip(None, error.to_string()),
    };
    while let Ok(Some(item)) = stream.next() {
        let text = item.text.map_err(str::to_owned);
        let read = text.as_ref().map_err(String::clone);
        match read.and_then(|text| Fields::parse(text)) {
            Ok(fields) => each(&fields),
            Err(reason) => sink.skip(
                None,
                format!("{name} beside it, line {}: {reason}", item.line),
            ),
        }
    }
}

/// Reads the text of a record about a request; the text of an interrupted request may not be JSON.
fn request_usage(text: &str) -> Option<Usage> {
    let fields = Fields::parse(text).ok()?;
    usage_of(
        [fields.get("tokensIn"), fields.get("tokensOut")],
        [fields.get("cacheReads"), fields.get("cacheWrites")],
        fields.get("cost"),
    )
}

/// Returns usage from counts: input, output, cache reads, cache writes, and the cost.
pub(super) fn usage_of(
    [input, output]: [Option<&RawValue>; 2],
    cache: [Option<&RawValue>; 2],
    cost: Option<&RawValue>,
) -> Option<Usage> {
    let count =
        |value: Option<&RawValue>| -> Option<Int> { serde_json::from_str(some(value)?.get()).ok() };
    let mut extra = Extra::default();
    if let Some(cost) = some(cost).and_then(|cost| Json::parse(cost.get()).ok())
        && cost.read::<f64>().is_ok()
    {
        extra.insert("cost", cost);
    }
    let [cache_read, cache_write] = cache.map(count);
    Some(Usage {
        input: count(input)?,
        output: count(output).unwrap_or_else(|| 0.into()),
        reasoning: None,
        cache_read,
        cache_write,
        total_tokens: None,
        extra,
    })
}
