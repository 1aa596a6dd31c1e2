//! The system prompt that a request for a provider begins with.
//!
//! System and developer messages are extensions: no context has them among its messages, and no compaction
//! covers them. A request begins with the newest ones that the agent appended itself. If a role was appended
//! again, the newer append replaces the older one.

use std::ops::ControlFlow;
use std::str::FromStr;

use crate::compaction::UnknownWord;
use crate::model::{AgentMessage, ExtensionMessage, Role};
use crate::store::active_blocks::ChainLink;
use crate::store::{self, Cut, LoopCore, LoopKey, SessionKey, StoreRead, StoreResult, Tick};

/// The system prompts of a chain that a request may begin with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SystemPrompts {
    /// The prompts that the agent appended itself.
    #[default]
    Appended,
    /// Also the prompts of imported transcripts.
    All,
    /// No prompts.
    None,
}

impl SystemPrompts {
    /// Returns the word on the command line and in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Appended => "appended",
            Self::All => "all",
            Self::None => "none",
        }
    }
}

impl FromStr for SystemPrompts {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let mut known = [Self::Appended, Self::All, Self::None].into_iter();
        let found = known.find(|which| which.as_str() == text);
        found.ok_or_else(|| UnknownWord::new(text, "appended, all, none"))
    }
}

/// The system prompt of a context: part of every request for a provider, never of the messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SystemPrompt {
    /// Its system and developer messages in order, extensions of the kind `system`.
    pub messages: Vec<AgentMessage>,
    /// The sum of their token counts.
    pub tokens: u64,
    /// True if the chain has other system messages with a different content: older ones, or those of an
    /// imported transcript.
    pub is_partial: bool,
}

/// The roles of system messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PromptRole {
    System,
    Developer,
}

impl PromptRole {
    fn of(message: &AgentMessage) -> Option<Self> {
        let AgentMessage::Extension(ExtensionMessage { kind, extra, .. }) = message else {
            return None;
        };
        let is_developer = (extra.get("form")).is_some_and(|form| form.as_str() == "\"developer\"");
        let role = if is_developer {
            Self::Developer
        } else {
            Self::System
        };
        (kind == "system").then_some(role)
    }
}

/// Returns the system prompt of the chain of a leaf, as far as it belongs to its first `leaf_end` messages.
/// `links` are the last loops of that chain, root first, as far as they were read; it may be empty.
///
/// Most sessions have few loops with system messages or none. An index lists them, so that the chain is
/// followed only to the oldest of these.
///
/// # Errors
/// If a row is damaged, or the store fails.
pub fn system_prompt(
    read: &dyn StoreRead,
    session: SessionKey,
    (leaf, leaf_end): (LoopKey, u32),
    links: &[ChainLink],
    which: SystemPrompts,
) -> StoreResult<SystemPrompt> {
    let mut holders = SystemMessageLoops {
        read,
        session,
        page: Vec::new(),
        before: LoopKey(leaf.0.saturating_add(1)),
        is_last_page: false,
    };
    if holders.newest_until(leaf)?.is_none() {
        return Ok(SystemPrompt::default());
    }
    let mut search = PromptSearch {
        read,
        leaf,
        which,
        prompt: SystemPrompt::default(),
        system: None,
        developer: None,
        is_restored: None,
        is_done: false,
    };
    let mut below: Option<(LoopKey, Cut)> = None;
    let mut look = |row: &LoopCore| {
        let is_elsewhere = row.session != session;
        let Some(holder) = holders.newest_until(row.key)?.filter(|_| !is_elsewhere) else {
            return Ok(ControlFlow::Break(()));
        };
        if holder == row.key {
            // Messages that were appended to a loop after the chain had left it do not belong to the chain.
            let (end, until) = match below {
                None => (leaf_end, Tick::MAX),
                Some((child, cut)) => (end_of(read, row, cut)?, read.loop_by_key(child)?.tick),
            };
            search.look_through(row, end, until)?;
        }
        below = Some((row.key, row.parent_cut()));
        Ok(match search.is_done {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    };
    let mut next = Some(leaf);
    for link in links.iter().rev() {
        let row = &link.row;
        // Keys fall from child to parent, so that the walk cannot be a cycle.
        next = row.parent.filter(|parent| *parent < row.key);
        if look(row)?.is_break() {
            next = None;
            break;
        }
    }
    if let Some(next) = next {
        read.chain(next, &mut |row| look(&row))?;
    }
    search.prompt.messages.reverse();
    Ok(search.prompt)
}

/// Returns the sequence at which a chain leaves a loop.
fn end_of(read: &dyn StoreRead, row: &LoopCore, cut: Cut) -> StoreResult<u32> {
    if let Some(last) = cut.part {
        return Ok(last.saturating_add(1));
    }
    let next = read.turn(row.key, cut.whole.min(row.totals.turns))?;
    Ok(next.map_or(row.totals.next_seq, |turn| turn.first_seq))
}

/// The loops of a session with system messages, newest first.
struct SystemMessageLoops<'a> {
    read: &'a dyn StoreRead,
    session: SessionKey,
    /// The loops that were read and not passed yet, oldest first.
    page: Vec<LoopKey>,
    /// The next page ends before this loop.
    before: LoopKey,
    is_last_page: bool,
}

impl SystemMessageLoops<'_> {
    const PAGE: u32 = 16;

    /// Returns the newest loop that is not newer than this one; later calls must be for older loops.
    fn newest_until(&mut self, key: LoopKey) -> StoreResult<Option<LoopKey>> {
        loop {
            while let Some(newest) = self.page.pop() {
                if newest <= key {
                    self.page.push(newest);
                    return Ok(Some(newest));
                }
            }
            if self.is_last_page {
                return Ok(None);
            }
            let until = LoopKey(self.before.0.saturating_sub(1)).min(key);
            self.page = (self.read).loops_with_system_messages(self.session, until, Self::PAGE)?;
            self.is_last_page = (self.page.len() as u64) < u64::from(Self::PAGE);
            self.page.reverse();
            self.before = self.page.first().copied().unwrap_or(self.before);
        }
    }
}

/// The append that a message came with.
type AppendPlace = (LoopKey, Tick);

/// A search from the newest message to the oldest.
struct PromptSearch<'a> {
    read: &'a dyn StoreRead,
    leaf: LoopKey,
    which: SystemPrompts,
    prompt: SystemPrompt,
    /// The append that the system messages of the prompt came with.
    system: Option<AppendPlace>,
    /// The append that its developer messages came with.
    developer: Option<AppendPlace>,
    /// True if the session was restored from an export of an imported transcript; `None` if not looked up yet.
    is_restored: Option<bool>,
    is_done: bool,
}

impl PromptSearch<'_> {
    /// Searches the messages of a loop before the sequence `end` that were appended until a tick.
    fn look_through(&mut self, row: &LoopCore, end: u32, until: Tick) -> StoreResult<()> {
        let read = self.read;
        let mut seqs = Vec::new();
        read.sizes(row.key, 0..end, &mut |message| {
            if message.role == Role::Extension {
                seqs.push(message.seq);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        for seq in seqs.into_iter().rev() {
            if self.is_done {
                break;
            }
            read.messages(row.key, seq..seq.saturating_add(1), &mut |stored| {
                if stored.tick > until {
                    return Ok(ControlFlow::Continue(()));
                }
                let (tokens, place) = (stored.body.tokens, (row.key, stored.tick));
                let is_imported = stored.origin.is_some() || self.is_restored(row)?;
                let message = store::decode(read, stored.body)?;
                if let Some(role) = PromptRole::of(&message) {
                    self.take(message, tokens, role, place, is_imported);
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(())
    }

    fn take(
        &mut self,
        message: AgentMessage,
        tokens: u64,
        role: PromptRole,
        place: AppendPlace,
        is_imported: bool,
    ) {
        // Nothing older than the newest system message belongs to the prompt, except messages of the same append.
        let is_older = self.system.is_some_and(|newest| newest != place);
        let of_role = match role {
            PromptRole::System => &mut self.system,
            PromptRole::Developer => &mut self.developer,
        };
        let is_wanted = match self.which {
            SystemPrompts::Appended => !is_imported,
            SystemPrompts::All => true,
            SystemPrompts::None => false,
        };
        if is_wanted && !is_older && *of_role.get_or_insert(place) == place {
            self.prompt.tokens = self.prompt.tokens.saturating_add(tokens);
            self.prompt.messages.push(message);
            return;
        }
        self.is_done = is_older || self.which == SystemPrompts::None;
        let is_same = |other: &AgentMessage| match (other, &message) {
            (AgentMessage::Extension(one), AgentMessage::Extension(other)) => {
                one.data == other.data
            }
            _ => false,
        };
        self.prompt.is_partial |= !self.prompt.messages.iter().any(is_same);
    }

    /// True if the session is the export of an imported transcript: its messages are no longer marked as
    /// imported. In the import of a transcript itself the first message is.
    fn is_restored(&mut self, row: &LoopCore) -> StoreResult<bool> {
        if let Some(known) = self.is_restored {
            return Ok(known);
        }
        let read = self.read;
        let mut is_restored = read.session_by_key(row.session)?.source.is_some();
        if is_restored {
            let mut root = self.leaf;
            read.chain(self.leaf, &mut |row| {
                root = row.key;
                Ok(ControlFlow::Continue(()))
            })?;
            read.messages(root, 0..1, &mut |first| {
                is_restored = first.origin.is_none();
                Ok(ControlFlow::Break(()))
            })?;
        }
        self.is_restored = Some(is_restored);
        Ok(is_restored)
    }
}
