"""Reads a snapshot file, our own or kubectl's, into a Snapshot."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import msgspec
import yaml

from rebalancer.environment import collector_paused
from rebalancer.errors import PolicyError
from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.feed import feed
from rebalancer.snapshot.file_format import API_VERSIONS, CAPTURED_AT, KINDS, METRICS, VERSION
from rebalancer.snapshot.items import Item, ItemScanner, Kind
from rebalancer.snapshot.likeness import KIND_FIRST, Likenesses, PodLikeness, Run
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.pattern import Match
from rebalancer.snapshot.text import chunks, unpacked, yaml_documents
from rebalancer.wire.lists import item_decoder
from rebalancer.wire.pods import Pod
from rebalancer.wire.times import unix_seconds

NEWEST_VERSION = (1, 36)
"""Taken for the server's when neither the file nor its nodes tell."""

_ADVICE = (
    "expected what `rebalancer snapshot -o FILE` writes, or what `kubectl get"
    " pods,nodes,... -A -o json` prints"
)
_AFTER_PODS = ("ReplicaSet", "Job")


class _Envelope(msgspec.Struct, rename="camel"):
    class Meta(msgspec.Struct, rename="camel"):
        resource_version: str = ""
        annotations: dict[str, str] | None = None

    kind: str = ""
    metadata: Meta | None = None
    items: tuple[Any, ...] | None = None


class _NodeVersion(msgspec.Struct, rename="camel"):
    class Status(msgspec.Struct, rename="camel"):
        class Info(msgspec.Struct, rename="camel"):
            kubelet_version: str = ""

        node_info: Info | None = None

    status: Status | None = None


_pods = msgspec.json.Decoder(Pod)
_kinds = msgspec.json.Decoder(Kind)
_node_versions = msgspec.json.Decoder(_NodeVersion)


def load_snapshot(path: str | Path, *, stdin: BinaryIO | None = None) -> Snapshot:
    """Return the snapshot in a file, compressed or not; ``-`` is ``stdin``.

    JSON is read piece by piece; YAML is held in memory whole. ``captured_at`` is the file's own word, else
    the newest timestamp in it; ``version`` its own word, else that of most kubelets. Kinds that it may
    lack are named in ``missing``. Objects of other kinds are passed over.

    Raises:
        PolicyError: no such file, not JSON or YAML, no list of API objects, or cut off; says where.
    """
    name = "standard input" if str(path) == "-" else str(path)
    loader = _Loader(name)
    try:
        with collector_paused():
            loader = _read(loader, path, stdin)
            return loader.finish()
    except gzip.BadGzipFile as error:
        raise PolicyError([f"{name}: damaged: {error}"]) from None
    except EOFError:
        raise PolicyError([f"{name}: cut off: the compressed data ends too early"]) from None
    except OSError as error:
        raise PolicyError([f"{name}: cannot be read: {error.strerror or error}"]) from None


def _read(loader: _Loader, path: str | Path, stdin: BinaryIO | None) -> _Loader:
    """Read all of the file; return the loader that did."""
    if str(path) == "-":
        if stdin is None:
            raise PolicyError(["standard input is not connected"])
        loader.read(stdin, None)
        return loader
    with Path(path).open("rb") as stream:
        loader.read(stream, Path(path))
    again = loader.anew()
    return loader if again is None else _read(again, path, stdin)


class _Loader:
    """One file on its way into the fold."""

    def __init__(self, name: str, *, keeps_idle: bool = False) -> None:
        self._name, self._keeps_idle = name, keeps_idle
        self._fold = Fold()
        self._likenesses = Likenesses()
        self._late: list[tuple[str, Any]] = []
        self._seen: Counter[str] = Counter()
        self._kubelets: Counter[tuple[int, int]] = Counter()
        self._passed_over: set[str] = set()
        self._newest = 0.0
        self._list_kind = ""
        self._meta = _Envelope.Meta()
        self._ours = False

    # -- the text ----------------------------------------------------------------------------------

    def read(self, stream: BinaryIO, again: Path | None) -> None:
        plain, head = unpacked(stream)
        text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
        if not text:
            raise PolicyError([f"{self._name}: is empty: {_ADVICE}"])
        if text[:1] == b"{":
            self._read_json(chunks(plain, head), again)
        else:
            self._read_yaml(b"".join(chunks(plain, head)))

    def _read_json(self, chunks: Iterator[bytes], again: Path | None) -> None:
        scanner = ItemScanner(self._likenesses.recognise)
        first = True
        try:
            for chunk in chunks:
                for item in scanner.feed(chunk):
                    if first:
                        first = False
                        self._look_ahead(bytes(scanner.envelope))
                    self._add(item, again)
        except ValueError as error:
            raise PolicyError([f"{self._name}: {error}: {_ADVICE}"]) from None
        envelope = self._envelope(bytes(scanner.envelope), complete=scanner.complete)
        if not envelope.kind.endswith("List"):
            self._refuse(envelope.kind)
        self._meta = envelope.metadata or _Envelope.Meta()

    def _look_ahead(self, beginning: bytes) -> None:
        """Take what stands before the first item: the kind, and whether the file is our own."""
        try:
            known = msgspec.json.decode(beginning + b"]}", type=_Envelope)
        except msgspec.DecodeError:
            return
        self._list_kind = known.kind
        annotations = (known.metadata.annotations if known.metadata else None) or {}
        self._ours = KINDS in annotations

    def _envelope(self, text: bytes, *, complete: bool) -> _Envelope:
        if not complete:
            raise PolicyError(
                [f"{self._name}: cut off: it ends amid object {sum(self._seen.values()) + 1}"]
            )
        try:
            return msgspec.json.decode(text, type=_Envelope)
        except msgspec.DecodeError as error:
            raise PolicyError([f"{self._name}: not one JSON list: {error}: {_ADVICE}"]) from None

    def _read_yaml(self, text: bytes) -> None:
        documents = 0
        try:
            for document in yaml_documents(text):
                if document is None:
                    continue
                documents += 1
                self._add_document(document)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            where = f"{self._name}:{mark.line + 1}:{mark.column + 1}" if mark else self._name
            raise PolicyError([f"{where}: neither JSON nor YAML: {error.problem}"]) from None
        except yaml.YAMLError as error:
            raise PolicyError([f"{self._name}: neither JSON nor YAML: {error}"]) from None
        if not documents:
            raise PolicyError([f"{self._name}: is empty: {_ADVICE}"])

    def _add_document(self, document: Any) -> None:
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            self._refuse("")
        kind = document["kind"]
        if not kind.endswith("List"):
            if kind not in API_VERSIONS:
                self._refuse(kind)
            self._add(Item(-1, msgspec.json.encode(document)), None)
            return
        self._list_kind = kind
        self._meta = msgspec.convert(document.get("metadata") or {}, _Envelope.Meta, strict=False)
        for item in document.get("items") or ():
            self._add(Item(-1, msgspec.json.encode(item)), None)

    # -- the objects -------------------------------------------------------------------------------

    def _add(self, item: Item, again: Path | None) -> None:
        run = item.like if isinstance(item.like, Run) else None
        kind = run.like.kind if run is not None else self._kind_of(item, again)
        try:
            if run is None:
                self._add_one(kind, item)
            elif kind not in API_VERSIONS:
                self._seen[kind] += len(run.matches)
            elif isinstance(run.like, PodLikeness):
                self._add_pods(run, run.like)
            else:
                self._add_alike(run, again)
        except msgspec.DecodeError as error:
            where = f" at byte {item.offset}" if item.offset >= 0 else ""
            raise PolicyError(
                [f"{self._name}: object {sum(self._seen.values())} ({kind}){where}: {error}"]
            ) from None

    def _add_one(self, kind: str, item: Item) -> None:
        self._seen[kind] += 1
        if kind not in API_VERSIONS:
            return
        if kind == "Pod":
            record = _pods.decode(item.text).record()
            self._note_time(record.ready_since or record.created)
            self._fold.add_pods((record,))
        else:
            self._add_object(kind, item.text)
        if item.offset >= 0:
            self._likenesses.remember(kind, item.text)

    def _add_object(self, kind: str, text: bytes) -> None:
        decoded = item_decoder(kind).decode(text)
        if kind == "Node":
            self._note_node(decoded, text)
        elif kind in METRICS:
            self._note_time(decoded.at)
        self._note_time(unix_seconds(decoded.metadata.creation_timestamp))
        if kind in _AFTER_PODS and not self._ours:
            # Which of them own a pod is known when all pods are; our own files have pods first.
            self._late.append((kind, decoded))
        else:
            feed(self._fold, kind, (decoded,))

    def _add_pods(self, run: Run, like: PodLikeness) -> None:
        for pods in like.alike(run):
            self._seen["Pod"] += len(pods.names)
            ready = pods.ready_since
            if not all(ready):
                ready = [at or born for at, born in zip(ready, pods.created, strict=True)]
            self._note_time(max(ready))
            self._fold.add_alike(pods)

    def _add_alike(self, run: Run, again: Path | None) -> None:
        kind = run.like.kind
        for match in run.matches:
            self._seen[kind] += 1
            if not self._is_idle(kind, run, match, again):
                self._add_object(kind, run.buffer[match.start : match.end])

    def _is_idle(self, kind: str, run: Run, match: Match, again: Path | None) -> bool:
        """Tell whether an object is a ReplicaSet or Job that owns no pod seen so far: most own none.

        Pods that come later may name it; then the file is read :meth:`anew`.
        """
        if kind not in _AFTER_PODS or not self._seen["Pod"] or self._keeps_idle:
            return False
        uid = run.get(match, "uid")
        if (again is None and not self._ours) or uid is None or uid in self._fold.controllers:
            return False
        created = run.get(match, "created")
        self._note_time(unix_seconds(created) if created is not None else 0.0)
        if not self._ours:
            self._passed_over.add(uid)
        return True

    def anew(self) -> _Loader | None:
        """Return a loader to read the file again with, if something was passed over that matters."""
        if not any(uid in self._fold.controllers for uid in self._passed_over):
            return None
        return _Loader(self._name, keeps_idle=True)

    def _kind_of(self, item: Item, again: Path | None) -> str:
        match = KIND_FIRST.match(item.text)
        if match:
            return match[1].decode()
        try:
            kind = _kinds.decode(item.text).kind
        except msgspec.DecodeError as error:
            number = sum(self._seen.values()) + 1
            raise PolicyError(
                [f"{self._name}: object {number} at byte {item.offset}: {error}"]
            ) from None
        if kind:
            return kind
        if not self._list_kind and again is not None:
            self._list_kind = _kind_at_the_end(again)
        kind = self._list_kind.removesuffix("List")
        if not kind:
            raise PolicyError([f"{self._name}: its objects have no kind: {_ADVICE}"])
        return kind

    def _note_node(self, node: Any, text: bytes) -> None:
        for condition in node.status.conditions or ():
            self._note_time(unix_seconds(condition.last_heartbeat_time))
        status = _node_versions.decode(text).status
        version = status.node_info.kubelet_version if status and status.node_info else ""
        match = re.match(r"v?(\d+)\.(\d+)", version)
        if match:
            self._kubelets[int(match[1]), int(match[2])] += 1

    def _note_time(self, seconds: float) -> None:
        self._newest = max(self._newest, seconds)

    def _refuse(self, kind: str) -> NoReturn:
        found = f"kind {kind}" if kind else "no list of API objects"
        raise PolicyError([f"{self._name}: {found}: {_ADVICE}"])

    # -- the end -----------------------------------------------------------------------------------

    def finish(self) -> Snapshot:
        """Return the snapshot."""
        for kind, workload in self._late:
            feed(self._fold, kind, (workload,))
        annotations = self._meta.annotations or {}
        read = annotations.get(KINDS, "").split(",")
        missing = tuple(
            f"{kind}: none in the file"
            for kind in API_VERSIONS
            if not self._seen[kind] and kind not in read and kind not in METRICS
        )
        return self._fold.finish(
            captured_at=unix_seconds(annotations.get(CAPTURED_AT)) or self._newest,
            version=self._version(annotations.get(VERSION, "")),
            missing=missing,
            resource_version=self._meta.resource_version,
        )

    def _version(self, text: str) -> tuple[int, int]:
        match = re.fullmatch(r"(\d+)\.(\d+)", text)
        if match:
            return int(match[1]), int(match[2])
        if self._kubelets:
            # The newer of two that are equally many: kubelets are never newer than the server.
            return max(self._kubelets, key=lambda version: (self._kubelets[version], version))
        return NEWEST_VERSION


def _kind_at_the_end(path: Path) -> str:
    """Return the kind of a list that names it after its items (keys sorted by jq, say)."""
    scanner = ItemScanner()
    with path.open("rb") as stream:
        plain, head = unpacked(stream)
        for chunk in chunks(plain, head):
            for _ in scanner.feed(chunk):
                pass
    return scanner.kind
