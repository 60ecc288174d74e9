"""An approver on a machine of their own: reads what waits for L0 of a served memory, signs, and sends."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from serving import Served, bearer, key_for

from memory_anchor.core import Core
from memory_anchor.front.callers import REVIEWER
from memory_anchor.front.cli.served import CALL, REJECT, _read
from memory_anchor.identity.keys import Signer
from memory_anchor.identity.remote_approval import sign_approval, sign_rejection
from memory_anchor.identity.signed_requests import sign_request
from memory_anchor.settings import Settings
from memory_anchor.team.credential import Role
from memory_anchor.testing import human_of

ACCOUNT = Settings().scope.account


class Seat:
    """An approver on a machine of their own, with an access key of the server."""

    def __init__(self, held: Core, served: Served, home: Path, user: str, **more: Any) -> None:
        self.served, self.home, self.signer = served, home, human_of(home)
        given = {"account": ACCOUNT, "role": Role.APPROVER, "public": self.signer.approver.public, **more}
        self.key, self.record = key_for(held, given.pop("account"), user=user, **given)

    def post(self, path: str, **body: Any) -> Any:
        return self.served.ask("POST", f"/v1/{path}", headers=bearer(self.key), json=body)

    def listed(self) -> dict[str, Any]:
        told = self.post("constitution/proposals")
        assert told.status_code == 200, told.text
        answer: dict[str, Any] = told.json()
        return answer

    def signs(self, at: datetime, *, signer: Signer | None = None, told: Mapping[str, Any] | None = None) -> Any:
        """Return the body of an approval of the one proposal that waits, without the proof."""
        told = told or self.listed()
        proposal, ground, number = _read(told["proposals"][0], told)
        seen, made = sign_approval(signer or self.signer, proposal, ground, number=number, by=told["by"], at=at)
        given = {"id": proposal.id, "seen": seen, "installation": ground.installation, "at": at.isoformat()}
        return given | dict(zip(("signature", "link", "seal"), made, strict=False))

    def proof(self, body: Mapping[str, Any], *, signer: Signer | None = None) -> dict[str, str]:
        return sign_request(signer or self.signer, CALL, body, REVIEWER, self.post("review/challenge").json())

    def signs_no(self, at: datetime, *, signer: Signer | None = None, reason: str = "not our way") -> dict[str, Any]:
        """Return the body of a rejection of the one proposal that waits, without the proof."""
        told = self.listed()
        proposal, ground, _ = _read(told["proposals"][0], told)
        seen, made = sign_rejection(signer or self.signer, proposal, ground, by=told["by"], at=at, reason=reason)
        given = {"id": proposal.id, "seen": seen, "installation": ground.installation, "at": at.isoformat()}
        return given | {"reason": reason} | dict(zip(("signature", "closing"), made, strict=True))

    def refuses(self, body: Mapping[str, Any], *, signer: Signer | None = None) -> Any:
        told = self.post("review/challenge").json()
        proof = sign_request(signer or self.signer, REJECT, body, REVIEWER, told)
        return self.post("constitution/reject", **body, human=proof)

    def sends(self, body: Mapping[str, Any], *, signer: Signer | None = None) -> Any:
        return self.post("constitution/approve", **body, human=self.proof(body, signer=signer))
