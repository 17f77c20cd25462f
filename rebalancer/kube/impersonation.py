"""As whom requests are sent: impersonation as kubectl has it, by its flags and by the user of a kubeconfig."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from rebalancer.base.errors import ClusterReadError

_IN_HEADER_NAMES = "!#$&'*+-.^_`|~"
"""What client-go leaves as it is in the key of an extra, beside letters and digits: RFC 9110's token, without ``%``."""


class _Fields(msgspec.Struct, rename="kebab"):
    """The fields of a kubeconfig's user (``AuthInfo`` of client-go) that name another user."""

    user: str | None = msgspec.field(default=None, name="as")
    as_uid: str | None = None
    as_groups: tuple[str, ...] | None = None
    as_user_extra: dict[str, tuple[str, ...] | None] | None = None


@dataclass(frozen=True, slots=True)
class Impersonation:
    """The user as whom requests are sent; without ``user`` they are sent as the user of the credentials."""

    user: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()
    """(key, value); a key with several values comes several times."""

    def over(self, user: Mapping[str, Any], where: str) -> Impersonation:
        """Return what these flags and the ``user`` of a kubeconfig say together: as for kubectl, field by field.

        Raises:
            ClusterReadError: they contradict client-go's rules, or cannot be sent; names ``where``.
        """
        try:
            of = msgspec.convert(user, _Fields)
        except msgspec.ValidationError as error:
            raise ClusterReadError(f"{where}: {error}") from None
        extra = (of.as_user_extra or {}).items()
        both = Impersonation(
            self.user or of.user or "",
            self.uid or of.as_uid or "",
            self.groups or of.as_groups or (),
            tuple((key, value) for key, values in extra for value in values or ()),
        )
        if not both.user and both != AS_OURSELVES:
            raise ClusterReadError(
                f"{where}: a uid, groups or extras are impersonated only with a user: add --as (`as` in the kubeconfig)"
            )
        texts = (both.user, both.uid, *both.groups, *(value for _, value in both.extra))
        if not all(text.isprintable() for text in texts):
            raise ClusterReadError(f"{where}: a name to impersonate has a control character in it")
        return both

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Return the headers of each request, as client-go sends them; several may have one name."""
        if not self.user:
            return ()
        named = [
            ("User", self.user),
            *([("Uid", self.uid)] if self.uid else []),
            *(("Group", group) for group in self.groups),
            *((f"Extra-{quote(key, safe=_IN_HEADER_NAMES)}", value) for key, value in self.extra),
        ]
        # Python writes headers as Latin-1, and Go as UTF-8.
        return tuple(
            (f"Impersonate-{name}", value.encode().decode("latin-1")) for name, value in named
        )

    def __str__(self) -> str:
        """The user, with uid and groups: ``anna (uid 7; groups devs, ops)``."""
        uid = [f"uid {self.uid}"] if self.uid else []
        groups = [f"groups {', '.join(self.groups)}"] if self.groups else []
        return f"{self.user} ({'; '.join(uid + groups)})" if uid or groups else self.user


AS_OURSELVES = Impersonation()
