"""Tokens of ServiceAccounts."""

from pathlib import Path
from typing import Any

from tests.controlplane import pki
from tests.controlplane.api import ApiClient

_ISSUER = "https://kubernetes.default.svc"
_SHORTEST = 600


def token(
    api: ApiClient,
    key: Path,
    namespace: str,
    name: str,
    expiration_seconds: int,
    bound_to: str | None = None,
    kind: str = "Secret",
) -> str:
    """Return a token of a ServiceAccount, by the TokenRequest API; it ends with the Secret or Pod it is bound to.

    That API gives none for less than ten minutes: shorter ones, down to expired ones (a negative
    number), are signed here with the API server's own key.
    """
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}"
    if expiration_seconds >= _SHORTEST:
        spec: dict[str, Any] = {"expirationSeconds": expiration_seconds}
        if bound_to is not None:
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": kind, "name": bound_to}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return str(api.post(f"{path}/token", request)["status"]["token"])
    uid = api.get(path)["metadata"]["uid"]
    claims = {
        "iss": _ISSUER,
        "aud": [_ISSUER],
        "sub": f"system:serviceaccount:{namespace}:{name}",
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}},
    }
    return pki.sign_token(key, claims, expiration_seconds)
