"""``policy migrate``: convert a policy of the descheduler into one of ours, with notes on the differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rebalancer.base.environment import Environment
from rebalancer.base.errors import ExitCode, PolicyError
from rebalancer.base.output import say, write
from rebalancer.migrate.merge import as_directory, as_file, merge_profiles
from rebalancer.migrate.source import V1ALPHA1, KeyFate, Notes, as_comments, peer_document
from rebalancer.migrate.uses import read_v1alpha1, read_v1alpha2
from rebalancer.policy.document import FileProblem
from rebalancer.policy.forms import MODELINE
from rebalancer.policy.values import Params
from rebalancer.registry import Registry

_STDIN = "standard input"


@dataclass(frozen=True, slots=True)
class Migrated:
    """Our policy, converted from a policy of the descheduler."""

    data: dict[str, Any]
    """The policy as plain data."""
    head: str
    """Comments: the source, and the notes."""
    notes: tuple[FileProblem, ...]


def migrated(raw: bytes, file: str, known: Mapping[str, type[Params]]) -> Migrated:
    """Convert the descheduler's policy in ``raw``; messages name it ``file``.

    Raises:
        PolicyError: it is not a policy of the descheduler, or has keys unknown to the descheduler.
    """
    document = peer_document(raw, file)
    version = document.data["apiVersion"]
    notes = Notes(document)
    read = read_v1alpha1 if version == V1ALPHA1 else read_v1alpha2
    data = merge_profiles(read(document, notes), known, notes)
    if not data["strategies"]:
        notes.add((), KeyFate.LOST, "nothing is left to do: the policy has no strategy")
    head = (
        f"{MODELINE}# Migrated from a policy of the descheduler ({version}).\n{as_comments(notes)}"
    )
    return Migrated(data, head, tuple(notes))


def migrate(file: str, output: str | None, stdin: BinaryIO, environment: Environment) -> ExitCode:
    """Convert the policy in ``file`` ('-': standard input); write it to ``output`` or standard output.

    Raises:
        PolicyError: see ``migrated``; or a file cannot be read or written.
    """
    known = Registry.installed()
    policy = migrated(_read(file, stdin), _STDIN if file == "-" else file, known)
    text = as_file(policy.data, policy.head, known)
    if output is None:
        write(environment.out, [text])
    else:
        _write(Path(output), text, policy, into=output.endswith("/") or Path(output).is_dir())
    for note in policy.notes:
        say(environment.err, str(note))
    return ExitCode.DONE


def _read(file: str, stdin: BinaryIO) -> bytes:
    if file == "-":
        return stdin.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise PolicyError([f"{file}: cannot be read ({error.strerror})"]) from None


def _write(path: Path, text: str, policy: Migrated, *, into: bool) -> None:
    files = as_directory(policy.data, policy.head) if into else {}
    try:
        if into:
            path.mkdir(parents=True, exist_ok=True)
            _refuse_others(path, files)
        for name, content in files.items():
            (path / name).write_text(content, encoding="utf-8")
        if not into:
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PolicyError([f"{path}: cannot be written ({error.strerror})"]) from None


def _refuse_others(directory: Path, files: Mapping[str, str]) -> None:
    """Reject a directory with other policy files: they would be read as parts of this policy."""
    others = sorted(p.name for p in directory.iterdir() if p.suffix in (".yaml", ".yml", ".json"))
    others = [name for name in others if name not in files]
    if others:
        raise PolicyError([f"{directory}: holds {others[0]} already; name an empty directory"])
