//! Which recorded paths name a file.

use std::collections::BTreeSet;

use loopstore_digest::activity::{normal, resolved};

/// The most paths that an error lists.
const MOST_LISTED: usize = 10;

/// Returns the path of a call within its working folder. `folders`: the folders that may be it, the most certain
/// first. A folder that is itself relative is in the next one.
pub(crate) fn within(path: &str, folders: &[Option<&str>]) -> String {
    let mut path = path.to_owned();
    for folder in folders.iter().copied().flatten() {
        let folder = normal(folder);
        if is_rooted(&path) {
            break;
        }
        path = resolved(&path, Some(&folder));
    }
    path
}

fn is_rooted(path: &str) -> bool {
    path.starts_with(['/', '~']) || path.contains(":/")
}

/// The spellings of the file that was asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct WantedFile {
    /// The path as it was given, normalised.
    pub(crate) given: String,
    /// Absolute spellings, normalised.
    pub(crate) absolute: Vec<String>,
}

/// The recorded paths that a file was found under.
#[derive(Debug, PartialEq)]
pub(crate) enum FoundPaths {
    /// These name the file.
    Of(Vec<String>),
    /// Several files match equally well.
    Several(Vec<String>),
    /// No path matches.
    None,
}

/// Returns the recorded paths of a file: those that are equal to one of its absolute spellings, else those that have
/// the longest common end with it, which must contain the whole of the given path or of the recorded one.
pub(crate) fn find(wanted: &WantedFile, recorded: &BTreeSet<&str>) -> FoundPaths {
    let equal = wanted
        .absolute
        .iter()
        .filter(|path| recorded.contains(&***path));
    let equal: BTreeSet<String> = equal.cloned().collect();
    if !equal.is_empty() {
        return FoundPaths::Of(equal.into_iter().collect());
    }
    let given: Vec<&str> = parts(&wanted.given);
    let whole: Vec<Vec<&str>> = match wanted.absolute.is_empty() {
        true => vec![given.clone()],
        false => wanted.absolute.iter().map(|path| parts(path)).collect(),
    };
    let (mut best, mut found) = (0, Vec::new());
    for path in recorded {
        let own = parts(path);
        let common = whole.iter().map(|whole| common_end(whole, &own)).max();
        let common = common.unwrap_or(0);
        let is_whole = common > 0 && (common >= given.len() || common == own.len());
        if !is_whole || common < best {
            continue;
        }
        if common > best {
            found.clear();
        }
        best = common;
        found.push((*path).to_owned());
    }
    match found.len() {
        0 => FoundPaths::None,
        1 => FoundPaths::Of(found),
        _ => {
            found.truncate(MOST_LISTED);
            FoundPaths::Several(found)
        }
    }
}

fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty()).collect()
}

fn common_end(one: &[&str], other: &[&str]) -> usize {
    let pairs = one.iter().rev().zip(other.iter().rev());
    pairs.take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(given: &str, absolute: &[&str], recorded: &[&str]) -> FoundPaths {
        let wanted = WantedFile {
            given: given.to_owned(),
            absolute: absolute.iter().map(|path| (*path).to_owned()).collect(),
        };
        find(&wanted, &recorded.iter().copied().collect())
    }

    fn of(paths: &[&str]) -> FoundPaths {
        FoundPaths::Of(paths.iter().map(|path| (*path).to_owned()).collect())
    }

    #[test]
    fn a_path_is_found_in_any_spelling() {
        let recorded = ["/r/src/a.rs", "/s/src/a.rs", "/r/b.rs", "lib/c.rs"];
        assert_eq!(
            found("src/a.rs", &["/r/src/a.rs"], &recorded),
            of(&["/r/src/a.rs"])
        );
        assert_eq!(
            found("b.rs", &["/elsewhere/b.rs"], &recorded),
            of(&["/r/b.rs"])
        );
        // Of a repository that was moved, the longest common end.
        assert_eq!(
            found("a.rs", &["/home/s/src/a.rs"], &recorded),
            of(&["/s/src/a.rs"])
        );
        assert_eq!(
            found("c.rs", &["/x/lib/c.rs"], &recorded),
            of(&["lib/c.rs"])
        );
        assert!(
            matches!(found("a.rs", &["/x/a.rs"], &recorded), FoundPaths::Several(paths) if paths.len() == 2)
        );
        assert_eq!(found("x/b.rs", &["/y/x/b.rs"], &recorded), FoundPaths::None);
        assert_eq!(found("rs", &["/rs"], &recorded), FoundPaths::None);
        assert_eq!(found("", &[], &recorded), FoundPaths::None);
        assert_eq!(found("../..", &["/"], &recorded), FoundPaths::None);
    }

    #[test]
    fn a_relative_path_is_in_the_first_known_folder() {
        assert_eq!(within("a", &[None, Some("/r"), Some("/s")]), "/r/a");
        assert_eq!(within("a", &[Some("sub"), Some("/r")]), "/r/sub/a");
        assert_eq!(within("/x/a", &[Some("/r")]), "/x/a");
        assert_eq!(within("~/a", &[Some("/r")]), "~/a");
        assert_eq!(within("../a", &[Some("/r/s")]), "/r/a");
        assert_eq!(within("a", &[]), "a");
    }
}
