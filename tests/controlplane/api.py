"""A small raw JSON client for the API server: paths in, dictionaries out."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import urllib3

PatchKind = Literal["merge", "strategic", "apply", "json"]

_PATCH_TYPES: Mapping[PatchKind, str] = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
    "json": "application/json-patch+json",
}


_SILENCE = 60.0
"""Seconds without an answer until a request fails; a busy machine is slow to answer."""


class ApiError(Exception):
    """The server refused, or did not answer at all (status 0)."""

    def __init__(self, method: str, path: str, status: int, body: Any) -> None:
        self.status = status
        self.body = body
        message = body.get("message", "") if isinstance(body, dict) else str(body)[:300]
        super().__init__(f"{method} {path}: {status} {message}")

    @property
    def reason(self) -> str:
        """The machine-readable reason of the Status object, or an empty string."""
        return str(self.body.get("reason", "")) if isinstance(self.body, dict) else ""


class ApiClient:
    """Speaks JSON with one API server; safe to share between threads."""

    def __init__(self, url: str, ca_file: Path, token: str | None) -> None:
        self.url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._pool = urllib3.PoolManager(ca_certs=str(ca_file), maxsize=32, block=False)
        self._resources: dict[str, dict[str, tuple[str, bool]]] = {}

    def close(self) -> None:
        """Drop the connections."""
        self._pool.clear()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        timeout: float = _SILENCE,
        accept: str = "application/json",
    ) -> Any:
        """Make one request and return the decoded answer; ApiError for any status from 400."""
        headers = {**self._headers, "Accept": accept, "Content-Type": content_type}
        data = None if body is None else json.dumps(body).encode()
        try:
            answer = self._pool.request(
                method, self.url + path, body=data, headers=headers, timeout=timeout, retries=False
            )
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(method, path, 0, str(error)) from error
        decoded = _decode(answer.data)
        if answer.status >= 400:
            raise ApiError(method, path, answer.status, decoded)
        return decoded

    def get(self, path: str) -> Any:
        """Read an object, or a list, or a text such as /readyz."""
        return self.request("GET", path)

    @contextlib.contextmanager
    def reading(self, path: str) -> Iterator[Callable[[], str]]:
        """Open an answer that is streamed, such as a followed log; yield a function that reads it to its end."""
        timeout = urllib3.Timeout(connect=_SILENCE, read=None)
        answer = self._pool.request(
            "GET",
            self.url + path,
            headers=self._headers,
            preload_content=False,
            retries=False,
            timeout=timeout,
        )
        if answer.status >= 400:
            raise ApiError("GET", path, answer.status, _decode(answer.read()))
        try:
            yield lambda: answer.read().decode(errors="replace")
        finally:
            answer.close()

    def find(self, path: str) -> Any:
        """Read an object; None if there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def post(self, path: str, body: Any) -> Any:
        """Create an object, or call a subresource."""
        return self.request("POST", path, body)

    def put(self, path: str, body: Any) -> Any:
        """Replace an object."""
        return self.request("PUT", path, body)

    def patch(self, path: str, body: Any, kind: PatchKind = "merge") -> Any:
        """Change an object; for the kind "apply" with our own field manager and by force."""
        if kind == "apply":
            path += ("&" if "?" in path else "?") + "fieldManager=ground&force=true"
        return self.request("PATCH", path, body, _PATCH_TYPES[kind])

    def delete(self, path: str, body: Any = None) -> Any:
        """Delete an object, or a collection; the body may be DeleteOptions."""
        return self.request("DELETE", path, body)

    def list_all(self, path: str, page: int = 500) -> list[dict[str, Any]]:
        """Read all items of a list, page by page."""
        items: list[dict[str, Any]] = []
        token = ""
        while True:
            query = f"limit={page}" + (f"&continue={quote(token, safe='')}" if token else "")
            answer = self.get(f"{path}{'&' if '?' in path else '?'}{query}")
            items += answer["items"]
            token = answer["metadata"].get("continue", "")
            if not token:
                return items

    def watch(self, path: str, seconds: float) -> Iterator[dict[str, Any]]:
        """Yield the events of a watch for at most so many seconds."""
        query = f"watch=true&timeoutSeconds={max(1, int(seconds))}"
        answer = self._pool.request(
            "GET",
            f"{self.url}{path}{'&' if '?' in path else '?'}{query}",
            headers=self._headers,
            preload_content=False,
            retries=False,
            timeout=seconds + _SILENCE,
        )
        if answer.status >= 400:
            raise ApiError("WATCH", path, answer.status, _decode(answer.read()))
        partial = b""
        try:
            for chunk in answer.stream(2**16, decode_content=True):
                *lines, partial = (partial + chunk).split(b"\n")
                yield from (json.loads(line) for line in lines if line)
        finally:
            answer.close()

    def apply(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object; if it exists, change it by server-side apply (status included)."""
        collection = self.collection(manifest)
        try:
            return dict(self.post(collection, manifest))
        except ApiError as error:
            if error.status != 409 or error.reason != "AlreadyExists":
                raise
        path = f"{collection}/{manifest['metadata']['name']}"
        answer = self.patch(path, manifest, "apply")
        if "status" in manifest:
            answer = self.patch(f"{path}/status", {"status": manifest["status"]})
        return dict(answer)

    def collection(self, manifest: Mapping[str, Any]) -> str:
        """Return the path of the collection that an object belongs to, by discovery."""
        version = manifest["apiVersion"]
        prefix = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        if manifest["kind"] not in self._resources.get(version, {}):
            resources = self.get(prefix)["resources"]
            self._resources[version] = {
                r["kind"]: (r["name"], r["namespaced"]) for r in resources if "/" not in r["name"]
            }
        plural, namespaced = self._resources[version][manifest["kind"]]
        namespace = manifest["metadata"].get("namespace", "default")
        return f"{prefix}/namespaces/{namespace}/{plural}" if namespaced else f"{prefix}/{plural}"


def _decode(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")
