"""Who is calling: one function turns what a transport knows into an `Actor`.

A caller is identified by four sources, best first: an explicit argument of a front end, the request's own `_meta`, the
bridge's preamble, the connection. Front ends never build an `Actor` themselves, so a hook, a tool call and a command of
one conversation get the same scope. An empty account, user and agent are filled in by the settings, an empty project by
them and the caller's folder (`Core.anchor`). Names from outside are made safe here: scope keys join them with `|`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from memory_anchor.domain.credential import Credential, Role
from memory_anchor.domain.errors import NoCredential, Refused
from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.runtime.wire import Preamble, call_nonce

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

CONVERSATION_META = ("memory-anchor/conversation_id", "sessionId", "threadId")
"""Keys of a request's `_meta` that name its conversation, best first; Codex sends the last two on every call."""
PROJECT_HEADER = "x-km-project"
"""Names the project of an HTTP caller whose credential is bound to none."""
VARIANT_HEADER = "x-km-variant"
"""Names the recall variant of an HTTP request; see `variants`."""
REVIEWER: Mapping[str, str] = {"client": "review"}
"""What a remote approver signs as the caller of a decision; the proof holds account and project."""
CREDENTIAL = "credential"
"""The attribute of a request's user that holds its credential."""
CLIENT_SUFFIX = "-mcp-client"
NAME_CHARS_MAX = 120
"""A longer name becomes its beginning and a hash, so that two different ones stay different."""
FALLBACK_ZONE = "UTC"


def actor_from(
    preamble: Preamble,
    meta: Mapping[str, object] | None = None,
    *,
    client_name: str = "",
    request_id: str | int | None = None,
    conversation: str = "",
    connection: str = "",
    account: str = "",
    user: str = "",
    agent: str = "",
    project_dir: str = "",
    read_only: bool = False,
    caller: Caller = Caller.AGENT,
    credential: Credential | None = None,
    project: str = "",
) -> Actor:
    """Return on whose behalf a call is made. Raises Refused: it claims to be another than its credential says.

    meta: the request's `_meta`. client_name: what the client calls itself. request_id: the JSON-RPC id as received.
    conversation: from a front end's own argument. connection: names the connection, for callers that name nothing.
    account, user, agent: from settings, or claimed by a request. project_dir: used when the preamble names none.
    credential: of an HTTP request; claims may repeat it and fill in what it leaves open. project: such a claim.
    """
    person, project_id = "", safe_name(preamble.project)
    if credential is not None:
        _check_claims(credential, {"account_id": account, "user_id": user, "project_id": project})
        preamble = preamble._replace(account="", user="", project="", agent="", project_dir="")
        account, user = credential.account, credential.user or user
        project_id = credential.project or project
        read_only = read_only or credential.role is Role.READER
        person = safe_name(user) if credential.by_name else ""
    names = [conversation, *((meta or {}).get(key) for key in CONVERSATION_META), preamble.conversation, connection]
    conversation = next((name for name in names if isinstance(name, str) and name.strip()), "")
    # Codex says codex-mcp-client here and codex everywhere else; one agent has one name.
    client = safe_name(client_name.removesuffix(CLIENT_SUFFIX) or preamble.client)
    return Actor(
        caller=caller,
        scope=Scope(
            account=safe_name(account or preamble.account),
            project="",
            user=safe_name(user or preamble.user),
            agent=safe_name(preamble.agent or agent) or client,
            conversation=safe_name(conversation),
        ),
        client=client,
        zone=zone_or_utc(preamble.zone),
        project_dir=preamble.project_dir or project_dir,
        project=project_id,
        nonce=call_nonce(preamble, request_id),
        read_only=read_only or bool(preamble.read_only),
        person=person,
    )


def check_project(credential: Credential, project: str) -> None:
    """Raise Refused if a credential bound to one project asks for another."""
    _check_claims(credential, {"project_id": project})


def _check_claims(credential: Credential, claims: Mapping[str, str]) -> None:
    bound = {"account_id": credential.account, "user_id": credential.user, "project_id": credential.project}
    for name, claimed in claims.items():
        if bound[name] and claimed and claimed != bound[name]:
            what = name.removesuffix("_id")
            raise Refused(f"{name} {claimed[:80]!r} is not the {what} this credential is bound to")


def credential_of(request: HTTPConnection) -> Credential:
    """Return the credential of an HTTP request. Raises NoCredential: it has none."""
    credential = getattr(request.scope.get("user"), CREDENTIAL, None)
    if not isinstance(credential, Credential):
        raise NoCredential("this request has no credential; `memory-anchor serve` prints how to connect")
    return credential


def safe_name(name: str) -> str:
    """Return the name made safe for a scope key; two different names stay different.

    >>> safe_name("claude-code"), safe_name("a|b").startswith("a_b-")
    ('claude-code', True)
    """
    safe = "".join("_" if char == "|" or not char.isprintable() else char for char in name.strip())
    if safe == name.strip() and len(safe) <= NAME_CHARS_MAX:
        return safe
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{safe[: NAME_CHARS_MAX - 13]}-{digest}"


def zone_or_utc(zone: str) -> str:
    """Return the IANA zone when this machine knows it, else UTC."""
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, KeyError):  # a path, an empty name, an unknown zone
        return FALLBACK_ZONE
    return zone
