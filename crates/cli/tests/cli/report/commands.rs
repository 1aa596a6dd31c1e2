//! `report`: file names, existing files, folders, JSON.

use std::os::unix::fs::PermissionsExt;

use crate::commands::stage::Stage;
use crate::support::page::Page;

fn mode(stage: &Stage, name: &str) -> u32 {
    let data = std::fs::metadata(stage.path(name)).unwrap();
    data.permissions().mode() & 0o777
}

#[test]
fn without_a_name_the_file_is_called_after_the_session() {
    let stage = Stage::new();
    let said = stage.say("report work --json");
    let json = said.json();
    let bytes = std::fs::metadata(stage.path("work.html")).unwrap().len();
    assert_eq!(
        json,
        serde_json::json!({"file": "work.html", "bytes": bytes,
            "sessions": [{"session_id": "work", "file": "work.html", "bytes": bytes}]})
    );
    assert_eq!(mode(&stage, "work.html"), 0o600);
    insta::assert_snapshot!(stage.say("report work"), @"
    --- stderr
    error: cannot write work.html: it already exists; use another name, or --force to replace it
    --- exit 1
    ");
    assert_eq!(stage.say("report work --force").code, 0);
    let page = std::fs::read_to_string(stage.path("work.html")).unwrap();
    assert_eq!(Page::read(page).index["session"]["session_id"], "work");
}

#[test]
fn a_page_goes_to_stdout_where_that_is_asked() {
    let stage = Stage::new();
    let output = stage
        .command(&["report", "work", "-o", "-"])
        .output()
        .unwrap();
    let page = Page::read(String::from_utf8(output.stdout).unwrap());
    assert_eq!(page.index["session"]["session_id"], "work");
    insta::assert_snapshot!(stage.say("report work -o - --json"), @r#"
    {
      "error": "--json needs -o FILE: the page is not a JSON document",
      "hint": null,
      "code": 2
    }
    --- stderr
    error: --json needs -o FILE: the page is not a JSON document
    --- exit 2
    "#);
    insta::assert_snapshot!(stage.say("report --all"), @"
    --- stderr
    error: the following required arguments were not provided:
      --output <FILE>

    Usage: loopstore report --output <FILE> --all [SESSION]

    For more information, try '--help'.
    --- exit 2
    ");
    insta::assert_snapshot!(stage.say("report"), @"
    --- stderr
    error: the following required arguments were not provided:
      <SESSION>

    Usage: loopstore report <SESSION>

    For more information, try '--help'.
    --- exit 2
    ");
    insta::assert_snapshot!(stage.say("report --all -o -"), @"
    --- stderr
    error: --all writes to a folder, not to stdout
    --- exit 2
    ");
    insta::assert_snapshot!(stage.say("report nobody"), @"
    --- stderr
    error: no session `nobody`
    hint: `loopstore sessions` lists the sessions
    --- exit 1
    ");
    insta::assert_snapshot!(stage.say("report work -o loopstore.db --force"), @"
    --- stderr
    error: cannot write loopstore.db: it is the database
    --- exit 1
    ");
}

#[test]
fn prices_that_are_none_are_refused_before_anything_is_written() {
    let stage = Stage::new();
    std::fs::write(
        stage.path("prices.json"),
        "{\"m\": {\"input\": -1, \"output\": 1}}",
    )
    .unwrap();
    insta::assert_snapshot!(stage.say("report work --prices prices.json"), @"
    --- stderr
    error: cannot read the prices in prices.json: a price of `m` is negative or not a number
    --- exit 1
    ");
    insta::assert_snapshot!(stage.say("report work --prices none.json"), @"
    --- stderr
    error: cannot read the prices in none.json: No such file or directory (os error 2)
    --- exit 1
    ");
    assert!(!stage.path("work.html").exists());
}

#[test]
fn a_folder_has_a_page_for_each_session_and_a_list_of_them() {
    let stage = Stage::new();
    stage.say("compact work --max-tokens 9000");
    let json = stage.json("report --all -o pages");
    assert_eq!(json["file"], "pages/index.html");
    let read = |name: &str| {
        let path = stage.path("pages").join(name);
        Page::read(std::fs::read_to_string(path).unwrap())
    };
    let index = read("index.html").index;
    let rows = index["sessions"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    let store = stage.store();
    for row in store.session_rows(&Default::default()).unwrap() {
        let id = row.text("session_id");
        let listed = rows
            .iter()
            .find(|r| r["session_id"].as_str() == id.as_deref())
            .unwrap();
        for column in ["loops", "turns", "messages", "tokens"] {
            assert_eq!(listed[column].as_i64(), row.number(column), "{column}");
        }
        let page = read(listed["file"].as_str().unwrap()).index;
        assert_eq!(page["session"]["session_id"].as_str(), id.as_deref());
        assert_eq!(page["overview"], "index.html");
        assert_eq!(page["context"]["tokens"], listed["context"]);
    }
    assert_eq!(mode(&stage, "pages"), 0o700);
    // An existing file is not overwritten, and no new one is written next to it.
    std::fs::remove_file(stage.path("pages/index.html")).unwrap();
    let said = stage.say("report --all -o pages");
    assert_eq!(said.code, 1);
    assert!(!stage.path("pages/index.html").exists());
    assert_eq!(stage.say("report --all -o pages --force").code, 0);
}
