"""The MCP server: tools, resources, prompts and instructions over the SDK's low-level `Server`.

Low-level because the schemas are ours, argument errors have our own messages, and the instructions differ by caller:
one engine serves many projects, so a middleware adds them to the answers of `initialize` (2025 protocols) and
`server/discover` (2026-07-28). A server object is cheap: one for each profile and mode. Every call runs on a worker
thread, because the core is synchronous; how many run at once is bounded.

Errors: ours become `isError` with their message and, in `_meta`, their code of the error table. Anything else is a bug:
the client reads "Error executing tool X", stderr says where, and neither repeats text of a memory. Structured content
is left out: clients that get both show the model only one of them, and text alone costs a third less. Only a search
has both, plain lines for the model and the structured form for programs; `answers: lines` leaves the latter out.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
from mcp import MCPError
from mcp import types as mcp_types
from mcp.server.lowlevel import Server

from memory_anchor.base.json_values import Json, Record
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, NotFound, Refused, report
from memory_anchor.domain.model import Actor
from memory_anchor.domain.requests.requests import RememberConversation, SearchMemory
from memory_anchor.front import mcp_answers, tool_specs, views
from memory_anchor.front.callers import PROJECT_HEADER, actor_from, credential_of
from memory_anchor.front.mcp_answers import instructions_for
from memory_anchor.front.rows import ToolSpec
from memory_anchor.runtime.cleanlog import log_bug
from memory_anchor.runtime.recording import ClientConnection
from memory_anchor.runtime.wire import PREAMBLE, VERSION, WITHOUT_MEMORY
from memory_anchor.settings import Profile

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from starlette.requests import Request

    from memory_anchor.domain.credential import Credential
    from memory_anchor.domain.requests.fields import BaseRequest
    from memory_anchor.extensions.service.variants import VariantChoice
    from memory_anchor.process.wiring import Core
    from memory_anchor.use_cases.memory import MemoryAnchor

    Context = ServerRequestContext[ClientConnection, Request]
    from mcp.server.context import ServerRequestContext
    from starlette.requests import Request

    from memory_anchor.runtime.recording import ClientConnection

NAME = "memory-anchor"
TITLE = "Memory Anchor"
WORKERS = 16
"""Calls of one server that run at once; the rest wait."""
CODE_META = "memory-anchor/code"
SESSION_HEADER = "mcp-session-id"
GREETINGS = ("initialize", "server/discover")
RESOURCE_NOT_FOUND = -32002
"""The 2025 protocols' code; in 2026-07-28 it is invalid params, and clients treat both alike."""

T = TypeVar("T")
Result = dict[str, Json]
"""A tool's answer in the protocol's form."""


def build_server(
    core: Core, *, profile: Profile, read_only: bool, project_dir: str = "", variants: VariantChoice | None = None
) -> Server[ClientConnection]:
    """Return a server over this core, to be run on any transport and for any number of connections.

    project_dir: the project of callers whose preamble names none. variants: of a server over HTTP.
    """
    return _Front(core, profile=profile, read_only=read_only, project_dir=project_dir, variants=variants).server()


class _Front:
    """The handlers of one server."""

    def __init__(
        self, core: Core, *, profile: Profile, read_only: bool, project_dir: str, variants: VariantChoice | None
    ) -> None:
        self._core = core
        self._read_only = read_only
        self._project_dir = project_dir
        self._variants = variants
        self._tools = tool_specs.callable_tools(read_only=read_only, available=mcp_answers.CALLS)
        shown = tool_specs.listed_tools(profile, read_only=read_only, available=mcp_answers.CALLS)
        self._listed = [_tool(spec) for spec in shown]
        self._reading = [_tool(spec) for spec in shown if spec.effect == "reads"]
        self._limiter = anyio.CapacityLimiter(WORKERS)

    def server(self) -> Server[ClientConnection]:
        server: Server[ClientConnection] = Server(
            NAME,
            version=VERSION,
            title=TITLE,
            lifespan=self.connection,
            on_list_tools=self.list_tools,
            on_list_resources=self.list_resources,
            on_list_resource_templates=self.list_templates,
            on_read_resource=self.read_resource,
            on_list_prompts=self.list_prompts,
            on_get_prompt=self.get_prompt,
            on_completion=self.complete,
        )
        server.add_request_handler("tools/call", mcp_types.CallToolRequestParams, self.call_tool)
        server.middleware.append(self.greet)
        return server

    @asynccontextmanager
    async def connection(self, _: Server[ClientConnection]) -> AsyncIterator[ClientConnection]:
        """Name a connection, for callers without a conversation; when it closes, their active context is logged.

        At once, not at the process's orderly end: clients kill a server two seconds after they closed its stdin.
        """
        connection = ClientConnection(f"connection-{secrets.token_hex(6)}")
        try:
            yield connection
        finally:
            if connection.actor is not None:
                with anyio.CancelScope(shield=True):
                    await self._in_thread(partial(self._core.end_conversation, connection.actor))

    # --- greeting ----------------------------------------------------------------------------------------------

    async def greet(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Middleware: add the caller's instructions to the answer of `initialize` or `server/discover`."""
        answer = await call_next(ctx)
        if ctx.method in GREETINGS and isinstance(answer, dict):
            answer["instructions"] = await self._in_thread(partial(self._instructions, self._actor(ctx)))
        return answer

    def _instructions(self, actor: Actor) -> str:
        try:
            _with_memory()
            constitution = self._core.anchor(actor).constitution()
        except Refused as refusal:
            return f"Memory Anchor: {refusal}."
        except MemoryAnchorError as error:  # a broken project file must not disable the tools
            return f"Memory Anchor could not read this project's constitution: {error}"
        return instructions_for(constitution, read_only=actor.read_only)

    # --- tools -------------------------------------------------------------------------------------------------

    async def list_tools(
        self, context: Context, _: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListToolsResult:
        reads = context.request is not None and self._actor(context).read_only
        return mcp_types.ListToolsResult(tools=self._reading if reads else self._listed)

    async def call_tool(self, context: Context, params: mcp_types.CallToolRequestParams) -> Result:
        actor = self._actor(context)
        variant = partial(self._variant, context, actor)
        return await self._in_thread(partial(self._call, actor, variant, params.name, params.arguments))

    def _call(self, actor: Actor, variant: Callable[[], str], name: str, given: Record | None) -> Result:
        """Return a tool's result; the SDK checks it against the connection's protocol version."""
        try:
            _with_memory()
            tool, request = tool_specs.resolve(name, given, self._tools)
            anchor = self._core.anchor(actor)
            chosen = variant()
            if not isinstance(request, SearchMemory):
                run = partial(mcp_answers.run, anchor, tool, request)
                return _result(self._under(chosen, actor, request, run) if chosen else run())
            search = partial(mcp_answers.answer, anchor, tool, request)
            answer = self._under(chosen, actor, request, search) if chosen else search()
            if request.detail:
                return _result(views.compact(answer))
            result = _result(views.lines(answer, now=anchor.services.clock.now()))
            lines_only = (PREAMBLE.get().answers or anchor.project.settings.answers) == "lines"
            return result if lines_only else result | {"structuredContent": views.lean(answer)}
        except MemoryAnchorError as error:
            return _result(str(error), code=report(error).code)
        except Exception as bug:
            why = log_bug(f"tool {name[:80]}", bug)
            return _result(why or f"Error executing tool {name[:80]}", code=report(bug).code)

    def _variant(self, context: Context, actor: Actor) -> str:
        """Return the recall variant of a call over HTTP, "" for any other. Raises BadInput: no such variant."""
        if self._variants is None or context.request is None:
            return ""
        # A caller without a session or conversation shares its connection's name with others: no variant sticks to it.
        is_named = not actor.scope.conversation.startswith(context.lifespan_context.name)
        return self._variants.choose(context.request, actor, actor.scope.conversation if is_named else "")

    def _under(self, variant: str, actor: Actor, request: BaseRequest, run: Callable[[], T]) -> T:
        """Return a tool's answer under this variant; searches are counted, and what a pushed conversation used."""
        assert self._variants is not None  # noqa: S101 - the variant was chosen from them
        began = time.monotonic()
        with self._variants.answering(variant):
            answer = run()
        if isinstance(answer, Mapping):
            self._variants.count_search(variant, actor, answer, time.monotonic() - began)
        elif isinstance(request, RememberConversation):
            self._variants.count_used(actor, request.messages)
        return answer

    # --- resources and prompts ---------------------------------------------------------------------------------

    async def list_resources(
        self, _: Context, __: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListResourcesResult:
        addresses = (address for address in mcp_answers.ADDRESSES if not address.is_template)
        resources = [mcp_types.Resource(uri=address.uri, **address.described()) for address in addresses]
        return mcp_types.ListResourcesResult(resources=resources)

    async def list_templates(
        self, _: Context, __: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListResourceTemplatesResult:
        addresses = (address for address in mcp_answers.ADDRESSES if address.is_template)
        templates = [
            mcp_types.ResourceTemplate(uri_template=address.uri, **address.described()) for address in addresses
        ]
        return mcp_types.ListResourceTemplatesResult(resource_templates=templates)

    async def read_resource(
        self, context: Context, params: mcp_types.ReadResourceRequestParams
    ) -> mcp_types.ReadResourceResult:
        uri = str(params.uri)

        def read(anchor: MemoryAnchor) -> mcp_answers.Content:
            return mcp_answers.read(anchor, uri, stats=partial(self._stats, anchor))

        what = f"resource {uri.partition('://')[2].partition('/')[0][:40]}"
        content = await self._read(context, what, read)
        text = mcp_types.TextResourceContents(uri=uri, mime_type=content.mime_type, text=content.text)
        return mcp_types.ReadResourceResult(contents=[text])

    async def list_prompts(
        self, _: Context, __: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListPromptsResult:
        def shown(prompt: mcp_answers.Prompt) -> mcp_types.Prompt:
            given = [
                mcp_types.PromptArgument(name=name, description=about, required=False)
                for name, about in prompt.arguments.items()
            ]
            return mcp_types.Prompt(name=prompt.name, description=prompt.description, arguments=given)

        return mcp_types.ListPromptsResult(prompts=[shown(prompt) for prompt in mcp_answers.PROMPTS])

    async def get_prompt(self, context: Context, params: mcp_types.GetPromptRequestParams) -> mcp_types.GetPromptResult:
        def read(anchor: MemoryAnchor) -> str:
            return mcp_answers.prompt_text(anchor, params.name, params.arguments or {})

        text = await self._read(context, f"prompt {params.name[:40]}", read)
        message = mcp_types.PromptMessage(role="user", content=mcp_types.TextContent(type="text", text=text))
        return mcp_types.GetPromptResult(messages=[message])

    async def complete(self, context: Context, params: mcp_types.CompleteRequestParams) -> mcp_types.CompleteResult:
        uri = params.ref.uri if isinstance(params.ref, mcp_types.ResourceTemplateReference) else ""

        def read(anchor: MemoryAnchor) -> list[str]:
            return mcp_answers.completions(anchor, uri, params.argument.value)

        values = await self._read(context, "completion", read)
        return mcp_types.CompleteResult(completion=mcp_types.Completion(values=values))

    async def _read(self, context: Context, what: str, read: Callable[[MemoryAnchor], T]) -> T:
        """Return `read(anchor)` for the caller; failures become protocol errors, since only tools have `isError`."""
        actor = self._actor(context)

        def work() -> T:
            try:
                _with_memory()
                variant = self._variant(context, actor)
                with self._variants.answering(variant) if self._variants is not None and variant else nullcontext():
                    return read(self._core.anchor(actor))
            except MemoryAnchorError as error:
                raise MCPError(code=_protocol_code(error), message=str(error), data=report(error).code) from error
            except Exception as bug:
                why = log_bug(what, bug)
                raise MCPError(code=mcp_types.INTERNAL_ERROR, message=why or f"Error reading {what}") from bug

        return await self._in_thread(work)

    def _stats(self, anchor: MemoryAnchor) -> Record:
        if anchor.actor.scope.account != self._core.settings.scope.account:
            raise Refused("memory://stats covers the whole machine; only the machine's own account may read it")
        return self._core.stats(anchor.actor.scope)

    # --- shared ------------------------------------------------------------------------------------------------

    def _actor(self, context: Context) -> Actor:
        params = context.session.client_params
        client = params.client_info.name if params else ""
        settings = self._core.settings
        credential, session, project = _http_identity(context.request)
        connection = context.lifespan_context
        actor = actor_from(
            PREAMBLE.get(),
            context.meta,
            client_name=client,
            request_id=context.request_id,
            connection=session or f"{connection.name}-{client}",  # without a session, kinds of agent are told apart
            agent=settings.scope.agent,
            project_dir=project_for(credential.account if credential else "", self._core, self._project_dir),
            read_only=self._read_only or settings.read_only,
            credential=credential,
            project=project,
        )
        connection.actor = actor
        return actor

    async def _in_thread(self, work: Callable[[], T]) -> T:
        with self._core.foreground:
            return await anyio.to_thread.run_sync(work, limiter=self._limiter)


def project_for(account: str, core: Core, given: str = "") -> str:
    """Return the folder whose rules and how-tos a caller gets: none for another account than the machine's own."""
    settings = core.settings
    return (given or settings.project_dir) if account in ("", settings.scope.account) else ""


def _with_memory() -> None:
    """Raise Refused if memory is off for the caller's session."""
    if PREAMBLE.get().memory == "off":
        raise Refused(WITHOUT_MEMORY)


def _http_identity(request: Request | None) -> tuple[Credential | None, str, str]:
    """Return a request's credential, transport session and project; (None, "", "") without HTTP.

    Raises NoCredential: it has none.
    """
    if request is None:
        return None, "", ""
    session = request.headers.get(SESSION_HEADER)
    return credential_of(request), f"http-{session}" if session else "", request.headers.get(PROJECT_HEADER, "")


def _tool(spec: ToolSpec) -> mcp_types.Tool:
    """Return a tool as it is listed, without hints that a client assumes anyway or that mean nothing on a read."""
    return mcp_types.Tool(
        name=spec.name,
        description=spec.description,
        input_schema=tool_specs.schema_of(spec),
        annotations=mcp_types.ToolAnnotations(
            read_only_hint=spec.effect == "reads",
            destructive_hint=spec.effect == "removes" if spec.effect != "reads" else None,
            idempotent_hint=True if spec.effect in ("sets", "removes") else None,
            open_world_hint=False,
        ),
    )


def _result(text: str, *, code: str = "") -> Result:
    """Return a tool's answer, or with a code its error, in the protocol's form.

    Not the SDK's model: it would be built, dumped, and built once more where the SDK validates what is sent. That
    validation drops what a connection's version does not know (`resultType` before 2026-07-28).
    """
    result: Result = {"resultType": "complete", "content": [{"type": "text", "text": text}], "isError": bool(code)}
    return result | {"_meta": {CODE_META: code}} if code else result


def _protocol_code(error: MemoryAnchorError) -> int:
    if isinstance(error, NotFound):
        return RESOURCE_NOT_FOUND
    return mcp_types.INVALID_PARAMS if isinstance(error, BadInput) else mcp_types.INTERNAL_ERROR
