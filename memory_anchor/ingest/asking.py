"""Whether a conversation holds something that its agent has not written down, and the words it is asked with.

Nobody writes a memory as well as the agent that had the experience, and every question costs a turn. So the small model
looks at the newest messages by their form alone (no embedding: a client waits), and only where it sees a candidate that
came after the agent's last own write is the agent asked, in the language that its user writes.
Rejected: asking at every n-th stop, which asks about small talk. Invariant: a look reads, it writes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from memory_anchor.ingest.extraction import sentences_of, weigh
from memory_anchor.ingest.messages import Message
from memory_anchor.language.terms import is_chinese

WRITES_MEMORY = re.compile(r"(?:save_memory|add_memory|log_event|remember_conversation|promote_to_fact|end_session)$")
LOOKED_AT = 40
"""The newest messages with text that are looked at."""

ASK = (
    "Before you stop: save with save_memory, source 'first-person', what later sessions must know and memory does not "
    "hold yet: decisions and why, fixes and their cause, the user's preferences and rules, mistakes not to repeat; "
    "log_event for work done. Your own words, one statement each, nothing that memory told you. Nothing to save is a "
    "good answer. Then stop, without a word about it to the user."
)
ASK_IN_CHINESE = (
    "结束前：用 save_memory（source 为 'first-person'）保存以后必须知道而记忆里还没有的：决定与理由、修复与原因、"
    "用户的偏好和规则、不可重犯的错误；做过的事用 log_event。用自己的话，一条一事。没有就不存。然后结束，不必告诉用户。"
)


@dataclass(frozen=True, slots=True)
class Look:
    """candidates: sentences that look worth keeping and came after the agent's last own write."""

    candidates: int
    in_chinese: bool

    @property
    def question(self) -> str:
        """The words in which the agent is asked."""
        return ASK_IN_CHINESE if self.in_chinese else ASK


def look(messages: Sequence[Message]) -> Look:
    """Return what the newest messages of a conversation hold that nobody has written down."""
    spoken = [at for at, one in enumerate(messages) if one.role in ("user", "assistant") and one.content.strip()]
    newest = messages[spoken[-LOOKED_AT:][0] :] if spoken else ()
    wrote = [at for at, one in enumerate(newest) if any(WRITES_MEMORY.search(call.name) for call in one.tool_calls)]
    unwritten = newest[wrote[-1] + 1 :] if wrote else newest
    said = [one.said for one in sentences_of(unwritten) if one.open]
    candidates = sum(worth.keeps for worth in weigh(said, None))
    users = "\n".join(one.content[:400] for one in newest if one.role == "user")
    return Look(candidates, is_chinese(users))
