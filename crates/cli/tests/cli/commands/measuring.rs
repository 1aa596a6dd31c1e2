//! `eval retention`: the share of the needed facts that a compaction keeps.

use insta::assert_snapshot;
use serde_json::Value;

use crate::commands::stage::Stage;

fn desks() -> String {
    let path = crate::support::root::fixture("retention/desks.json");
    path.to_str().unwrap().to_owned()
}

fn files(stage: &Stage) -> usize {
    std::fs::read_dir(stage.path("")).unwrap().count()
}

#[test]
fn every_strategy_is_measured_at_every_budget() {
    let stage = Stage::empty();
    let said = stage.say(&format!("eval retention {}", desks()));
    assert_snapshot!(said, @"
    2 cases, 13 needed values
    strategy      1 %     3 %     5 %    10 %    20 %
    one-liner     0 %     0 %     0 %     0 %   7.7 %
    tiered        0 %     0 %     0 %     0 %  15.4 %
    truncate      0 %     0 %     0 %     0 %  15.4 %
    clear         0 %     0 %     0 %     0 %  15.4 %
    digest        0 %     0 %  15.4 %  46.2 %  84.6 %
    ");
    assert_eq!(files(&stage), 0);
}

#[test]
fn strategies_and_budgets_can_be_chosen() {
    let stage = Stage::empty();
    let line = "--strategy digest --strategy truncate --strategy digest --budget 20% --budget 0.2";
    let report = stage.json(&format!("eval retention {} {line}", desks()));
    assert_eq!(
        (&report["cases"], &report["needed"]),
        (&2.into(), &13.into())
    );
    let results = report["results"].as_array().unwrap();
    let of = |result: &Value| {
        let recall = result["recall"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&recall));
        assert!(result["tokens"].as_u64().unwrap() > 0);
        (result["strategy"].clone(), result["budget"].clone())
    };
    let expected = ["digest", "truncate"].map(|name| (name.into(), 0.2.into()));
    assert_eq!(results.iter().map(of).collect::<Vec<_>>(), expected);
}

#[test]
fn the_figures_are_drawn() {
    let stage = Stage::empty();
    let line = format!("eval retention {} --budget 20% --svg recall.svg", desks());
    assert_eq!(stage.say(&line).code, 0);
    let svg = std::fs::read_to_string(stage.path("recall.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("digest"), "{svg}");
    let said = stage.say(&line.replace("recall.svg", "no/such/folder.svg"));
    assert_eq!(said.code, 1);
    assert!(
        said.err.contains("cannot write no/such/folder.svg"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_measured_is_said() {
    let stage = Stage::empty();
    for options in [
        "--budget 0",
        "--budget -1",
        "--budget 1.5",
        "--budget 120%",
        "--budget NaN",
        "--budget some",
        "--strategy magic",
        "--strategy summarize",
    ] {
        let said = stage.say(&format!("eval retention {} {options}", desks()));
        assert_eq!((said.code, &*said.out), (2, ""), "{options}: {said}");
    }
    assert_eq!(stage.say("eval retention").code, 2);
    assert_snapshot!(stage.say("eval retention nope.json"), @"
    --- stderr
    error: cannot read nope.json: No such file or directory (os error 2)
    hint: check the path and its permissions
    --- exit 1
    ");
    std::fs::create_dir(stage.path("empty")).unwrap();
    assert_snapshot!(stage.say("eval retention empty"), @"
    --- stderr
    error: empty holds no transcript and no other file
    hint: `loopstore import --help` lists the formats, and how to name that of a file which is not recognised
    --- exit 1
    ");
    let short = r#"[{"role": "user", "content": "hi"}]"#;
    std::fs::write(stage.path("short.json"), short).unwrap();
    assert_snapshot!(stage.say("eval retention short.json"), @"
    --- stderr
    error: 1 session imported, and none is long enough to cut
    --- exit 1
    ");
}

#[test]
fn short_sessions_are_left_out() {
    let stage = Stage::empty();
    let short = r#"[{"role": "user", "content": "hi"}]"#;
    std::fs::write(stage.path("short.json"), short).unwrap();
    let report = stage.json(&format!("eval retention short.json {}", desks()));
    assert_eq!(report["cases"], 2);
}

#[test]
fn figures_without_a_needed_value_are_not_passed_off() {
    let stage = Stage::empty();
    let talk: Vec<Value> = (0..10)
        .map(|at| {
            let role = ["user", "assistant"][at % 2];
            serde_json::json!({"role": role, "content": format!("word {at}")})
        })
        .collect();
    std::fs::write(stage.path("talk.json"), Value::from(talk).to_string()).unwrap();
    let said = stage.say("eval retention talk.json");
    assert_eq!(said.code, 0, "{said}");
    assert!(said.err.contains("the figures say nothing"), "{said}");
}

fn transcript(name: &str) -> String {
    let path = crate::support::root::fixture(name);
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_page_of_compactions_replaces_nothing_unasked() {
    let stage = Stage::empty();
    let orchard = transcript("eval/orchard.jsonl");
    std::fs::write(stage.path("page.html"), "mine").unwrap();
    let line = format!("eval compactions {orchard} --html page.html");
    let said = stage.say(&line);
    assert_ne!(said.code, 0, "{said}");
    assert_eq!(
        std::fs::read_to_string(stage.path("page.html")).unwrap(),
        "mine"
    );
    let said = stage.say(&format!("{line} --force --json"));
    assert_eq!(said.code, 0, "{said}");
    assert!(serde_json::from_str::<Value>(&said.out).is_ok(), "{said}");
    let page = std::fs::read_to_string(stage.path("page.html")).unwrap();
    assert!(page.starts_with("<!doctype html>"));
    assert_ne!(stage.say(&format!("{line}/none/page.html")).code, 0);
}

#[test]
fn ours_stand_beside_recorded_compactions() {
    let stage = Stage::empty();
    let orchard = transcript("eval/orchard.jsonl");
    let line = format!("eval compactions {orchard} --strategy truncate --strategy one-liner");
    assert_snapshot!(stage.say(&line), @"
    SESSION  COMPACTION                   ORIGINALS  TOKENS  NEEDED  RECORDED  WITH-HANDBACK  TRUNCATE  ONE-LINER
    orchard  pi-7d8341f126ca674e1003bdc1      1,805      79       5      20 %          100 %       0 %        0 %
    all      1 compaction                     1,805      79       5      20 %          100 %       0 %        0 %

    What the texts state of the work until then, of all compactions
    TEXT           FILES  CHANGES   PLAN  FAILURES  RUNNING  PROMPTS
    facts              3        3      5         2        -       22
    recorded        33 %      0 %    0 %       0 %        -     55 %
    with-handback  100 %    100 %  100 %      50 %        -     82 %
    truncate         0 %      0 %    0 %       0 %        -     14 %
    one-liner        0 %      0 %    0 %       0 %        -      5 %

    Needed afterwards, and gone: 4 values
    HANDED BACK  VALUE
    yes          /srv/orchard/prices.json
    yes          python3 check_links.py
    yes          88-412
    yes          /srv/orchard/shop.html
    ");
}

#[test]
fn what_was_forgotten_and_what_is_handed_back_is_told_for_each_compaction() {
    let stage = Stage::empty();
    let orchard = transcript("eval/orchard.jsonl");
    let report = stage.json(&format!("eval compactions {orchard} --strategy truncate"));
    let one = &report["compactions"][0];
    let text = one["handback"].as_str().unwrap();
    assert_snapshot!(text, @r#"
    [Working state, what the summary leaves out. Whole turns: expand session orchard, turns A..B]
    ## Standing instructions
    - L1 t0: Never touch legacy.css.
    - L1 t0: Prices must be in euro.

    ## Plan
    As of L2 t0 ([x] done, [>] in progress, [ ] open):
    - [x] Read the shop page
    - [x] Write the price list
    - [x] Run the tests
    - [>] Add the pears of KX-5521
    - [ ] Mend the link to /pears

    ## Files
    - `/srv/orchard/shop.html`: edited L1 t3
    - `/srv/orchard/old-prices.txt`: deleted L1 t8

    ## Commands and errors
    - failed L1 t7, still open: `python3 check_links.py`: Traceback: broken link /pears in order 88-412

    ## Exact values
    todo_write:status: pending, in_progress, completed (L2 t0)
    bash:command: npm test (L1 t6), rm /srv/orchard/old-prices.txt (L1 t8)
    edit:path: /srv/orchard/prices.json (L1 t9)
    read:path: /srv/orchard/depots.txt (L2 t1)
    edit:newText: ""2.40"" (L1 t5)
    edit:oldText: </html> (L1 t3)
    write:content: "{"apple": 2.4, "quince": 3.1}" (L1 t2)
    Loops: L1 line-2, L2 line-22
    "#);
    let forgotten = one["forgotten"].as_array().unwrap();
    assert_eq!(forgotten.len(), 4);
    for value in forgotten {
        let is_back = text.contains(value["value"].as_str().unwrap());
        assert_eq!(value["handed_back"], is_back, "{value}");
    }
    let kinds = |kind: &str| {
        let lost = one["lost"].as_array().unwrap().iter();
        lost.filter(|fact| fact["kind"] == kind).count()
    };
    assert_eq!(
        ["files", "plan", "failures", "running"].map(kinds),
        [2, 5, 2, 0]
    );
    let candidates: Vec<&Value> = one["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| &result["candidate"])
        .collect();
    assert_eq!(candidates, ["recorded", "with-handback", "truncate"]);
    assert_eq!(one["again"], serde_json::json!([]));
}

#[test]
fn the_digest_stands_beside_them_by_default_and_is_no_larger() {
    let stage = Stage::empty();
    let orchard = transcript("eval/orchard.jsonl");
    let first = transcript("pi/first-version.jsonl");
    let report = stage.json(&format!("eval compactions {orchard} {first}"));
    let all = report["compactions"].as_array().unwrap();
    assert!(all.len() > 1, "{report}");
    for one in all {
        let [recorded, digest] = [0, 2].map(|at| &one["results"][at]);
        assert_eq!(
            (&recorded["candidate"], &digest["candidate"]),
            (&"recorded".into(), &"digest".into())
        );
        assert!(
            digest["tokens"].as_u64() <= recorded["tokens"].as_u64(),
            "{one}"
        );
    }
    let sum = |key: &str| {
        all.iter()
            .map(|one| one["results"][2][key].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(report["results"][2]["kept"], sum("kept"));
    assert_eq!(report["results"][2]["tokens"], sum("tokens"));
}

#[test]
fn transcripts_without_a_compaction_are_refused() {
    let stage = Stage::empty();
    assert_snapshot!(stage.say(&format!("eval compactions {}", desks())), @"
    --- stderr
    error: 2 sessions imported, and none records a compaction with its text
    --- exit 1
    ");
    assert_eq!(stage.say("eval compactions").code, 2);
    let line = format!("eval compactions {} --strategy magic", desks());
    assert_eq!(stage.say(&line).code, 2);
}

#[test]
fn prose_is_measured_beside_messages_chosen_blindly() {
    let stage = Stage::empty();
    let letters = transcript("eval/letters.json");
    let line = format!("eval prose {letters} --strategy truncate");
    assert_snapshot!(stage.say(&line), @"
    1 conversation, 6 questions, 19 words in the answers
    strategy     5 %    10 %    20 %
    truncate     0 %     0 %  10.5 %
    tf-idf    21.1 %  21.1 %  31.6 %
    random     4.2 %   9.5 %  26.3 %
    ");
    assert_snapshot!(stage.say(&format!("{line} --budget 0.1 --json")), @r#"
    {
      "conversations": 1,
      "questions": 6,
      "words": 19,
      "results": [
        {
          "strategy": "truncate",
          "budget": 0.1,
          "recall": 0.0,
          "tokens": 47
        },
        {
          "strategy": "tf-idf",
          "budget": 0.1,
          "recall": 0.21052631578947367,
          "tokens": 50
        },
        {
          "strategy": "random",
          "budget": 0.1,
          "recall": 0.09473684210526316,
          "tokens": 48
        }
      ]
    }
    "#);
    let again = stage.say(&format!("{line} --seed 2"));
    let rows = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (one, two) = (rows(&stage.say(&line).out), rows(&again.out));
    assert_eq!(one[..4], two[..4], "only what is chosen at random changes");
    assert_ne!(one[4], two[4]);
    assert_eq!(files(&stage), 0);
}

#[test]
fn prose_keeps_to_its_budgets() {
    let stage = Stage::empty();
    let letters = transcript("eval/letters.json");
    let line = format!("eval prose {letters} --budget 1 --budget 5% --budget 30%");
    let report = stage.json(&line);
    assert_eq!(report["conversations"], 1);
    let results = report["results"].as_array().unwrap();
    assert_eq!(results.len(), 9);
    let whole = |name: &str| {
        let of = |one: &&Value| one["strategy"] == name && one["budget"] == 1.0;
        results.iter().find(of).unwrap().clone()
    };
    // Every word of the answers occurs in the session.
    assert_eq!(whole("random")["recall"], 1.0);
    let tokens = whole("tf-idf")["tokens"].as_u64().unwrap();
    for one in results {
        let most = one["budget"].as_f64().unwrap() * tokens as f64;
        assert!(one["tokens"].as_f64().unwrap() <= most, "{one}");
    }
}

#[test]
fn conversations_that_cannot_be_measured_are_refused() {
    let stage = Stage::empty();
    for (name, text) in [
        ("broken", "{"),
        ("silent", r#"{"messages": [], "questions": []}"#),
        (
            "unasked",
            r#"{"messages": [{"author": "a", "text": "b"}], "questions": []}"#,
        ),
        (
            "nobody",
            r#"{"messages": [{"text": "b"}], "questions": []}"#,
        ),
    ] {
        std::fs::write(stage.path(&format!("{name}.json")), text).unwrap();
    }
    assert_snapshot!(stage.say("eval prose broken.json"), @"
    --- stderr
    error: broken.json: EOF while parsing an object at line 1 column 1
    --- exit 1
    ");
    assert_snapshot!(stage.say("eval prose silent.json"), @"
    --- stderr
    error: silent.json: there are no messages
    --- exit 1
    ");
    assert_snapshot!(stage.say("eval prose unasked.json"), @"
    --- stderr
    error: unasked.json: there are no questions
    --- exit 1
    ");
    assert_snapshot!(stage.say("eval prose nobody.json"), @"
    --- stderr
    error: nobody.json: missing field `author` at line 1 column 27
    --- exit 1
    ");
    assert_snapshot!(stage.say("eval prose missing.json"), @"
    --- stderr
    error: missing.json: No such file or directory (os error 2)
    --- exit 1
    ");
    assert_eq!(stage.say("eval prose").code, 2);
}

#[test]
fn the_state_of_the_work_is_measured_at_every_budget() {
    let stage = Stage::empty();
    let orchard = transcript("eval/orchard.jsonl");
    let line = format!("eval state {orchard} --strategy truncate --strategy one-liner");
    assert_snapshot!(stage.say(&format!("{line} --budget 5% --budget 30%")), @"
    1 case
    strategy   budget     files   changes      plan  failures   running   prompts     truth
    facts                     3         3         3         2         0        13
    truncate      5 %    33.3 %       0 %       0 %       0 %         -    23.1 %         -
    truncate     30 %     100 %     100 %       0 %       0 %         -    30.8 %         -
    one-liner     5 %       0 %       0 %       0 %       0 %         -    15.4 %         -
    one-liner    30 %    33.3 %       0 %       0 %       0 %         -    30.8 %         -
    ");
    assert_snapshot!(stage.say(&format!("{line} --budget 30% --strategy truncate --json")), @r#"
    {
      "cases": 1,
      "results": [
        {
          "strategy": "truncate",
          "budget": 0.3,
          "tokens": 427,
          "kinds": {
            "changes": {
              "facts": 3,
              "stated": 3
            },
            "failures": {
              "facts": 2,
              "stated": 0
            },
            "files": {
              "facts": 3,
              "stated": 3
            },
            "plan": {
              "facts": 3,
              "stated": 0
            },
            "prompts": {
              "facts": 13,
              "stated": 4
            }
          },
          "claims": null
        },
        {
          "strategy": "one-liner",
          "budget": 0.3,
          "tokens": 173,
          "kinds": {
            "changes": {
              "facts": 3,
              "stated": 0
            },
            "failures": {
              "facts": 2,
              "stated": 0
            },
            "files": {
              "facts": 3,
              "stated": 1
            },
            "plan": {
              "facts": 3,
              "stated": 0
            },
            "prompts": {
              "facts": 13,
              "stated": 4
            }
          },
          "claims": null
        }
      ]
    }
    "#);
    let whole = stage.json(&format!(
        "eval state {orchard} --strategy truncate --budget 1"
    ));
    let kinds = &whole["results"][0]["kinds"];
    for kind in ["files", "changes", "plan", "prompts"] {
        assert_eq!(
            kinds[kind]["stated"], kinds[kind]["facts"],
            "{kind}: {whole}"
        );
    }
    assert_eq!(files(&stage), 0);
}

#[test]
fn a_state_that_cannot_be_measured_is_said() {
    let stage = Stage::empty();
    let orchard = transcript("eval/orchard.jsonl");
    for options in ["--budget 0", "--budget 2", "--strategy magic"] {
        let said = stage.say(&format!("eval state {orchard} {options}"));
        assert_eq!((said.code, &*said.out), (2, ""), "{options}: {said}");
    }
    let short = r#"[{"role": "user", "content": "hi"}]"#;
    std::fs::write(stage.path("short.json"), short).unwrap();
    assert_snapshot!(stage.say("eval state short.json"), @"
    --- stderr
    error: 1 session imported, and none is long enough to cut
    --- exit 1
    ");
    assert_snapshot!(stage.say("eval state nope.json"), @"
    --- stderr
    error: cannot read nope.json: No such file or directory (os error 2)
    hint: check the path and its permissions
    --- exit 1
    ");
    let line = format!("eval state {orchard} --budget 1% --budget 50%");
    for result in stage.json(&line)["results"].as_array().unwrap() {
        let counts = result["kinds"].as_object().unwrap().values();
        for count in counts {
            assert!(
                count["stated"].as_u64() <= count["facts"].as_u64(),
                "{result}"
            );
        }
    }
}
