//! A chat agent with a tool; if it is killed while the tool runs, it resumes at the same place: `printf
//! 'Paris?\nRome?\n' | cargo run --example chat -- chat.db`, then `loopstore --db chat.db context weather`
use loopstore::{AgentMessage, CallState, Message, Policy, Prepared, Role, Store};
use serde_json::json;

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    talk(&std::env::args().nth(1).unwrap_or("chat.db".into()))
}

pub fn talk(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::options().policy(Policy::new(8_000)).open(path)?;
    let chat = store.session("weather")?;
    let mut prompts = std::io::stdin().lines();
    loop {
        let ready = chat.prepare()?; // Compacted when the window fills; it always fits.
        if let Some(call) = ready.context.open_calls().first() {
            let result = match chat.start_call(&call.id)? {
                CallState::Finished(_) => continue,
                CallState::New { key } | CallState::Started { key } => forecast(&key),
            };
            chat.append([Message::tool_result(&call.id, result)])?;
        } else if ready.context.awaits_answer() {
            let answer = model(&ready);
            answer.texts().for_each(|text| println!("{text}"));
            chat.append([answer])?;
        } else if let Some(prompt) = prompts.next() {
            chat.append([Message::user(prompt?)])?;
        } else {
            return Ok(());
        }
    }
}

fn forecast(key: &str) -> String {
    std::thread::sleep(std::time::Duration::from_millis(20));
    format!("Forecast {key}: {}", "rain, ".repeat(200)) // One that pays gives the key on.
}

fn model(ready: &Prepared) -> Message {
    // In a real agent: send `ready.to(Form::OpenAiChat)?`, and pass the answer to `provider::read`.
    match ready.messages().last().map(AgentMessage::role) {
        Some(Role::ToolResult) => Message::assistant("Rain."),
        _ => Message::assistant("").with_tool_call(uuid::Uuid::now_v7(), "forecast", json!({})),
    }
}
