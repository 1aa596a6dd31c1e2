//! The reference: a file is one text, a change makes the next text, and a line belongs to the last change that wrote
//! it. Which lines stay is found with the whole table of the longest common sequence.

/// A file, and the change of each of its lines.
#[derive(Clone, Debug, Default)]
pub struct ReferenceFile {
    pub text: String,
    by: Vec<String>,
}

impl ReferenceFile {
    /// Replaces the text.
    pub fn become_text(&mut self, text: &str, by: &str) {
        let old: Vec<&str> = self.text.lines().collect();
        let new: Vec<&str> = text.lines().collect();
        let mut owners = vec![by.to_owned(); new.len()];
        for (from, to) in common(&old, &new) {
            owners[to].clone_from(&self.by[from]);
        }
        self.text = text.to_owned();
        self.by = owners;
    }

    /// Returns the lines with their changes.
    pub fn lines(&self) -> Vec<(&str, &str)> {
        let by = self.by.iter().map(String::as_str);
        self.text.lines().zip(by).collect()
    }
}

/// Returns a longest common sequence.
fn common(old: &[&str], new: &[&str]) -> Vec<(usize, usize)> {
    let mut longest = vec![vec![0_u32; new.len() + 1]; old.len() + 1];
    for from in (0..old.len()).rev() {
        for to in (0..new.len()).rev() {
            longest[from][to] = match old[from] == new[to] {
                true => longest[from + 1][to + 1] + 1,
                false => longest[from + 1][to].max(longest[from][to + 1]),
            };
        }
    }
    let (mut from, mut to, mut pairs) = (0, 0, Vec::new());
    while from < old.len() && to < new.len() {
        if old[from] == new[to] {
            pairs.push((from, to));
            (from, to) = (from + 1, to + 1);
        } else if longest[from + 1][to] >= longest[from][to + 1] {
            from += 1;
        } else {
            to += 1;
        }
    }
    pairs
}
