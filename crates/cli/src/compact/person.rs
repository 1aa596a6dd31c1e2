//! `loopstore compact --edit`: a person reads the texts of a compaction in an editor, and may change them.

use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use loopstore::compact::{Approval, CompactionHook, Proposal, ProposedBlock};
use loopstore_terminal::text;

/// The beginning of the line before each text.
const MARK: &str = "%% loopstore: ";

const HEAD: &str = "\
%% loopstore: the texts of this compaction follow, each below a line like the next one.
%% loopstore: Change the texts and save; do not change lines that begin with %%.
%% loopstore: To stop without compacting, empty the file.
";

/// The hook that opens an editor before the commit.
pub struct Editing;

impl CompactionHook for Editing {
    fn approve(&self, proposal: &Proposal<'_>) -> Approval {
        edited(proposal).unwrap_or_else(|error| Approval::Postpone(error.to_string()))
    }
}

fn edited(proposal: &Proposal<'_>) -> io::Result<Approval> {
    let document = document(&proposal.blocks);
    let mut file = tempfile::Builder::new()
        .prefix("loopstore-")
        .suffix(".md")
        .tempfile()?;
    file.write_all(document.as_bytes())?;
    file.flush()?;
    open_editor(file.path())?;
    // Many editors write a new file in place of the old one.
    let after = std::fs::read_to_string(file.path())?;
    if after.trim().is_empty() {
        return Ok(Approval::Postpone("the texts were emptied".into()));
    }
    if after == document {
        return Ok(Approval::Commit);
    }
    changed_texts(&proposal.blocks, &after)
        .map(Approval::Rewrite)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Runs the editor that the environment names; `vi` if it names none.
fn open_editor(path: &Path) -> io::Result<()> {
    let named = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let editor = named("VISUAL").or_else(|| named("EDITOR"));
    let editor = editor.unwrap_or_else(|| "vi".to_owned());
    // As git does: the variable is a command with arguments.
    let status = Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(path)
        .status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("`{editor}` failed: {status}"))),
    }
}

/// Returns the texts, each below a line that names its block.
fn document(blocks: &[ProposedBlock]) -> String {
    let mut document = HEAD.to_owned();
    for (at, block, text) in with_text(blocks) {
        document.push_str(&format!("\n{}\n\n{}\n", title(at, block), text.trim_end()));
    }
    document
}

fn with_text(blocks: &[ProposedBlock]) -> impl Iterator<Item = (usize, &ProposedBlock, &str)> {
    let blocks = blocks.iter().enumerate();
    blocks.filter_map(|(at, block)| Some((at, block, block.text.as_deref()?)))
}

fn title(at: usize, block: &ProposedBlock) -> String {
    let turns = block.turns.map_or_else(String::new, |turns| {
        format!(", turns {}", text::turns(turns.first, turns.last))
    });
    let loop_id = text::line(block.loop_id.as_str());
    format!("{MARK}block {at}, loop {loop_id}{turns}")
}

/// Returns the texts of a document that differ from those of the blocks, with the positions of their blocks.
fn changed_texts(blocks: &[ProposedBlock], document: &str) -> Result<Vec<(usize, String)>, String> {
    let mut texts: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in document.lines() {
        match line.strip_prefix(MARK) {
            Some(name) if name.starts_with("block ") => texts.push((line, Vec::new())),
            Some(_) => {}
            None => match texts.last_mut() {
                Some((_, lines)) => lines.push(line),
                None if line.trim().is_empty() => {}
                None => return Err(format!("the text `{line}` is below no block")),
            },
        }
    }
    let mut changed = Vec::new();
    for (at, block, before) in with_text(blocks) {
        let title = title(at, block);
        let mut found = texts.iter().filter(|(line, _)| line.trim_end() == title);
        let (Some((_, lines)), None) = (found.next(), found.next()) else {
            return Err(format!("the line `{title}` was removed or doubled"));
        };
        let text = lines.join("\n");
        let text = text.trim();
        if text.is_empty() {
            return Err(format!("the text below `{title}` is empty"));
        }
        if text != before.trim() {
            changed.push((at, text.to_owned()));
        }
    }
    match with_text(blocks).count() == texts.len() {
        true => Ok(changed),
        false => Err("the document names a block that the compaction does not have".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loopstore::LoopId;
    use loopstore::extend::{BlockKind, Turns};

    fn block(id: &str, text: Option<&str>) -> ProposedBlock {
        ProposedBlock {
            loop_id: LoopId::new(id).unwrap(),
            kind: BlockKind::Current,
            turns: Turns::of(0..3),
            text: text.map(str::to_owned),
        }
    }

    #[test]
    fn only_changed_texts_are_returned() {
        let blocks = [
            block("a", Some("one\ntwo")),
            block("b", None),
            block("c", Some("three")),
        ];
        let before = document(&blocks);
        assert_eq!(changed_texts(&blocks, &before), Ok(Vec::new()));
        let after = before.replace("three", "four\n\nfive");
        let expected = vec![(2, "four\n\nfive".to_owned())];
        assert_eq!(changed_texts(&blocks, &after), Ok(expected));
    }

    #[test]
    fn a_broken_document_is_refused() {
        let blocks = [block("a", Some("one")), block("c", Some("three"))];
        let before = document(&blocks);
        let marks = [
            before.replace("block 1", "block 7"),
            before.replace("one", ""),
            before.replace("block 0", "blob 0"),
            format!("{before}\n{}\n\nmore\n", title(0, &blocks[0])),
            format!("{before}\n{MARK}block 9, loop x\nmore\n"),
        ];
        for document in marks {
            assert!(changed_texts(&blocks, &document).is_err(), "{document}");
        }
    }
}
