//! Files in folders that no importer reads: decides which may contain a conversation, and suggests what to do.

use std::path::Path;

use loopstore::internal::is_store;

use super::sniff::FileHead;
#[cfg(feature = "sqlite")]
use super::sqlite_file::table_names;

/// The maximum number of tables that a message lists.
const TABLES: usize = 5;
/// The minimum size of a text that may contain a conversation, in bytes.
const LEAST_TEXT: usize = 10;

/// Compressed files and archives that are not unpacked here: magic bytes, name, and the command that unpacks them.
const PACKED: [(&[u8], &str, &str); 5] = [
    (b"\xFD7zXZ\0", "xz", "xz -d"),
    (b"BZh", "bzip2", "bzip2 -d"),
    (b"PK\x03\x04", "zip", "unzip"),
    (b"7z\xBC\xAF\x27\x1C", "7-Zip", "7z x"),
    (b"\x04\x22\x4D\x18", "lz4", "lz4 -d"),
];

/// Returns the reason why a file that may contain a conversation was not read, and what to do; `None` if nothing
/// suggests a conversation. `format` is the only format that was tried.
pub(super) fn reason_of(path: &Path, head: &FileHead, format: Option<&str>) -> Option<String> {
    let bytes = &head.bytes;
    if head.is_sqlite {
        return Some(of_database(path, bytes));
    }
    for (magic, name, command) in PACKED {
        if bytes.starts_with(magic) {
            return Some(format!(
                "packed with {name}; unpack it with `{command}` and import the result"
            ));
        }
    }
    let text = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let text = text.trim_ascii();
    let is_json = text.starts_with(b"{") || text.starts_with(b"[");
    if !is_json || text.len() < LEAST_TEXT {
        return None;
    }
    Some(match format {
        Some(format) => {
            format!("JSON of another format than {format}; import it without naming a format")
        }
        None => "JSON of no known format; if it is a transcript, name its format".into(),
    })
}

fn of_database(path: &Path, head: &[u8]) -> String {
    if is_store(head) {
        return "a loopstore database; copy its sessions instead".into();
    }
    match table_names(path) {
        Ok(tables) if tables.is_empty() => "a SQLite database without tables".into(),
        Ok(tables) => {
            let more = match tables.len() > TABLES {
                true => ", …",
                false => "",
            };
            let tables = tables.into_iter().take(TABLES).collect::<Vec<_>>();
            format!(
                "a SQLite database without the tables of a known format (it has {}{more})",
                tables.join(", ")
            )
        }
        Err(error) => format!("a SQLite database that cannot be read: {error}"),
    }
}

/// A build without the formats that are databases opens none.
#[cfg(not(feature = "sqlite"))]
fn table_names(_: &Path) -> Result<Vec<String>, &'static str> {
    Err("this build leaves out the formats that are databases")
}
