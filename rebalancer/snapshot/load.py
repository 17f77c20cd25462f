"""Read a snapshot file, our own or kubectl's, into a Snapshot.

A file may be damaged, truncated or malicious. From our own files, only members in the manifest are read, each once,
and never more bytes than the manifest names; only one piece is in memory.

API servers never store objects that break the fold, so objects are searched for errors only if the fold has failed.
"""

from __future__ import annotations

import gzip
import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, Protocol

import msgspec
import numpy as np
import yaml
from msgspec import Raw

from rebalancer.base.data_text import read_rest, unpack, unpack_limit, yaml_documents
from rebalancer.base.environment import collector_paused
from rebalancer.base.errors import PolicyError
from rebalancer.snapshot.build import Fold, Settled
from rebalancer.snapshot.measured import PodUse
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.pod_table import PodRows, SettledPods
from rebalancer.snapshot.store import (
    API_VERSIONS,
    ASKED_FOR,
    CAPTURED_AT,
    JSON_END,
    KINDS,
    MANIFEST,
    METRICS,
    ONCE_EMPTY,
    VERSION,
    Manifest,
    StoredList,
    decode_manifest,
    json_head,
    version_numbers,
)
from rebalancer.wire import objects as o
from rebalancer.wire.kinds import (
    ALL_POD_GROUPS,
    KARPENTER,
    KUBECTL_GET,
    OWNING_KINDS,
    POD_GROUPS,
)
from rebalancer.wire.lists import JsonDecoder, in_words, item_decoder
from rebalancer.wire.pods import FINISHED, Pod
from rebalancer.wire.times import unix_seconds

NEWEST_VERSION = (1, 36)
"""Taken for the server's when neither the file nor its nodes say it."""

UNUSABLE = (ArithmeticError, LookupError, TypeError, ValueError)
"""The exceptions that an unusable value raises."""

_NO_PODS = SettledPods(PodRows(), (), (), ())


class _NodeVersion(msgspec.Struct, rename="camel"):
    class Status(msgspec.Struct, rename="camel"):
        class Info(msgspec.Struct, rename="camel"):
            kubelet_version: str = ""

        node_info: Info | None = None

    status: Status | None = None


class _Version(msgspec.Struct, rename="camel"):
    api_version: str = ""


_pods = JsonDecoder(Pod)
_node_versions = JsonDecoder(_NodeVersion)
_versions = JsonDecoder(_Version)
_GROUPS = {
    POD_GROUPS.kind: frozenset(one.group for one in ALL_POD_GROUPS),
    **{one.kind: frozenset([one.group]) for one in KARPENTER},
}
"""Kind -> the API groups of which it is read."""


KeptObjects = list[tuple[str, bytes | Raw | o.Workload]]
"""Kind and object, as in the file; decoded if the file is in protobuf."""


class Sink(Protocol):
    """Takes the objects of one file, one after the other, in whatever form the file has them."""

    seen: Counter[str]
    """Kind -> objects so far."""

    def add_json(self, kind: str, text: bytes | Raw) -> None:
        """Add one object, ReplicaSets and Jobs after all pods; raises msgspec.DecodeError if it is none."""

    def add_run(self, kind: str, run: bytes) -> None:
        """Add the objects of a run in protobuf, without counting them; ReplicaSets and Jobs after all pods."""


class Collected:
    """The objects of one file, folded; a :class:`Sink`."""

    def __init__(self, finished: frozenset[str] = frozenset()) -> None:
        """``finished``: see :class:`Fold`."""
        self._fold = Fold(finished)
        self._kubelets: Counter[tuple[int, int]] = Counter()
        self._newest = 0.0
        self.seen: Counter[str] = Counter()
        """Kind -> objects so far."""
        self.kept: KeptObjects = []
        self.keeps: Collection[str] = ()
        """Kinds whose objects are kept unchanged in ``kept``."""

    def add_json(self, kind: str, text: bytes | Raw) -> None:
        """Add one object, ReplicaSets and Jobs after all pods; objects of unused kinds are only counted.

        Raises:
            msgspec.DecodeError: the text is not such an object.
        """
        self.seen[kind] += 1
        if kind not in API_VERSIONS:
            return
        if kind == "Pod":
            record = _pods.decode_manifest(text).record()
            if not record.uid:
                # Plans and reports tell pods apart by it; files that programs write may have none.
                record = record._replace(uid=f"{record.namespace}/{record.name}")
            self._note_time(record.ready_since or record.created)
            self._fold.add_pods((record,))
            return
        if kind in _GROUPS and not _is_read(kind, text):
            return
        decoded = item_decoder(kind).decode_manifest(text)
        if kind in self.keeps:
            self.kept.append((kind, text))
        if kind == "Node":
            self._note_node(decoded, text)
        elif kind in METRICS:
            self._note_time(decoded.at)
        self._note_time(unix_seconds(decoded.metadata.creation_timestamp))
        if kind not in OWNING_KINDS or decoded.metadata.uid in self._fold.controllers:
            self._fold.add(kind, (decoded,))

    def add_run(self, kind: str, run: bytes) -> None:
        """Add the objects of a run in protobuf, without counting them; ReplicaSets and Jobs after all pods.

        Raises:
            ValueError: the run holds no such objects.
        """
        # Imported where they are used: most files are read without protobuf.
        from rebalancer.wire.protobuf.lists import decode_run  # noqa: PLC0415
        from rebalancer.wire.protobuf.pods import pod_records  # noqa: PLC0415

        if kind == "Pod":
            self._fold.add_pods(pod_records(run))
            return
        objects = decode_run(kind, run, self._fold.controllers if kind in OWNING_KINDS else None)
        if kind in self.keeps:
            self.kept.extend((kind, one) for one in objects)
        self._fold.add(kind, objects)

    def _note_node(self, node: Any, text: bytes | Raw) -> None:
        for condition in node.status.conditions or ():
            self._note_time(unix_seconds(condition.last_heartbeat_time))
        status = _node_versions.decode(text).status
        version = status.node_info.kubelet_version if status and status.node_info else ""
        match = re.match(r"v?(\d+)\.(\d+)", version)
        if match:
            self._kubelets[int(match[1]), int(match[2])] += 1

    def _note_time(self, seconds: float) -> None:
        self._newest = max(self._newest, seconds)

    def snapshot(
        self,
        *,
        captured_at: float = 0.0,
        version: tuple[int, int] | None = None,
        kinds: Collection[str] = (),
        resource_version: str = "",
    ) -> Snapshot:
        """Return the snapshot; nothing can be added afterwards.

        The default time is that of the newest timestamp; the default version is that of most kubelets. ``kinds`` are
        complete: no object of such a kind exists except the added ones.

        Raises:
            PolicyError: an object has a value with which no snapshot can be made; names the object.
        """
        for kind in ONCE_EMPTY.intersection(kinds):
            self._fold.add(kind, ())
        missing = tuple(
            f"{kind}: none in the file"
            for kind in API_VERSIONS
            if not self.seen[kind] and kind not in kinds and kind not in ASKED_FOR
        )
        try:
            snapshot = self._fold.finish(
                captured_at=captured_at or self._newest,
                version=version or self._kubelet_version(),
                missing=missing,
                resource_version=resource_version,
            )
        except UNUSABLE as error:
            culprit = unusable_object(self._fold.settle())
            if culprit is None:
                raise
            raise PolicyError(
                [f"{culprit}: it has a value that no API server admits: {error}"]
            ) from None
        _refuse_twins(snapshot)
        return replace(snapshot, version_known=version is not None or bool(self._kubelets))

    def _kubelet_version(self) -> tuple[int, int]:
        if not self._kubelets:
            return NEWEST_VERSION
        # The newer of two that are equally many: kubelets are never newer than the server.
        return max(self._kubelets, key=lambda version: (self._kubelets[version], version))


def _is_read(kind: str, text: bytes | Raw) -> bool:
    """Return whether an object is of an API group whose objects are read; others have kinds of this name, too."""
    version = _versions.decode(text).api_version
    return not version or version.rpartition("/")[0] in _GROUPS[kind]


def _refuse_twins(snapshot: Snapshot) -> None:
    """Raise PolicyError if the file contains a pod twice, for example joined outputs of kubectl."""
    pods = snapshot.pods
    namespaces = [of_class.namespace for of_class in snapshot.classes]
    of_pods = map(namespaces.__getitem__, pods.cls.tolist())
    # In order of namespace and name, so that twins stand side by side.
    twins = [one for one, other in pairwise(zip(of_pods, pods.name, strict=True)) if one == other]
    if twins:
        more = f" and {len(twins) - 1} more" if len(twins) > 1 else ""
        raise PolicyError(
            [
                f"Pod {'/'.join(twins[0])}{more}: stands in the file more than once; leave one of each"
            ]
        )


def unusable_object(settled: Settled) -> str | None:
    """Return kind, namespace and name of the first object that cannot be folded; None if there is none."""
    nodes = {node.metadata.name: node for node in settled.objects.get("Node", ())}
    for kind, objects in settled.objects.items():
        for one in objects:
            meta = one.metadata
            alone = {kind: (one,)}
            if kind == "CSINode" and meta.name in nodes:
                alone["Node"] = (nodes[meta.name],)
            if _fails(Settled(_NO_PODS, alone, PodUse())):
                return _name_object(kind, meta)
    return _unusable_pod(settled.pods)


def _unusable_pod(pods: SettledPods) -> str | None:
    """Return the first pod of the first class that cannot be folded."""
    _, first = np.unique(pods.cls, return_index=True)
    for cls, row in enumerate(first.tolist()):
        rows = pods.rows.take(np.array([row], np.intp))
        rows.cls[0] = 0
        of_class = pods.classes[cls]
        alone = SettledPods(rows, (of_class,), pods.node_names, pods.states)
        if _fails(Settled(alone, {}, PodUse())):
            name = o.ObjectMeta(name=rows.name[0], namespace=of_class.controller.namespace)
            return _name_object("Pod", name)
    return None


def _fails(settled: Settled) -> bool:
    try:
        settled.snapshot(captured_at=0.0, version=(1, 36))
    except UNUSABLE:
        return True
    return False


def _name_object(kind: str, meta: o.ObjectMeta) -> str:
    return f"{kind} {f'{meta.namespace}/' if meta.namespace else ''}{meta.name}"


MAGIC = b"PK"
_PIECE = 1 << 20
_MAX_MANIFEST = 1 << 20
_MAX_OBJECT = 1 << 25
"""Bytes kept in memory; etcd accepts objects of a few MiB."""
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


_ORDER = (
    "Pod",
    *(kind for kind in API_VERSIONS if kind not in ("Pod", *OWNING_KINDS)),
    *OWNING_KINDS,
)


class SnapshotArchive:
    """An open snapshot file."""

    def __init__(self, stream: BinaryIO) -> None:
        """Read the manifest from a seekable stream.

        Raises:
            ValueError: the stream is not a complete snapshot file.
        """
        with as_value_errors():
            self._zip = zipfile.ZipFile(stream)
        text = b"".join(self._pieces(MANIFEST, _MAX_MANIFEST))
        self.manifest: Manifest = decode_manifest(text)

    def pieces(self, stored: StoredList) -> Iterator[bytes]:
        """Yield the bytes of a list in pieces.

        Raises:
            ValueError: the list is damaged or truncated.
        """
        size = 0
        for piece in self._pieces(stored.file, stored.bytes):
            size += len(piece)
            yield piece
        if size < stored.bytes:
            raise ValueError(
                f"{stored.file}: it has {size} bytes, not the {stored.bytes} of the manifest"
            )

    def _pieces(self, name: str, most: int) -> Iterator[bytes]:
        with as_value_errors(name):
            info = self._zip.getinfo(name)
            if info.compress_type not in _METHODS:
                raise ValueError("it is compressed in a way that snapshots are not")
            packed = min(info.compress_size, self._zip.start_dir)
            if min(most, info.file_size) > unpack_limit(packed):
                raise ValueError("it unpacks to far more than objects of a cluster do")
            with self._zip.open(info) as member:
                left = most
                # One byte more than there should be: the end is seen, and the checksum compared.
                while piece := member.read(min(_PIECE, left + 1)):
                    left -= len(piece)
                    if left < 0:
                        raise ValueError(f"it has more than {most} bytes")
                    yield piece


@contextmanager
def as_value_errors(name: str = "") -> Iterator[None]:
    """Convert zipfile's errors on damaged files into a ValueError that names the member."""
    where = f"{name}: " if name else ""
    try:
        yield
    except KeyError:
        raise ValueError(f"{where}it is not in the file, which is cut off or no snapshot") from None
    except EOFError:
        raise ValueError(f"{where}cut off") from None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{where}damaged or cut off: {error}") from None
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{where}{error}") from None


def read_archive(archive: SnapshotArchive, objects: Sink) -> None:
    """Add all lists of a file to ``objects``, pods first.

    Raises:
        ValueError: a list is damaged or truncated, differs from the manifest, or contains other objects; names the list.
    """
    for stored in sorted(archive.manifest.lists, key=lambda one: _ORDER.index(one.kind)):
        before = objects.seen[stored.kind]
        read = _read_protobuf if stored.in_protobuf else _read_json
        try:
            read(stored, archive.pieces(stored), objects)
        except (ValueError, msgspec.DecodeError) as error:
            number = objects.seen[stored.kind] - before
            where = f"after object {number}: " if number else ""
            # What is wrong with the file itself names it already.
            what = str(error).removeprefix(f"{stored.file}: ")
            raise ValueError(f"{stored.file}: {where}{what}") from None
        count = objects.seen[stored.kind] - before
        if count != stored.objects:
            raise ValueError(
                f"{stored.file}: it has {count} objects, not the {stored.objects} of the manifest"
            )


def _read_protobuf(stored: StoredList, pieces: Iterator[bytes], objects: Sink) -> None:
    from rebalancer.wire.protobuf.frames import ListFrames  # noqa: PLC0415
    from rebalancer.wire.protobuf.lists import KINDS  # noqa: PLC0415

    kind = stored.kind
    if kind != "Pod" and kind not in KINDS:
        raise ValueError("lists of this kind are not kept in protobuf")
    frames = ListFrames(length=stored.bytes)
    before = objects.seen[kind]
    for piece in pieces:
        for run in frames.feed(piece):
            objects.add_run(kind, run)
            objects.seen[kind] = before + frames.items
    frames.close()


def _read_json(stored: StoredList, pieces: Iterator[bytes], objects: Sink) -> None:
    kind, lines = stored.kind, split_lines(pieces)
    if next(lines, b"") != json_head(kind):
        raise ValueError(f"it is no list of {kind}, or cut off")
    line = b""
    for line in lines:
        if line != JSON_END:
            objects.add_json(kind, line.removesuffix(b","))
    if line != JSON_END:
        raise ValueError("cut off")


def split_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of a list in JSON without their ends.

    Raises:
        ValueError: a line is longer than any object.
    """
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
        if len(rest) > _MAX_OBJECT:
            raise ValueError("an object is too large to be one")
    if rest:
        yield rest


_ADVICE = (
    f"expected what `rebalancer snapshot -o FILE` writes, or what `{KUBECTL_GET}`"
    " prints, also several of these one after the other"
)
_KIND_FIRST = re.compile(rb'\{\s*(?:"apiVersion"\s*:\s*"[^"]*"\s*,\s*)?"kind"\s*:\s*"([A-Za-z]+)"')
"""How API servers and kubectl begin an object."""
_BLANK = b"\xef\xbb\xbf \t\r\n"
"""What may precede the text: a byte order mark and white space."""


class _Envelope(msgspec.Struct, rename="camel"):
    class Meta(msgspec.Struct, rename="camel"):
        resource_version: str = ""
        annotations: dict[str, str] | None = None

    kind: str = ""
    metadata: Meta | None = None
    items: tuple[Raw, ...] | None = None


class _KindOf(msgspec.Struct):
    kind: str = ""


_kinds = JsonDecoder(_KindOf)
_envelopes = JsonDecoder(_Envelope)


def load_snapshot(
    path: str | Path, *, stdin: BinaryIO | None = None, finished: frozenset[str] = frozenset()
) -> Snapshot:
    """Return the snapshot in a file, compressed or not; ``-`` is ``stdin``.

    Our own files are read piece by piece; JSON and YAML are read into memory as a whole. ``captured_at`` is the time
    recorded in the file, else the newest timestamp in it; ``version`` is the recorded one, else that of most
    kubelets. Kinds that the file may lack are named in ``missing``. Objects of other kinds are skipped, and finished
    pods, too, except those in the phases ``finished``.

    Raises:
        PolicyError: the file does not exist, has another format, has no API objects, or is truncated; the message names the place.
    """
    return _load(path, stdin, finished, ())[0]


def load_judgeable(
    path: str | Path, *, stdin: BinaryIO | None = None, finished: frozenset[str] = frozenset()
) -> Snapshot:
    """Return the snapshot in a file as :func:`load_snapshot`, for commands that need nodes and pods.

    Raises:
        PolicyError: as there; also if the file has no nodes or no pods and does not say that there were none.
    """
    return load_keeping((), path, stdin=stdin, finished=finished)[0]


def load_keeping(
    kinds: Collection[str],
    path: str | Path,
    *,
    stdin: BinaryIO | None = None,
    finished: frozenset[str] = frozenset(),
) -> tuple[Snapshot, KeptObjects]:
    """Return the snapshot as :func:`load_judgeable` does, and the unchanged objects of some kinds.

    Raises:
        PolicyError: as there.
    """
    snapshot, kept = _load(path, stdin, finished, kinds)
    lacking = [kind for kind in ("Node", "Pod") if f"{kind}: none in the file" in snapshot.missing]
    if lacking:
        name = "standard input" if str(path) == "-" else str(path)
        nouns = " and no ".join(f"{kind.lower()}s" for kind in lacking)
        raise PolicyError([f"{name}: has no {nouns}, so that nothing can be judged: {_ADVICE}"])
    return snapshot, kept


def _load(
    path: str | Path, stdin: BinaryIO | None, finished: frozenset[str], kinds: Collection[str]
) -> tuple[Snapshot, KeptObjects]:
    name = "standard input" if str(path) == "-" else str(path)
    try:
        with collector_paused():
            objects = Collected(finished)
            objects.keeps = kinds
            loader = Loader(name, objects)
            _read(path, stdin, loader)
            return loader.finish(objects), objects.kept
    except (gzip.BadGzipFile, zlib.error) as error:
        raise PolicyError([f"{name}: damaged: {error}"]) from None
    except EOFError:
        raise PolicyError([f"{name}: cut off: the compressed data ends too early"]) from None
    except OSError as error:
        raise PolicyError([f"{name}: cannot be read: {error.strerror or error}"]) from None


def _read(path: str | Path, stdin: BinaryIO | None, loader: Loader) -> None:
    if str(path) == "-":
        if stdin is None:
            raise PolicyError(["standard input is not connected"])
        loader.read(stdin, seekable=False)
        return
    with Path(path).open("rb") as stream:
        loader.read(stream, seekable=True)


_GAP = re.compile(r"\s*")
_Listed = tuple[bytes | Raw, str]
"""An object, and the kind of the list that contains it, or ""."""


def _objects_of_stream(text: bytes) -> list[_Listed] | None:
    """Return the objects of JSON texts one after the other: of several calls of kubectl, or one a line, as ``jq -c`` writes.

    None if the first is none of its objects.

    Raises:
        ValueError: a later text is damaged; the message names the line at which it begins.
    """
    decode = json.JSONDecoder().raw_decode
    objects: list[_Listed] = []
    whole, at = "", 0
    try:
        whole = text.decode().rstrip()
        while at < len(whole):
            one, end = decode(whole, at)
            objects += _list_objects(one)
            at = _GAP.match(whole, end).end()  # type: ignore[union-attr]
    except (ValueError, TypeError, RecursionError) as error:
        if not at:
            return None
        line = whole.count("\n", 0, at) + 1
        raise ValueError(f"line {line}: damaged or cut off: {error}") from None
    return objects


def _list_objects(one: Any) -> Iterator[_Listed]:
    """Yield the objects of one JSON text, a list or an object.

    Raises:
        ValueError: it is neither.
    """
    kind = one.get("kind") if isinstance(one, dict) else None
    if not isinstance(kind, str):
        raise ValueError("no API object")  # noqa: TRY004 (as all errors of the text)
    if not kind.endswith("List"):
        yield msgspec.json.encode(one), ""
        return
    for item in one.get("items") or ():
        yield msgspec.json.encode(item), kind


class Loader:
    """Reads one file, of whatever form, into a sink."""

    def __init__(self, name: str, objects: Sink) -> None:
        """``name``: of the file, in errors."""
        self._name, self._objects = name, objects
        self._finished_phases: frozenset[str] | None = FINISHED  # what kubectl prints has all
        self._meta = _Envelope.Meta()
        self._server = ""

    @property
    def metadata(self) -> dict[str, Any]:
        """What the file says of itself, as the metadata of a list in JSON."""
        said: dict[str, Any] = msgspec.to_builtins(self._meta)
        return said

    def read(self, stream: BinaryIO, *, seekable: bool) -> None:
        """Read a stream to its end; ``seekable``: whether the stream can seek.

        Raises:
            PolicyError: it has another format, or an object of it is damaged.
        """
        plain, head = unpack(stream)
        text = head.lstrip(_BLANK)
        if text[:1] == b"\0":
            raise PolicyError([f"{self._name}: is no text, and no zip archive: {_ADVICE}"])
        if not text:
            raise PolicyError([f"{self._name}: is empty: {_ADVICE}"])
        if plain is stream and head.startswith(MAGIC):
            self._read_archive(stream if seekable else BytesIO(head + stream.read()))
        elif text[:1] == b"{":
            self._read_json(read_rest(plain, head).lstrip(_BLANK))
        else:
            self._read_yaml(read_rest(plain, head))

    # -- forms -------------------------------------------------------------------------------------

    def _read_archive(self, stream: BinaryIO) -> None:
        try:
            archive = SnapshotArchive(stream)
            read_archive(archive, self._objects)
        except (ValueError, msgspec.DecodeError) as error:
            raise PolicyError([f"{self._name}: {error}"]) from None
        self._meta = msgspec.convert(archive.manifest.as_metadata(), _Envelope.Meta)
        self._server = archive.manifest.source
        finished = archive.manifest.finished
        self._finished_phases = None if finished is None else frozenset(finished)

    def _read_json(self, text: bytes) -> None:
        try:
            envelope = _envelopes.decode(text)
        except msgspec.DecodeError as error:
            try:
                objects = _objects_of_stream(text)
            except ValueError as of_part:
                raise PolicyError([f"{self._name}: {of_part}"]) from None
            if objects is not None:
                self._add(objects)
                return
            cut = "cut off" if "truncated" in str(error) else "not one JSON list"
            raise PolicyError([f"{self._name}: {cut}: {error}: {_ADVICE}"]) from None
        if not envelope.kind.endswith("List"):
            self._refuse(envelope.kind)
        self._meta = envelope.metadata or _Envelope.Meta()
        self._add([(item, envelope.kind) for item in envelope.items or ()])

    def _read_yaml(self, text: bytes) -> None:
        objects: list[_Listed] = []
        kinds: list[str] = []
        try:
            for document in yaml_documents(text):
                if document is None:
                    continue
                kinds.append(self._take_document(document, objects))
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            where = f"{self._name}:{mark.line + 1}:{mark.column + 1}" if mark else self._name
            raise PolicyError([f"{where}: neither JSON nor YAML: {error.problem}"]) from None
        except yaml.YAMLError as error:
            what = getattr(error, "reason", None) or error
            at = f" at byte {error.position}" if isinstance(error, yaml.reader.ReaderError) else ""
            raise PolicyError([f"{self._name}: neither JSON nor YAML: {what}{at}"]) from None
        if not kinds:
            raise PolicyError([f"{self._name}: is empty: {_ADVICE}"])
        if not any(kind.endswith("List") or kind in API_VERSIONS for kind in kinds):
            self._refuse(kinds[0])
        self._add(objects)

    def _take_document(self, document: Any, objects: list[_Listed]) -> str:
        """Append the objects of a document to ``objects``, without those of kinds that are not read; return its kind."""
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            self._refuse("")
        kind: str = document["kind"]
        if not kind.endswith("List"):
            if kind in API_VERSIONS:
                objects.append((self._as_json(document, len(objects)), ""))
            return kind
        metadata, items = document.get("metadata") or {}, document.get("items") or []
        try:
            self._meta = msgspec.convert(metadata, _Envelope.Meta, strict=False)
        except msgspec.ValidationError as error:
            raise PolicyError([f"{self._name}: metadata: {in_words(error)}"]) from None
        if not isinstance(items, list):
            raise PolicyError([f"{self._name}: items: no list: {_ADVICE}"])
        for item in items:
            objects.append((self._as_json(item, len(objects)), kind))
        return kind

    def _as_json(self, item: object, number: int) -> bytes:
        """Return an object of YAML as JSON for the decoders; YAML has values that JSON has not."""
        try:
            return msgspec.json.encode(item)
        except (TypeError, ValueError, RecursionError) as error:
            raise PolicyError([f"{self._name}: object {number + 1}: no JSON: {error}"]) from None

    # -- the objects -------------------------------------------------------------------------------

    def _add(self, objects: Sequence[_Listed]) -> None:
        """Add objects, possible owners of pods last."""
        late: list[tuple[int, str]] = []
        for number, (text, list_kind) in enumerate(objects):
            kind = self._kind_of(number, text, list_kind)
            if kind in OWNING_KINDS:
                late.append((number, kind))
            else:
                self._add_object(number, kind, text)
        for number, kind in late:
            self._add_object(number, kind, objects[number][0])

    def _add_object(self, number: int, kind: str, text: bytes | Raw) -> None:
        try:
            self._objects.add_json(kind, text)
        except msgspec.DecodeError as error:
            raise PolicyError([f"{self._name}: object {number + 1} ({kind}): {error}"]) from None

    def _kind_of(self, number: int, text: bytes | Raw, list_kind: str) -> str:
        match = _KIND_FIRST.match(text)
        try:
            kind = match[1].decode() if match else _kinds.decode(text).kind
        except msgspec.DecodeError as error:
            raise PolicyError([f"{self._name}: object {number + 1}: {error}"]) from None
        if kind := kind or list_kind.removesuffix("List"):
            return kind
        raise PolicyError([f"{self._name}: its objects have no kind: {_ADVICE}"])

    def _refuse(self, kind: str) -> NoReturn:
        what = f"kind {kind}" if kind else "no list of API objects"
        raise PolicyError([f"{self._name}: {what}: {_ADVICE}"])

    def finish(self, objects: Collected) -> Snapshot:
        """Return the snapshot of ``objects``, which were read; raises PolicyError if an object cannot be used."""
        annotations = self._meta.annotations or {}
        try:
            snapshot = objects.snapshot(
                captured_at=unix_seconds(annotations.get(CAPTURED_AT)),
                version=version_numbers(annotations.get(VERSION, "")),
                kinds=annotations.get(KINDS, "").split(","),
                resource_version=self._meta.resource_version,
            )
        except PolicyError as error:
            raise PolicyError([f"{self._name}: {error}"]) from None
        known = self._finished_phases
        if known is None:
            # A file of an earlier version, which did not say what was asked for.
            known = frozenset() if snapshot.finished is None else FINISHED
        server = self._server if CAPTURED_AT in annotations else None
        return replace(snapshot, finished_phases=known, server=server)
