//! Pieces of secrets: a redaction also removes the parts of a secret that was cut, by a compaction or before.

use crate::histories::{History, Random, answer, loop_id, result, user};
use crate::secrets::{KINDS, Secret, secret};
use loopstore::compaction::{CompactionConfig, CompactionScope};
use loopstore::extend as store;
use loopstore::search::{SearchQuery, search};
use loopstore::*;
use loopstore_admin::retention::*;
use loopstore_redact::Redactor;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A session with secrets.
pub struct SecretSession {
    id: SessionId,
    secrets: Vec<Secret>,
}

impl SecretSession {
    /// Everything of eight characters that is not to be found any more.
    pub fn windows(&self) -> HashSet<String> {
        let random = self.secrets.iter().flat_map(|secret| &secret.random);
        let windows = random.flat_map(|part| part.as_bytes().windows(8));
        windows
            .map(|window| String::from_utf8(window.to_vec()).unwrap())
            .collect()
    }
}

fn words(random: &mut Random, most: u64) -> String {
    const WORDS: [&str; 6] = [
        "parse",
        "the",
        "build fails in",
        "src/main.rs",
        "again;",
        "now",
    ];
    let words = (0..random.below(most)).map(|_| WORDS[random.below(6) as usize]);
    words.collect::<Vec<_>>().join(" ")
}

/// Returns a text with a secret somewhere in it.
fn around(random: &mut Random, secret: &Secret) -> String {
    let (before, after) = (words(random, 30), words(random, 30));
    match random.below(3) {
        0 => format!("{before} {} {after}", secret.text),
        1 => format!("{before}\n{}\n{after}", secret.text),
        _ => format!("{before}\n{after}\n{}", secret.text.replace('\n', "\\n")),
    }
}

/// Returns the beginning or the end of a secret, long enough to differ from a word.
fn cut(random: &mut Random, secret: &Secret) -> String {
    let part = &secret.random[0];
    if part.len() < 30 {
        return words(random, 20);
    }
    let at = 20 + random.below(part.len() as u64 - 20) as usize;
    match random.one_in(2) {
        true => format!("it begins with {}…", &part[..at]),
        false => format!("…{} is its end", &part[part.len() - at..]),
    }
}

fn turn(random: &mut Random, secrets: &[Secret], turn: u32) -> Vec<AgentMessage> {
    let secret = &secrets[random.below(secrets.len() as u64) as usize];
    let call = format!("call-{turn}");
    let mut reply = answer(&words(random, 40), &[&call], turn);
    let args = serde_json::json!({"cmd": around(random, secret), "n": 1});
    if let (true, Some(message)) = (random.one_in(3), reply.message_mut()) {
        let args = Json::parse(&args.to_string()).unwrap();
        let content = message.content_mut();
        content[1] = Content::tool_call(call.as_str(), "sh", args);
    }
    let prompt = match random.below(3) {
        0 => around(random, secret),
        1 => words(random, 60),
        _ => cut(random, secret),
    };
    let mut lines: Vec<String> = (0..random.below(12)).map(|_| words(random, 12)).collect();
    if random.one_in(2) {
        let at = random.below(lines.len() as u64 + 1) as usize;
        let text = around(random, secret);
        lines.insert(
            at,
            format!("{}{text}", "x".repeat(random.below(300) as usize)),
        );
    }
    let mut output = vec![Content::text(lines.join("\n"))];
    if random.one_in(4) {
        let text = format!(
            r#"{{"type":"image","data":"aGVsbG8=","mimeType":"image/png","alt":{}}}"#,
            serde_json::json!(around(random, secret))
        );
        output.push(serde_json::from_str(&text).unwrap());
        let mut bytes = b"\x89PNG tEXt".to_vec();
        bytes.extend(around(random, secret).into_bytes());
        let bytes = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
        output.push(Content::image(bytes, "image/png"));
    }
    vec![user(&prompt, turn), reply, result(&call, output, turn)]
}

/// Compacts in one of several ways, all of which cut texts.
fn compact(store: &dyn SessionStore, random: &mut Random, id: &SessionId) {
    let strategy: Option<Arc<dyn BlockCompactionStrategy>> = match random.one_in(2) {
        true => Some(Arc::new(DefaultBlockCompaction)),
        false => CompactionConfig::default().block_strategy,
    };
    let request = CompactRequest {
        policy: Policy::of(
            ContextConfig {
                max_context_tokens: 1_000 + random.below(4_000),
                ..ContextConfig::default()
            },
            CompactionConfig {
                policy: CompactionPolicy::Headroom {
                    compact_at_pct: 0.0,
                    compact_budget_threshold_pct: 0.05,
                },
                keep_first_turns: random.below(2) as u32,
                keep_recent: KeepRecent::Turns(1 + random.below(3) as u32),
                tool_output_max_lines: 3,
                max_summary_tokens: 20 + random.below(200),
                compaction_scope: CompactionScope::FixedCount(2),
                block_strategy: strategy,
                ..CompactionConfig::default()
            },
        ),
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    };
    compact_session_loops(store, id, &request).unwrap();
}

/// Returns a secret that a rule finds: some without a form do not look random enough.
fn known_secret(random: &mut Random, kind: u64) -> Secret {
    let mut tried = (0..50).map(|_| secret(random, kind));
    let found = tried.find(|one| Redactor::new(b"k").text(&one.text).is_some());
    found.unwrap_or_else(|| panic!("no secret of kind {kind} is found"))
}

/// Records a random session with secrets, with compactions in between.
fn hold(store: &dyn Database, random: &mut Random, at: u64) -> SecretSession {
    let id = format!("holder-{at}");
    let mut secrets = vec![known_secret(random, at % KINDS)];
    if random.one_in(2) {
        let kind = random.below(KINDS);
        secrets.push(known_secret(random, kind));
    }
    let mut history = History::new(store, &id);
    history.append(
        0,
        vec![user(&around(random, &secrets[0]), 0), answer("yes", &[], 0)],
    );
    if let Some(second) = secrets.get(1) {
        history.append(
            0,
            vec![user(&around(random, second), 1), answer("yes", &[], 1)],
        );
    }
    let (turns, mut at_loop) = (6 + random.below(8) as u32, 0);
    for number in 2..turns {
        history.append(at_loop, turn(random, &secrets, number));
        if random.one_in(4) {
            compact(store, random, &history.session);
        }
        if random.one_in(7) {
            history.end_loop(at_loop);
            history.start_loop(Some(at_loop), None);
            at_loop += 1;
        }
    }
    compact(store, random, &history.session);
    store::write(store, |write| {
        let mut row = write.session(&history.session)?.unwrap();
        let text = &secrets[0].random[0];
        row.title = Some(format!("Use {}…", &text[..text.len().min(15)]));
        row.tick += 1;
        write.update_session(&row)
    })
    .unwrap();
    let holder = SecretSession {
        id: history.session.clone(),
        secrets,
    };
    if random.one_in(3) {
        for number in 0..=at_loop {
            history.end_loop(number);
        }
        let request = ArchiveRequest {
            session: Some(holder.id.clone()),
            loops: (0..=at_loop).map(loop_id).collect(),
            shown: true,
            ..ArchiveRequest::default()
        };
        archive(store, &request).unwrap();
    }
    holder
}

/// Returns all stored text of a session, and every context of it.
fn stored_text(store: &dyn Database, id: &SessionId) -> String {
    let mut all = String::new();
    store
        .scan(Box::new(|scan| {
            let key = scan.session(id)?.unwrap().key;
            for row in scan.loops(key)? {
                scan.messages(row.key, 0..u32::MAX, &mut |row| {
                    all += &row.body.head.unwrap_or_default();
                    all += &row.body.text.unwrap_or_default();
                    Ok(ControlFlow::Continue(()))
                })?;
                for block in scan.blocks_of_loop(row.key)? {
                    for message in scan.block_messages(block.key)? {
                        let Some(body) = message.body else { continue };
                        all += &body.head.unwrap_or_default();
                        all += &body.text.unwrap_or_default();
                    }
                }
            }
            scan.texts(key, &mut |cell| {
                all += cell.text;
                Ok(())
            })
        }))
        .unwrap();
    let built = build_context_from_session(store, id, &BuildOptions::default()).unwrap();
    all + &serde_json::to_string(&built.messages).unwrap()
}

pub fn found_in(bytes: &[u8], windows: &HashSet<String>) -> Vec<String> {
    let windows: HashSet<&[u8]> = windows.iter().map(String::as_bytes).collect();
    let found = bytes.windows(8).filter(|window| windows.contains(window));
    found
        .map(|window| String::from_utf8_lossy(window).into_owned())
        .collect()
}

/// Redacts random sessions in any order; some continue and are compacted and redacted again.
pub fn redact_all(store: &dyn Database, random: &mut Random, count: u64) -> Vec<SecretSession> {
    let mut holders: Vec<SecretSession> = (0..count).map(|at| hold(store, random, at)).collect();
    search(store, &SearchQuery::new("parse")).unwrap();
    let mut cut = 0;
    for at in 0..holders.len() {
        let other = at + random.below((holders.len() - at) as u64) as usize;
        holders.swap(at, other);
        let holder = &holders[at];
        let windows = holder.windows();
        let before = found_in(stored_text(store, &holder.id).as_bytes(), &windows).len();
        assert!(before > 8, "{}", holder.id);
        let mut request = RedactRequest::new(holder.id.clone());
        request.dry_run = true;
        let preview = redact_session(store, &request).unwrap();
        let still = found_in(stored_text(store, &holder.id).as_bytes(), &windows).len();
        assert_eq!(still, before, "a dry run changes nothing");
        request.dry_run = false;
        let report = redact_session(store, &request).unwrap();
        assert_eq!(
            (
                &report.secrets,
                report.pieces,
                &report.places,
                &report.texts
            ),
            (
                &preview.secrets,
                preview.pieces,
                &preview.places,
                &preview.texts
            )
        );
        cut += report.pieces;
        assert_eq!(report.left, [], "{}", holder.id);
        let left = found_in(stored_text(store, &holder.id).as_bytes(), &windows);
        assert_eq!(
            left, [""; 0],
            "{} of {:?}",
            holder.id, holder.secrets[0].value
        );
        if random.one_in(2) {
            compact(store, random, &holder.id);
        }
    }
    assert!(
        cut > count,
        "{cut} pieces were replaced: too few to show anything"
    );
    holders
}
