//! An agent that records as it works, is killed in the middle of a payment, and resumes.
//!
//! The model and the tool are mocks; the rest is as in a real agent. Run it with `cargo run --example recorded_agent`.

use std::collections::BTreeSet;
use std::error::Error;

use loopstore::*;
use loopstore_recorder::event::*;
use loopstore_recorder::{AgentEvent, RecordError, Recorded, RecorderOptions, SessionRecorder};

const INVOICES: u32 = 12;

/// A bank that pays once for each idempotency key.
#[derive(Default)]
struct Bank {
    seen: BTreeSet<String>,
    paid: u32,
}

impl Bank {
    fn pay(&mut self, key: &str) {
        if self.seen.insert(key.to_owned()) {
            self.paid += 1;
        }
    }
}

struct Agent<'a> {
    chat: SessionHandle,
    recorder: SessionRecorder<'a>,
    loop_id: LoopId,
}

/// Returns the answer of the model to a context: it pays the next invoice.
fn model(seen: &[AgentMessage], turn: u32) -> AgentMessage {
    let text = format!("Invoice {turn} is due; I read {} messages.", seen.len());
    let args = Json::parse(&format!("{{\"invoice\":{turn},\"euro\":12}}")).unwrap_or_default();
    Message::assistant(text)
        .with_tool_call(format!("pay-{turn}"), "pay", args)
        .into()
}

fn receipt(call: &ToolCall) -> AgentMessage {
    Message::ToolResult(ToolResultMessage {
        tool_call_id: call.id.clone(),
        tool_name: call.name.clone(),
        content: vec![Content::text("paid\n".repeat(40))],
        ..ToolResultMessage::default()
    })
    .into()
}

impl Agent<'_> {
    fn message(&mut self, message: AgentMessage) -> Result<(), RecordError> {
        let start = MessageStart::new(self.loop_id.clone(), message.clone());
        self.recorder.record(AgentEvent::MessageStart(start))?;
        let end = MessageEnd::new(self.loop_id.clone(), message);
        self.recorder.record(AgentEvent::MessageEnd(end))?;
        Ok(())
    }

    /// Runs one turn: the context, the model, the tool. `dies` ends the process between the payment and its
    /// receipt.
    fn turn(&mut self, turn: u32, bank: &mut Bank, dies: bool) -> Result<(), Box<dyn Error>> {
        let start = TurnStart::new(self.loop_id.clone(), turn);
        self.recorder.record(AgentEvent::TurnStart(start))?;
        if turn == 0 {
            self.message(Message::user("Pay all invoices that are due.").into())?;
        }
        // The stored context, with this turn's prompt, compacted when the window fills.
        let seen = self.context()?;
        let answer = model(seen.messages(), turn);
        self.message(answer.clone())?;
        self.finish(&[answer], bank, dies)
    }

    /// Runs the calls of a turn that have no result, and ends the turn.
    fn finish(
        &mut self,
        turn: &[AgentMessage],
        bank: &mut Bank,
        dies: bool,
    ) -> Result<(), Box<dyn Error>> {
        let messages = turn.iter().filter_map(AgentMessage::message);
        let calls: Vec<ToolCall> = messages.flat_map(Message::tool_calls).cloned().collect();
        for call in calls {
            let start = ToolExecutionStart::new(
                self.loop_id.clone(),
                &call.id,
                &call.name,
                call.arguments.clone(),
            );
            // The call is durable before the bank gets it.
            let recorded = self
                .recorder
                .record(AgentEvent::ToolExecutionStart(start))?;
            let Recorded::Call {
                idempotency_key,
                attempts,
            } = recorded
            else {
                return Err("a call was expected".into());
            };
            if attempts > 1 {
                println!(
                    "  {} is tried again with the key of its first attempt",
                    call.id
                );
            }
            bank.pay(&idempotency_key);
            if dies {
                return Err("the process is gone".into());
            }
            let end = ToolExecutionEnd::new(self.loop_id.clone(), &call.id, &call.name);
            self.recorder.record(AgentEvent::ToolExecutionEnd(end))?;
            self.message(receipt(&call))?;
        }
        self.recorder
            .record(AgentEvent::TurnEnd(TurnEnd::new(self.loop_id.clone())))?;
        Ok(())
    }

    /// Returns the stored context for the next model call.
    fn context(&self) -> Result<Prepared, Box<dyn Error>> {
        let ready = self.chat.prepare()?;
        for report in &ready.compactions {
            let (before, after) = (report.before.tokens, report.after.tokens);
            println!("  compacted: {before} -> {after} tokens");
        }
        Ok(ready)
    }
}

pub fn main() -> Result<(), Box<dyn Error>> {
    let policy = Policy::new(700)
        .keep_first(1)
        .keep_recent(KeepRecent::Turns(2))
        .max_summary_tokens(150);
    let store = Store::options().policy(policy).in_memory()?;
    let (session, loop_id) = (SessionId::new("bills")?, LoopId::new("bills.1")?);
    let mut bank = Bank::default();

    println!("An agent begins.");
    let mut first = Agent {
        chat: store.session(&session)?,
        recorder: SessionRecorder::new(store.database(), RecorderOptions::default()),
        loop_id: loop_id.clone(),
    };
    let start = AgentStart::new(session.clone(), loop_id.clone());
    first.recorder.record(AgentEvent::AgentStart(start))?;
    let died = (0..INVOICES).find(|turn| first.turn(*turn, &mut bank, *turn == 8).is_err());
    println!("It dies in turn {died:?}, between a payment and its receipt.");
    drop(first);

    println!("Another one takes over.");
    let options = RecorderOptions::default();
    let (recorder, resumed) = SessionRecorder::open(store.database(), options, &session, &loop_id)?;
    for call in &resumed.calls {
        println!(
            "Started, result unknown: {} {}",
            call.tool_call_id,
            call.arguments.as_str()
        );
    }

    let mut second = Agent {
        chat: store.session(&session)?,
        recorder,
        loop_id: loop_id.clone(),
    };
    if let Some(open) = &resumed.open_turn {
        // The answer of the model is stored and paid for: only the call is made again.
        second.finish(&open.messages, &mut bank, false)?;
    }
    for turn in resumed.turns..INVOICES {
        second.turn(turn, &mut bank, false)?;
    }
    second
        .recorder
        .record(AgentEvent::AgentEnd(AgentEnd::new(loop_id)))?;
    println!("{INVOICES} invoices, {} payments.", bank.paid);
    assert_eq!(bank.paid, INVOICES);
    Ok(())
}
