"""The API server's refusals: HTTP code, reason, message and details of a Status object.

Source of the texts: ``k8s.io/apimachinery/pkg/api/errors``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rebalancer.embedded.apiserver.kinds import Json, Kind


class ApiError(Exception):
    """A refused request; :meth:`status` is the body of the answer."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        self.details, self.meta = dict(details or {}), dict(meta or {})

    def status(self) -> Json:
        """Return the Status object."""
        status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.meta,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        status["code"] = self.code
        return status

    @property
    def retry_after(self) -> int:
        """Seconds for the Retry-After header, 0 for none."""
        return int(self.details.get("retryAfterSeconds", 0))


def success(details: Mapping[str, Any] | None = None, code: int | None = None) -> Json:
    """Return the Status object of a success."""
    status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        status["details"] = dict(details)
    if code is not None:
        status["code"] = code
    return status


def _detail(kind: Kind, name: str) -> Json:
    group = {"group": kind.group} if kind.group else {}
    return {"name": name, **group, "kind": kind.plural}


def not_found(kind: Kind, name: str) -> ApiError:
    """404: no object of this name."""
    message = f'{kind.resource} "{name}" not found'
    return ApiError(404, "NotFound", message, _detail(kind, name))


def no_such_path() -> ApiError:
    """404: the path names no resource."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(kind: Kind, name: str) -> ApiError:
    """409: there is an object of this name."""
    message = f'{kind.resource} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _detail(kind, name))


def conflict(kind: Kind, name: str, why: str) -> ApiError:
    """409: a precondition or resourceVersion does not hold."""
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return ApiError(409, "Conflict", message, _detail(kind, name))


def precondition(kind: Kind, name: str, field: str, wanted: str, actual: str) -> ApiError:
    """409: uid or resourceVersion differ from the precondition."""
    # The server names the kind here, not the resource.
    happened = "modified" if field == "ResourceVersion" else "deleted and then recreated"
    message = (
        f'Operation cannot be fulfilled on {kind.kind} "{name}": the {field} in the precondition '
        f"({wanted}) does not match the {field} in record ({actual}). The object might have been "
        f"{happened}"
    )
    details = {**_detail(kind, name), "kind": kind.kind}
    return ApiError(409, "Conflict", message, details)


def write_conflict(kind: Kind, name: str) -> ApiError:
    """409: the object was written by another client since it was read."""
    why = "the object has been modified; please apply your changes to the latest version"
    return conflict(kind, name, f"{why} and try again")


def forbidden(kind: Kind, name: str, why: str) -> ApiError:
    """403: denied by the user's rights, or by an admission plug-in."""
    named = f'{kind.resource} "{name}"' if name else kind.resource
    return ApiError(403, "Forbidden", f"{named} is forbidden: {why}", _detail(kind, name))


def invalid(kind: Kind, name: str, field: str, why: str) -> ApiError:
    """422: a field of the object is wrong."""
    resource = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    group = {"group": kind.group} if kind.group else {}
    causes: Sequence[Json] = [{"reason": "FieldValueInvalid", "message": why, "field": field}]
    details = {"name": name, **group, "kind": kind.kind, "causes": causes}
    return ApiError(422, "Invalid", f'{resource} "{name}" is invalid: {field}: {why}', details)


def bad_request(why: str) -> ApiError:
    """400: the request is malformed."""
    return ApiError(400, "BadRequest", why)


def not_allowed(kind: Kind) -> ApiError:
    """405: the resource has no such verb."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, _detail(kind, ""))


def no_identity() -> ApiError:
    """401: no token, or an unknown one."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def version_expiry(why: str, meta: Mapping[str, Any] | None = None) -> ApiError:
    """410: this version was compacted."""
    return ApiError(410, "Expired", why, meta=meta)
