"""`/v1/keys`: an account's own admin lists its access keys, ends them, and adds ones that were signed elsewhere.

A key is made where the admin's passphrase is typed (`memory-anchor keys create --server URL`): its secret is shown
there, once, and never travels; what comes here is its hash in a record that the admin's signing key signed. So an
admin's access key in an agent's configuration lists and ends, and makes nothing. Rejected: a server that draws the
secret, which would have to sign for a human who is not there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from functools import partial

from fastapi import FastAPI, Request

from memory_anchor.errors import BadInput, NotFound, Refused, TooMany
from memory_anchor.fields import BaseRequest
from memory_anchor.front.callers import credential_of
from memory_anchor.front.http_v1 import COLUMN, ERRORS, Desk, body_schema, plain_schema
from memory_anchor.json_values import Record, text
from memory_anchor.requests import AddAccessKey, RevokeAccessKey
from memory_anchor.rights import Deed, check
from memory_anchor.team.credential import Credential, Role
from memory_anchor.team.keys import AccessKey, KeyFile, checked_name, is_digest, told_of
from memory_anchor.team.limits import Bucket

CHANGES_A_MINUTE = 30
"""Keys that one account adds or ends a minute."""
Done = Callable[[Credential, BaseRequest], Record]


def add_keys(app: FastAPI, desk: Desk, keys: KeyFile) -> None:
    """Add the paths of `/v1/keys`."""
    changes = Bucket(CHANGES_A_MINUTE, time.monotonic)
    core = desk.core

    @app.get("/v1/keys", operation_id="keys_list", responses=ERRORS, summary="List the account's keys; no secret.")
    async def listed(request: Request) -> dict[str, object]:
        credential = credential_of(request)
        check(Deed.END_KEYS, COLUMN[credential.role])
        return dict(await desk.places.run(partial(_listed, keys, credential.account, core.clock.now())))

    def create(credential: Credential, asked: BaseRequest) -> Record:
        given = {name: text(one) for name, one in asked.asked().items()}
        for name in ("user", "project", "note"):
            _ = given[name] and checked_name(name, given[name])
        role = Role(given.pop("role"))
        made = AccessKey(**given, role=role, account=credential.account, made_with=credential.key)
        times = (made.created_at, made.expires_at or made.created_at)
        if not is_digest(made.digest) or not all(map(_is_instant, times)):
            raise BadInput("digest or a time cannot be read; make the key with `memory-anchor keys create --server`")
        kept = keys.accept(made, credential, core.clock.now())
        core.audit.append("key.created", told_of(kept), by=f"human:{kept.created_by}", at=core.clock.now())
        return told_of(kept)

    def revoke(credential: Credential, asked: BaseRequest) -> Record:
        name = str(asked.asked()["id"])
        held = keys.all().get(name)
        if held is None or held.account != credential.account:
            raise NotFound(f"no key {name[:20]!r} of this account; GET /v1/keys lists them")
        ended = keys.revoke(name, core.clock.now())
        core.audit.append("key.revoked", {"id": name}, by=f"key {credential.key}", at=core.clock.now())
        return told_of(ended)

    def add(path: str, deed: Deed, model: type[BaseRequest], work: Done) -> None:
        async def asked(request: Request) -> dict[str, object]:
            credential = credential_of(request)
            check(deed, COLUMN[credential.role])
            if core.settings.read_only:
                raise Refused("this memory is read-only; nothing was changed")
            wanted = model.read(await desk.body(request), path)
            if wait := changes.take(credential.account):
                raise TooMany(f"more than {CHANGES_A_MINUTE} keys were changed in a minute; wait {wait} s", wait)
            return dict(await desk.places.run(partial(work, credential, wanted)))

        app.add_api_route(
            f"/v1/keys/{path}",
            asked,
            methods=["POST"],
            operation_id=f"keys_{path}",
            summary=(model.__doc__ or "").split("\n")[0],
            openapi_extra=body_schema(plain_schema(model)),
            responses=ERRORS,
        )

    add("create", Deed.MAKE_KEYS, AddAccessKey, create)
    add("revoke", Deed.END_KEYS, RevokeAccessKey, revoke)


def _listed(keys: KeyFile, account: str, now: datetime) -> Record:
    used = keys.last_used()
    own = [one for one in keys.all().values() if one.account == account]
    rows = [{**told_of(one), "last_used_at": used.get(one.id, ""), "ended": one.ended(now)} for one in own]
    return {"account": account, "keys": rows}


def _is_instant(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
