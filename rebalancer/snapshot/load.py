"""Reads a snapshot file, our own or kubectl's, into a Snapshot."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import msgspec
import yaml

from rebalancer.base.environment import collector_paused
from rebalancer.base.errors import PolicyError
from rebalancer.base.file_text import chunks, unpack, yaml_documents
from rebalancer.snapshot.archive import MAGIC, SnapshotArchive, read_archive
from rebalancer.snapshot.collected import Collected
from rebalancer.snapshot.file_format import (
    API_VERSIONS,
    CAPTURED_AT,
    KINDS,
    VERSION,
    version_numbers,
)
from rebalancer.snapshot.items import Item, ItemScanner, KindOf
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.decoder import JsonDecoder, in_words
from rebalancer.wire.times import unix_seconds

_ADVICE = (
    "expected what `rebalancer snapshot -o FILE` writes, or what `kubectl get"
    " pods,nodes,... -A -o json` prints"
)
_KIND_FIRST = re.compile(rb'\{\s*(?:"apiVersion"\s*:\s*"[^"]*"\s*,\s*)?"kind"\s*:\s*"([A-Za-z]+)"')
"""How API servers and kubectl begin an object."""


class _Envelope(msgspec.Struct, rename="camel"):
    class Meta(msgspec.Struct, rename="camel"):
        resource_version: str = ""
        annotations: dict[str, str] | None = None

    kind: str = ""
    metadata: Meta | None = None
    items: tuple[Any, ...] | None = None


_kinds = JsonDecoder(KindOf)
_envelopes = JsonDecoder(_Envelope)


def load_snapshot(
    path: str | Path, *, stdin: BinaryIO | None = None, finished: frozenset[str] = frozenset()
) -> Snapshot:
    """Return the snapshot in a file, compressed or not; ``-`` is ``stdin``.

    Files of ours and JSON are read piece by piece; YAML is read into memory whole. ``captured_at`` is the file's
    own word, else the newest timestamp in it; ``version`` its own word, else that of most kubelets. Kinds that
    it may lack are named in ``missing``. Objects of other kinds are passed over, and so are pods that have ended, but
    for those in the phases ``finished``.

    Raises:
        PolicyError: no such file, not of these forms, no list of API objects, or cut off; says where.
    """
    name = "standard input" if str(path) == "-" else str(path)
    try:
        with collector_paused():
            return _read(_Loader(name, finished=finished), path, stdin).finish()
    except (gzip.BadGzipFile, zlib.error) as error:
        raise PolicyError([f"{name}: damaged: {error}"]) from None
    except EOFError:
        raise PolicyError([f"{name}: cut off: the compressed data ends too early"]) from None
    except OSError as error:
        raise PolicyError([f"{name}: cannot be read: {error.strerror or error}"]) from None


def load_judgeable(
    path: str | Path, *, stdin: BinaryIO | None = None, finished: frozenset[str] = frozenset()
) -> Snapshot:
    """As :func:`load_snapshot`, for commands that need both nodes and pods.

    Raises:
        PolicyError: also where the file has no nodes or no pods and does not say that there were none.
    """
    snapshot = load_snapshot(path, stdin=stdin, finished=finished)
    lacking = [kind for kind in ("Node", "Pod") if f"{kind}: none in the file" in snapshot.missing]
    if lacking:
        name = "standard input" if str(path) == "-" else str(path)
        nouns = " and no ".join(f"{kind.lower()}s" for kind in lacking)
        raise PolicyError([f"{name}: has no {nouns}, so that nothing can be judged: {_ADVICE}"])
    return snapshot


def _read(loader: _Loader, path: str | Path, stdin: BinaryIO | None) -> _Loader:
    """Read all of the file; return the loader that did."""
    if str(path) == "-":
        if stdin is None:
            raise PolicyError(["standard input is not connected"])
        loader.read(stdin, None)
        return loader
    with Path(path).open("rb") as stream:
        loader.read(stream, Path(path))
    again = loader.restart()
    return loader if again is None else _read(again, path, stdin)


class _Loader:
    """One file: from its bytes to objects that are collected."""

    def __init__(self, name: str, *, finished: frozenset[str], keeps_idle: bool = False) -> None:
        self._name, self._keeps_idle, self._finished = name, keeps_idle, finished
        self._objects = Collected(keeps_idle=keeps_idle, finished=finished)
        self._list_kind = ""
        self._meta = _Envelope.Meta()

    def read(self, stream: BinaryIO, again: Path | None) -> None:
        """Read a stream; ``again`` is a file of the same bytes, None if there is none (standard input)."""
        plain, head = unpack(stream)
        text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
        if text[:1] == b"\0":
            raise PolicyError([f"{self._name}: is no text, and no zip archive: {_ADVICE}"])
        if not text:
            raise PolicyError([f"{self._name}: is empty: {_ADVICE}"])
        if again is None and not self._keeps_idle:
            self._objects = Collected(keeps_idle=True, finished=self._finished)
        if plain is stream and head.startswith(MAGIC):
            self._read_archive(BytesIO(head + stream.read()) if again is None else stream)
        elif text[:1] == b"{":
            self._read_json(chunks(plain, head), again)
        else:
            self._read_yaml(b"".join(chunks(plain, head)))

    def restart(self) -> _Loader | None:
        """Return a loader for a second pass if a skipped ReplicaSet or Job owns a pod; None if one pass was enough."""
        if not self._objects.passed_over_an_owner:
            return None
        return _Loader(self._name, finished=self._finished, keeps_idle=True)

    # -- forms -------------------------------------------------------------------------------------

    def _read_archive(self, stream: BinaryIO) -> None:
        try:
            archive = SnapshotArchive(stream)
            read_archive(archive, self._objects)
        except (ValueError, msgspec.DecodeError) as error:
            raise PolicyError([f"{self._name}: {error}"]) from None
        self._meta = msgspec.convert(archive.manifest.as_metadata(), _Envelope.Meta)

    def _read_json(self, chunks: Iterator[bytes], again: Path | None) -> None:
        scanner = ItemScanner()
        first = True
        try:
            for chunk in chunks:
                for item in scanner.feed(chunk):
                    if first:
                        first = False
                        self._list_kind = scanner.kind_so_far
                    self._add(item, again)
        except ValueError as error:
            raise PolicyError([f"{self._name}: {error}: {_ADVICE}"]) from None
        envelope = self._envelope(bytes(scanner.envelope), complete=scanner.complete)
        if not envelope.kind.endswith("List"):
            self._refuse(envelope.kind)
        self._meta = envelope.metadata or _Envelope.Meta()

    def _envelope(self, text: bytes, *, complete: bool) -> _Envelope:
        if not complete:
            raise PolicyError([f"{self._name}: cut off: it ends inside object {self._number + 1}"])
        try:
            return _envelopes.decode(text)
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
            what = getattr(error, "reason", None) or error
            at = f" at byte {error.position}" if isinstance(error, yaml.reader.ReaderError) else ""
            raise PolicyError([f"{self._name}: neither JSON nor YAML: {what}{at}"]) from None
        if not documents:
            raise PolicyError([f"{self._name}: is empty: {_ADVICE}"])

    def _add_document(self, document: Any) -> None:
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            self._refuse("")
        kind = document["kind"]
        if not kind.endswith("List"):
            if kind not in API_VERSIONS:
                self._refuse(kind)
            self._add(Item(-1, self._as_json(document)), None)
            return
        self._list_kind = kind
        metadata, items = document.get("metadata") or {}, document.get("items") or []
        try:
            self._meta = msgspec.convert(metadata, _Envelope.Meta, strict=False)
        except msgspec.ValidationError as error:
            raise PolicyError([f"{self._name}: metadata: {in_words(error)}"]) from None
        if not isinstance(items, list):
            raise PolicyError([f"{self._name}: items: no list: {_ADVICE}"])
        for item in items:
            self._add(Item(-1, self._as_json(item)), None)

    def _as_json(self, item: object) -> bytes:
        """Return an object of YAML as the decoders read it; YAML has values that JSON has not."""
        try:
            return msgspec.json.encode(item)
        except (TypeError, ValueError, RecursionError) as error:
            raise PolicyError(
                [f"{self._name}: object {self._number + 1}: no JSON: {error}"]
            ) from None

    # -- the objects -------------------------------------------------------------------------------

    @property
    def _number(self) -> int:
        return sum(self._objects.seen.values())

    def _add(self, item: Item, again: Path | None) -> None:
        where = f" at byte {item.offset}" if item.offset >= 0 else ""
        kind = ""
        try:
            kind = self._kind_of(item, again)
            self._objects.add_json(kind, item.text)
        except msgspec.DecodeError as error:
            what = f"object {self._number} ({kind})" if kind else f"object {self._number + 1}"
            raise PolicyError([f"{self._name}: {what}{where}: {error}"]) from None

    def _kind_of(self, item: Item, again: Path | None) -> str:
        match = _KIND_FIRST.match(item.text)
        kind = match[1].decode() if match else _kinds.decode(item.text).kind
        if kind:
            return kind
        if not self._list_kind and again is not None:
            self._list_kind = _kind_at_the_end(again)
        kind = self._list_kind.removesuffix("List")
        if not kind:
            raise PolicyError([f"{self._name}: its objects have no kind: {_ADVICE}"])
        return kind

    def _refuse(self, kind: str) -> NoReturn:
        what = f"kind {kind}" if kind else "no list of API objects"
        raise PolicyError([f"{self._name}: {what}: {_ADVICE}"])

    def finish(self) -> Snapshot:
        """Return the snapshot."""
        annotations = self._meta.annotations or {}
        try:
            return self._objects.snapshot(
                captured_at=unix_seconds(annotations.get(CAPTURED_AT)),
                version=version_numbers(annotations.get(VERSION, "")),
                kinds=annotations.get(KINDS, "").split(","),
                resource_version=self._meta.resource_version,
            )
        except PolicyError as error:
            raise PolicyError([f"{self._name}: {error}"]) from None


def _kind_at_the_end(path: Path) -> str:
    """Return the kind of a list that names it after its items (keys sorted by jq, say)."""
    scanner = ItemScanner()
    with path.open("rb") as stream:
        plain, head = unpack(stream)
        for chunk in chunks(plain, head):
            for _ in scanner.feed(chunk):
                pass
    return scanner.kind
