//! The selection of the secrets that are replaced: confidence, allowed values, single rules, parts of values.

use loopstore::extend::lease;
use loopstore::search::{SearchQuery, search};
use loopstore::{extend as store, *};
use loopstore_admin::retention::*;
use loopstore_recorder::{RecorderOptions, SessionRecorder};
use loopstore_redact::{Confidence, FoundBy, RedactionPolicy, Redactor, rule_names};
use loopstore_transcripts::{ImportOptions, import_paths};

use crate::support::histories::{History, answer, user};
use crate::support::removal::*;

/// A path after a name: nothing else suggests a secret.
const PATH: &str = "crates/server9/src/auth2/token_store4.rs";
const PASSWORD: &str = "QuietRiverStone";

fn history<'a>(store: &'a SqliteStore, texts: &[&str]) -> History<'a> {
    let history = History::new(store, "s");
    for (turn, text) in (0..).zip(texts) {
        history.append(0, vec![user(text, turn), answer("yes", &[], turn)]);
    }
    history
}

fn request(policy: RedactionPolicy) -> RedactRequest {
    RedactRequest {
        policy,
        ..RedactRequest::new(session("s"))
    }
}

fn dry_run(store: &SqliteStore, policy: RedactionPolicy) -> RedactReport {
    let request = RedactRequest {
        dry_run: true,
        ..request(policy)
    };
    redact_session(store, &request).unwrap()
}

fn finds(store: &SqliteStore, text: &str) -> bool {
    let sql = format!(
        "SELECT count(*) AS n FROM messages WHERE coalesce(head, '') || coalesce(body, '') LIKE '%{text}%'"
    );
    number(store, &sql) > 0
}

#[test]
fn a_path_after_a_name_is_reported_and_nothing_is_taken_apart() {
    let stage = Stage::new();
    let store = stage.store();
    let comment = format!("// the password: {PATH} is read first");
    let others = "see crates/server9/src/auth2/mod.rs and crates/server9/src/token_store4/x.rs";
    history(&store, &[&comment, others, "nothing"]);
    let report = dry_run(&store, RedactionPolicy::default());
    assert_eq!(
        (report.secrets.len(), report.messages, report.pieces),
        (0, 0, 0)
    );
    let found = &report.findings[0];
    assert_eq!(found.finding.confidence, Confidence::Low);
    assert!(!found.finding.replaced && found.finding.context.contains("the password"));
    assert_eq!(report.held_back[&found.finding.rule], 1);
    let report = redact_session(&store, &request(RedactionPolicy::default())).unwrap();
    assert_eq!((report.receipt, report.held_back.len()), (None, 1));
    assert!(finds(&store, PATH));
    // With a lower minimum confidence it is replaced, but not the part that it has in common with others.
    let asked = RedactionPolicy::default().min_confidence(Confidence::Low);
    let report = redact_session(&store, &request(asked)).unwrap();
    assert_eq!((report.messages, report.pieces), (1, 0));
    assert_eq!(report.left, []);
    assert!(!finds(&store, PATH) && finds(&store, "server9/src/auth2/mod.rs"));
    assert_whole(&store);
}

#[test]
fn a_dry_run_shows_each_secret_masked_with_its_place_and_context() {
    let stage = Stage::new();
    let store = stage.store();
    let text = format!("export DB_PASSWORD={PASSWORD} TOKEN={}", token());
    history(
        &store,
        &[
            &text,
            &format!("again {}", token()),
            &format!("so {PASSWORD} it is"),
        ],
    );
    let report = dry_run(&store, RedactionPolicy::default());
    let shown = serde_json::to_string(&report.findings).unwrap();
    assert!(
        !shown.contains(PASSWORD) && !shown.contains(CORE),
        "{shown}"
    );
    let [first, second] = &report.findings[..] else {
        panic!("{shown}");
    };
    assert_eq!(first.finding.rule, "github-pat");
    assert_eq!(first.finding.confidence, Confidence::High);
    assert_eq!(first.finding.length, token().len());
    assert_eq!(first.finding.masked, "ghp_…j5");
    assert_eq!((first.count, first.places.len()), (2, 2));
    assert_eq!(second.finding.rule, "password");
    assert_eq!(second.finding.found_by, FoundBy::Rule);
    assert_eq!(
        second.finding.context,
        "export DB_PASSWORD=Q…e TOKEN=ghp_…j5"
    );
    // Its value is known, also in places without its name.
    assert_eq!(second.count, 2);
    assert!(finds(&store, PASSWORD), "a dry run changes nothing");
    let report = redact_session(&store, &request(RedactionPolicy::default())).unwrap();
    assert!(report.findings.is_empty() && !finds(&store, PASSWORD));
}

#[test]
fn what_is_allowed_stays_by_its_value_or_its_id() {
    for by_id in [false, true] {
        let stage = Stage::new();
        let store = stage.store();
        let text = format!("DB_PASSWORD={PASSWORD} and {}", token());
        history(&store, &[&text, &format!("{PASSWORD} again")]);
        let found = dry_run(&store, RedactionPolicy::default()).findings;
        let id = found.iter().find(|one| one.finding.rule == "password");
        let id = id.unwrap().finding.id.clone();
        let lines = format!("# no secrets\n\n  {}\n", if by_id { &id } else { PASSWORD });
        let policy = RedactionPolicy::default().allow_lines(&lines);
        let report = redact_session(&store, &request(policy)).unwrap();
        assert_eq!(report.secrets.keys().collect::<Vec<_>>(), ["github-pat"]);
        assert!(finds(&store, PASSWORD) && !finds(&store, CORE));
    }
}

#[test]
fn only_the_rules_that_are_named_apply() {
    let stage = Stage::new();
    let store = stage.store();
    history(
        &store,
        &[&format!("DB_PASSWORD={PASSWORD} and {}", token())],
    );
    let policy = RedactionPolicy::default().only("password").unwrap();
    let report = redact_session(&store, &request(policy)).unwrap();
    assert_eq!(report.secrets.keys().collect::<Vec<_>>(), ["password"]);
    assert!(finds(&store, CORE));
    let error = RedactionPolicy::default().only("pasword").unwrap_err();
    assert!(error.to_string().contains("`pasword`"), "{error}");
    assert!(rule_names().any(|name| name == "generic-api-key"));
}

#[test]
fn what_is_confirmed_goes_whatever_its_confidence() {
    let stage = Stage::new();
    let store = stage.store();
    history(&store, &[&format!("the password: {PATH}")]);
    let found = dry_run(&store, RedactionPolicy::default()).findings;
    let mut policy = RedactionPolicy::default();
    policy.confirm.insert(found[0].finding.id.clone());
    let report = redact_session(&store, &request(policy)).unwrap();
    assert_eq!(report.messages, 1);
    assert!(!finds(&store, PATH));
}

#[test]
fn parts_are_replaced_of_values_only_that_are_random() {
    let stage = Stage::new();
    let store = stage.store();
    let random = "x7Kq2Zt9mW4vB8nR";
    history(
        &store,
        &[
            &format!("DB_PASSWORD={PASSWORD} OTHER_PASSWORD={random}"),
            "QuietRiver is a class, RiverStone another",
            &format!("it ends with {}…", &random[6..]),
        ],
    );
    let report = redact_session(&store, &request(RedactionPolicy::default())).unwrap();
    assert_eq!(report.pieces, 1);
    assert!(finds(&store, "QuietRiver is a class, RiverStone another"));
    assert!(!finds(&store, &random[6..]));
}

#[test]
fn append_keys_and_owners_of_leases_are_redacted_and_keys_still_known() {
    let stage = Stage::new();
    let path = stage.file();
    let store = Store::open(&path).unwrap();
    let chat = store.session("s").unwrap();
    let key = format!("request with {}", token());
    chat.append_once(&key, [Message::user("hello")]).unwrap();
    chat.append_once("plain key", [Message::user("more")])
        .unwrap();
    let now = Time::now().millis().unwrap_or_default();
    let taken = store::write(store.database(), |write| {
        let (_, loop_key) = write.current(chat.id())?.unwrap();
        lease::acquire(write, loop_key, &format!("worker {}", token()), 60_000, now)
    });
    let lease::Acquire::Acquired(held) = taken.unwrap() else {
        panic!("nobody has it");
    };
    let report = redact_session(store.database(), &request(RedactionPolicy::default())).unwrap();
    assert_eq!(report.texts["append_keys.name"], 1);
    assert_eq!(report.texts["leases.owner"], 1);
    assert_eq!((report.left, report.leftover), (Vec::new(), Leftover::None));
    assert_eq!(stage.count(CORE.as_bytes()), 0);
    // The append is identified by its caller's key, and the lease is still held.
    let again = chat.append_once(&key, [Message::user("hello")]).unwrap();
    assert!(again.duplicate && chat.appended(&key).unwrap().is_some());
    assert!(
        chat.append_once("plain key", [Message::user("more")])
            .unwrap()
            .duplicate
    );
    store::write(store.database(), |write| lease::release(write, &held, now)).unwrap();
}

#[test]
fn a_recorder_that_redacts_shows_no_secret_in_its_name() {
    let stage = Stage::new();
    let store = stage.store();
    let options = RecorderOptions {
        redact: true,
        owner: format!("worker {}", token()),
        ..RecorderOptions::default()
    };
    let mut recorder = SessionRecorder::new(&store, options);
    let start = r#"{"type": "agentStart", "session_id": "s", "loop_id": "s.1"}"#;
    recorder.record_json(start).unwrap();
    assert!(recorder.owner().starts_with("worker [REDACTED:github-pat:"));
    assert_eq!(stage.count(CORE.as_bytes()), 0);
}

#[test]
fn an_import_takes_the_same_choices() {
    let stage = Stage::new();
    let store = stage.store();
    let chat = format!(
        r#"[{{"role":"user","content":"DB_PASSWORD={PASSWORD} {} the password: {PATH}"}},
        {{"role":"assistant","content":"ok"}}]"#,
        token()
    );
    std::fs::write(stage.path("chat.json"), chat).unwrap();
    let options = ImportOptions {
        redact: true,
        redaction: RedactionPolicy::default().allow(PASSWORD),
        ..ImportOptions::default()
    };
    let report = import_paths(&store, &[stage.path("chat.json")], &options, &mut |_| {}).unwrap();
    assert_eq!(
        report.secrets.unwrap().into_keys().collect::<Vec<_>>(),
        ["github-pat"]
    );
    assert_eq!(
        report.held_back.into_keys().collect::<Vec<_>>(),
        ["password"]
    );
    assert!(finds(&store, PASSWORD) && finds(&store, PATH) && !finds(&store, CORE));
    assert!(search(&store, &SearchQuery::new("ok")).is_ok());
}

#[test]
fn thirty_thousand_secrets_in_one_text_take_no_longer_each() {
    let mut redactor = Redactor::new(b"a key").remembering();
    let line = |at: u32| format!("export A_PASSWORD=x7Kq{at:08}Zt9m key ghp_{at:036}\n");
    let text: String = (0..15_000).map(line).collect();
    let begun = std::time::Instant::now();
    let new = redactor.text(&text).unwrap();
    assert_eq!(redactor.counts().values().sum::<u64>(), 30_000);
    // One more text with all of them, without their names.
    let bare: String = (0..15_000).map(|at| format!("x7Kq{at:08}Zt9m\n")).collect();
    assert_eq!(
        redactor.text(&bare).unwrap().matches("[REDACTED:").count(),
        15_000
    );
    assert_eq!(redactor.text(&new), None);
    // Comparing all pairs would take minutes.
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
}
