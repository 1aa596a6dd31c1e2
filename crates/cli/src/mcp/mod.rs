//! `loopstore mcp`

mod editing;
mod lines;
mod scope;
mod tools;
mod writing;

use std::sync::Arc;

use clap::ValueEnum;
use loopstore::Database;
use loopstore_terminal::{App, CliError, Done, select};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, JsonObject, ListToolsResult, PaginatedRequestParams, ServerCapabilities,
    ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler, ServiceExt};

use self::scope::SessionScope;
use self::tools::{LIST_SESSIONS, Lookup, TOOLS, ToolAnswer, ToolSpec};
use self::writing::WritingTool;

/// Serve tools for an agent to look up what was compacted away, over the Model Context Protocol
///
/// An MCP client starts this command and talks to it over stdin and stdout. The tools only read:
/// `recall`, `search_history`, `expand`, `context_overview` and `compaction_history`. They see one
/// session, or all with --all: then `list_sessions` lists and searches them, and a call that names no session
/// is about the one that was last active in the folder that the server was started in. What writes is off
/// unless --allow names it.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("scope").required(true)))]
pub struct McpArgs {
    /// The session that the tools may read: its id or a unique prefix.
    #[arg(group = "scope")]
    session: Option<String>,
    /// Let the tools read every session of the database.
    #[arg(long, group = "scope")]
    all: bool,
    /// The maximum number of tokens in one answer; longer answers are paged.
    #[arg(long, value_name = "N", default_value_t = 4_000, value_parser = clap::value_parser!(u64).range(200..))]
    max_tokens: u64,
    /// The writing tools that the agent may use: remember, compact, undo, drop, clear. None of them
    /// removes or changes a stored message.
    #[arg(long, value_name = "TOOL", value_delimiter = ',')]
    allow: Vec<WritingTool>,
}

impl McpArgs {
    /// Returns the available tools: those that read, and the allowed ones that write.
    fn tools(&self) -> Vec<&'static ToolSpec> {
        let is_allowed = |tool: &WritingTool| self.allow.contains(tool);
        let writing = WritingTool::value_variants()
            .iter()
            .filter(|tool| is_allowed(tool));
        let listing = self.all.then_some(&LIST_SESSIONS);
        TOOLS
            .iter()
            .chain(listing)
            .chain(writing.map(|tool| tool.spec()))
            .collect()
    }
}

/// Serves until the client closes the connection.
pub fn run(app: &mut App, args: &McpArgs) -> Result<Done, CliError> {
    let store = app.open_for(!args.allow.is_empty())?;
    let session = select::session_id(&*store, args.session.as_deref())?;
    let folder = std::env::current_dir().ok();
    let lookup = Lookup {
        scope: match session {
            Some(session) => SessionScope::One(session),
            None => SessionScope::Every {
                folder: folder.and_then(|folder| folder.into_os_string().into_string().ok()),
            },
        },
        most: usize::try_from(args.max_tokens.saturating_mul(4)).unwrap_or(usize::MAX),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    runtime.block_on(serve(ToolServer(Arc::new(McpState {
        store,
        lookup,
        tools: args.tools(),
    }))))?;
    Ok(Done::Well)
}

async fn serve(server: ToolServer) -> Result<(), CliError> {
    let (end, output) = lines::start();
    let running = server.serve(end).await;
    let ended = running.map_err(failed)?.waiting().await;
    ended.map_err(failed)?;
    output.await.map_err(failed)??;
    Ok(())
}

fn failed(error: impl std::error::Error + 'static) -> CliError {
    CliError::Failed(Box::new(error))
}

/// Returns the format of an agent's transcripts, by the name of its client.
fn agent_of(client: &str) -> Option<&'static str> {
    let client = client.to_ascii_lowercase();
    let known = ["claude-code", "codex", "opencode", "gemini"];
    known.into_iter().find(|agent| client.contains(agent))
}

/// The database that is served, its sessions, and the tools.
struct McpState {
    store: Box<dyn Database>,
    lookup: Lookup,
    tools: Vec<&'static ToolSpec>,
}

#[derive(Clone)]
struct ToolServer(Arc<McpState>);

impl ToolServer {
    /// Answers a call on a thread on which a store may block.
    async fn answer(
        &self,
        tool: &'static ToolSpec,
        agent: Option<&'static str>,
        given: JsonObject,
    ) -> Result<ToolAnswer, String> {
        let server = self.clone();
        let answer = tokio::task::spawn_blocking(move || {
            let McpState { store, lookup, .. } = &*server.0;
            lookup.call(&**store, tool, agent, given)
        });
        answer.await.map_err(|error| error.to_string())?
    }
}

impl ServerHandler for ToolServer {
    fn get_info(&self) -> ServerConfig {
        let tools = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(tools)
            .with_server_info(Implementation::new("loopstore", env!("CARGO_PKG_VERSION")))
            .with_instructions(
                "Messages that a compaction replaced with a summary are still stored verbatim. recall \
                 answers a question from them: ask it before asking the user again or doing work twice. \
                 search_history lists the messages that fit best, expand reads whole turns, and \
                 context_overview shows what the current context consists of. Lines that begin with `> ` are what \
                 was said then, by the author in the heading above.",
            )
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let all = self.0.lookup.scope.is_every();
        let tools = self.0.tools.iter().map(|tool| {
            let schema = match tool.schema(all) {
                serde_json::Value::Object(schema) => schema,
                _ => JsonObject::new(),
            };
            let mut reading = TOOLS.iter().chain([&LIST_SESSIONS]);
            let reads = reading.any(|known| known.name == tool.name);
            let hints = ToolAnnotations::new().read_only(reads).open_world(false);
            let hints = if reads {
                hints
            } else {
                hints.destructive(false)
            };
            Tool::new(tool.name, tool.about, schema).with_annotations(hints)
        });
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut tools = self.0.tools.iter();
        let Some(tool) = tools.find(|tool| tool.name == request.name).copied() else {
            let names: Vec<&str> = self.0.tools.iter().map(|tool| tool.name).collect();
            let detail = format!("unknown tool; the tools are {}", names.join(", "));
            return Err(ErrorData::invalid_params(detail, None));
        };
        let given = request.arguments.unwrap_or_default();
        // An error of the model is returned to it, so that it can try again.
        let client = context.peer.peer_info();
        let agent = client.and_then(|client| agent_of(&client.client_info.name));
        let result = match self.answer(tool, agent, given).await {
            Ok(ToolAnswer { text, parts }) => {
                let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
                result.structured_content = Some(parts);
                result
            }
            Err(why) => CallToolResult::error(vec![ContentBlock::text(why)]),
        };
        Ok(result.into())
    }
}
