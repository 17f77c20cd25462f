"""The address of the API server and our identity, from a kubeconfig or the pod's service account.

The library's own error messages quote whole entries, tokens included; so errors are detected here first.
"""

from __future__ import annotations

import difflib
import os
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from rebalancer.base.data_text import yaml_documents
from rebalancer.base.errors import ClusterReadError
from rebalancer.base.plain_text import printable
from rebalancer.base.stop import CutOffError
from rebalancer.kube.calls import Call
from rebalancer.kube.failures import TransportError
from rebalancer.kube.impersonation import AS_OURSELVES, Impersonation

_LISTS = {"clusters": "cluster", "contexts": "context", "users": "user"}
Entries = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ContextChoice:
    """The chosen context, validated."""

    files: tuple[Path, ...]
    context: str
    server: str
    proxy: str | None
    user: str
    namespace: str
    """The namespace of the context; empty if it names none."""
    runs: str | None
    """What provides the credentials when it is run or queried (an exec plugin's command, an auth provider)."""
    of_cluster: dict[str, Any] = field(repr=False)
    """The cluster's fields that have a value; paths are absolute."""
    of_user: dict[str, Any] = field(repr=False)
    """The same of the user."""


_WITHOUT = (
    "`rebalancer demo --keep` starts a cluster to play with;"
    " `rebalancer plan --snapshot FILE` needs none"
)


def find_files(explicit: str | Path | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the kubeconfig files in kubectl's order: the flag, KUBECONFIG, ``~/.kube/config``.

    A missing file is no error (the process may run inside a cluster), unless the flag names it.
    """
    home = Path(environ.get("HOME") or "~")
    if explicit is not None:
        path = _expand(str(explicit), home)
        if not path.is_file():
            wrong = "is no file" if path.exists() else "does not exist"
            raise ClusterReadError(f"kubeconfig {path} {wrong}: check --kubeconfig")
        return (path,)
    named = [
        _expand(name, home) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name
    ]
    if named:
        existing = tuple(path for path in named if path.is_file())
        if not existing:
            listed = ", ".join(str(path) for path in named)
            raise ClusterReadError(f"KUBECONFIG names no existing file ({listed}). {_WITHOUT}")
        return existing
    default = _expand("~/.kube/config", home)
    return (default,) if default.is_file() else ()


def list_contexts(files: Sequence[Path]) -> list[str]:
    """Return the names of all contexts of ``files``.

    Raises:
        ClusterReadError: a file is unreadable, not YAML or incomplete.
    """
    names: set[str] = set()
    for path in files:
        names.update(_entries(path, _read(path), "contexts", _LISTS["contexts"]))
    return sorted(names)


def choose(files: Sequence[Path], context: str | None) -> ContextChoice:
    """Return the chosen context of ``files``.

    Raises:
        ClusterReadError: a file is unreadable, not YAML or incomplete, or there is no such context.
    """
    shown = os.pathsep.join(str(path) for path in files)
    merged: dict[str, Entries] = {name: {} for name in _LISTS}
    current = ""
    for path in files:
        document = _read(path)
        for name, key in _LISTS.items():
            merged[name] = _entries(path, document, name, key) | merged[name]
        # As kubectl: the first file to name it decides.
        current = current or _name(document.get("current-context"), f"{path}: current-context")
    chosen = context or current
    contexts = merged["contexts"]
    if not chosen:
        raise ClusterReadError(
            f"kubeconfig {shown} names no current-context: choose one with --context"
            f" ({_among(contexts)})"
        )
    if chosen not in contexts:
        near = difflib.get_close_matches(chosen, contexts, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ClusterReadError(
            f"kubeconfig {shown} has no context {chosen}: {hint}{_among(contexts)}"
        )
    cluster = _find_entry(shown, chosen, contexts[chosen], merged["clusters"], "cluster")
    user = _find_entry(shown, chosen, contexts[chosen], merged["users"], "user")
    _refuse_contradictions(cluster, user, f"kubeconfig {shown}, context {chosen}")
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise ClusterReadError(
            f"kubeconfig {shown}: the cluster of context {chosen} has no server address"
            f" (https://host:port)"
        )
    if "@" in server:
        # The address is in reports, records and messages.
        raise ClusterReadError(
            f"kubeconfig {shown}: the server address of context {chosen} has a user name or a password in it: put them"
            " into its user"
        )
    return ContextChoice(
        files=tuple(files),
        context=chosen,
        server=server.rstrip("/"),
        proxy=str(cluster.get("proxy-url") or "") or None,
        user=contexts[chosen].get("user") or "",
        namespace=str(contexts[chosen].get("namespace") or ""),
        runs=_runs(user),
        of_cluster=cluster,
        of_user=user,
    )


_PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


def _complete(fields: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the fields that have a value, as for client-go, with paths relative to the folder of their file."""
    said = {key: value for key, value in fields.items() if value not in ("", None)}
    for name in _PATHS:
        if isinstance(path := said.get(name), str):
            said[name] = str(folder / path)
    plugin = said.get("exec")
    command = plugin.get("command") if isinstance(plugin, Mapping) else None
    if isinstance(command, str) and os.sep in command:
        said["exec"] = {**said["exec"], "command": str(folder / command)}
    return said


_CONTRADICTIONS = (
    ("certificate-authority", "certificate-authority-data"),
    ("insecure-skip-tls-verify", "certificate-authority"),
    ("insecure-skip-tls-verify", "certificate-authority-data"),
    ("client-certificate", "client-certificate-data"),
    ("client-key", "client-key-data"),
    ("token", "username"),
    ("token", "password"),
    ("exec", "auth-provider"),
)
"""Fields of a cluster or a user that client-go refuses together."""


def _refuse_contradictions(cluster: Mapping[str, Any], user: Mapping[str, Any], where: str) -> None:
    """Raise ClusterReadError for what client-go refuses, and the library would decide without a word."""
    for one, other in _CONTRADICTIONS:
        if any(of.get(one) and of.get(other) for of in (cluster, user)):
            raise ClusterReadError(
                f"{where}: {one} and {other} are both there: remove one of them, kubectl refuses both, too"
            )
    certificate, key = (
        any(name in user for name in (kind, f"{kind}-data"))
        for kind in ("client-certificate", "client-key")
    )
    if certificate and not key:
        raise ClusterReadError(f"{where}: client-certificate has no client-key beside it")
    plugin = user.get("exec")
    asks = isinstance(plugin, Mapping) and plugin.get("interactiveMode") == "Always"
    if asks and not sys.stdin.isatty():
        raise ClusterReadError(
            f"{where}: the credential plugin needs a terminal (interactiveMode: Always), and standard input is none"
        )


def _expand(name: str, home: Path) -> Path:
    return home / name[2:] if name.startswith("~/") else Path(name)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        documents = list(yaml_documents(path.read_bytes()))
    except OSError as error:
        raise ClusterReadError(f"kubeconfig {path} cannot be read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        # Without the library's snippet of the text, which may hold a token.
        mark = error.problem_mark
        where = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ClusterReadError(f"kubeconfig {path}{where}: not YAML: {error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ClusterReadError(f"kubeconfig {path} is not YAML") from None
    document = documents[0] if documents else None
    none = isinstance(document, Mapping) and not document.keys() & {*_LISTS, "current-context"}
    if none or not isinstance(document, Mapping) or len(documents) > 1:
        raise ClusterReadError(
            f"kubeconfig {path} is {'not a kubeconfig' if document else 'empty'}:"
            f" expected clusters, contexts and users"
        )
    return document


def _entries(path: Path, document: Mapping[str, Any], name: str, key: str) -> Entries:
    entries: Entries = {}
    listed = document.get(name) or []
    if not isinstance(listed, list):
        raise ClusterReadError(f"kubeconfig {path}: {name} is not a list")
    for index, entry in enumerate(listed):
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            raise ClusterReadError(f"kubeconfig {path}: {name}[{index}] has no name")
        value = entry.get(key)
        if value is None and name == "users":
            value = {}
        if not isinstance(value, Mapping):
            raise ClusterReadError(
                f"kubeconfig {path}: {name}[{index}] ({entry['name']}) has no {key}"
            )
        entries.setdefault(entry["name"], _complete(value, path.absolute().parent))
    return entries


def _find_entry(
    shown: str, context: str, value: Mapping[str, Any], entries: Entries, key: str
) -> dict[str, Any]:
    name = _name(value.get(key), f"{shown}: {key} of context {context}")
    if key == "user" and not name:
        return {}
    if name not in entries:
        raise ClusterReadError(
            f"kubeconfig {shown}: context {context} refers to {key} {name!r}, which is not there"
            f" ({_among(entries)})"
        )
    return entries[name]


def _name(value: Any, where: str) -> str:
    """Return a name; empty if there is none."""
    if not isinstance(value, str | None):
        raise ClusterReadError(f"kubeconfig {where} is not a name")
    return value or ""


def _runs(user: Mapping[str, Any]) -> str | None:
    plugin = user.get("exec")
    if isinstance(plugin, Mapping):
        return f"credential plugin {plugin.get('command')}"
    provider = user.get("auth-provider")
    if isinstance(provider, Mapping):
        return f"auth provider {provider.get('name')}"
    return None


def _among(entries: Mapping[str, Any]) -> str:
    return f"it has: {', '.join(sorted(entries))}" if entries else "it has none"


_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PLUGIN_SECONDS = 120.0
_MAX_TEXT = 300


class Credentials:
    """The library's client configuration, kept up to date. Thread-safe.

    ``load`` fills a new configuration. It is called again when the server rejects our credentials, since a token may
    have been renewed in its file or by its plugin. Everything slow is part of a :class:`Call`, and ends with it.
    """

    def __init__(
        self,
        load: Callable[[Call], Any],
        call: Call,
        *,
        runs: str | None = None,
        namespace: str = "",
        impersonated: Impersonation = AS_OURSELVES,
    ) -> None:
        """``namespace``: that of the kubeconfig's context, or of the pod."""
        self._load = load
        self.namespace = namespace
        self.impersonated = impersonated
        self._runs = runs
        self._lock = threading.Lock()
        self.configuration = load(call)
        self.server = str(self.configuration.host).rstrip("/")

    def authorization(self, call: Call) -> str | None:
        """Return the value of the Authorization header; None with a client certificate only.

        The library re-reads a service account's token every minute, and runs a plugin again when its token expires.

        Raises:
            ClusterReadError: the credentials could not be renewed.
        """
        with self._lock, _translated("the credentials could not be renewed"):
            value = self._run(self.configuration.get_api_key_with_prefix, call)
        return " ".join(value.split()) if value else None

    def _run(self, ask: Callable[[str], Any], call: Call) -> Any:
        if self._runs is None:
            return ask("BearerToken")
        return _limit_time(lambda: ask("BearerToken"), self._runs, call)

    def renew(self, call: Call) -> bool:
        """Read the credentials again; return whether they have changed. Raises as :meth:`authorization`."""
        before = self.authorization(call)
        with self._lock:
            fresh = self._load(call)
            self.configuration.api_key = fresh.api_key
            self.configuration.refresh_api_key_hook = fresh.refresh_api_key_hook
        return self.authorization(call) != before


def find_credentials(
    *,
    file: str | Path | None,
    context: str | None,
    environ: Mapping[str, str],
    call: Call,
    impersonate: Impersonation = AS_OURSELVES,
) -> Credentials:
    """Return the credentials that kubectl would use in this environment; a plugin runs as part of ``call``.

    ``impersonate``: the flags ``--as``, ``--as-uid`` and ``--as-group``.

    Raises:
        ClusterReadError: there are none, or something is wrong with them.
    """
    files = find_files(file, environ)
    if files:
        choice = choose(files, context)
        where = f"kubeconfig {choice.files[0]}, context {choice.context}"
        return Credentials(
            # Read again for each renewal: somebody may have written a new token.
            lambda call: _from_kubeconfig(choose(files, choice.context), environ, call),
            call,
            runs=choice.runs,
            namespace=choice.namespace,
            impersonated=impersonate.over(choice.of_user, where),
        )
    if context is not None:
        raise ClusterReadError(f"--context {context} needs a kubeconfig, and there is none")
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ, _SERVICE_ACCOUNT, call, impersonate)
    raise ClusterReadError(
        "no cluster to talk to: there is no --kubeconfig, KUBECONFIG is not set, ~/.kube/config does"
        f" not exist, and this is not a pod with a service account. {_WITHOUT}"
    )


def in_cluster(
    environ: Mapping[str, str], folder: Path, call: Call, impersonate: Impersonation = AS_OURSELVES
) -> Credentials:
    """Return the credentials of the pod that we run in, from its service account's ``folder``."""

    def load(_: Call) -> Any:
        config = _new_configuration()
        from kubernetes.config.incluster_config import InClusterConfigLoader  # noqa: PLC0415

        with _translated(f"the pod's service account in {folder} cannot be used"):
            InClusterConfigLoader(
                token_filename=str(folder / "token"),
                cert_filename=str(folder / "ca.crt"),
                environ=environ,
            ).load_and_set(config)
        _set_proxy(config, None, environ)
        return config

    return Credentials(
        load,
        call,
        namespace=environ.get("POD_NAMESPACE", ""),
        impersonated=impersonate.over({}, "the pod's service account"),
    )


def _from_kubeconfig(choice: ContextChoice, environ: Mapping[str, str], call: Call) -> Any:
    from kubernetes.config.kube_config import KubeConfigLoader  # noqa: PLC0415

    config = _new_configuration()
    # The library would read all files again, by a parser without C, and take paths of a user to be relative to its cluster's file.
    names = {"cluster": "cluster", "user": "user"}

    def load() -> None:
        whole = {
            "contexts": [{"name": choice.context, "context": names}],
            "clusters": [{"name": "cluster", "cluster": _cluster_for_library(choice)}],
            "users": [{"name": "user", "user": _user_for_library(choice.of_user)}],
        }
        KubeConfigLoader(whole, active_context=choice.context).load_and_set(config)

    with _translated(f"kubeconfig {choice.files[0]}, context {choice.context}"):
        if choice.runs is None:
            load()
        else:
            _run_plugin(load, config, choice, call)
    if choice.server.startswith("http://"):
        config.tls_server_name = None
        if not _is_this_machine(choice.server):
            # As kubectl: everybody on the way would read them.
            config.api_key, config.refresh_api_key_hook = {}, None
    else:
        _check_authority(config.ssl_ca_cert, choice)
    _set_proxy(config, choice.proxy, environ)
    return config


def _cluster_for_library(choice: ContextChoice) -> dict[str, Any]:
    """Return the cluster; for a plugin that it is shown to with its authority as data, as the plugin's contract has it."""
    cluster, plugin = dict(choice.of_cluster), choice.of_user.get("exec")
    file = cluster.get("certificate-authority")
    if file and isinstance(plugin, Mapping) and plugin.get("provideClusterInfo"):
        cluster["certificate-authority-data"] = b64encode(Path(file).read_bytes()).decode()
    return cluster


def _user_for_library(user: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user as client-go reads it: a token's file comes before the token, and a password may be empty."""
    fields = dict(user)
    if "token" in fields and "tokenFile" in fields:
        del fields["token" if Path(fields["tokenFile"]).is_file() else "tokenFile"]
    if fields.keys() & {"username", "password"}:
        fields = {"username": "", "password": "", **fields}
    return fields


def _is_this_machine(server: str) -> bool:
    host = urlsplit(server).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _check_authority(file: str | None, choice: ContextChoice) -> None:
    """Reject a file that is not a certificate: in a connection, TLS would name neither key nor file."""
    if file is None:
        return
    import ssl  # noqa: PLC0415  # with a cluster of https only

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except (OSError, ValueError):
        raise ClusterReadError(
            f"kubeconfig {choice.files[0]}, context {choice.context}: certificate-authority-data (or the file of"
            f" certificate-authority) of its cluster is no certificate in PEM form: copy it again from the cluster's"
            f" own kubeconfig; the data are the base64 of the whole PEM file"
        ) from None


def _new_configuration() -> Any:
    from kubernetes.client import Configuration  # noqa: PLC0415

    return Configuration()


def _run_plugin(load: Callable[[], None], config: Any, choice: ContextChoice, call: Call) -> None:
    """Run ``load``; if it yields no credentials, raise the plugin's own error message.

    The library only logs that message, so the plugin is run again without the library's loader.
    """
    what = f"{choice.runs} of user {choice.user}"
    _limit_time(load, what, call)
    if config.api_key or config.cert_file:
        return
    said = "it gave no credentials"
    plugin = choice.of_user.get("exec")
    if isinstance(plugin, Mapping):
        try:
            _limit_time(lambda: _ask(choice, plugin), what, call)
        except TransportError:
            raise
        except Exception as error:  # noqa: BLE001  (the library has several; a plugin may be no program at all)
            missing = isinstance(error, FileNotFoundError)
            hint = f" {plugin['installHint']}" if plugin.get("installHint") else ""
            named = f"there is no program {plugin.get('command')}: is it on the PATH?{hint}"
            said = printable(named if missing else " ".join(str(error).split()))
    raise ClusterReadError(f"the {what} failed: {said[:_MAX_TEXT]}")


def _ask(choice: ContextChoice, plugin: Mapping[str, Any]) -> None:
    from kubernetes.config.exec_provider import ExecProvider  # noqa: PLC0415
    from kubernetes.config.kube_config import ConfigNode  # noqa: PLC0415

    cluster = ConfigNode("cluster", _cluster_for_library(choice))
    ExecProvider(ConfigNode("exec", dict(plugin)), None, cluster).run()


def _limit_time(ask: Callable[[], Any], what: str, call: Call) -> Any:
    """Return the result of ``ask``, within the time limit of ``call``: the library sets none for plugins."""
    try:
        return call.at_most(_PLUGIN_SECONDS).run(ask)
    except CutOffError as error:
        raise TransportError(
            f"the {what} gave no answer: {error}", sent=False, final=True
        ) from None


def _set_proxy(config: Any, of_cluster: str | None, environ: Mapping[str, str]) -> None:
    """Choose the proxy as kubectl does: the cluster's own, else the environment's for the scheme."""
    scheme = str(config.host).split(":", 1)[0]
    name = f"{scheme}_proxy"
    config.proxy = of_cluster or environ.get(name) or environ.get(name.upper()) or None
    config.no_proxy = None
    if of_cluster is None:
        config.no_proxy = environ.get("no_proxy") or environ.get("NO_PROXY") or None


class _translated:  # noqa: N801  (a context manager that reads like a verb)
    """Converts exceptions of the library into a ClusterReadError without secrets."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if error is None or not isinstance(error, Exception) or isinstance(error, ClusterReadError):
            return
        if isinstance(error, OSError):
            text = f"{error.filename}: {error.strerror}"
        elif type(error).__name__ == "ConfigException":
            # From the first brace on, the library quotes the entry, and with it the token.
            text = str(error).split("{", 1)[0].strip()
        else:
            # The text of other errors may quote the data, and their kind says nothing to a user.
            text = "the credentials are malformed: check the certificates and keys of the user"
        raise ClusterReadError(f"{self._what}: {text[:_MAX_TEXT]}") from None
