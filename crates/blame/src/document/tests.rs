use super::*;

fn replacement(old: &str, new: &str, all: bool) -> TextChange {
    TextChange::Replace(vec![TextReplacement {
        old: old.into(),
        new: new.into(),
        all,
    }])
}

/// Applies changes, numbered from 1, and returns the lines with their changes and the reasons.
fn after(changes: &[TextChange]) -> (String, Vec<UnfollowedReason>) {
    let mut document = Document::default();
    let mut reasons = Vec::new();
    for (by, change) in (1..).zip(changes) {
        reasons.extend(document.change(change, by));
    }
    let whole = document.whole.unwrap_or_default();
    assert_eq!(whole.by.len(), whole.text.split('\n').count());
    let lines = whole.lines();
    let lines: Vec<String> = lines
        .map(|(line, by)| format!("{line}={}", by.unwrap_or_default()))
        .collect();
    (lines.join(" "), reasons)
}

fn lines(changes: &[TextChange]) -> String {
    let (lines, reasons) = after(changes);
    assert_eq!(reasons, []);
    lines
}

fn write(text: &str) -> TextChange {
    TextChange::Write(text.into())
}

#[test]
fn a_line_belongs_to_the_change_that_wrote_it_last() {
    let start = write("a\nb\nc\n");
    assert_eq!(lines(std::slice::from_ref(&start)), "a=1 b=1 c=1");
    assert_eq!(
        lines(&[start.clone(), replacement("b\n", "b\nx\n", false)]),
        "a=1 b=1 x=2 c=1"
    );
    // A part of a line changes the whole line.
    assert_eq!(
        lines(&[write("let a = 1;\nend\n"), replacement("1", "2", false)]),
        "let a = 2;=2 end=1"
    );
    assert_eq!(lines(&[start.clone(), write("a\nc\nd\n")]), "a=1 c=1 d=2");
    assert_eq!(
        lines(&[
            start.clone(),
            TextChange::Append("d".into()),
            TextChange::Append("e\n".into())
        ]),
        "a=1 b=1 c=1 de=3"
    );
    assert_eq!(
        lines(&[write("x\ny\nx\n"), replacement("x", "z", true)]),
        "z=2 y=1 z=2"
    );
    assert_eq!(
        lines(&[start.clone(), replacement("a\nb\nc\n", "", false)]),
        ""
    );
    assert_eq!(
        lines(&[start.clone(), replacement("", "n\n", false)]),
        "n=2"
    );
    // An empty line at the end is a new line.
    let end = TextChange::Append("\n".into());
    assert_eq!(lines(&[start.clone(), end]), "a=1 b=1 c=1 =2");
    assert_eq!(lines(&[start, write("a\nb\nc\n\n")]), "a=1 b=1 c=1 =2");
}

#[test]
fn lines_are_inserted_and_replaced_by_number() {
    let insert = |after, text: &str| TextChange::Insert {
        after,
        text: text.into(),
    };
    let range = |first, last, text: &str| TextChange::Lines {
        first,
        last,
        text: text.into(),
    };
    let start = write("a\nb\nc\n");
    assert_eq!(lines(&[start.clone(), insert(0, "x")]), "x=2 a=1 b=1 c=1");
    assert_eq!(
        lines(&[start.clone(), insert(2, "x\ny")]),
        "a=1 b=1 x=2 y=2 c=1"
    );
    assert_eq!(lines(&[start.clone(), insert(99, "x")]), "a=1 b=1 c=1 x=2");
    assert_eq!(lines(&[write("a"), insert(1, "x")]), "a=1 x=2");
    assert_eq!(
        lines(&[write("a\nb\n"), insert(1, "x\n")]),
        "a=1 x=2 =2 b=1"
    );
    assert_eq!(lines(&[start.clone(), range(2, 3, "x")]), "a=1 x=2");
    assert_eq!(lines(&[start.clone(), range(2, 2, "")]), "a=1 c=1");
    assert_eq!(
        lines(&[start.clone(), range(9, 12, "x")]),
        "a=1 b=1 c=1 x=2"
    );
    assert_eq!(lines(&[start, range(0, 0, "x")]), "x=2 a=1 b=1 c=1");
    assert_eq!(lines(&[write(""), range(1, 1, "x\ny")]), "x=2 y=2");
}

#[test]
fn hunks_are_applied_where_their_lines_are() {
    let hunk = |first_line, below: Option<&str>, text: &str| Hunk {
        first_line,
        below: below.map(str::to_owned),
        lines: text
            .split(',')
            .map(|line| {
                let text = line[1..].to_owned();
                match &line[..1] {
                    "+" => HunkLine::Added(text),
                    "-" => HunkLine::Removed(text),
                    _ => HunkLine::Kept(text),
                }
            })
            .collect(),
    };
    let one = |hunk: Hunk| TextChange::Hunks(vec![hunk]);
    let start = write("a\nb\nc\nb\n");
    assert_eq!(
        lines(&[start.clone(), one(hunk(None, None, " a,-b,+x"))]),
        "a=1 x=2 c=1 b=1"
    );
    // The second of two places, by its line or by the line above.
    assert_eq!(
        lines(&[start.clone(), one(hunk(Some(4), None, "-b,+x"))]),
        "a=1 b=1 c=1 x=2"
    );
    assert_eq!(
        lines(&[start.clone(), one(hunk(None, Some("c"), "-b,+x"))]),
        "a=1 b=1 c=1 x=2"
    );
    assert_eq!(
        lines(&[start.clone(), one(hunk(Some(2), None, "+x"))]),
        "a=1 x=2 b=1 c=1 b=1"
    );
    assert_eq!(
        lines(&[start.clone(), one(hunk(None, None, "-a,-b,-c"))]),
        "b=1"
    );
    assert_eq!(
        lines(&[write("  a  \n"), one(hunk(None, None, "-a,+x"))]),
        "x=2"
    );
    assert_eq!(
        lines(&[write("a"), one(hunk(None, None, " a,+x"))]),
        "a=1 x=2"
    );
    let two = TextChange::Hunks(vec![hunk(None, None, "-b,+x"), hunk(None, None, "-b,+y")]);
    assert_eq!(lines(&[start.clone(), two]), "a=1 x=2 c=1 y=2");
    let (_, reasons) = after(&[start, one(hunk(None, None, "-nowhere,+x"))]);
    assert_eq!(reasons, [UnfollowedReason::OldTextNotFound]);
}

#[test]
fn what_is_not_found_is_kept_as_a_piece() {
    let mut document = Document::default();
    let edit = replacement("fn old() {", "fn renamed() {", false);
    assert_eq!(document.change(&edit, 1), None);
    assert_eq!((document.whole.is_none(), document.pieces.len()), (true, 1));
    // An edit of the piece is applied to it.
    let again = replacement("renamed", "renamed_again", false);
    assert_eq!(document.change(&again, 2), None);
    assert_eq!(document.pieces.len(), 1);
    assert_eq!(document.pieces[0].text, "fn renamed_again() {");
    // A text as a whole keeps the lines that an edit wrote before.
    document.change(&write("top\nfn renamed_again() {\n}\n"), 3);
    let whole = document.whole.unwrap();
    let by: Vec<_> = whole.lines().map(|(_, by)| by).collect();
    assert_eq!(by, [Some(3), Some(2), Some(3)]);
    let (_, reasons) = after(&[write("a a\n"), replacement("a", "b", false)]);
    assert_eq!(reasons, [UnfollowedReason::SeveralPlaces]);
    let (_, reasons) = after(&[write("a\n"), replacement("z", "b", false)]);
    assert_eq!(reasons, [UnfollowedReason::OldTextNotFound]);
}
