"""Errors of requests to the API server, as sentences with the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from rebalancer.base.errors import ClusterReadError, RebalancerError
from rebalancer.kube.resources import AccessRule
from rebalancer.wire.kinds import ALL, Resource

_VALUES = {
    ("create", "", "pods/eviction"): "mode: enforce",
    ("delete", "", "pods"): "rbac.deletePods: true",
    ("patch", "", "pods"): "rbac.deletionCosts: true",
    ("get", "", "nodes"): "rbac.marks: true",
    ("patch", "", "nodes"): "rbac.marks: true",
    ("patch", "", "nodes/status"): "rbac.nodeConditions: true",
    ("get", "apps", "daemonsets"): "drain.enabled: true",
    ("get", "apps", "replicasets"): "rbac.restarts: true",
    ("get", "apps", "deployments"): "rbac.restarts: true",
    ("patch", "apps", "deployments"): "rbac.restarts: true",
    ("list", "events.k8s.io", "events"): "rbac.events: true",
}
"""(verb, group, resource) -> the value, where it depends on the verb; rights that the chart always grants have none."""
_OF_KINDS = {(one.group, one.plural): one.chart_value for one in ALL if one.chart_value}


def name_values(rules: Iterable[AccessRule]) -> tuple[str, ...]:
    """Return the values, as ``rbac.usage: true``, each once; empty if no value of the chart grants any of ``rules``."""
    values = (_value_of(rule) for rule in rules)
    return tuple(dict.fromkeys(value for value in values if value))


def _value_of(rule: AccessRule) -> str | None:
    if (rule.verb, rule.group, rule.resource) == ("list", "", "configmaps"):
        # The policies of namespaces have one name; people list others, to find a release.
        return "rbac.namespacePolicies: true" if rule.name else None
    if rule.group == "cluster.x-k8s.io":
        return f"rbac.clusterApi: {rule.namespace}"
    by_verb = _VALUES.get((rule.verb, rule.group, rule.resource))
    return by_verb or _OF_KINDS.get((rule.group, rule.resource))


_MAX_TEXT = 500


class TransportError(ClusterReadError):
    """There was no response: the server is unreachable, or the connection broke.

    ``sent``: whether the request may have reached the server; if not, it had no effect. ``final``: another attempt
    would fail the same way.
    """

    def __init__(self, message: str, *, sent: bool, final: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        self.final = final


_SERVICE_ACCOUNT = "system:serviceaccount:"
_USER = re.compile(r'\bUser "([^"]+)"')


def _account_in(said: str) -> str:
    """Return the user that an answer of the API server names; empty if it names none."""
    match = _USER.search(said)
    return "" if match is None else match[1]


class ForbiddenError(ClusterReadError):
    """RBAC denied the request; ``missing``: the rules to add.

    ``account``: the denied account; empty if neither the caller nor the API server, by ``said``, names it.
    """

    def __init__(self, missing: Iterable[AccessRule], said: str = "", account: str = "") -> None:
        self.missing = tuple(sorted(set(missing)))
        verbs = "; ".join(str(rule) for rule in self.missing)
        self.account = account or _account_in(said)
        values = ", ".join(name_values(self.missing))
        # The values of a chart give a person nothing.
        of_chart = values and (not self.account or self.account.startswith(_SERVICE_ACCOUNT))
        who = f"our account {self.account}" if self.account else "our account"
        super().__init__(
            f"forbidden: {who} may not {verbs}.",
            *[f"The API server says: {said}"] * bool(said),
            "Add to its role:",
            *(f"  {rule.as_yaml()}" for rule in self.missing),
            *[
                f"The chart gives this by {values}. If that is set, somebody has changed the role: `helm upgrade` writes it again"
            ]
            * bool(of_chart),
        )


_NO_SUCH_PATH = b"404 page not found"
"""The answer of an API server for an unknown path: the text of Go's HTTP server."""


class StatusError(ClusterReadError):
    """The server answered with an error other than a missing right; ``status`` is the HTTP status."""

    def __init__(self, status: int, *lines: str) -> None:
        super().__init__(*lines)
        self.status = status


class NotServedError(StatusError):
    """The API server itself (not a proxy) answers that it does not serve the resource, or has no such object."""


class NotStreamedError(Exception):
    """A list could not be read in one response; the part that was read must be discarded."""


class NotUnderstoodError(ClusterReadError):
    """The response contains something that no API server sends."""


@contextmanager
def explain_errors(resource: Resource) -> Iterator[None]:
    """Convert every exception of decoders and folds about a list's content into an error that names the list.

    Half a dozen libraries decode here, each with its own exceptions (protobuf's DecodeError, RecursionError,
    UnicodeDecodeError, OverflowError ...); the original is the ``__cause__``.
    """
    try:
        yield
    except (RebalancerError, NotStreamedError):
        raise
    except Exception as error:
        raise NotUnderstoodError(
            f"the list of {resource.plural} holds what this version of kube-rebalancer does not understand"
            f" ({type(error).__name__}): is it really an API server, and no proxy, that answers?"
        ) from error


class StatusCause(msgspec.Struct, frozen=True):
    """metav1.StatusCause."""

    reason: str = ""
    message: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """metav1.StatusDetails."""

    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: int = 0


class ListMetaOfStatus(msgspec.Struct, frozen=True):
    """The list metadata of a Status: the continue token that comes with a 410."""

    continue_: str = msgspec.field(default="", name="continue")


class ApiStatus(msgspec.Struct, frozen=True):
    """metav1.Status: the API server's error object."""

    message: str = ""
    reason: str = ""
    code: int = 0
    status: str = ""
    """Either ``Success`` or ``Failure``."""
    details: StatusDetails | None = None
    metadata: ListMetaOfStatus | None = None

    def has_cause(self, reason: str) -> bool:
        """Whether one of the causes has this reason."""
        causes = (self.details.causes if self.details else None) or ()
        return any(cause.reason == reason for cause in causes)


_statuses = msgspec.json.Decoder(ApiStatus)


def status_of(body: bytes) -> ApiStatus:
    """Return the Status in ``body``; if it is not a Status, one with the text as its message and no code.

    Proxies, load balancers and the priority-and-fairness filter answer in plain text, and a client that asked for
    protobuf gets errors in protobuf.
    """
    try:
        if body.startswith(b"k8s\0"):
            from rebalancer.wire.protobuf.frames import refusal_in  # noqa: PLC0415

            return ApiStatus(*refusal_in(body))
        return _statuses.decode(body)
    except (ValueError, RecursionError):
        return ApiStatus(message=" ".join(body.decode("utf-8", "replace").split())[:_MAX_TEXT])


def says_missing(status: int, body: bytes) -> bool:
    """Return whether the API server itself answers that the object does not exist.

    A proxy, or a server that does not serve the kind, also answers 404, with another text: that tells nothing about the object.
    """
    return status == 404 and status_of(body).code == 404


def says_not_served(status: int, body: bytes) -> bool:
    """Return whether the API server itself answers that it does not serve a path; a proxy's 404 has another text."""
    return says_missing(status, body) or (status == 404 and body.strip() == _NO_SUCH_PATH)


def refusal(status: int, body: bytes, rule: AccessRule, server: str) -> ClusterReadError:
    """Return the error for a response with a status other than 2xx to a request that needs ``rule``."""
    said = status_of(body).message[:_MAX_TEXT]
    if status == 401:
        return StatusError(
            status,
            f"unauthorized: {server} does not accept our credentials (expired, or of another"
            f" cluster). Log in again or renew the token, then check with: kubectl auth whoami",
        )
    if status == 403 and "cannot impersonate" in said:
        # The right of the request itself was not looked at.
        return StatusError(
            status,
            f"forbidden: our account {_account_in(said)} may not act as another one, as --as or `as` of the kubeconfig wants it.",
            f"The API server says: {said}",
            "Add to its role, with resourceNames that limit it:",
            '  - {apiGroups: [""], resources: ["users", "groups", "serviceaccounts"], verbs: ["impersonate"]}',
        )
    if status == 403:
        return ForbiddenError([rule], said)
    if status == 429 or status >= 500:
        return StatusError(
            status,
            f"{server} could not {rule}: HTTP {status} after several attempts ({said or 'no text'})."
            f" The API server is overloaded or failing; the next run tries again",
        )
    error = NotServedError if says_not_served(status, body) else StatusError
    return error(status, f"{server} could not {rule}: HTTP {status}: {said or 'no text'}")
