//! A database as SQL text, and back.

use rusqlite::Connection;

/// What is made by something else of the text: shadow tables of the index, SQLite's own.
fn is_made(name: &str) -> bool {
    name.starts_with("message_index_") || name.starts_with("sqlite_")
}

/// Returns the text of a database whose index is empty.
pub fn dump(connection: &Connection) -> String {
    let number = |name: &str| -> i64 {
        let read = |row: &rusqlite::Row<'_>| row.get(0);
        connection.pragma_query_value(None, name, read).unwrap()
    };
    let mut text = format!(
        "PRAGMA application_id = {};\nPRAGMA user_version = {};\n",
        number("application_id"),
        number("user_version")
    );
    let schema = "SELECT type, name, sql FROM sqlite_schema WHERE sql NOT NULL ORDER BY rowid";
    let mut statement = connection.prepare(schema).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    let all: Vec<(String, String, String)> = rows.unwrap().map(Result::unwrap).collect();
    let kept = all.iter().filter(|(_, name, _)| !is_made(name));
    let (tables, others): (Vec<_>, Vec<_>) = kept.partition(|(kind, ..)| kind == "table");
    for (_, name, sql) in &tables {
        text += &format!("{sql};\n");
        if name != "message_index" {
            text += &rows_of(connection, name);
        }
    }
    if all.iter().any(|(_, name, _)| name == "sqlite_sequence") {
        text += &rows_of(connection, "sqlite_sequence");
    }
    for (_, _, sql) in others {
        text += &format!("{sql};\n");
    }
    text
}

fn rows_of(connection: &Connection, table: &str) -> String {
    let columns: Vec<String> = connection
        .prepare("SELECT name FROM pragma_table_info(?1)")
        .unwrap()
        .query_map([table], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let quoted: Vec<String> = columns
        .iter()
        .map(|name| format!("quote({name})"))
        .collect();
    let sql = format!("SELECT {} FROM {table}", quoted.join(" || ', ' || "));
    let mut statement = connection.prepare(&sql).unwrap();
    let rows = statement
        .query_map([], |row| row.get::<_, String>(0))
        .unwrap();
    let names = columns.join(", ");
    rows.map(|row| format!("INSERT INTO {table} ({names}) VALUES ({});\n", row.unwrap()))
        .collect()
}

/// Makes the database of a text in an empty file.
pub fn load(connection: &Connection, text: &str) {
    connection
        .pragma_update(None, "foreign_keys", false)
        .unwrap();
    connection
        .execute_batch(&format!("BEGIN;\n{text}COMMIT;"))
        .unwrap();
}
