//! The events of the demonstration's session: prompts, texts of the agent, and its calls.

use std::fmt::Write;

use serde_json::{Value, json};

use self::StoryStep::{Answer, Edit, Grep, Plan, Read, Run, Test, Write as Create};

/// The action of an agent in a turn, in addition to its text.
pub enum StoryStep {
    /// No call: the agent answers.
    Answer,
    /// Searches for a word.
    Grep(&'static str),
    /// Reads a file.
    Read(&'static str),
    /// Replaces a text in a file.
    Edit(&'static str, &'static str, &'static str),
    /// Writes a new file.
    Write(&'static str, &'static str),
    /// Runs tests: the number that pass, and the failure, if there is one.
    Test(&'static str, usize, Option<&'static str>),
    /// Runs a command: its output, and true if it fails.
    Run(&'static str, &'static str, bool),
    /// Writes its plan: items that are done, in progress, and open.
    Plan(
        &'static [&'static str],
        &'static str,
        &'static [&'static str],
    ),
}

/// The loops: the prompt, and the turns.
pub const LOOPS: [(&str, &[(&str, StoryStep)]); 4] = [
    (
        "Checkout fails for orders in yen. Find out why; do not touch the payment gateway.",
        &[
            (
                "I look for the place where amounts become minor units.",
                Grep("minor_unit"),
            ),
            (
                "src/money.rs converts them, so I read it.",
                Read("src/money.rs"),
            ),
            (
                "The log of the checkout shows what was sent.",
                Run("tail -n 80 logs/checkout.log", LOG, false),
            ),
            (
                "Order 40187 over 4200 JPY was sent as 420000, a hundred times too much.",
                Test("cargo test money", 11, Some(YEN)),
            ),
            (
                "The test fails in the same way. Next I read how the gateway takes amounts.",
                Read("src/gateway/client.rs"),
            ),
            (
                "The gateway passes on what it is given, so the fault lies before it.",
                Grep("Currency::JPY"),
            ),
            (
                "The configuration may hold the number of decimal places.",
                Read("config/currencies.toml"),
            ),
            (
                "Found the cause: Currency::minor_unit in src/money.rs returns 2 for every currency, but JPY, KRW and VND have no decimal places. The payment gateway is right and needs no change.",
                Answer,
            ),
        ],
    ),
    (
        "Fix it in src/money.rs and keep the public API as it is. Never round an amount silently.",
        &[
            (
                "",
                Plan(
                    &[],
                    "Give each currency its own exponent",
                    &[
                        "Refuse amounts that are too precise",
                        "Run the tests of money",
                    ],
                ),
            ),
            (
                "I read the file again before changing it.",
                Read("src/money.rs"),
            ),
            (
                "Each currency gets its own exponent.",
                Edit(
                    "src/money.rs",
                    "fn minor_unit(self) -> u32 { 2 }",
                    "fn minor_unit(self) -> u32 { EXPONENTS[self as usize] }",
                ),
            ),
            ("", Test("cargo test money", 11, Some(PRECISE))),
            (
                "An amount of 4200.50 JPY is rounded down, which you ruled out. I look at the callers of parse_amount.",
                Grep("parse_amount"),
            ),
            (
                "parse_amount now refuses such an amount with AmountError::TooPrecise instead of rounding it.",
                Edit(
                    "src/money.rs",
                    "Ok(whole * scale)",
                    "whole.checked_mul(scale).ok_or(AmountError::TooPrecise)",
                ),
            ),
            ("", Test("cargo test money", 12, None)),
            (
                "",
                Plan(
                    &[
                        "Give each currency its own exponent",
                        "Refuse amounts that are too precise",
                        "Run the tests of money",
                    ],
                    "",
                    &[],
                ),
            ),
            (
                "Fixed as commit 4f2c91a: minor units come from the table EXPONENTS, an amount with more decimal places than its currency has is refused, and all 12 tests of money pass. The public API is unchanged.",
                Answer,
            ),
        ],
    ),
    (
        "Now the nightly export times out. Order 40312 is a good example.",
        &[
            (
                "I look for the limit of the export.",
                Grep("export_timeout"),
            ),
            (
                "src/export/rows.rs collects the rows, so I read it.",
                Read("src/export/rows.rs"),
            ),
            (
                "I run the export for this order alone.",
                Run(
                    "cargo run --bin export -- --order 40312",
                    "loading rows of order 40312\nerror: export timed out after 900 s with 184220 rows in memory",
                    true,
                ),
            ),
            (
                "The order has 184220 rows, and all of them are in memory at once.",
                Read("src/export/job.rs"),
            ),
            (
                "The job waits for the whole list. I check how the rows are queried.",
                Read("src/db/query.rs"),
            ),
            (
                "The plan of the query should show an index.",
                Run(
                    "psql shop -c 'EXPLAIN SELECT * FROM order_items WHERE order_id = 40312'",
                    "Seq Scan on order_items  (cost=0.00..918204.11 rows=184220 width=96)\n  Filter: (order_id = 40312)",
                    false,
                ),
            ),
            (
                "There is no index on order_items.order_id: the query scans the whole table.",
                Grep("order_items"),
            ),
            (
                "The limit itself stands in the configuration.",
                Read("config/export.toml"),
            ),
            (
                "Two causes: collect_rows in src/export/rows.rs keeps every row in memory, and order_items has no index on order_id. I suggest to stream the rows and to add the index; raising the limit of 900 s would only hide it.",
                Answer,
            ),
        ],
    ),
    (
        "Make the export stream its rows, then run the whole test suite.",
        &[
            (
                "",
                Plan(
                    &[],
                    "Stream the rows of the export",
                    &[
                        "Add an index on order_items.order_id",
                        "Run the whole test suite",
                    ],
                ),
            ),
            (
                "I read the writer of rows before changing it.",
                Read("src/export/rows.rs"),
            ),
            (
                "collect_rows becomes stream_rows, which hands on batches of 500.",
                Edit(
                    "src/export/rows.rs",
                    "fn collect_rows(&self) -> Vec<Row>",
                    "fn stream_rows(&self) -> impl Iterator<Item = Row>",
                ),
            ),
            (
                "Now the tests of the export.",
                Test("cargo test export", 22, Some(ORDER)),
            ),
            (
                "The batches arrive without an order. I read the query.",
                Read("src/db/query.rs"),
            ),
            (
                "The query now sorts by order_id and line_no.",
                Edit(
                    "src/db/query.rs",
                    "WHERE order_id = $1",
                    "WHERE order_id = $1 ORDER BY order_id, line_no",
                ),
            ),
            ("", Test("cargo test export", 23, None)),
            (
                "The index is a migration of its own.",
                Create(
                    "migrations/0042_order_items_index.sql",
                    "CREATE INDEX order_items_order_id ON order_items (order_id, line_no);\n",
                ),
            ),
            (
                "Now the export of the example.",
                Run(
                    "cargo run --bin export -- --order 40312",
                    "loading rows of order 40312\nexported 184220 rows in 41 s, at most 38 MB",
                    false,
                ),
            ),
            (
                "Now the whole suite.",
                Test("cargo test", 213, Some(HEADER)),
            ),
            (
                "The snapshot of the header is older than the column line_no.",
                Read("tests/export.rs"),
            ),
            (
                "I add the column to the expected header.",
                Edit(
                    "tests/export.rs",
                    "order_id,sku,amount",
                    "order_id,line_no,sku,amount",
                ),
            ),
            ("", Test("cargo test", 214, None)),
            (
                "The export streams its rows: order 40312 takes 41 s and 38 MB instead of 900 s. All 214 tests pass.",
                Answer,
            ),
        ],
    ),
];

const GREP_LINES: usize = 200;
const READ_LINES: usize = 450;

const LOG: &str = "order=40187 currency=JPY amount=4200 sent=420000 status=amount_mismatch";
const YEN: &str =
    "money::yen_has_no_cents: assertion `left == right` failed: left: 420000, right: 4200";
const PRECISE: &str = "money::too_precise_is_refused: expected Err(TooPrecise), got Ok(4200)";
const ORDER: &str =
    "export::rows_keep_their_order: assertion `left == right` failed: left: 501, right: 1";
const HEADER: &str = "export::header_is_stable: snapshot header.csv differs in column 2";

impl StoryStep {
    /// Returns the tool and its arguments, if there is a call.
    pub fn call(&self) -> Option<(&'static str, Value)> {
        Some(match self {
            Answer => return None,
            Grep(pattern) => ("grep", json!({"pattern": pattern, "path": "src"})),
            Read(path) => ("read_file", json!({ "path": path })),
            Edit(path, old, new) => (
                "edit_file",
                json!({"path": path, "old_string": old, "new_string": new}),
            ),
            Create(path, content) => ("write_file", json!({"path": path, "content": content})),
            Test(command, ..) | Run(command, ..) => ("shell", json!({ "command": command })),
            Plan(done, now, open) => ("todo_write", json!({"todos": todos(done, now, open)})),
        })
    }

    /// True if the call fails.
    pub fn is_error(&self) -> bool {
        matches!(self, Test(_, _, Some(_)) | Run(_, _, true))
    }

    /// Returns the output of the tool.
    pub fn result(&self) -> String {
        match self {
            Answer => String::new(),
            Grep(pattern) => listing(GREP_LINES, |line| {
                let file = ["money", "order/cart", "gateway/client", "export/rows"][line % 4];
                format!("src/{file}.rs: {}", code(pattern, line))
            }),
            Read(path) => listing(READ_LINES, |line| code(stem(path), line)),
            Edit(path, ..) => format!("{path} has been changed."),
            Create(path, ..) => format!("{path} has been written."),
            Test(_, passed, failure) => tested(*passed, *failure),
            Run(_, output, _) => (*output).to_owned(),
            Plan(..) => "The plan has been updated.".into(),
        }
    }
}

fn todos(done: &[&str], now: &str, open: &[&str]) -> Vec<Value> {
    let item = |state: &'static str| move |text: &&str| json!({"content": text, "status": state});
    let now = [now];
    let now = now.iter().filter(|text| !text.is_empty());
    let mut all: Vec<Value> = done.iter().map(item("completed")).collect();
    all.extend(now.map(item("in_progress")));
    all.extend(open.iter().map(item("pending")));
    all
}

fn tested(passed: usize, failure: Option<&str>) -> String {
    let mut text = listing(passed.min(60), |test| {
        format!(
            "test {}::{} ... ok",
            NAMES[test % 7],
            NAMES[(test / 7 + 3) % 7]
        )
    });
    let (word, failed) = match failure {
        Some(failure) => {
            let _ = write!(text, "\nerror: {failure}\n");
            ("FAILED", 1)
        }
        None => ("ok", 0),
    };
    let _ = write!(
        text,
        "\ntest result: {word}. {passed} passed; {failed} failed"
    );
    text
}

fn listing(lines: usize, line: impl Fn(usize) -> String) -> String {
    let lines: Vec<String> = (0..lines).map(line).collect();
    lines.join("\n")
}

fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split('.').next().unwrap_or(name)
}

/// Names of entities in the shop.
const NAMES: [&str; 7] = [
    "amount", "cart", "currency", "batch", "row", "customer", "invoice",
];

/// Returns a line of code of the shop; it uses plain words, so that the values of the story stand out.
fn code(word: &str, line: usize) -> String {
    let (first, second) = (NAMES[line % 7], NAMES[(line / 7 + 2) % 7]);
    match line % 5 {
        0 => format!("fn {first}({second}: &Item) -> Result<Item> {{"),
        1 => format!("    return convert({first}, {second}, {word});"),
        2 => format!("    // The {first} of this {second} is never empty here."),
        3 => format!("    check({first}, {second}, {word})?; }}"),
        _ => String::new(),
    }
}
