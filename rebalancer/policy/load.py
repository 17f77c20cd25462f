"""Reads a policy: one file, a directory with a file per strategy, or the built-in default.

All problems are found before any is reported, each with file, line, key and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from rebalancer.errors import PluginError, PolicyError
from rebalancer.policy.document import Document, KeyPath, Problem, parse
from rebalancer.policy.forms import policy_hash
from rebalancer.policy.model import ENVELOPE, Mode, Policy, StrategyPolicy
from rebalancer.policy.params import Params, shown
from rebalancer.policy.problems import did_you_mean, validated

API_VERSION = "rebalancer/v1"
BUILT_IN = "built-in default"
_MAIN_FILE = "rebalancer.yaml"


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy, and where it came from."""

    policy: Policy
    source: str
    """The path as given, or ``built-in default``."""
    files: tuple[str, ...]
    """What was read, in order."""
    policy_hash: str
    """sha256 (hex) of the effective policy: comments, layout and spelled-out defaults do not change it."""
    warnings: tuple[str, ...]

    @property
    def is_built_in(self) -> bool:
        """Whether no policy was given."""
        return self.source == BUILT_IN


@dataclass(slots=True)
class _Found:
    """What stands in the files: nothing is judged yet but the files themselves."""

    main: Document | None = None
    strategies: dict[str, tuple[Document, KeyPath, Any]] = field(default_factory=dict)
    """Name -> where it stands, and its value."""
    files: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def load_policy(path: str | Path | None, known: Mapping[str, type[Params]]) -> LoadedPolicy:
    """Return the policy at ``path``, the built-in default for None.

    Parameters
    ----------
    path
        A file, or a directory that holds ``<strategy>.yaml`` (``kind: Strategy``) for each strategy and
        ``rebalancer.yaml`` for the rest.
    known
        Strategy -> model of its options. Only the strategies that the policy names are looked up, so that
        a mapping may load them then.

    Raises PolicyError with all that is wrong.
    """
    found = _Found()
    if path is None:
        _read_directory(resources.files("rebalancer.policy") / "default", BUILT_IN, found)
    else:
        _read(Path(path), found)
    return _loaded(found, BUILT_IN if path is None else str(path), known)


def load_text(raw: bytes, source: str, known: Mapping[str, type[Params]]) -> LoadedPolicy:
    """Return the policy that ``raw`` holds, as if it stood in a file named ``source``.

    Raises PolicyError with all that is wrong.
    """
    found = _Found(files=[source])
    document, problems = parse(raw, source)
    found.problems += problems
    if document is not None and _is_of_kind(document, "Policy", found):
        _take_main(document, found)
    return _loaded(found, source, known)


def _loaded(found: _Found, source: str, known: Mapping[str, type[Params]]) -> LoadedPolicy:
    policy = _policy(found, known)
    if policy is None or found.problems:
        ordered = sorted(
            found.problems, key=lambda p: (found.files.index(p.file), p.line, str(p.path))
        )
        raise PolicyError([str(problem) for problem in ordered])
    return LoadedPolicy(
        policy=policy,
        source=source,
        files=tuple(found.files),
        policy_hash=policy_hash(policy),
        warnings=(*found.warnings, *_warnings(policy, found)),
    )


# -- files ---------------------------------------------------------------------------------------------


def _read(path: Path, found: _Found) -> None:
    if path.is_dir():
        _read_directory(path, str(path), found)
        return
    document = _read_document(path, str(path), found)
    if document is not None and _is_of_kind(document, "Policy", found):
        _take_main(document, found)


def _read_directory(directory: Traversable, label: str, found: _Found) -> None:
    try:
        entries = sorted(
            directory.iterdir(), key=lambda entry: (entry.name != _MAIN_FILE, entry.name)
        )
    except OSError as error:
        raise PolicyError(
            [f"{label}: cannot be read ({error.strerror}); check its permissions"]
        ) from None
    # Names with a leading dot are how a mounted ConfigMap keeps its versions.
    entries = [entry for entry in entries if not entry.name.startswith(".") and not entry.is_dir()]
    for entry in entries:
        file = f"{label}/{entry.name}"
        if entry.name.endswith((".yml", ".json")):
            _whole(file, f"is not read; rename it to {entry.name.rpartition('.')[0]}.yaml", found)
        elif not entry.name.endswith(".yaml"):
            found.warnings.append(f"{file}: is no .yaml file, ignored")
        else:
            _take_file(entry, file, found)
    if not found.files:
        raise PolicyError(
            [f"{label}: holds no policy; it needs {_MAIN_FILE} and a <strategy>.yaml per strategy"]
        )


def _take_file(entry: Traversable, file: str, found: _Found) -> None:
    is_main = entry.name == _MAIN_FILE
    document = _read_document(entry, file, found)
    if document is None or not _is_of_kind(document, "Policy" if is_main else "Strategy", found):
        return
    if is_main:
        _take_main(document, found)
        return
    value = {key: item for key, item in document.data.items() if key not in ("apiVersion", "kind")}
    _take_strategy(entry.name.removesuffix(".yaml"), document, (), value, found)


def _read_document(entry: Traversable, file: str, found: _Found) -> Document | None:
    found.files.append(file)
    try:
        raw = entry.read_bytes()
    except FileNotFoundError:
        found.problems.append(Problem(file, 0, (), "does not exist; check --policy"))
        return None
    except OSError as error:
        found.problems.append(Problem(file, 0, (), f"cannot be read ({error.strerror})"))
        return None
    document, problems = parse(raw, file)
    found.problems += problems
    return document


def _whole(file: str, message: str, found: _Found) -> None:
    found.files.append(file)
    found.problems.append(Problem(file, 0, (), message))


def _is_of_kind(document: Document, kind: str, found: _Found) -> bool:
    """Check apiVersion and kind; tell whether it is worth while to look further."""
    if not isinstance(document.data, dict):
        message = f"{shown(document.data)} should be a mapping of keys to values"
        found.problems.append(document.problem((), message))
        return False
    good = True
    for key, wanted in (("apiVersion", API_VERSION), ("kind", kind)):
        value = document.data.get(key)
        if value == wanted:
            continue
        what = "is missing" if key not in document.data else f"{shown(value)} is not known here"
        found.problems.append(document.problem((key,), f"{what}; write {key}: {wanted}"))
        # Of another kind or version, every other key would be wrong, too.
        good = good and key not in document.data
    return good


def _take_main(document: Document, found: _Found) -> None:
    found.main = document
    strategies = document.data.get("strategies")
    if strategies is None:
        return
    if not isinstance(strategies, dict):
        message = f"{shown(strategies)} should be a mapping of strategies to their options"
        found.problems.append(document.problem(("strategies",), message))
        return
    for name, value in strategies.items():
        _take_strategy(name, document, ("strategies", name), value, found)


def _take_strategy(name: str, document: Document, base: KeyPath, value: Any, found: _Found) -> None:
    if name in found.strategies:
        other, at, _ = found.strategies[name]
        place = str(other.problem(at, "")).removesuffix(": ")
        message = f"{name} stands in {place}, too; remove one of them"
        found.problems.append(document.problem(base, message))
        return
    found.strategies[name] = (document, base, value)


# -- models --------------------------------------------------------------------------------------------


def _policy(found: _Found, known: Mapping[str, type[Params]]) -> Policy | None:
    strategies = {
        name: strategy
        for name, (document, base, value) in found.strategies.items()
        if (strategy := _strategy(name, value, known, document, base, found)) is not None
    }
    policy: Policy | None = Policy()
    if found.main is not None:
        # A section whose every key is commented out reads as null: it is absent.
        data = {k: v for k, v in found.main.data.items() if k != "strategies" and v is not None}
        # These two were looked at when the file was read.
        data.update(apiVersion=API_VERSION, kind="Policy")
        policy, problems = validated(Policy, data, found.main, ())
        found.problems += problems
    return None if policy is None else policy.model_copy(update={"strategies": strategies})


def _strategy(
    name: str,
    value: Any,
    known: Mapping[str, type[Params]],
    document: Document,
    base: KeyPath,
    found: _Found,
) -> StrategyPolicy | None:
    if value is not None and not isinstance(value, dict):
        message = f"{shown(value)} should be a mapping of keys to values; {{}} takes all defaults"
        found.problems.append(document.problem(base, message))
        return None
    model = _params_model(name, known, document, base, found)
    given = value or {}
    envelope = {key: item for key, item in given.items() if key in ENVELOPE and item is not None}
    own = {key: item for key, item in given.items() if key not in ENVELOPE}
    strategy, problems = validated(StrategyPolicy, envelope, document, base)
    found.problems += problems
    if model is None:
        return None
    params, problems = validated(model, own, document, base, also=ENVELOPE)
    found.problems += problems
    if strategy is None or params is None:
        return None
    return strategy.model_copy(update={"params": params})


def _params_model(
    name: str,
    known: Mapping[str, type[Params]],
    document: Document,
    base: KeyPath,
    found: _Found,
) -> type[Params] | None:
    if name not in known:
        message = f"unknown strategy {name}{did_you_mean(name, list(known))}"
        found.problems.append(document.problem(base, message))
        return None
    try:
        return known[name]
    except PluginError as error:
        found.problems.append(document.problem(base, str(error)))
        return None


def _warnings(policy: Policy, found: _Found) -> Iterable[str]:
    if not policy.strategies:
        yield "the policy names no strategy: nothing will be moved"
    for name, strategy in policy.strategies.items():
        if strategy.mode is not None and policy.mode_of(name) is not strategy.mode:
            document, base, _ = found.strategies[name]
            effect = (
                f"the policy's {policy.mode} holds" if policy.mode is not Mode.OFF else "it is off"
            )
            message = f"{strategy.mode} is laxer than the policy's mode; {effect}"
            yield str(document.problem((*base, "mode"), message))
