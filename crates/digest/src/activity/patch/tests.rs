use super::*;

#[test]
fn a_marked_patch_adds_changes_moves_and_deletes() {
    let patch = "*** Begin Patch\n*** Add File: a.rs\n+fn new() {}\n*** Update File: src/b.rs\n*** Move to: src/c.rs\n@@ impl Row\n fn kept() {}\n@@\n fn near() {\n-    1\n+    2\n*** Delete File: d.rs\n*** End Patch\n*** Add File: later.rs\n";
    let found = changes(patch);
    let paths: Vec<&str> = found.iter().map(|file| &*file.path).collect();
    assert_eq!(paths, ["a.rs", "src/c.rs", "d.rs"]);
    assert_eq!(found[0].change, FileOperation::Create);
    assert_eq!(found[1].change, FileOperation::MoveFrom("src/b.rs".into()));
    assert_eq!(found[1].symbols, ["fn near"]);
    assert_eq!(found[2].change, FileOperation::Delete);
}

#[test]
fn a_unified_diff_names_files_and_spots() {
    let diff = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1,3 +1,4 @@ class Row:\n     a = 1\n+    b = 2\n+    async def load(self):\n--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+x\n--- a/old.py\t2026-01-01\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n";
    let found = changes(diff);
    assert_eq!(
        found[0],
        FileEffect {
            path: "x.py".into(),
            change: FileOperation::Edit,
            symbols: vec!["class Row".into(), "def load".into()],
        }
    );
    assert_eq!(found[1].change, FileOperation::Create);
    assert_eq!(
        (&*found[2].path, &found[2].change),
        ("old.py", &FileOperation::Delete)
    );
    let moved = changes("rename from a.rs\nrename to b.rs\n--- a/a.rs\n+++ b/b.rs\n");
    assert_eq!(
        moved,
        [FileEffect::new(
            "b.rs",
            FileOperation::MoveFrom("a.rs".into())
        )]
    );
    assert_eq!(changes("no patch at all"), []);
}

#[test]
fn the_spot_of_an_edit_is_what_changed_or_stands_above() {
    let symbols = |old: &str, new: &str, path: &str| {
        let mut symbols = Vec::new();
        add_symbols(&mut symbols, old, new, path);
        symbols
    };
    assert_eq!(
        symbols("fn a() {\n 1\n}", "fn a() {\n 2\n}", "x.rs"),
        ["fn a"]
    );
    assert_eq!(
        symbols("", "pub(crate) async fn b() {}\nimpl Row for X {", "x.rs"),
        ["fn b", "impl Row for X"]
    );
    assert_eq!(
        symbols("x", "func (r *Row) Name() {", "x.go"),
        ["func Name"]
    );
    assert_eq!(
        symbols("x", "export default class Row {", "x.ts"),
        ["class Row"]
    );
    assert_eq!(
        symbols("x", "## Usage\ntype of thing", "x.md"),
        ["## Usage"]
    );
    assert_eq!(
        symbols("", "  \"scripts\": {\n    \"deep\": 1", "p.json"),
        ["scripts"]
    );
    assert_eq!(
        symbols("a", "the class of things\ntype this", "x.rs"),
        [""; 0]
    );
    let mut symbols = Vec::new();
    let block = "<<<<<<< SEARCH\ndef a():\n  1\n=======\ndef a():\n  2\n>>>>>>> REPLACE";
    assert!(add_block_symbols(&mut symbols, block, "a.py"));
    assert_eq!(symbols, ["def a"]);
}
