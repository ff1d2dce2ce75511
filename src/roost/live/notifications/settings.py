"""What an administrator says about notifications: the server for mail, defaults, what is allowed.

They are in a file of the home that only its owner can read: they have a secret and a password.
"""

from __future__ import annotations

import ipaddress
import json
import secrets
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from roost import files
from roost.errors import InvalidSpec, NotFound
from roost.jobfile.notify import NotifyRule, read_rule

#: What is shown instead of a secret; given back, it leaves the secret as it is.
MASK = "********"
_MOST = 100


class MailSettings(BaseModel):
    """The server that takes mail; ``domains`` are the only ones that it is sent to, if any are."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    host: str = Field(min_length=1, max_length=253)
    port: int = Field(default=587, ge=1, le=65535)
    tls: Literal["starttls", "tls", "none"] = "starttls"
    sender: str = Field(alias="from", min_length=3, max_length=320)
    user: str = ""
    password: str = ""
    domains: tuple[str, ...] = Field(default=(), max_length=_MOST)


class NotificationSettings(BaseModel):
    """Who is told of the jobs of which user and queue, and how.

    ``secret`` signs what is posted. ``allow`` has names and networks that may be posted to though
    they are not public.
    """

    model_config = ConfigDict(extra="forbid")

    secret: str = Field(default="", max_length=200)
    allow: tuple[str, ...] = Field(default=(), max_length=_MOST)
    mail: MailSettings | None = None
    users: dict[str, tuple[str, ...]] = Field(default={}, max_length=10_000)
    queues: dict[str, tuple[str, ...]] = Field(default={}, max_length=10_000)

    @field_validator("users", "queues")
    @classmethod
    def _readable(cls, lines: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for name, rules in lines.items():
            for line in rules:
                try:
                    read_rule(line)
                except InvalidSpec as error:
                    raise ValueError(f"{name}: {error}") from None
        return lines

    def rules(self, user: str, queue: str, own: tuple[str, ...]) -> tuple[NotifyRule, ...]:
        """The rules for a job: its own, its user's, its queue's; a line of no use is left out."""
        found = []
        for line in (*own, *self.users.get(user, ()), *self.queues.get(queue, ())):
            try:
                found.append(read_rule(line))
            except InvalidSpec:
                continue
        return tuple(found)

    def allows_name(self, host: str) -> bool:
        """Whether a name may be posted to, wherever it leads."""
        return host.lower() in {name.lower() for name in self.allow}

    def allows_address(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        """Whether an address may be posted to that is not public."""
        for entry in self.allow:
            try:
                if address in ipaddress.ip_network(entry, strict=False):
                    return True
            except ValueError:
                continue
        return False

    def shown(self) -> dict[str, Any]:
        """The settings without their secrets."""
        told = self.model_dump(mode="json", by_alias=True)
        told["secret"] = MASK if self.secret else ""
        if told["mail"] and told["mail"]["password"]:
            told["mail"]["password"] = MASK
        return told


class SettingsFile:
    """The settings as they are kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            text = files.load(path).text
        except NotFound:
            text = "{}"
        self.settings = _read(json.loads(text))

    def change(self, told: dict[str, Any]) -> NotificationSettings:
        """Take over and keep other settings; raises InvalidSpec."""
        new = dict(told)
        if new.get("secret", MASK) == MASK:
            new["secret"] = self.settings.secret
        mail, old = new.get("mail"), self.settings.mail
        if isinstance(mail, dict) and mail.get("password") == MASK and old is not None:
            new["mail"] = {**mail, "password": old.password}
        found = _read(new)
        if not found.secret:
            found.secret = secrets.token_urlsafe(32)
        text = json.dumps(found.model_dump(mode="json", by_alias=True), indent=1)
        files.save(self._path, text, 0o600)
        self.settings = found
        return found


def _read(told: Any) -> NotificationSettings:
    try:
        return NotificationSettings.model_validate(told)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidSpec(f"notifications: {where}: {first['msg']}") from None
