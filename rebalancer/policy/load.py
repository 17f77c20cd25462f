"""Reads a policy: one file, a directory with a file per strategy, or the built-in default.

All problems are collected before any is reported, each with file, line, key and what to do.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, BinaryIO

from rebalancer import API_VERSION
from rebalancer.base.errors import PluginError, PolicyError
from rebalancer.base.plain_text import shown
from rebalancer.policy.changes import Changes, Setting, parsed, with_setting
from rebalancer.policy.document import MOST_BYTES, Document, KeyPath, Problem, parse
from rebalancer.policy.forms import policy_hash
from rebalancer.policy.kube_scheduler import read_configuration
from rebalancer.policy.model import ENVELOPE, Mode, Policy, StrategyPolicy
from rebalancer.policy.params import Direction, Params
from rebalancer.policy.problems import did_you_mean, validated
from rebalancer.policy.select import Select

BUILT_IN = "built-in default"
_MAIN_FILE = "rebalancer.yaml"
_STDIN = "standard input"
_UNCHANGED = Changes()
# They are file names, keys of ConfigMaps and of the report.
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy with its source."""

    policy: Policy
    source: str
    """The path as given, or ``built-in default``."""
    files: tuple[str, ...]
    """The files that were read, in order."""
    policy_hash: str
    """sha256 (hex) of the effective policy: comments, layout and spelled-out defaults do not change it."""
    warnings: tuple[str, ...]

    @property
    def is_built_in(self) -> bool:
        """Whether no policy was given."""
        return self.source == BUILT_IN


def load_policy(
    path: str | Path | None,
    known: Mapping[str, type[Params]],
    changes: Changes = _UNCHANGED,
    stdin: BinaryIO | None = None,
) -> LoadedPolicy:
    """Return the policy at ``path``, the built-in default for None, with ``changes``.

    Parameters
    ----------
    path
        A file, or a directory that holds ``<strategy>.yaml`` (``kind: Strategy``) for each strategy and
        ``rebalancer.yaml`` for everything else. ``-`` is ``stdin``.
    known
        Strategy -> model of its options. Only the strategies that the policy names are looked up, so the
        mapping may load a strategy when it is looked up.

    Raises PolicyError with all problems.
    """
    sources = _Sources(known)
    if path is None:
        sources.read_directory(resources.files("rebalancer.policy") / "default", BUILT_IN)
    elif path == "-" and stdin is not None:
        sources.add(stdin.read(MOST_BYTES + 1), _STDIN, "Policy")
    elif Path(path).is_dir():
        sources.read_directory(Path(path), str(path))
    else:
        sources.read(Path(path), str(path), "Policy")
    sources.change(changes)
    return sources.loaded(BUILT_IN if path is None else _STDIN if path == "-" else str(path))


def load_text(raw: bytes, source: str, known: Mapping[str, type[Params]]) -> LoadedPolicy:
    """Return the policy in ``raw``, as if it were in a file named ``source``.

    Raises PolicyError with all problems.
    """
    sources = _Sources(known)
    sources.add(raw, source, "Policy")
    return sources.loaded(source)


def parse_select(text: str, source: str) -> Select:
    """Return the YAML ``{namespaces: [shop-*], minReplicas: 3}`` as a ``select``; messages name it ``source``.

    Raises PolicyError with all problems.
    """
    if not text.strip():
        raise PolicyError([f"{source}: is empty; write for example {{namespaces: [shop-*]}}"])
    document, problems = parse(text.encode(), source)
    select: Select | None = None
    if document is not None and not problems:
        select, problems = validated(Select, document.data, document, ())
    if select is None or problems:
        raise PolicyError([str(problem) for problem in problems])
    return select


@dataclass(slots=True)
class _Strategy:
    """The options of one strategy, not yet validated."""

    name: str
    document: Document
    base: KeyPath
    """Path of the options in the document."""
    value: Any


@dataclass(slots=True)
class _Sources:
    """The documents of a policy's files, and the problems in them."""

    known: Mapping[str, type[Params]]
    main: Document | None = None
    strategies: dict[str, _Strategy] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    # -- files -------------------------------------------------------------------------------------

    def read_directory(self, directory: Traversable, label: str) -> None:
        """Read all files of a directory, which messages name ``label``."""
        try:
            entries = sorted(directory.iterdir(), key=lambda e: (e.name != _MAIN_FILE, e.name))
        except OSError as error:
            raise PolicyError(
                [f"{label}: cannot be read ({error.strerror}); check its permissions"]
            ) from None
        for entry in entries:
            # A mounted ConfigMap keeps its versions under names with a leading dot.
            if not entry.name.startswith(".") and not entry.is_dir():
                self._read_entry(entry, f"{label}/{entry.name}")
        if not self.files:
            raise PolicyError(
                [
                    f"{label}: holds no policy; it needs {_MAIN_FILE} and a <strategy>.yaml per strategy"
                ]
            )

    def _read_entry(self, entry: Traversable, file: str) -> None:
        if entry.name.endswith((".yml", ".json")):
            self.files.append(file)
            rename = f"rename it to {entry.name.rpartition('.')[0]}.yaml"
            self.problems.append(Problem(file, 0, (), f"is not read; {rename}"))
        elif not entry.name.endswith(".yaml"):
            self.warnings.append(f"{file}: is no .yaml file, ignored")
        else:
            self.read(entry, file, "Policy" if entry.name == _MAIN_FILE else "Strategy")

    def read(self, entry: Traversable, file: str, kind: str) -> None:
        """Read one file; messages name it ``file``."""
        # Reading a pipe without a writer, or a device, has no end.
        if isinstance(entry, Path) and entry.exists() and not entry.is_file():
            self.files.append(file)
            message = "is no regular file; --policy - reads standard input"
            self.problems.append(Problem(file, 0, (), message))
            return
        try:
            with entry.open("rb") as stream:
                self.add(stream.read(MOST_BYTES + 1), file, kind)
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            message = (
                "does not exist; check --policy"
                if missing
                else f"cannot be read ({error.strerror})"
            )
            self.files.append(file)
            self.problems.append(Problem(file, 0, (), message))

    def add(self, raw: bytes, file: str, kind: str) -> None:
        """Add a document of a kind: Policy, or Strategy, which is named as the file."""
        self.files.append(file)
        document, problems = parse(raw, file)
        self.problems += problems
        if document is None or not self._is_of_kind(document, kind):
            return
        if kind == "Policy":
            self._add_main(document)
            return
        name = file.rpartition("/")[2].removesuffix(".yaml")
        value = {k: item for k, item in document.data.items() if k not in ("apiVersion", "kind")}
        self._add_strategy(_Strategy(name, document, (), value))

    def _is_of_kind(self, document: Document, kind: str) -> bool:
        """Check apiVersion and kind; return whether it is useful to check the other keys."""
        if not isinstance(document.data, dict):
            message = f"{shown(document.data)} should be a mapping of keys to values"
            self._problem(document, (), message)
            return False
        foreign = self._foreign(document, kind)
        if foreign is not None:
            self._problem(document, ("kind",), foreign)
            return False
        useful = True
        for key, expected in (("apiVersion", API_VERSION), ("kind", kind)):
            value = document.data.get(key)
            if value == expected:
                continue
            what = "is missing" if key not in document.data else f"{shown(value)} is not known here"
            self._problem(document, (key,), f"{what}; write {key}: {expected}")
            # In a document of another kind or version, every other key would be wrong, too.
            useful = useful and key not in document.data
        return useful

    def _foreign(self, document: Document, kind: str) -> str | None:
        """Return what to do with a document that is right, but not here; None for any other."""
        data = document.data
        if str(data.get("apiVersion")).startswith("descheduler/"):
            return (
                "is a policy of the descheduler;"
                f" rebalancer policy migrate {document.file} turns it into one of ours"
            )
        if kind == "Strategy" and (data.get("apiVersion"), data.get("kind")) == (
            API_VERSION,
            "Policy",
        ):
            return (
                f"in a directory, kind: Policy stands in {_MAIN_FILE}: rename the file to that,"
                f" or give --policy {document.file}"
            )
        return None

    # -- flags -------------------------------------------------------------------------------------

    def change(self, changes: Changes) -> None:
        """Make the changes of the command line."""
        settings, problems = parsed(changes)
        self.problems += problems
        for setting in settings:
            self._set(setting)
        self._keep_only(changes.only)
        if text := str(changes):
            self.warnings.append(f"the policy was changed by {text}")

    def _set(self, setting: Setting) -> None:
        if setting.path[0] == "strategies":
            self._set_of_strategy(setting)
            return
        if self.main is None:
            self.main = Document(setting.flag, {}, {})
        changed = with_setting(self.main, (), setting)
        if isinstance(changed, Problem):
            self.problems.append(changed)
        else:
            self.main = changed

    def _set_of_strategy(self, setting: Setting) -> None:
        if len(setting.path) < 2:
            message = "name a strategy, such as strategies.duplicates.mode"
            self.problems.append(Problem(setting.flag, 0, setting.path, message))
            return
        name = str(setting.path[1])
        known = self.strategies.get(name)
        if known is None:
            known = _Strategy(name, Document(setting.flag, {}, {}), (), {})
        inner = Setting(setting.flag, setting.path[2:], setting.value)
        changed = with_setting(known.document, known.base, inner)
        if isinstance(changed, Problem):
            self.problems.append(changed)
            return
        value = changed.data
        for part in known.base:
            value = value[part]
        if not known.base and isinstance(value, dict):
            value = {key: item for key, item in value.items() if key not in ("apiVersion", "kind")}
        self.strategies[name] = _Strategy(name, changed, known.base, value)

    def _keep_only(self, names: Sequence[str]) -> None:
        if not names:
            return
        for name in names:
            flag = f"--strategy {name}"
            self.strategies.setdefault(name, _Strategy(name, Document(flag, {}, {}), (), {}))
        self.strategies = {name: one for name, one in self.strategies.items() if name in names}

    def _add_main(self, document: Document) -> None:
        self.main = document
        strategies = document.data.get("strategies")
        if strategies is None:
            return
        if not isinstance(strategies, dict):
            message = f"{shown(strategies)} should be a mapping of strategies to their options"
            self._problem(document, ("strategies",), message)
            return
        for name, value in strategies.items():
            self._add_strategy(_Strategy(name, document, ("strategies", name), value))

    def _add_strategy(self, strategy: _Strategy) -> None:
        first = self.strategies.setdefault(strategy.name, strategy)
        if first is not strategy:
            place = first.document.problem(first.base, "").place
            message = f"{strategy.name} stands in {place}, too; remove one of them"
            self._problem(strategy.document, strategy.base, message)

    def _problem(self, document: Document, path: KeyPath, message: str) -> None:
        self.problems.append(document.problem(path, message))

    # -- models ------------------------------------------------------------------------------------

    def loaded(self, source: str) -> LoadedPolicy:
        """Return the validated policy.

        Raises PolicyError with all problems.
        """
        policy = self._policy()
        if policy is not None:
            policy = self._with_scheduler(policy)
            self.problems += self._opposed(policy)
        if policy is None or self.problems:
            ordered = sorted(
                self.problems, key=lambda p: (self._order(p.file), p.line, str(p.path))
            )
            raise PolicyError([str(problem) for problem in ordered])
        return LoadedPolicy(
            policy=policy,
            source=source,
            files=tuple(self.files),
            policy_hash=policy_hash(policy),
            warnings=(*self.warnings, *self._laxer_modes(policy)),
        )

    def _order(self, file: str) -> int:
        """Return the place of a file among those that were read; flags come last."""
        return self.files.index(file) if file in self.files else len(self.files)

    def _policy(self) -> Policy | None:
        strategies = {
            name: validated_strategy
            for name, strategy in self.strategies.items()
            if (validated_strategy := self._strategy(strategy)) is not None
        }
        policy: Policy | None = Policy()
        if self.main is not None:
            # A section whose every key is commented out reads as null: it is absent.
            data = {k: v for k, v in self.main.data.items() if k != "strategies" and v is not None}
            # These two were checked when the file was read.
            data.update(apiVersion=API_VERSION, kind="Policy")
            policy, problems = validated(Policy, data, self.main, ())
            self.problems += problems
        return None if policy is None else policy.model_copy(update={"strategies": strategies})

    def _with_scheduler(self, policy: Policy) -> Policy:
        """Return the policy with the scheduler's configuration, if it names a file with it."""
        named, main = policy.scheduler.from_config, self.main
        if not isinstance(named, str) or main is None:
            return policy
        where = ("scheduler", "fromConfig")
        of_flag = any(path in main.flags for path in (where, where[:1]))
        # A file that was made of flags alone has no folder, and neither has standard input.
        file = Path(named) if of_flag else Path(main.file).parent / named
        if file.exists() and not file.is_file():
            self._problem(main, where, f"{file} is no regular file")
            return policy
        try:
            with file.open("rb") as stream:
                raw = stream.read(MOST_BYTES + 1)
        except OSError as error:
            self._problem(main, where, f"{file} cannot be read ({error.strerror})")
            return policy
        self.files.append(str(file))
        configuration, problems = read_configuration(raw, str(file))
        self.problems += problems
        if configuration is None:
            return policy
        return policy.model_copy(update={"scheduler": policy.scheduler.configured(configuration)})

    def _strategy(self, strategy: _Strategy) -> StrategyPolicy | None:
        document, base, value = strategy.document, strategy.base, strategy.value
        if value is not None and not isinstance(value, dict):
            message = (
                f"{shown(value)} should be a mapping of keys to values; {{}} takes all defaults"
            )
            self._problem(document, base, message)
            return None
        model = self._params_model(strategy)
        given = value or {}
        envelope = {k: item for k, item in given.items() if k in ENVELOPE and item is not None}
        own = {k: item for k, item in given.items() if k not in ENVELOPE}
        policy, problems = validated(StrategyPolicy, envelope, document, base)
        self.problems += problems
        if model is None:
            return None
        params, problems = validated(model, own, document, base, also=ENVELOPE)
        self.problems += problems
        if policy is None or params is None:
            return None
        return policy.model_copy(update={"params": params})

    def _params_model(self, strategy: _Strategy) -> type[Params] | None:
        name, at = strategy.name, strategy.base
        given = strategy.value.get("strategy") if isinstance(strategy.value, dict) else None
        try:
            if given is None and name in self.known:
                return self.known[name]
            if given is None:
                message = f"unknown strategy {name}{did_you_mean(name, self.known)}"
                message += " A name of your own needs the key strategy below it"
            elif not isinstance(given, str):
                return None  # The envelope says so.
            elif given not in self.known:
                at = (*at, "strategy")
                message = f"unknown strategy {given}{did_you_mean(given, self.known)}"
            elif name in self.known and name != given:
                message = f"{name} is a strategy itself; give this {given} another name"
            elif not _NAME.match(name):
                message = f"{shown(name)} is no name; write lower-case letters, digits and hyphens"
            else:
                return self.known[given]
        except PluginError as error:
            message = str(error)
        self._problem(strategy.document, at, message)
        return None

    def _opposed(self, policy: Policy) -> Iterator[Problem]:
        """Yield the strategies that would undo what another does: one that packs nodes suffers no other of a direction."""
        enforced = [n for n in sorted(policy.strategies) if policy.mode_of(n) is Mode.ENFORCE]
        directed = [name for name in enforced if policy.strategies[name].params.direction]
        for one, other in itertools.permutations(directed, 2):
            packs, pulls = (policy.strategies[name].params.direction for name in (one, other))
            twins = pulls is packs and one > other
            if packs is not Direction.PACK or twins:
                continue
            if policy.strategies[one].select.may_meet(policy.strategies[other].select):
                what = "packs" if pulls is packs else "spreads"
                message = (
                    f"{other} {what} nodes that {one} packs: let one of them observe (mode: observe),"
                    " or select different nodes, such as select: {nodes: {pool: a}}"
                )
                source = self.strategies[other]
                yield source.document.problem(source.base, message)

    def _laxer_modes(self, policy: Policy) -> Iterator[str]:
        """Yield a warning for a policy without strategies, and for each mode that has no effect."""
        if not policy.strategies:
            yield "the policy names no strategy: nothing will be moved"
        for name, strategy in policy.strategies.items():
            if strategy.mode is not None and policy.mode_of(name) is not strategy.mode:
                effect = f"the policy's {policy.mode} holds"
                if policy.mode is Mode.OFF:
                    effect = "it is off"
                message = f"{strategy.mode} is laxer than the policy's mode; {effect}"
                source = self.strategies[name]
                yield str(source.document.problem((*source.base, "mode"), message))
