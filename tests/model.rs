//! The interchange form: what is read is written back.

use loopstore::Session;
use serde_json::Value;

#[test]
fn x() {
    for f in [
        "compacted-one-loop",
        "compacted-four-loops",
        "tree-branches-rerun",
        "child7",
    ] {
        let text =
            std::fs::read_to_string(format!("../shared/fixtures/phi-core/{f}.json")).unwrap();
        let s: Session = serde_json::from_str(&text).unwrap();
        let a: Value = serde_json::from_str(&text).unwrap();
        let b: Value = serde_json::from_str(&serde_json::to_string(&s).unwrap()).unwrap();
        assert_eq!(a, b);
    }
}
