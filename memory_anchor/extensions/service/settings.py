"""The settings of a served memory, and of one that is asked first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, SecretStr, field_serializer

from memory_anchor.base.setting_groups import Group, masked_names


class JwtSettings(Group):
    """Tokens of your own issuer, for our address (audience); a token without role_claim may only read."""

    issuer: str = ""
    audience: str = ""
    jwks_url: str = ""
    account: str = ""
    account_claim: str = ""
    user_claim: str = "sub"
    role: Literal["reader", "writer", "approver", "admin"] = "writer"
    role_claim: str = ""
    leeway_s: int = Field(30, ge=0, le=300)


class HttpSettings(Group):
    SECRET_NAMES: ClassVar[tuple[str, ...]] = ("tokens",)
    GONE: ClassVar[Mapping[str, str]] = {"traces_url": "`/metrics` counts requests and their times; leave it out"}
    host: str = "127.0.0.1"
    port: int = Field(8377, ge=0, le=65_535)
    tokens: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """Bearer token -> account. As JSON, which is what is shown and kept, tokens are masked."""
    requests_per_minute: int = Field(600, ge=1, le=1_000_000)  # of one key or token
    at_once: int = Field(16, ge=1, le=1_000)  # requests of /v1 at work; four times as many wait
    tls_cert: str = ""
    tls_key: str = ""
    jwt: JwtSettings = JwtSettings()

    @field_serializer("tokens", when_used="json")
    def _masked(self, tokens: Mapping[str, str]) -> dict[str, str]:
        return {masked_names(tokens)[token]: account for token, account in tokens.items()}


class RemoteSettings(Group):
    """A served memory used as well as the local one (docs/devices.md). key: as printed by `keys create` there. project:
    its id there, "" for the key's. connect_s, search_s, write_s: hard limits of one call."""

    url: str = ""
    key: SecretStr = SecretStr("")
    project: str = ""
    connect_s: float = Field(0.3, gt=0, le=30)
    search_s: float = Field(1.0, gt=0, le=60)
    write_s: float = Field(5.0, gt=0, le=60)


GROUPS = {"http": HttpSettings, "remote": RemoteSettings}
