//! The words by which calls and results of known agents are recognised, as data.
//!
//! A tool is recognised by the shape of its arguments and by the words of its name, not by the agent that has it, so
//! a table holds the words of all agents together. A new release of an agent is an edit in this folder: the names of
//! its tools in [`tools`], of their arguments in [`arguments`], the lines that its harness puts around an output in
//! [`results`]. The programs that agents run in a shell are in [`programs`], the marks of compilers, test runners and
//! progress bars in [`output`]. No table is sorted, and a word may be added at any position unless the comment of the
//! table says that the first match wins.

pub(super) mod arguments;
pub(super) mod output;
pub(super) mod programs;
pub(super) mod results;
pub(super) mod tools;
