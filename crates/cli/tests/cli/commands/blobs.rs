//! Images stored outside of the database.

use insta::assert_snapshot;
use serde_json::json;

use crate::commands::stage::Stage;

/// The SHA-256 of `hello`, the content of the stage's image.
const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

#[test]
fn an_image_is_written_to_a_file_or_stdout() {
    let stage = Stage::new();
    let shown = stage.json("sql SELECT(payload)FROM(v_messages)WHERE(payload)LIKE'%\"blob\"%'");
    assert!(shown[0]["payload"].to_string().contains(HELLO), "{shown}");
    let said = stage.say(&format!("expand --blob {HELLO} -o picture.png"));
    assert_snapshot!(said, @"Wrote 5 bytes to picture.png.");
    let bytes = || std::fs::read(stage.path("picture.png")).unwrap();
    assert_eq!(bytes(), b"hello");
    std::fs::write(stage.path("picture.png"), "something longer").unwrap();
    assert_eq!(
        stage.say("expand --blob 2CF24 --output picture.png").code,
        0
    );
    assert_eq!(bytes(), b"hello");
    assert_eq!(stage.say("expand --blob 2").out, "hello");
}

#[test]
fn an_image_in_json_is_base64() {
    let stage = Stage::new();
    let told = json!({"blob": HELLO, "bytes": 5, "file": null, "base64": "aGVsbG8="});
    assert_eq!(stage.json("expand --blob 2cf2"), told);
    let told = json!({"blob": HELLO, "bytes": 5, "file": "p.png", "base64": null});
    assert_eq!(stage.json("expand --blob 2cf2 -o p.png"), told);
}

#[test]
fn an_unknown_image_is_said() {
    let stage = Stage::new();
    assert_snapshot!(stage.say("expand --blob abc -o picture.png"), @"
    --- stderr
    error: no blob `abc`; `payload` in the view v_messages names the blobs of a message
    --- exit 1
    ");
    assert!(!stage.path("picture.png").exists());
    for id in [
        "",
        "+2",
        "%",
        "2cf3",
        "../2c",
        "\u{1b}[31m",
        &format!("{HELLO}0"),
    ] {
        let said = stage.run(&["expand", "--blob", id]);
        assert_eq!((said.code, &*said.out), (1, ""), "{id}: {said}");
        assert!(!said.err.contains('\u{1b}'), "{said}");
    }
    let said = stage.say("expand --blob 2 -o no/such/picture.png");
    assert_eq!(said.code, 1);
    assert!(
        said.err.contains("cannot write no/such/picture.png"),
        "{said}"
    );
    let said = stage.say("expand --blob 2 -o ./loopstore.db");
    assert!(said.err.contains("it is the database"), "{said}");
    assert_eq!(stage.say("expand --blob 2").out, "hello");
    for line in [
        "expand",
        "expand work",
        "expand --turns 0",
        "expand work --blob 2",
        "expand --blob 2 --turns 0",
        "expand --blob 2 --loop ask",
        "expand work --turns 0 -o picture.png",
    ] {
        assert_eq!(stage.say(line).code, 2, "{line}");
    }
}

#[test]
fn a_damaged_image_is_never_passed_off() {
    let stage = Stage::new();
    let connection = crate::support::keyed::raw(stage.path("loopstore.db")).unwrap();
    connection
        .execute_batch("DROP TRIGGER blobs_no_update")
        .unwrap();
    connection
        .execute("UPDATE blobs SET data = x'00'", [])
        .unwrap();
    drop(connection);
    let said = stage.say("expand --blob 2cf2 -o picture.png");
    assert_eq!(said.code, 1);
    assert!(said.err.contains("damaged"), "{said}");
    assert!(!stage.path("picture.png").exists());
}
