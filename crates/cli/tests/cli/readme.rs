//! The examples of the README are the examples that run, and the guide lists the columns of the views.

use loopstore::SqliteStore;

use crate::commands::stage::Stage;

const README: &str = include_str!("../../../../README.md");
const GUIDE: &str = include_str!("../../../../docs/guide.md");

/// Returns the views in the table under the heading `Views`, each with its columns.
fn documented() -> Vec<(String, Vec<String>)> {
    let after = GUIDE.split("\n### Views\n").nth(1).unwrap();
    let section = after.split("\n#").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| v_"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let columns = cells[2].split(", ").map(str::to_owned).collect();
        (cells[1].to_owned(), columns)
    })
    .collect()
}

/// Returns the views of a fresh database in the order of their creation, with their columns.
fn present() -> Vec<(String, Vec<String>)> {
    let store = SqliteStore::in_memory().unwrap();
    let views = store
        .query("SELECT name FROM sqlite_master WHERE type = 'view' ORDER BY rowid")
        .unwrap()
        .records();
    let names = views.iter().map(|view| view.text("name").unwrap());
    names
        .filter(|name| name.starts_with("v_"))
        .map(|name| {
            let rows = store.query(&format!("SELECT * FROM {name} LIMIT 0"));
            (name, rows.unwrap().columns)
        })
        .collect()
}

#[test]
fn the_table_of_views_is_that_of_a_fresh_database() {
    assert_eq!(documented(), present());
}

/// Returns the lines of the first code block that begins with `fence`.
fn code<'a>(text: &'a str, fence: &str) -> Vec<&'a str> {
    let lines = text.lines().skip_while(|line| *line != fence).skip(1);
    lines.take_while(|line| !line.ends_with("```")).collect()
}

#[test]
fn the_example_is_the_one_that_is_compiled() {
    let compiled: Vec<&str> = code(include_str!("../../../../src/lib.rs"), "//! ```")
        .into_iter()
        .map(|line| line.trim_start_matches("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .filter(|line| !line.starts_with("# "))
        .collect();
    assert!(!compiled.is_empty());
    assert_eq!(code(README, "```rust"), compiled);
}

#[test]
fn what_the_readme_recalls_is_what_the_program_prints() {
    let stage = Stage::empty();
    let mut blocks = README.split("```console\n").skip(1);
    let block = blocks.find(|block| block.contains("demo --keep")).unwrap();
    let block = block.split("```").next().unwrap();
    let mut printed = String::new();
    for line in block.lines().filter_map(|line| line.strip_prefix("$ ")) {
        let said = stage.paste(line);
        assert_eq!(said.code, 0, "{line}: {said}");
        printed += &format!("$ {line}\n{}", said.out);
    }
    assert_eq!(printed, block);
}

/// Returns the rows of a table from the counts that the long runs wrote to the file `LOOPSTORE_TALLY`; counts of the
/// same name are added.
fn tally(noted: &str) -> String {
    let mut rows: Vec<(&str, u64, String)> = Vec::new();
    for line in noted.lines() {
        let cells: Vec<&str> = line.split('\t').collect();
        let [kind, trials, losses, wrong, panics, command] = cells[..] else {
            panic!("{line}");
        };
        let trials: u64 = trials.parse().unwrap();
        match rows.iter_mut().find(|(known, ..)| *known == kind) {
            Some((_, sum, _)) => *sum += trials,
            None => {
                let rest = format!("{losses} | {wrong} | {panics} | `{command}`");
                rows.push((kind, trials, rest));
            }
        }
    }
    let head = "| fault | trials | losses | wrong answers | panics | command |\n\
                | --- | --- | --- | --- | --- | --- |\n";
    let row =
        |(kind, trials, rest): &(&str, u64, String)| format!("| {kind} | {trials} | {rest} |\n");
    head.to_owned() + &rows.iter().map(row).collect::<String>()
}

/// Without `LOOPSTORE_TALLY`, checks only that the guide has a place for the table.
#[test]
fn the_tally_of_the_long_runs_is_in_the_guide() {
    const MARKS: (&str, &str) = ("<!-- tally -->\n", "<!-- end of tally -->\n");
    let (before, rest) = GUIDE.split_once(MARKS.0).unwrap();
    let (table, after) = rest.split_once(MARKS.1).unwrap();
    assert!(table.starts_with("| fault | trials |"), "{table}");
    if let Ok(noted) = std::env::var("LOOPSTORE_TALLY") {
        let noted = std::fs::read_to_string(noted).unwrap();
        let text = [before, MARKS.0, &tally(&noted), MARKS.1, after].concat();
        std::fs::write(crate::support::root::path("docs/guide.md"), text).unwrap();
    }
}
