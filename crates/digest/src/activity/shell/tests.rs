use super::*;

fn files(line: &str) -> Vec<(String, FileOperation)> {
    let found = read(line, false).files;
    found
        .into_iter()
        .map(|file| (file.path, file.change))
        .collect()
}

fn one(path: &str, change: FileOperation) -> Vec<(String, FileOperation)> {
    vec![(path.to_owned(), change)]
}

#[test]
fn what_a_line_writes_is_found() {
    use FileOperation::{Delete, Edit, Read, Touch, Write};
    assert_eq!(files("echo a > b.txt 2>/dev/null"), one("b.txt", Write));
    assert_eq!(files("echo a >> 'b c.txt' 2>&1"), one("b c.txt", Edit));
    assert_eq!(
        files("cat > src/a.rs <<'EOF'\nfn a() { rm x; }\nEOF\n"),
        one("src/a.rs", Write)
    );
    assert_eq!(
        files("cat <<EOF | tee -a log.txt\nx > y\nEOF"),
        one("log.txt", Edit)
    );
    assert_eq!(files("sed -i 's/a > b/c/' x.rs"), one("x.rs", Edit));
    assert_eq!(files("sed -i '' -e 's/a/b/' x.rs"), one("x.rs", Edit));
    assert_eq!(files("perl -pi -e 's/a/b/' x.rs"), one("x.rs", Edit));
    assert_eq!(
        files("rm -rf build/ && touch new"),
        [one("build/", Delete), one("new", Touch)].concat()
    );
    assert_eq!(
        files("mv a.rs src/"),
        one("src/a.rs", FileOperation::MoveFrom("a.rs".into()))
    );
    assert_eq!(
        files("git mv a.rs b.rs"),
        one("b.rs", FileOperation::MoveFrom("a.rs".into()))
    );
    assert_eq!(
        files("git checkout HEAD -- a.rs"),
        one("a.rs", FileOperation::Revert)
    );
    assert_eq!(
        files("git restore a.rs"),
        one("a.rs", FileOperation::Revert)
    );
    assert_eq!(files("cp a b"), one("b", Write));
    assert_eq!(files("cd /repo && rm a.rs"), one("/repo/a.rs", Delete));
    assert_eq!(files("sed -n '1,200p' a.rs | head -n 5"), one("a.rs", Read));
    assert_eq!(
        files("head -n 20 a.rs; tail -5 b.rs"),
        [one("a.rs", Read), one("b.rs", Read)].concat()
    );
    assert_eq!(
        files("apply_patch <<'P'\n*** Begin Patch\n*** Delete File: a\n*** End Patch\nP"),
        one("a", Delete)
    );
}

#[test]
fn what_is_not_plain_is_not_guessed() {
    for line in [
        "rm $FILE",
        "rm *.o",
        "echo `ls` > $(date).txt",
        "cat > \"$f\" <<E\nx\nE",
        "ls -la src",
        "rg 'a > b' src",
        "echo \"x > y\"",
        "a 2>&1 >/dev/null",
        "node -e 'a => b'",
        "# rm a",
        "mv *.rs src",
    ] {
        assert_eq!(files(line), [], "{line}");
    }
}

#[test]
fn hostile_lines_end() {
    for line in [
        "",
        "'",
        "\"",
        "\\",
        "$(",
        "`",
        "<<",
        "<<E\nno end",
        "cat <<E > a\nx",
        "> ",
        "((((",
        "a;;;b",
        "x\0y > \0",
        "é\\é 'é",
    ] {
        read(line, true);
    }
    assert_eq!(files("cat > a <<E\nno end"), one("a", FileOperation::Write));
    assert_eq!(files("rm \"a\nb\""), []);
    read(&"$(".repeat(200_000), false);
    read(&"a;".repeat(1 << 20), false);
    read(&"x".repeat(4 << 20), false);
}

#[test]
fn a_look_is_told_from_a_run() {
    for line in [
        "ls",
        "git log --oneline",
        "git status && git diff | head",
        "gh pr view 7",
        "cd a && rg x | head",
        "A=b cat x",
        "sed -n 1p a",
        "rm x",
        "[ -f a ] && echo yes",
    ] {
        assert!(!read(line, false).runs, "{line}");
    }
    for line in [
        "cargo test",
        "cd a && make",
        "uv run pytest | tail -3",
        "python x.py",
        "mise run fmt && mise run lint",
        "git commit -m x",
        "git -c a=b push origin main",
        "gh pr create --fill",
    ] {
        assert!(read(line, false).runs, "{line}");
    }
}

#[test]
fn a_wider_run_covers_a_narrower() {
    let of = |line: &str| read(line, false).runners.pop().unwrap();
    let covers = |wide: &str, narrow: &str| of(wide).covers(&of(narrow));
    assert!(covers(
        "cargo test",
        "RUST_BACKTRACE=1 cargo test name -- --nocapture"
    ));
    assert!(covers("uv run pytest tests/", "pytest -x tests/a.py::b"));
    assert!(covers("go test ./...", "go test ./pkg"));
    assert!(covers("npm run test", "npm run test"));
    assert!(!covers("cargo test name", "cargo test"));
    assert!(!covers("cargo build", "cargo test"));
    assert!(!covers("cargo test --lib", "cargo test"));
    assert!(!covers("npm run lint", "npm run test"));
    assert!(!covers("python a.py", "python b.py"));
    // With other flags it is another question, unless they choose.
    assert!(!covers("go test ./...", "go test -race ./..."));
    assert!(!covers("cargo clippy", "cargo clippy -- -D warnings"));
    assert!(covers("pytest", "pytest -k name"));
    assert!(covers(
        "git commit -m x && git push",
        "git push origin main"
    ));
    assert!(!covers("cd a && make test", "cd b && make test"));
    assert!(covers("cd /repo/a && make test", "cd a && make test"));
    assert!(covers("make test", "cd a && make test"));
    assert_eq!(read("cargo fmt; cargo test | tail", false).runners.len(), 1);
}

#[test]
fn one_line_is_known_in_two_spellings() {
    assert_eq!(
        normalised("cd /a && cargo  test 2>&1 | tail -5"),
        "cargo test"
    );
    assert_eq!(normalised("a || b"), "a || b");
}
