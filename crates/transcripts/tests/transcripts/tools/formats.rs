//! Detection: the format of a file depends on its content, never on its name.

use std::path::{Path, PathBuf};

use loopstore_transcripts::importers;

/// Returns the formats that recognise the beginning of a file.
pub fn formats_of(bytes: &[u8]) -> Vec<&'static str> {
    let head = &bytes[..bytes.len().min(64 << 10)];
    let knows = importers()
        .iter()
        .filter(|i| i.detect(Path::new("x"), head));
    knows.map(|importer| importer.format()).collect()
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

/// True if a file describes a task or a session whose messages are in another file.
fn is_companion(path: &Path) -> bool {
    let is_task = ["fixtures/cline", "fixtures/roo-code"]
        .iter()
        .any(|folder| path.to_string_lossy().contains(folder));
    let ends = ["api_conversation_history.json", ".messages.json"];
    is_task && !ends.iter().any(|end| path.to_string_lossy().ends_with(end))
}

#[test]
fn every_hand_written_transcript_is_of_exactly_one_format() {
    for importer in importers() {
        let folder = Path::new("../../tests/fixtures").join(importer.format());
        let mut found = Vec::new();
        if folder.is_dir() {
            files(&folder, &mut found);
        }
        let is_ours = crate::tools::stored::FORMATS.contains(&importer.format());
        assert!(!found.is_empty() || !is_ours, "{}", importer.format());
        for path in found {
            let bytes = std::fs::read(&path).unwrap();
            let expected: &[&str] = match is_companion(&path) {
                true => &[],
                false => &[importer.format()],
            };
            assert_eq!(formats_of(&bytes), expected, "{}", path.display());
        }
    }
}

#[test]
fn a_part_of_a_transcript_is_of_no_other_format() {
    for (format, path) in crate::tools::stored::fixtures() {
        let bytes = std::fs::read(&path).unwrap();
        for from in [0, 1, bytes.len() / 3, bytes.len() / 2] {
            for to in [from + 40, from + 300, bytes.len()] {
                let part = &bytes[from..to.min(bytes.len())];
                for found in formats_of(part) {
                    assert_eq!(found, format, "{path} {from}..{to}");
                }
            }
        }
    }
}
