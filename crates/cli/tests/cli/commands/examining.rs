//! Exams: contexts of equal size, answers without names, and grades for each answer.

use std::collections::BTreeMap;
use std::fs;

use insta::assert_snapshot;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::commands::stage::Stage;
use crate::support::root::fixture;

/// Returns a line that prepares the exam of the hand-written transcript in the folder `out`.
fn prepare(options: &str) -> String {
    let folder = fixture("eval");
    let folder = folder.to_str().unwrap();
    format!("eval exam prepare {folder}/orchard.json --transcripts {folder} -o out {options}")
}

fn prepared(options: &str) -> (Stage, Value) {
    let stage = Stage::empty();
    let prepared = stage.json(&prepare(options));
    (stage, prepared)
}

fn read(stage: &Stage, name: &str) -> String {
    fs::read_to_string(stage.path(name)).unwrap()
}

fn write(stage: &Stage, name: &str, value: &Value) {
    fs::write(stage.path(name), value.to_string()).unwrap();
}

/// Returns the letter of each candidate.
fn letters(prepared: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let candidates = prepared["exams"][0]["candidates"]
        .as_array()
        .unwrap()
        .iter();
    candidates
        .map(|one| (text(&one["candidate"]), text(&one["letter"])))
        .collect()
}

/// Fills in a sitting with one answer for all questions.
fn fill_in(stage: &Stage, name: &str, answer: &str) {
    let answers = json!({"1": answer, "2": answer, "3": format!("{answer}, next")});
    write(stage, &format!("out/orchard/answers-{name}.json"), &answers);
}

#[test]
fn an_exam_is_prepared_collected_and_scored() {
    let stage = Stage::empty();
    let options = "--strategy truncate --strategy one-liner --sittings 1";
    assert_snapshot!(stage.say(&prepare(options)), @"
    EXAM     TOKENS  SIZE  CANDIDATE  TOKENS
    orchard   1,824    98  truncate       86
    orchard   1,824    98  one-liner      87
    orchard   1,824    98  recorded       98

    Give each reader a context, `questions.md` and the file for its answers, and nothing of `key`. Then: loopstore eval exam collect out
    ");
    let prepared: Value = serde_json::from_str(&read(&stage, "out/key/exams.json")).unwrap();
    let of = letters(&prepared);
    assert_snapshot!(read(&stage, &format!("out/orchard/{}.txt", of["recorded"])), @"
    user
    The conversation history before this point was compacted into the following summary:

    <summary>
    ## Goal
    A price list on the orchard's shop page, prices in euro.

    ## Done
    - prices.json written, prices are texts with two decimals
    - all tests pass

    ## Next
    - add the pears of order KX-5521
    </summary>

    assistant
    Depot 7743 is the river quay. I will add the pears there.
    ");
    assert_snapshot!(read(&stage, "out/orchard/questions.md"), @r#"
    # Questions

    The context is what is left of an agent's session; you are to go on with its work. Answer each question from the context alone, in one to three sentences, or with "unknown". Write the answers into the JSON that you were given, under the numbers of the questions.

    1. What did the user ask for first, and with which limits?
    2. Which files were created, changed or deleted?
    3. What is to be done next?
    "#);
    assert_snapshot!(read(&stage, "out/orchard/lookups.md"), @r#"
    # Lookups

    Beside the context you may look up what it does not say, with at most 8 of these calls in all:

    - `loopstore --db orchard.db recall "QUESTION"`
    - `loopstore --db orchard.db search "WORDS"`
    - `loopstore --db orchard.db expand orchard --loop LOOP --turns A..B`
    "#);
    assert!(!read(&stage, "out/orchard/questions.json").contains("gold"));

    assert_snapshot!(stage.say("eval exam collect out"), @"
    --- stderr
    error: out: no answers were filled in yet
    --- exit 1
    ");
    fill_in(
        &stage,
        &format!("{}-1", of["recorded"]),
        "a price list\nin euro",
    );
    fill_in(
        &stage,
        &format!("{}-lookup-1", of["recorded"]),
        "pears for depot 7743",
    );
    fill_in(&stage, &format!("{}-1", of["truncate"]), "unknown");
    fill_in(&stage, &format!("{}-2", of["truncate"]), "unknown");
    assert_snapshot!(stage.say("eval exam collect out"), @"
    EXAM     SITTINGS  SHEET                   GRADES
    orchard         4  out/orchard/grading.md  out/orchard/grading.json
    ");
    let sheet = read(&stage, "out/orchard/grading.md");
    assert_snapshot!(sheet, @r#"
    # Grading of orchard

    Grade each answer by its points: the share of them that it gets right, as 0, 0.25, 0.5, 0.75 or 1, less 0.25 for each statement in it that would mislead who goes on with the work, but never below 0. "Unknown" gets 0. Write the grades into the JSON beside this sheet, in place of `null`.

    ## Question 1

    What did the user ask for first, and with which limits?

    Right answer: A price list on the shop page; never touch legacy.css, prices in euro.

    Points:
    - price list on the shop page
    - legacy.css stays untouched
    - prices in euro

    Answer 1:

    > a price list
    > in euro

    Answer 2:

    > unknown

    Answer 3:

    > pears for depot 7743

    ## Question 2

    Which files were created, changed or deleted?

    Right answer: prices.json created and edited, shop.html edited, old-prices.txt deleted.

    Points:
    - prices.json created
    - shop.html edited
    - old-prices.txt deleted

    Answer 1:

    > pears for depot 7743

    Answer 2:

    > a price list
    > in euro

    Answer 3:

    > unknown

    ## Question 3

    What is to be done next?

    Right answer: Add the pears of order KX-5521 for depot 7743, then mend the link to /pears.

    Points:
    - pears of KX-5521
    - depot 7743
    - link to /pears

    Answer 1:

    > unknown, next

    Answer 2:

    > pears for depot 7743, next

    Answer 3:

    > a price list
    > in euro, next
    "#);
    for name in ["recorded", "truncate", "one-liner", "lookup"] {
        assert!(!sheet.contains(name), "{name}");
    }

    assert_snapshot!(stage.say("eval exam score out"), @"
    --- stderr
    note: orchard has no grades
    error: out: nothing was graded yet
    --- exit 1
    ");
    grade(&stage, &sheet);
    assert_snapshot!(stage.say("eval exam score out"), @"
    orchard
    CANDIDATE               SITTINGS   ALL  INTENT  ARTIFACTS  NEXT_STEP
    recorded, with lookups         1  1.00    1.00       1.00       1.00
    recorded                       1  0.50    0.50       0.50       0.50
    truncate                       2  0.00    0.00       0.00       0.00
    ");
    assert_snapshot!(stage.say("eval exam score out --json"), @r#"
    {
      "exams": [
        "orchard"
      ],
      "kinds": [
        "intent",
        "artifacts",
        "next_step"
      ],
      "results": [
        {
          "exam": null,
          "candidate": "recorded",
          "lookups": true,
          "sittings": 1,
          "mean": 1.0,
          "kinds": {
            "artifacts": 1.0,
            "intent": 1.0,
            "next_step": 1.0
          }
        },
        {
          "exam": null,
          "candidate": "recorded",
          "lookups": false,
          "sittings": 1,
          "mean": 0.5,
          "kinds": {
            "artifacts": 0.5,
            "intent": 0.5,
            "next_step": 0.5
          }
        },
        {
          "exam": null,
          "candidate": "truncate",
          "lookups": false,
          "sittings": 2,
          "mean": 0.0,
          "kinds": {
            "artifacts": 0.0,
            "intent": 0.0,
            "next_step": 0.0
          }
        }
      ]
    }
    "#);
    // A second sheet does not overwrite grades.
    assert_snapshot!(stage.say("eval exam collect out"), @"
    --- stderr
    error: out/orchard/grading.json: it holds grades already; move it away to collect again
    --- exit 1
    ");
}

/// Grades the answers on the sheet by their text.
fn grade(stage: &Stage, sheet: &str) {
    let mut grades: Value = serde_json::from_str(&read(stage, "out/orchard/grading.json")).unwrap();
    let mut question = "";
    let mut answer = "";
    for line in sheet.lines() {
        if let Some(number) = line.strip_prefix("## Question ") {
            question = number;
        } else if let Some(number) = line.strip_prefix("Answer ") {
            answer = number.trim_end_matches(':');
        } else if let Some(text) = line.strip_prefix("> ") {
            let grade = match text {
                _ if text.starts_with("unknown") => 0.0,
                _ if text.starts_with("pears") => 1.0,
                _ => 0.5,
            };
            grades[question][answer] = grade.into();
        }
    }
    write(stage, "out/orchard/grading.json", &grades);
}

#[test]
fn the_database_answers_what_the_context_does_not_say() {
    let (stage, prepared) = prepared("");
    let session = prepared["exams"][0]["session_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let said = stage.json("--db out/orchard.db recall complaint order --max-tokens 500");
    assert!(said.to_string().contains("88-412"), "{said}");
    let shown = stage.say(&format!("--db out/orchard.db show {session}"));
    assert_eq!(shown.code, 0, "{shown}");
    // The messages after the cut are not in the database.
    let said = stage.json("--db out/orchard.db search booked");
    assert_eq!(said["hits"], json!([]));
    let contexts = ["A", "B", "C"].map(|name| read(&stage, &format!("out/orchard/{name}.txt")));
    assert!(
        contexts
            .iter()
            .all(|text| !text.contains("Go on with the pears"))
    );
}

#[test]
fn the_size_is_the_recorded_one_or_a_share() {
    let (_, recorded) = prepared("");
    let exam = &recorded["exams"][0];
    assert_eq!(letters(&recorded).len(), 3);
    assert!(exam["run_id"].as_str().unwrap().starts_with("pi-"));
    let (_, given) = prepared("--budget 50%");
    let given = &given["exams"][0];
    assert_eq!(
        given["size"].as_u64().unwrap(),
        given["tokens"].as_u64().unwrap() / 2
    );
    // No message was recorded before this cut.
    let stage = Stage::empty();
    let probes = fs::read_to_string(fixture("eval/orchard.json")).unwrap();
    let mut probes: Value = serde_json::from_str(&probes).unwrap();
    probes["cut_records"] = 21.into();
    write(&stage, "early.json", &probes);
    let folder = fixture("eval");
    let line = format!(
        "eval exam prepare early.json --transcripts {} -o out",
        folder.display()
    );
    let exam = &stage.json(&line)["exams"][0];
    assert_eq!(exam["run_id"], Value::Null);
    assert_eq!(
        exam["size"].as_u64().unwrap(),
        exam["tokens"].as_u64().unwrap() * 4 / 100
    );
    let said = stage.say(&line.replace("-o out", "-o small --budget 1%"));
    assert_eq!(said.code, 0, "{said}");
}

#[test]
fn a_recorded_context_above_the_budget_is_left_out() {
    let stage = Stage::empty();
    let said = stage.say(&prepare("--budget 2% --strategy truncate"));
    assert_snapshot!(said, @"
    EXAM     TOKENS  SIZE  CANDIDATE  TOKENS
    orchard   1,824    36  truncate       33

    Give each reader a context, `questions.md` and the file for its answers, and nothing of `key`. Then: loopstore eval exam collect out
    --- stderr
    note: the recorded compaction has 98 tokens, more than the 36 of --budget, and is left out
    ");
}

#[test]
fn letters_and_sheets_follow_the_seed() {
    let one = |seed: u64| letters(&prepared(&format!("--seed {seed}")).1);
    assert_eq!(one(1), one(1));
    assert!((2..20).any(|seed| one(seed) != one(1)));
}

#[test]
fn what_cannot_be_prepared_is_said() {
    let stage = Stage::empty();
    let folder = fixture("eval");
    let line = |probes: &str| {
        let folder = folder.display();
        format!("eval exam prepare {probes} --transcripts {folder} -o out")
    };
    let probe = r#"{"id": 1, "category": "intent", "question": "q", "gold": "g", "points": []}"#;
    let set = |file: &str, cut: usize, probes: &str| {
        format!(r#"{{"file": "{file}", "cut_records": {cut}, "probes": [{probes}]}}"#)
    };
    for (name, text) in [
        ("broken", "{".to_owned()),
        ("empty", set("orchard.jsonl", 27, "")),
        (
            "twice",
            set("orchard.jsonl", 27, &format!("{probe},{probe}")),
        ),
        ("gone", set("gone.jsonl", 27, probe)),
        ("outside", set("../eval/orchard.jsonl", 27, probe)),
        ("long", set("orchard.jsonl", 2_700, probe)),
        ("nothing", set("orchard.jsonl", 0, probe)),
    ] {
        fs::write(stage.path(&format!("{name}.json")), text).unwrap();
    }
    let said = |name: &str| {
        let said = stage.say(&line(&format!("{name}.json")));
        let _ = fs::remove_dir_all(stage.path("out"));
        said.to_string()
            .replace(&*folder.display().to_string(), "TRANSCRIPTS")
    };
    assert_snapshot!(said("broken"), @"
    --- stderr
    error: broken.json: EOF while parsing an object at line 1 column 1
    --- exit 1
    ");
    assert_snapshot!(said("empty"), @"
    --- stderr
    error: empty.json: there are no probes
    --- exit 1
    ");
    assert_snapshot!(said("twice"), @"
    --- stderr
    error: twice.json: two probes have the id 1
    --- exit 1
    ");
    assert_snapshot!(said("gone"), @"
    --- stderr
    error: TRANSCRIPTS/gone.jsonl: No such file or directory (os error 2)
    --- exit 1
    ");
    assert_snapshot!(said("outside"), @"
    --- stderr
    error: outside.json: `file` must lie below the folder of transcripts
    --- exit 1
    ");
    assert_snapshot!(said("long"), @"
    --- stderr
    error: TRANSCRIPTS/orchard.jsonl: it has fewer than 2700 lines
    --- exit 1
    ");
    assert_snapshot!(said("nothing"), @"
    --- stderr
    error: no session came in; out/nothing/cut/orchard.jsonl: the file is empty
    hint: `loopstore import --help` lists the formats, and how to name that of a file which is not recognised
    --- exit 1
    ");
    assert_snapshot!(said("missing"), @"
    --- stderr
    error: missing.json: No such file or directory (os error 2)
    --- exit 1
    ");
    fs::create_dir(stage.path("out")).unwrap();
    fs::write(stage.path("out/answers.txt"), "mine").unwrap();
    assert_snapshot!(stage.say(&prepare("")), @"
    --- stderr
    error: out: the folder is not empty; name another one, so that no answers are lost
    --- exit 1
    ");
    for options in ["--budget 0", "--strategy magic", "--sittings 0", "--seed x"] {
        assert_eq!(stage.say(&prepare(options)).code, 2, "{options}");
    }
}

#[test]
fn what_is_wrong_with_answers_and_grades_is_said() {
    let (stage, prepared) = prepared("--sittings 1");
    let letter = &letters(&prepared)["recorded"];
    let file = format!("out/orchard/answers-{letter}-1.json");
    let refused = |text: &str| {
        fs::write(stage.path(&file), text).unwrap();
        stage
            .say("eval exam collect out")
            .to_string()
            .replace(&file, "ANSWERS")
    };
    assert_snapshot!(refused(r#"{"1": "a"}"#), @r#"
    --- stderr
    error: ANSWERS: question 2 has no answer; a reader who cannot tell writes "unknown"
    --- exit 1
    "#);
    assert_snapshot!(refused(r#"{"1": "a", "2": "b", "3": "c", "4": "d"}"#), @"
    --- stderr
    error: ANSWERS: there is no question 4
    --- exit 1
    ");
    assert_snapshot!(refused(r#"{"1": "#), @"
    --- stderr
    error: ANSWERS: EOF while parsing a value at line 1 column 6
    --- exit 1
    ");
    fs::write(stage.path("out/orchard/answers-Q-1.json"), "{}").unwrap();
    assert_snapshot!(stage.say("eval exam collect out"), @"
    --- stderr
    error: out/orchard/answers-Q-1.json: there is no context Q
    --- exit 1
    ");
    fs::remove_file(stage.path("out/orchard/answers-Q-1.json")).unwrap();
    fill_in(&stage, &format!("{letter}-1"), "pears");
    assert_eq!(stage.say("eval exam collect out").code, 0);
    let graded = |value: Value| {
        write(&stage, "out/orchard/grading.json", &value);
        stage.say("eval exam score out")
    };
    assert_snapshot!(graded(json!({"1": {"1": 1}, "2": {"1": 1.5}, "3": {"1": 0}})), @"
    --- stderr
    error: out/orchard/grading.json: question 2, answer 1: 1.5 is not 0, 0.25, 0.5, 0.75 or 1
    --- exit 1
    ");
    assert_snapshot!(graded(json!({"1": {"1": 1}, "2": {"1": null}, "3": {"1": 0}})), @"
    --- stderr
    error: out/orchard/grading.json: question 2, answer 1: no grade
    --- exit 1
    ");
    assert_snapshot!(graded(json!({"1": {"2": 1}, "2": {"1": 1}, "3": {"1": 0}})), @"
    --- stderr
    error: out/orchard/grading.json: question 1 has no answer 2
    --- exit 1
    ");
    assert_snapshot!(graded(json!({"1": {"1": "good"}})), @r#"
    --- stderr
    error: out/orchard/grading.json: invalid type: string "good", expected f64 at line 1 column 16
    --- exit 1
    "#);
    assert_snapshot!(stage.say("eval exam score nowhere"), @"
    --- stderr
    error: nowhere: no exam was prepared here; `loopstore eval exam prepare` does it
    --- exit 1
    ");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn no_candidate_exceeds_the_size(share in 0.001f64..1.0) {
        let every = "--strategy one-liner --strategy tiered --strategy truncate --strategy clear \
             --strategy digest";
        let (_, prepared) = prepared(&format!("--budget {share} {every}"));
        let exam = &prepared["exams"][0];
        let size = exam["size"].as_u64().unwrap();
        for candidate in exam["candidates"].as_array().unwrap() {
            prop_assert!(candidate["tokens"].as_u64().unwrap() <= size, "{candidate}, {size}");
        }
    }
}
