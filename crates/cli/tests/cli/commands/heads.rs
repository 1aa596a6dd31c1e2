//! A printed head proves later that everything up to it is still stored.

use super::stage::Stage;

#[test]
fn a_head_is_printed_and_checked() {
    let stage = Stage::new();
    stage.say("compact work --max-tokens 9000");
    let head = stage.json("verify --head")["head"].clone();
    let head = head.as_str().unwrap();
    assert_eq!(head.len(), "loopstore-head-1:".len() + 64, "{head}");
    assert_eq!(stage.say("verify --head").out.trim(), head);
    stage.say("undo work");
    let checked = stage.json(&format!("verify --against {head}"));
    assert_eq!(checked["ok"], true, "{checked}");
    let other = format!("loopstore-head-1:{}", "0".repeat(64));
    let said = stage.say(&format!("verify --against {other}"));
    assert_eq!(said.code, 3, "{said}");
    assert!(said.out.contains("the end was cut off"), "{said}");
    assert_eq!(stage.say("verify --against nonsense").code, 2);
    std::fs::write(stage.path("key"), "a key of mine\n").unwrap();
    let key = stage.path("key");
    let signed = stage.say(&format!("verify --head --key-file {}", key.display()));
    let signed = signed.out.trim().to_owned();
    assert!(signed.len() > head.len() && signed.starts_with("loopstore-head-1:"));
    let check = |head: &str| {
        let command = format!("verify --against {head} --key-file {}", key.display());
        stage.say(&command).code
    };
    assert_eq!((check(&signed), check(head)), (0, 3));
}
