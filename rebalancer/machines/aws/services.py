"""Clients of AWS services, created on first use, with limited waits and attempts.

Credentials come from boto3's own chain: the environment, a web identity (IRSA, EKS Pod Identity), the instance's
role.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from rebalancer.signals.model import SignalError

_CONNECT, _READ = 3.0, 10.0
"""Timeouts in seconds: to connect to AWS, and to read a response."""
ATTEMPTS = 3
_TRANSIENT = ("Throttl", "RequestLimitExceeded", "TooManyRequests", "SlowDown", "RequestTimeout")
"""In the codes of errors that pass, although their status is 4xx."""
_ADVICE = (
    (
        "NoCredentials",
        "name a profile (AWS_PROFILE), or have a role (IRSA, EKS Pod Identity, the instance's)",
    ),
    ("ProfileNotFound", "check AWS_PROFILE"),
    (
        "Expired|InvalidClientTokenId|UnrecognizedClient",
        "renew the credentials; `aws sts get-caller-identity` says whether they are valid",
    ),
    (
        "AccessDenied|Unauthorized",
        "allow it in the policy of this role (docs/aws.md has all of it)",
    ),
    (
        "EndpointConnection|ConnectTimeout",
        "check the network, the region, and the option `endpoint` or AWS_ENDPOINT_URL",
    ),
    ("LaunchTemplate", "have the group name a launch template, and a version of it, that exist"),
)
"""Pattern in the code of an error, or in the name of boto3's exception -> what to do."""
_REGION = re.compile(r"[a-z]{2,}(?:-[a-z]+)+-\d+")
_IN_QUEUE = re.compile(rf"https://(?:sqs\.({_REGION.pattern})|({_REGION.pattern})\.queue)\.")
_ACCOUNT = re.compile(r"/(\d{12})/[^/]+\Z")
_making = threading.Lock()


def service(
    name: str, region: str, endpoint: str = "", *, waits: float = 0.0, attempts: int = ATTEMPTS
) -> Any:
    """Return the client of a service; all threads share one.

    ``endpoint``: a URL instead of AWS's; ``waits``: seconds for which the service may delay a response.
    ``attempts``: maximum number of attempts; 1 if a second request would have a further effect.

    Raises:
        SignalError: boto3 is not installed, or the region or endpoint is invalid.
    """
    # A session must not be used by two threads at once; its clients may be.
    with _making:
        return _make_client(name, region, endpoint, waits, attempts)


@lru_cache(maxsize=1)
def _session() -> Any:
    """Return the shared session. Creating one reads hundreds of files, too slow for a Spot notice."""
    try:
        import boto3  # noqa: PLC0415  # not installed where nothing of AWS is configured
    except ImportError:
        raise SignalError(
            "the library boto3 is missing: install kube-rebalancer with its extra aws (pip install '.[aws]')"
        ) from None
    with asking("credentials"):
        return boto3.session.Session()


@lru_cache(maxsize=64)
def _make_client(name: str, region: str, endpoint: str, waits: float, attempts: int) -> Any:
    from rebalancer import __version__  # noqa: PLC0415

    session = _session()
    from botocore.config import Config  # noqa: PLC0415  # see there

    config = Config(
        connect_timeout=_CONNECT,
        read_timeout=_READ + waits,
        retries={"mode": "standard", "total_max_attempts": attempts},
        user_agent_extra=f"kube-rebalancer/{__version__}",
    )
    with asking(f"the client of {name}"):
        return session.client(
            name, region_name=region or None, endpoint_url=endpoint or None, config=config
        )


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Convert boto3's exceptions in the ``with`` block into a SignalError; ``what``: the request, for the message.

    Raises:
        SignalError: the request failed.
    """
    from botocore.exceptions import BotoCoreError, ClientError, NoRegionError  # noqa: PLC0415
    from botocore.parsers import ResponseParserError  # noqa: PLC0415

    try:
        yield
    except ClientError as error:
        said = error.response.get("Error", {})
        code = said.get("Code", "unknown")
        raise SignalError(_explain(what, code, f"{code}: {said.get('Message', '')}")) from error
    except NoRegionError as error:
        raise SignalError(
            f"{what}: no region: set the option `region`, or AWS_REGION in the environment"
        ) from error
    except ResponseParserError as error:
        # Its text has the whole answer in it.
        raise SignalError(
            f"{what}: the answer cannot be read: it is damaged, or broke off"
        ) from error
    except (BotoCoreError, ValueError, OSError) as error:
        # OSError: the file of a web identity's token.
        raise SignalError(_explain(what, type(error).__name__, str(error))) from error


def _explain(what: str, kind: str, words: str) -> str:
    """Return what failed, how, and what to do where that is known; ``kind``: see :data:`_ADVICE`."""
    text = f"{what}: {' '.join(words.split())}"
    advice = next((advice for pattern, advice in _ADVICE if re.search(pattern, kind)), "")
    return f"{text}: {advice}" if advice else text


def did_nothing(error: SignalError) -> bool:
    """Return whether the service has rejected the request permanently, without executing it.

    See "Error retries" in AWS's SDK guide: other errors (5xx, throttling) and lost responses are temporary.
    """
    response = getattr(error.__cause__, "response", None) or {}
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = response.get("Error", {}).get("Code", "")
    transient = any(word in code for word in _TRANSIENT) or status == 429
    return 400 <= status < 500 and not transient


def is_refusal(error: SignalError, *codes: str) -> bool:
    """Return whether the service's response was an error with one of these codes."""
    response = getattr(error.__cause__, "response", None) or {}
    return response.get("Error", {}).get("Code") in codes


def region_of_queue(url: str) -> str:
    """Return the region in the URL of a queue; empty if there is none."""
    match = _IN_QUEUE.match(url)
    return (match[1] or match[2]) if match else ""


def account_of_queue(url: str) -> tuple[str, ...]:
    """Return the account in the URL of a queue; empty if there is none."""
    match = _ACCOUNT.search(url)
    return (match[1],) if match else ()


def region_of_node(provider_id: str) -> str:
    """Return the region in ``aws:///eu-west-1a/i-...``, whose first part is the zone; empty if there is none."""
    parts = provider_id.removeprefix("aws:///").split("/")
    match = _REGION.match(parts[0]) if provider_id.startswith("aws://") else None
    return match[0] if match else ""


def region_of_environment(environ: Mapping[str, str]) -> str:
    """Return the region that the environment names; empty if it names none."""
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or ""
