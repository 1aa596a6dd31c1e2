//! The key of an encrypted database.

use loopstore::{Key, SqliteOptions};

#[test]
fn nothing_of_a_key_is_shown() {
    let key = Key::parse(b"swordfish".to_vec()).unwrap();
    let options = SqliteOptions::new().key(key);
    let shown = format!("{options:?}");
    assert!(
        shown.contains("Key(..)") && !shown.contains("sword"),
        "{shown}"
    );
}
