"""loopstore keeps the sessions of long-running agents in SQLite, with compaction as an overlay.

An agent appends what happened, and nothing that it wrote is ever changed. When its context window fills, a
compaction writes blocks over loops: what to keep, what to shorten, what to replace by a summary. The next model
call reads through the blocks. A compaction can be undone, and everything is plain rows that `sqlite3` can query.

>>> import loopstore
>>> store = loopstore.Store.in_memory()
>>> chat = store.session("weather", policy=loopstore.Policy(128_000))
>>> _ = chat.append({"role": "user", "content": "Will it rain?"}, format="anthropic")
>>> ready = chat.prepare(format="anthropic")  # Compacted if the policy says so; it fits, or is an error.
>>> ready.request
{'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': 'Will it rain?'}]}]}
>>> answer = {"role": "assistant", "content": [{"type": "text", "text": "No."}]}
>>> _ = chat.append(answer, format="anthropic")  # Or the whole answer of the API.
>>> side = chat.fork("loop-1", 0)  # A branch: one row, nothing copied.

`Store` and `Session` are the front door, `AsyncStore` and `AsyncSession` the same for asyncio. The modules
`loopstore.adk`, `loopstore.claude`, `loopstore.langgraph` and `loopstore.openai_agents` are stores for those
frameworks, imported only when used.
"""

import os as _os

from loopstore import _loopstore
from loopstore._aio import AsyncSession, AsyncStore
from loopstore._errors import (
    BudgetTooSmallError,
    BusyError,
    ClosedError,
    DamagedError,
    DiskFullError,
    ExistsError,
    ForkedError,
    InternalError,
    InvalidInputError,
    LoopHeldError,
    LoopstoreError,
    NeedsCompactionError,
    NotFoundError,
    OpenError,
    ReadOnlyError,
    StorageError,
    TooLargeError,
    UnconfirmedError,
    UnsupportedError,
)
from loopstore._json import Form, Message, Messages
from loopstore._loopstore import COUNTERS, __version__
from loopstore._policy import (
    Approval,
    Approve,
    ClearToolResults,
    Policy,
    Postpone,
    Proposal,
    ProposedBlock,
    Refuse,
    Rewrite,
    Summarizer,
    SummaryAnswer,
    SummaryRequest,
    Warn,
    WindowWarning,
)
from loopstore._rows import Rows
from loopstore._store import Appended, CallState, EditTarget, Prepared, Recall, Session, Store

__all__ = [
    "COUNTERS",
    "Appended",
    "Approval",
    "Approve",
    "AsyncSession",
    "AsyncStore",
    "BudgetTooSmallError",
    "BusyError",
    "CallState",
    "ClearToolResults",
    "ClosedError",
    "DamagedError",
    "DiskFullError",
    "EditTarget",
    "ExistsError",
    "ForkedError",
    "Form",
    "InternalError",
    "InvalidInputError",
    "LoopHeldError",
    "LoopstoreError",
    "Message",
    "Messages",
    "NeedsCompactionError",
    "NotFoundError",
    "OpenError",
    "Policy",
    "Postpone",
    "Prepared",
    "Proposal",
    "ProposedBlock",
    "ReadOnlyError",
    "Recall",
    "Refuse",
    "Rewrite",
    "Rows",
    "Session",
    "StorageError",
    "Store",
    "Summarizer",
    "SummaryAnswer",
    "SummaryRequest",
    "TooLargeError",
    "UnconfirmedError",
    "UnsupportedError",
    "Warn",
    "WindowWarning",
    "__version__",
]

# A lock that another thread holds during a fork would stay locked in the child.
_os.register_at_fork(
    before=_loopstore.before_fork,
    after_in_parent=lambda: _loopstore.after_fork(False),
    after_in_child=lambda: _loopstore.after_fork(True),
)
