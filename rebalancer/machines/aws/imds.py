"""The instance metadata service (IMDS) of EC2, version 2 only, by which an instance reads its own metadata.

A token is requested by PUT, and sent in a header of every GET; see "Use the Instance Metadata Service" in the user
guide of EC2. There is no fallback to version 1, which has no token: an instance with version 1 only is refused.
"""

from __future__ import annotations

from rebalancer.base.sending import HttpAnswer, SendingError, exchange
from rebalancer.base.stop import Stop

ADDRESS = "http://169.254.169.254"

TOKEN_SECONDS = 3600
"""How long a token is to last; the service allows 1 to 21600."""
_SPARE = 60.0
"""Seconds before its end at which a token is replaced."""
_LONGEST = 2.0
"""Seconds for one answer; the service answers within milliseconds."""
_MOST = 1 << 18
"""Bytes of an answer."""


class ImdsError(Exception):
    """The metadata could not be read; the message says why, and contains no token."""


class Imds:
    """Reads the metadata of the instance on which this process runs."""

    def __init__(self, address: str, stop: Stop) -> None:
        self._address = address.rstrip("/")
        self._stop = stop
        self._token = ""
        self._ends = 0.0
        """Time of the stop's clock until which the token is used."""

    def read(self, path: str) -> str | None:
        """Return the metadata under ``/latest/`` and ``path``; None if there is none (404).

        Raises:
            ImdsError: no response, or another status.
        """
        answer = self._get(path)
        if answer.status == 401:
            # Expired or no token of this service: a stopped and started instance has another one.
            self._token = ""
            answer = self._get(path)
        if answer.status == 404:
            return None
        if not answer.accepted:
            raise ImdsError(f"the instance metadata service {answer.words} for {path}")
        try:
            return answer.body.decode()
        except UnicodeDecodeError:
            raise ImdsError(f"the instance metadata {path} is no text") from None

    def _get(self, path: str) -> HttpAnswer:
        return self._ask("GET", path, {"X-aws-ec2-metadata-token": self._valid_token()})

    def _valid_token(self) -> str:
        now = self._stop.now()
        if not self._token or now >= self._ends:
            lasting = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
            answer = self._ask("PUT", "api/token", lasting)
            if not answer.accepted:
                raise ImdsError(
                    f"the instance metadata service gives no token of version 2: it {answer.words}"
                )
            # Counted from before it was asked for, so that it never lasts longer here than there.
            self._token, self._ends = answer.body.decode("latin-1"), now + TOKEN_SECONDS - _SPARE
        return self._token

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> HttpAnswer:
        try:
            return exchange(
                method,
                f"{self._address}/latest/{path}",
                headers,
                self._stop,
                seconds=_LONGEST,
                most=_MOST,
                proxied=False,
            )
        except SendingError as error:
            hint = (
                "; a pod needs hostNetwork, or an instance whose hop limit is 2"
                if method == "PUT"
                else ""
            )
            raise ImdsError(f"the instance metadata service at {error}{hint}") from None
