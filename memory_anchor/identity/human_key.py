"""A human's key as one project uses it: unlocking, refused passphrases, and how strict approvals are."""

from __future__ import annotations

from dataclasses import asdict

from memory_anchor.base.json_values import Record, whole
from memory_anchor.domain.errors import Refused
from memory_anchor.domain.ports import AuditLog, Clock
from memory_anchor.identity.keys import KeyRing, Rules, Signer

RULES = "constitution.rules"
"""The kind of the audit record of changed approval rules, with their number."""


class HumanKey:
    """The installation's human key, for one project. stricter: what the settings add to the key's own rules."""

    def __init__(
        self,
        keys: KeyRing,
        audit: AuditLog,
        clock: Clock,
        *,
        stricter: Rules,
        project_id: str,
    ) -> None:
        self._keys = keys
        self._audit = audit
        self._clock = clock
        self._stricter = stricter
        self._project_id = project_id
        self._tries = keys.refused_tries()
        self._tries_note = ""

    def unlock(self, passphrase: str) -> Signer:
        """Return the signer. Raises Refused: the passphrase, or a key file older than the rules that were set last."""
        try:
            signer = self._keys.unlock(passphrase)
        except Refused:
            self._tries.note(self._clock.now())
            self._record("constitution.refused", {"why": "passphrase"}, by="unknown")
            raise
        last = self._audit.latest(RULES)
        if last is not None and whole(last.get("number"), 0) > signer.rules.number:
            raise Refused(
                f"the key file is older than the approval rules that were set last (number {last.get('number')}): "
                "somebody put an old copy there; restore identity/approver.json from a newer backup"
            )
        self._tries_note = self._tries.take() or self._tries_note
        return signer

    def wait_s(self) -> float:
        """Return the seconds to wait before the next passphrase, after several were refused."""
        return self._tries.wait_s(self._clock.now())

    def refused_tries_note(self) -> str:
        """Return one sentence about the passphrases refused before the last right one, "" for none; once."""
        note, self._tries_note = self._tries_note, ""
        return note

    def rules(self, key_rules: Rules | None = None) -> Rules:
        """Return how strict approvals are: the key's rules and the settings', whichever is stricter.

        key_rules: those of a key that was just unlocked; if None, those that the key file claims.
        """
        key_rules = self._keys.rules() if key_rules is None else key_rules
        return Rules(
            max(key_rules.min_interval_s, self._stricter.min_interval_s),
            key_rules.distinct_approvers or self._stricter.distinct_approvers,
            key_rules.number,
        )

    def set_rules(self, *, min_interval_s: int | None, distinct_approvers: bool | None, passphrase: str) -> Rules:
        """Change the rules that settings cannot weaken; None keeps one as it is.

        Raises Refused: the passphrase. BadInput: no such interval.
        """
        signer = self.unlock(passphrase)
        current = signer.rules
        rules = self._keys.set_rules(
            passphrase,
            min_interval_s=current.min_interval_s if min_interval_s is None else min_interval_s,
            distinct_approvers=current.distinct_approvers if distinct_approvers is None else distinct_approvers,
        )
        self._record(RULES, asdict(rules), by=signer.approver.name)
        return rules

    def _record(self, kind: str, fields: Record, *, by: str) -> None:
        self._audit.append(kind, {"project": self._project_id, **fields}, by=by, at=self._clock.now())
