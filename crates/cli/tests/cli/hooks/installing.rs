//! The changes of `install` to the configuration of an agent, and their complete removal.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{call, stage};
use crate::commands::stage::{CommandOutput, Stage};

const AGENTS: [&str; 4] = ["claude-code", "codex", "pi", "opencode"];

/// The configuration file of each agent that has hooks.
const FILES: [(&str, &str); 4] = [
    ("claude-code", ".claude/settings.json"),
    ("codex", ".codex/config.toml"),
    ("pi", ".pi/agent/extensions/loopstore.ts"),
    ("opencode", ".config/opencode/plugin/loopstore.js"),
];

fn install(stage: &Stage, line: &str) -> CommandOutput {
    stage.say(&format!("install {line}"))
}

fn written(stage: &Stage, name: &str, text: &str) -> PathBuf {
    let path = stage.path("home").join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path
}

/// Returns all files in the home folder except those of loopstore.
fn home(stage: &Stage) -> BTreeMap<PathBuf, Vec<u8>> {
    fn walk(folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if path.ends_with(".local") => {}
                true => walk(&path, found),
                false => drop(found.insert(path.clone(), std::fs::read(&path).unwrap())),
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&stage.path("home"), &mut found);
    found
}

const ODD_JSON: &str = "{\n\t\"theme\" : \"dark\",   \"hooks\": {\"Stop\": [ {\"hooks\":[{\"type\":\"command\",\n\
    \"command\":\"say done\"}]} ]},\n\n\t\"permissions\": {\"allow\": [\"Bash(ls)\"]  }\n}";
const ODD_TOML: &str = "# My own.\nmodel = \"gpt-5.5\" # the best\n\n[mcp_servers.docs]\ncommand=\"docs\"\n\n\
    [[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = 'command'\ncommand = 'say done'\n";

#[test]
fn what_was_there_comes_back_byte_for_byte() {
    let json: [Option<&str>; 7] = [
        None,
        Some(""),
        Some("{}"),
        Some(ODD_JSON),
        Some("{\r\n  \"theme\": \"dark\"\r\n}\r\n"),
        Some("\u{feff}{\"a\": 1}\n"),
        Some("{\n  // mine\n  \"a\": 1, /* and */\n}\n"),
    ];
    let toml: [Option<&str>; 5] = [
        None,
        Some(""),
        Some(ODD_TOML),
        Some("model = \"a\"\r\nnotify = [\"bell\"]\r\n\r\n[tui]\r\nx = 1\r\n"),
        Some("hooks = { Stop = [ { hooks = [ { type = \"command\", command = \"x\" } ] } ] }"),
    ];
    for (agent, file) in FILES {
        let contents: &[Option<&str>] = match agent {
            "claude-code" => &json,
            "codex" => &toml,
            _ => &[None],
        };
        for content in contents {
            let stage = stage();
            if let Some(content) = content {
                written(&stage, file, content);
            }
            let before = home(&stage);
            let said = install(&stage, &format!("{agent} --yes"));
            assert_eq!(said.code, 0, "{agent} {content:?}\n{said}");
            let path = stage.path("home").join(file);
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains("hook") && text.contains(agent), "{text}");
            for line in content.iter().flat_map(|content| content.lines()) {
                let line = line.trim_matches(['{', '}', '[', ']', '\u{feff}', ' ', '\t', ',']);
                // A list that was in one line may get more entries.
                assert!(
                    text.contains(line) || line.contains("hooks"),
                    "lost {line:?} of\n{text}"
                );
            }
            if content.is_some_and(|content| content.contains("\r\n")) {
                assert_eq!(
                    text.matches('\n').count(),
                    text.matches("\r\n").count(),
                    "{text:?}"
                );
            }
            // A second run changes nothing, not even the backup.
            let installed = home(&stage);
            let again = install(&stage, &format!("{agent} --yes"));
            assert!(
                again.code == 0 && again.out.contains("is set up already"),
                "{again}"
            );
            assert_eq!(home(&stage), installed);
            let out = install(&stage, &format!("{agent} --uninstall --yes"));
            assert_eq!(out.code, 0, "{out}");
            assert_eq!(home(&stage), before, "{agent} {content:?}");
            let gone = install(&stage, &format!("{agent} --uninstall --yes"));
            assert!(
                gone.code == 0 && gone.out.contains("is not set up"),
                "{gone}"
            );
        }
    }
}

#[test]
fn the_entries_are_what_the_agent_runs() {
    let stage = stage();
    for agent in AGENTS {
        assert_eq!(
            install(&stage, &format!("{agent} --yes --db my.db")).code,
            0
        );
    }
    let read = |name: &str| std::fs::read_to_string(stage.path("home").join(name)).unwrap();
    let settings: Value = serde_json::from_str(&read(".claude/settings.json")).unwrap();
    assert_eq!(settings["hooks"]["SessionStart"][0]["matcher"], "compact");
    let db = stage.path("my.db");
    for event in [
        "SessionStart",
        "PreCompact",
        "Stop",
        "SubagentStop",
        "SessionEnd",
    ] {
        let hook = &settings["hooks"][event][0]["hooks"][0];
        assert_eq!(hook["type"], "command");
        let line = hook["command"].as_str().unwrap();
        let end = format!("--db {} hook claude-code {event}", db.display());
        assert!(line.ends_with(&end), "{line}");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", line]).env("HOME", stage.path("home"));
        let output = shell.stdin(std::process::Stdio::null()).output().unwrap();
        assert!(
            output.status.success() && output.stdout.is_empty(),
            "{output:?}"
        );
    }
    let config: toml_edit::DocumentMut = read(".codex/config.toml").parse().unwrap();
    for event in ["SessionStart", "PreCompact", "Stop"] {
        let line = config["hooks"][event][0]["hooks"][0]["command"]
            .as_str()
            .unwrap();
        assert!(line.ends_with(&format!(" hook codex {event}")), "{line}");
    }
    assert_eq!(
        config["hooks"]["SessionStart"][0]["matcher"].as_str(),
        Some("compact")
    );
    let notice = config["notify"].as_array().unwrap();
    assert_eq!(
        notice.get(notice.len() - 1).unwrap().as_str(),
        Some("notify")
    );
    let words = format!("\"{}\",\"hook\",\"pi\"];", db.display());
    assert!(read(".pi/agent/extensions/loopstore.ts").contains(&words));
    let words = words.replace("\"pi\"", "\"opencode\"");
    assert!(read(".config/opencode/plugin/loopstore.js").contains(&words));
    // The database is created by `install`, since hooks create none.
    assert!(db.exists());
}

#[test]
fn what_others_wrote_since_stays() {
    let stage = stage();
    let settings = written(&stage, FILES[0].1, "{\n  \"theme\": \"dark\"\n}\n");
    let config = written(&stage, FILES[1].1, "model = \"a\"\n");
    for agent in AGENTS {
        assert_eq!(install(&stage, &format!("{agent} --yes")).code, 0);
    }
    let edit = |path: &Path, from: &str, to: &str| {
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(path, text.replacen(from, to, 1)).unwrap();
    };
    edit(&settings, "\"dark\"", "\"light\",\n  \"model\": \"opus\"");
    edit(&config, "model = \"a\"", "model = \"b\" # better");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text + "\n[tui]\nx = 1\n").unwrap();
    let extension = stage.path("home").join(FILES[2].1);
    edit(&extension, "const LIMIT", "// mine\nconst LIMIT");
    for agent in ["claude-code", "codex", "pi"] {
        let said = install(&stage, &format!("{agent} --uninstall --yes"));
        assert!(
            said.code == 0 && said.out.contains("changed since"),
            "{said}"
        );
    }
    let text = std::fs::read_to_string(&settings).unwrap();
    assert_eq!(
        text,
        "{\n  \"theme\": \"light\",\n  \"model\": \"opus\"\n}\n"
    );
    let text = std::fs::read_to_string(&config).unwrap();
    assert!(
        text.contains("# better") && text.contains("[tui]") && !text.contains("loopstore"),
        "{text}"
    );
    assert!(!extension.exists() && extension.with_extension("ts.changed").exists());
    // The hooks were removed by hand, so there is nothing to do.
    std::fs::remove_file(stage.path("home").join(FILES[3].1)).unwrap();
    let said = install(&stage, "opencode --uninstall --yes");
    assert!(
        said.code == 0 && said.out.contains("gone already"),
        "{said}"
    );
}

#[test]
fn an_installation_after_other_changes_still_comes_out_clean() {
    let stage = stage();
    let settings = written(&stage, FILES[0].1, "{\n  \"theme\": \"dark\"\n}\n");
    install(&stage, "claude-code --yes");
    let text = std::fs::read_to_string(&settings).unwrap();
    std::fs::write(&settings, text.replace("\"dark\"", "\"light\"")).unwrap();
    // For another database the entries are replaced.
    let said = install(&stage, "claude-code --yes --db other.db");
    assert_eq!(said.code, 0, "{said}");
    let text = std::fs::read_to_string(&settings).unwrap();
    assert_eq!(text.matches("hook claude-code Stop").count(), 1, "{text}");
    assert!(
        text.contains("other.db") && text.contains("light"),
        "{text}"
    );
    install(&stage, "claude-code --uninstall --yes");
    let text = std::fs::read_to_string(&settings).unwrap();
    assert_eq!(text, "{\n  \"theme\": \"light\"\n}\n");
}

#[test]
fn nothing_is_written_unless_somebody_agrees() {
    let stage = stage();
    let before = home(&stage);
    let said = install(&stage, "claude-code");
    assert_eq!(said.code, 2, "{said}");
    assert!(
        said.err.contains("--yes") && said.out.contains("\"command\""),
        "{said}"
    );
    let said = install(&stage, "codex --dry-run");
    assert!(
        said.code == 0 && said.out.contains("nothing was written"),
        "{said}"
    );
    assert!(said.out.contains("/hooks"), "{said}");
    assert_eq!(home(&stage), before);
    assert!(!stage.path("home/.local").exists());
    install(&stage, "pi --yes");
    let after = home(&stage);
    for line in ["pi --uninstall", "pi --uninstall --dry-run"] {
        install(&stage, line);
        assert_eq!(home(&stage), after, "{line}");
    }
}

#[test]
fn a_file_that_cannot_be_changed_safely_is_left_alone() {
    let stage = stage();
    for (agent, file, text) in [
        ("claude-code", FILES[0].1, "{ \"a\": "),
        ("claude-code", FILES[0].1, "[1, 2]"),
        ("claude-code", FILES[0].1, "{\"hooks\": 7}"),
        ("claude-code", FILES[0].1, "{\"hooks\": {\"Stop\": {}}}"),
        ("codex", FILES[1].1, "model = "),
        ("codex", FILES[1].1, "hooks = 7"),
        ("codex", FILES[1].1, "[hooks]\nStop = 7"),
        ("pi", FILES[2].1, "export default function () {}"),
        ("opencode", FILES[3].1, "export const Mine = 1;"),
    ] {
        let path = written(&stage, file, text);
        let said = install(&stage, &format!("{agent} --yes"));
        assert_eq!(said.code, 1, "{text}\n{said}");
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(
            said.err.contains("cannot change") && said.err.contains(name),
            "{said}"
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        std::fs::remove_file(path).unwrap();
    }
    let path = stage.path("home").join(FILES[0].1);
    std::fs::write(&path, b"{\"a\": \"\xff\"}").unwrap();
    assert_eq!(install(&stage, "claude-code --yes").code, 1);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(install(&stage, "claude-code --yes").code, 1);
    std::fs::remove_dir(&path).unwrap();
    symlink("nowhere.json", &path).unwrap();
    let said = install(&stage, "claude-code --yes");
    assert_eq!(said.code, 1, "{said}");
    assert!(path.is_symlink());
}

#[test]
fn a_link_stays_a_link_and_permissions_stay() {
    let stage = stage();
    let target = written(&stage, "dotfiles/settings.json", "{\"a\": 1}\n");
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o640)).unwrap();
    let link = stage.path("home").join(FILES[0].1);
    std::fs::create_dir_all(link.parent().unwrap()).unwrap();
    symlink(&target, &link).unwrap();
    assert_eq!(install(&stage, "claude-code --yes").code, 0);
    assert!(link.is_symlink());
    assert!(
        std::fs::read_to_string(&target)
            .unwrap()
            .contains("hook claude-code")
    );
    let mode = || target.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o640);
    install(&stage, "claude-code --uninstall --yes");
    assert!(link.is_symlink() && mode() == 0o640);
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "{\"a\": 1}\n");
}

#[test]
fn an_unreadable_file_is_told_and_left_alone() {
    let stage = stage();
    let path = written(&stage, FILES[0].1, "{}");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::read(&path).is_ok() {
        // Root can read everything.
        return;
    }
    let said = install(&stage, "claude-code --yes");
    assert!(
        said.code == 1 && said.err.contains("settings.json"),
        "{said}"
    );
}

#[test]
fn the_folders_that_the_agents_were_told_are_used() {
    let stage = stage();
    for (agent, variable, file) in [
        ("claude-code", "CLAUDE_CONFIG_DIR", "settings.json"),
        ("codex", "CODEX_HOME", "config.toml"),
        ("pi", "PI_CODING_AGENT_DIR", "extensions/loopstore.ts"),
        (
            "opencode",
            "XDG_CONFIG_HOME",
            "opencode/plugin/loopstore.js",
        ),
    ] {
        let folder = stage.path("elsewhere").join(agent);
        let mut command = stage.command(&["install", agent, "--yes"]);
        let output = command.env(variable, &folder).output().unwrap();
        assert!(output.status.success(), "{}", stage.said(&output));
        assert!(folder.join(file).is_file(), "{agent}");
        let mut command = stage.command(&["install", agent, "--yes", "--uninstall"]);
        assert!(
            command
                .env(variable, &folder)
                .output()
                .unwrap()
                .status
                .success()
        );
        assert!(!folder.join(file).exists(), "{agent}");
    }
    assert!(home(&stage).is_empty());
}

#[test]
fn a_password_never_gets_into_a_configuration() {
    let stage = stage();
    let said = install(
        &stage,
        "claude-code --yes --db postgres://me:secret@host/db",
    );
    assert_eq!(said.code, 2, "{said}");
    assert!(
        !said.err.contains("secret") && home(&stage).is_empty(),
        "{said}"
    );
}

#[cfg(not(feature = "mcp"))]
#[test]
fn a_program_without_the_server_of_tools_sets_up_none() {
    let stage = stage();
    let said = install(&stage, "claude-code --yes --mcp");
    assert!(
        said.code == 2 && said.err.contains("--features mcp"),
        "{said}"
    );
}

#[cfg(feature = "mcp")]
#[test]
fn the_server_of_tools_is_set_up_and_taken_out() {
    let stage = stage();
    let list = written(&stage, ".claude.json", "{\n  \"numStartups\": 3\n}\n");
    let opencode = written(
        &stage,
        ".config/opencode/opencode.jsonc",
        "{\n  // mine\n  \"share\": \"disabled\"\n}\n",
    );
    let before = home(&stage);
    for agent in ["claude-code --allow remember,undo", "codex", "opencode"] {
        let said = install(&stage, &format!("{agent} --mcp --yes"));
        assert_eq!(said.code, 0, "{said}");
    }
    let config: Value = serde_json::from_str(&std::fs::read_to_string(&list).unwrap()).unwrap();
    let server = &config["mcpServers"]["loopstore"];
    let args: Vec<&str> = server["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|arg| arg.as_str().unwrap())
        .collect();
    assert!(
        args.ends_with(&["mcp", "--all", "--allow", "remember,undo"]),
        "{args:?}"
    );
    let text = std::fs::read_to_string(&opencode).unwrap();
    assert!(
        text.contains("// mine") && text.contains("\"local\"") && !text.contains("--allow"),
        "{text}"
    );
    let codex = std::fs::read_to_string(stage.path("home/.codex/config.toml")).unwrap();
    assert!(
        codex.contains("[mcp_servers.loopstore]") && !codex.contains("--allow"),
        "{codex}"
    );
    // A second run without --mcp keeps the server.
    install(&stage, "codex --yes");
    assert_eq!(
        std::fs::read_to_string(stage.path("home/.codex/config.toml")).unwrap(),
        codex
    );
    // Claude Code itself changes this file all the time.
    let text = std::fs::read_to_string(&list).unwrap();
    std::fs::write(&list, text.replace(": 3", ": 4")).unwrap();
    for agent in ["claude-code", "codex", "opencode"] {
        install(&stage, &format!("{agent} --uninstall --yes"));
    }
    let mut expected = before;
    expected.insert(list, b"{\n  \"numStartups\": 4\n}\n".to_vec());
    assert_eq!(home(&stage), expected);
    let said = install(&stage, "pi --yes --mcp");
    assert!(
        said.code == 2 && said.err.contains("pi has no client"),
        "{said}"
    );
}

#[test]
fn a_hook_that_was_installed_records_into_the_usual_database() {
    let stage = Stage::empty();
    assert_eq!(install(&stage, "claude-code --yes").code, 0);
    let db = stage.path("home/.local/share/loopstore/loopstore.db");
    assert!(db.is_file());
    call(&stage, "claude-code", "SessionEnd", b"{}");
}
