//! The role of an argument, from which follows how likely a later call has the same value.

use super::shell;
use super::tables::arguments;

/// The role of an argument in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentRole {
    /// A limit of time or size, which a project's calls share.
    Limit,
    /// A position in a file.
    Lines,
    /// The pattern or question of a search.
    Search,
    /// A command line.
    Command,
    /// Any other role.
    Other,
}

impl ArgumentRole {
    /// Returns the role of the argument with that name.
    pub(crate) fn of(name: &str) -> Self {
        if arguments::LINE_RANGES.contains(&name) {
            Self::Lines
        } else if arguments::SEARCHES.contains(&name) {
            Self::Search
        } else if arguments::COMMAND_LINES.contains(&name) {
            Self::Command
        } else if arguments::LIMITS.iter().any(|part| name.contains(part)) {
            Self::Limit
        } else {
            Self::Other
        }
    }
}

/// True if a command line builds, tests or runs something.
pub(crate) fn is_run(line: &str) -> bool {
    shell::read(line, false).runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_the_role_of_their_name() {
        let cases = [
            ("timeout", ArgumentRole::Limit),
            ("yield_time_ms", ArgumentRole::Limit),
            ("max_output_tokens", ArgumentRole::Limit),
            ("offset", ArgumentRole::Lines),
            ("pattern", ArgumentRole::Search),
            ("command", ArgumentRole::Command),
            ("file_path", ArgumentRole::Other),
            ("token", ArgumentRole::Other),
        ];
        for (name, role) in cases {
            assert_eq!(ArgumentRole::of(name), role, "{name}");
        }
        assert!(is_run("cd web && npm test") && !is_run("git log | head -3"));
    }
}
