"""The client's own model behind a call of the client: what `llm.kind: sampling` asks.

The request goes out beside the call that waits for it, on the connection's event loop; the answer comes back to the
worker thread that reads the conversation. The 2025 protocols carry it; of a client without the capability, or on a
connection that carries no requests to the client, nobody is asked, and rules decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import anyio.from_thread
from anyio.lowlevel import current_token
from mcp import types as mcp_types
from mcp.shared.message import ServerMessageMetadata

from memory_anchor.sampling import AsksClient, ClientQuestion

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from starlette.requests import Request

    from memory_anchor.runtime.recording import ClientConnection

ASKS_CLIENT = frozenset({"remember_conversation"})
"""The tools that may ask the client's model: they read a conversation, which takes its time. Never a save."""


def asks_client(context: ServerRequestContext[ClientConnection, Request]) -> AsksClient | None:
    """Return how this call's client is asked, or None where it does not offer sampling."""
    session = context.session
    wanted = mcp_types.ClientCapabilities(sampling=mcp_types.SamplingCapability())
    if not session.check_client_capability(wanted):
        return None
    loop, about = current_token(), ServerMessageMetadata(related_request_id=context.request_id)

    async def request(asked: ClientQuestion) -> tuple[str, bool]:
        content = mcp_types.TextContent(type="text", text=asked.prompt)
        params = mcp_types.CreateMessageRequestParams(
            messages=[mcp_types.SamplingMessage(role="user", content=content)],
            system_prompt=asked.system,
            max_tokens=asked.max_tokens,
        )
        with anyio.fail_after(asked.timeout_s):
            answer = await session.send_request(
                mcp_types.CreateMessageRequest(params=params), mcp_types.CreateMessageResult, metadata=about
            )
        said = answer.content.text if isinstance(answer.content, mcp_types.TextContent) else ""
        return said, answer.stop_reason == "maxTokens"

    def ask(asked: ClientQuestion) -> tuple[str, bool]:
        return anyio.from_thread.run(request, asked, token=loop)

    return ask
