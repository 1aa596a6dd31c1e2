//! Runs last among the test programs, by its name, and prints the tests that were skipped in the others, with what they
//! need.

use loopstore_testing::needs;

fn main() {
    let folders = std::fs::read_dir(needs::notes())
        .into_iter()
        .flatten()
        .flatten();
    let mut lines: Vec<String> = folders
        .map(|folder| {
            let from = std::fs::read_to_string(folder.path().join("from")).unwrap_or_default();
            let tests = std::fs::read_dir(folder.path())
                .into_iter()
                .flatten()
                .flatten();
            let mut tests: Vec<_> = tests
                .map(|test| test.file_name().to_string_lossy().into_owned())
                .filter(|name| name != "from")
                .collect();
            tests.sort();
            let need = folder.file_name().to_string_lossy().into_owned();
            format!(
                "  {} for want of {need} ({from}):\n    {}",
                tests.len(),
                tests.join("\n    ")
            )
        })
        .collect();
    lines.sort();
    match lines.is_empty() {
        true => println!("\nno test was skipped for want of a program\n"),
        false => println!(
            "\nSKIPPED, although they are counted as passed:\n{}\n\
             With LOOPSTORE_NEEDS_ALL=1 they fail.\n",
            lines.join("\n")
        ),
    }
    // The next run records its own.
    let _ = std::fs::remove_dir_all(needs::notes());
}
