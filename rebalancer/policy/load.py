"""Read a policy (one file, a directory with a file per strategy, or the built-in default) and check its consistency.

All problems are collected before any is reported, each with file, line, key and what to do.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, BinaryIO

from rebalancer import API_VERSION
from rebalancer.base.data_text import without_nulls
from rebalancer.base.errors import PluginError, PolicyError
from rebalancer.base.plain_text import did_you_mean, quote_value
from rebalancer.policy.document import (
    MAX_BYTES,
    FileProblem,
    KeyPath,
    YamlDocument,
    no_options,
    parse,
    plugin_model,
    validate,
)
from rebalancer.policy.forms import policy_hash
from rebalancer.policy.interruption import (
    DEFAULT_STEPS,
    STEP_ENVELOPE,
    InterruptionPolicy,
    StepPolicy,
)
from rebalancer.policy.kube_scheduler import KubeSchedulerConfiguration, read_configuration
from rebalancer.policy.model import ENVELOPE, Mode, Policy, StrategyPolicy
from rebalancer.policy.select import Select
from rebalancer.policy.sources import FLAG, PolicyChanges, Sources, StrategySource
from rebalancer.policy.values import Direction, Params, ProviderParams

BUILT_IN = "built-in default"
_DEFAULT = "default"
SIGNALS, INTERRUPTION = "signals", "interruption"
_STDIN = "standard input"
_UNCHANGED = PolicyChanges()
_APART = ("strategies", SIGNALS, INTERRUPTION)
"""Sections whose options are those of plug-ins."""
_NONE: Mapping[str, type[Params]] = {}
_OUTSIDE = "is no file of the policy's directory and is not read here: the default scheduler stands in for it"
_NO_STRATEGY = "the policy names no strategy: nothing will be moved"
# They are file names, keys of ConfigMaps and of the report.
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy and where it came from."""

    policy: Policy
    source: str
    """The path as given, or ``built-in default``."""
    files: tuple[str, ...]
    """The files that were read, in order."""
    policy_hash: str
    """See ``policy_hash`` in rebalancer.policy.forms: comments, layout and spelled-out defaults do not change it."""
    warnings: tuple[str, ...]
    """Warnings on the policy, except those on its strategies."""
    of_strategies: tuple[str, ...] = ()
    """Warnings on its strategies."""
    documents: tuple[tuple[KeyPath, KeyPath, YamlDocument], ...] = ()
    """The document of each part of the policy: (path of the part, its path in the document, document). Outer parts come first."""
    changed_by: str = ""
    """The flags that changed the policy after it was read; empty if none did."""
    left_out: tuple[str, ...] = ()
    """The strategies that flags remove or turn off: their rules are not judged."""
    served: tuple[str, ...] = ()
    """Why only a resident process may act by it: a problem for each strategy that adds or ends machines."""

    @property
    def is_built_in(self) -> bool:
        """Whether the policy is the built-in default."""
        return self.source == BUILT_IN

    def origin_of(self, path: KeyPath, *, differs: bool) -> str:
        """Return the file and line, or the flag, that sets a value; ``default`` if none does.

        ``differs``: whether the value is another one than the default.
        """
        for at, base, document in reversed(self.documents):
            if path[: len(at)] == at:
                within = (*base, *path[len(at) :])
                problem = document.problem(within, "")
                said = within in document.lines or not (
                    problem.line or problem.file == document.file
                )
                return replace(problem, path=()).place if said or differs else _DEFAULT
        return _DEFAULT

    def with_scheduler(self, configuration: KubeSchedulerConfiguration) -> LoadedPolicy:
        """Return a copy with the configuration that ``scheduler.fromConfig`` names, and a new hash."""
        scheduler = self.policy.scheduler.with_configuration(configuration)
        policy = self.policy.model_copy(update={"scheduler": scheduler})
        return replace(self, policy=policy, policy_hash=policy_hash(policy))


def load_policy(
    path: str | Path | None,
    known: Mapping[str, type[Params]],
    changes: PolicyChanges = _UNCHANGED,
    stdin: BinaryIO | None = None,
    *,
    providers: Mapping[str, type[Params]] | None = None,
    signals: Mapping[str, type[Params]] = _NONE,
    steps: Mapping[str, type[Params]] = _NONE,
    directory: Traversable | None = None,
) -> LoadedPolicy:
    """Read the policy at ``path`` (None: the built-in default) and apply ``changes``.

    Parameters
    ----------
    path
        A file, or a directory with ``<strategy>.yaml`` (``kind: Strategy``) for each strategy and
        ``rebalancer.yaml`` for everything else. ``-`` is ``stdin``.
    known
        Strategy -> model of its options. Only the strategies that the policy names are looked up, so the
        mapping may load a strategy when it is looked up.
    providers
        The same for machine providers; None: their options are not validated.
    signals, steps
        The same for signal sources and for the steps of the pipeline.
    directory
        Used instead of the directory ``path``, which is then its name in messages: no other file is read, even if the policy
        or ``changes`` name one.

    Raises PolicyError with all problems.
    """
    sources = _Sources(
        known=known, providers=providers, signals=signals, steps=steps, directory=directory
    )
    if directory is not None:
        sources.read_directory(directory, str(path))
    elif path is None:
        sources.read_directory(resources.files("rebalancer.policy") / "default", BUILT_IN)
    elif path == "-" and stdin is not None:
        sources.add(stdin.read(MAX_BYTES + 1), _STDIN, "Policy")
    elif Path(path).is_dir():
        sources.read_directory(Path(path), str(path))
    else:
        sources.read(Path(path), str(path), "Policy")
    sources.change(changes)
    return sources.load(BUILT_IN if path is None else _STDIN if path == "-" else str(path))


def load_text(raw: bytes, source: str, known: Mapping[str, type[Params]]) -> LoadedPolicy:
    """Parse ``raw`` as a policy; messages name it ``source``.

    Raises PolicyError with all problems.
    """
    sources = _Sources(known=known)
    sources.add(raw, source, "Policy")
    return sources.load(source)


def parse_select(text: str, source: str) -> Select:
    """Parse a ``select`` in YAML, such as ``{namespaces: [shop-*], minReplicas: 3}``.

    Messages name it ``source``. Raises PolicyError with all problems.
    """
    if not text.strip():
        raise PolicyError([f"{source}: is empty; write for example {{namespaces: [shop-*]}}"])
    document, problems = parse(text.encode(), source)
    select: Select | None = None
    if document is not None and not problems:
        select, problems = validate(Select, document.data, document, ())
    if select is None or problems:
        raise PolicyError([str(problem) for problem in problems])
    return select


@dataclass(slots=True)
class _Sources(Sources):
    """Documents that are validated and combined into one policy."""

    known: Mapping[str, type[Params]] = field(kw_only=True)
    providers: Mapping[str, type[Params]] | None = field(kw_only=True, default=None)
    signals: Mapping[str, type[Params]] = field(kw_only=True, default_factory=dict)
    steps: Mapping[str, type[Params]] = field(kw_only=True, default_factory=dict)
    directory: Traversable | None = field(kw_only=True, default=None)
    """The only place to read files from; None: any may be read."""

    def load(self, source: str) -> LoadedPolicy:
        """Validate the documents and return the policy.

        Raises PolicyError with all problems.
        """
        policy = self._policy()
        if policy is not None:
            policy = self._with_provider(self._with_scheduler(policy))
            self.problems += self._place(_find_opposed, _find_twice, _find_selecting, of=policy)
            if self.providers is not None and not any(map(self._acts, policy.provider)):
                self.problems += self._place(_find_lacking, of=policy)
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
            warnings=tuple(self.warnings),
            changed_by=self.changed_by,
            left_out=tuple(
                sorted(
                    self.changed
                    - {name for name in policy.strategies if policy.mode_of(name) is not Mode.OFF}
                )
            ),
            of_strategies=(
                *([] if policy.strategies else [_NO_STRATEGY]),
                *map(str, self._place(_find_idle, _find_refilling, of=policy)),
            ),
            served=tuple(map(str, self._place(_find_acting, of=policy))),
            documents=(
                *([((), (), self.main)] if self.main is not None else []),
                *((("strategies", s.name), s.base, s.document) for s in self.strategies.values()),
            ),
        )

    def _place(
        self, *finders: Callable[[Policy], Iterator[_Finding]], of: Policy
    ) -> Iterator[FileProblem]:
        for name, below, message in itertools.chain.from_iterable(find(of) for find in finders):
            source = self.strategies[name]
            yield source.document.problem((*source.base, *below), message)

    def _order(self, file: str) -> int:
        """Return the position of a file in reading order; flags are last."""
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
            data = {k: v for k, v in self.main.data.items() if k not in _APART and v is not None}
            # These two were checked when the file was read.
            data.update(apiVersion=API_VERSION, kind="Policy")
            policy, problems = validate(Policy, data, self.main, ())
            self.problems += problems
        if policy is None:
            return None
        return self._with_pipeline(policy.model_copy(update={"strategies": strategies}))

    def _with_pipeline(self, policy: Policy) -> Policy:
        if self.main is None or not {SIGNALS, INTERRUPTION} & self.main.data.keys():
            return policy
        pipeline = Pipeline(self.main, self.signals, self.steps)
        policy = pipeline.add_to(policy)
        self.problems += pipeline.problems
        if policy.interruption.steps and not policy.signals:
            self.warnings.append("interruption has no effect: the policy names no signals")
        return policy

    def _with_scheduler(self, policy: Policy) -> Policy:
        """Return the policy with the scheduler configuration, if it names a file that has one."""
        named, main = policy.scheduler.from_config, self.main
        if not isinstance(named, str) or main is None:
            return policy
        where = ("scheduler", "fromConfig")
        of_flag = any(path in main.flags for path in (where, where[:1]))
        if self.directory is not None and (of_flag or Path(named).name != named):
            self.warnings.append(f"scheduler.fromConfig: {quote_value(named)} {_OUTSIDE}")
            scheduler = policy.scheduler.model_copy(update={"from_config": None})
            return policy.model_copy(update={"scheduler": scheduler})
        # A file that was made of flags alone has no folder, and neither has standard input.
        name = Path(named) if of_flag else Path(main.file).parent / named
        file = name if self.directory is None else self.directory.joinpath(named)
        try:
            if isinstance(file, Path) and file.exists() and not file.is_file():
                self._problem(main, where, f"{file} is no regular file")
                return policy
            with file.open("rb") as stream:
                raw = stream.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            # A name with a zero byte is a ValueError.
            missing = isinstance(error, FileNotFoundError)
            why = getattr(error, "strerror", None) or ("there is none" if missing else str(error))
            self._problem(main, where, f"{name} cannot be read ({why})")
            return policy
        self.files.append(str(name))
        configuration, problems = read_configuration(raw, str(name))
        self.problems += problems
        if configuration is None:
            return policy
        return policy.model_copy(
            update={"scheduler": policy.scheduler.with_configuration(configuration)}
        )

    def _with_provider(self, policy: Policy) -> Policy:
        """Return the policy with the provider's validated options, if it names a provider."""
        if self.main is None or self.providers is None or not policy.provider:
            return policy
        options: dict[str, dict[str, Any]] = {}
        for name, given in policy.provider.items():
            at = ("provider", name)
            model = plugin_model(self.providers, "provider", name)
            if isinstance(model, str):
                self._problem(self.main, at, model)
                continue
            params, problems = validate(model, given or {}, self.main, at)
            self.problems += problems
            if params is not None:
                options[name] = without_nulls(params.model_dump(mode="json", by_alias=True))
        return policy.model_copy(update={"provider": options})

    def _acts(self, provider: str) -> bool:
        """Return whether a provider can add and remove machines; True for one that cannot be loaded."""
        if self.providers is None or provider not in self.providers:
            return True
        try:
            model = self.providers[provider]
        except PluginError:
            return True
        return issubclass(model, ProviderParams) and model.acts

    def _strategy(self, strategy: StrategySource) -> StrategyPolicy | None:
        document, base, value = strategy.document, strategy.base, strategy.value
        if value is not None and not isinstance(value, dict):
            self._problem(document, base, no_options(value))
            return None
        model = self._params_model(strategy)
        given = value or {}
        envelope = {k: item for k, item in given.items() if k in ENVELOPE and item is not None}
        own = {k: item for k, item in given.items() if k not in ENVELOPE}
        policy, problems = validate(StrategyPolicy, envelope, document, base)
        self.problems += problems
        if model is None:
            return None
        params, problems = validate(model, own, document, base, also=ENVELOPE)
        self.problems += problems
        if policy is None or params is None:
            return None
        return policy.model_copy(update={"params": params})

    def _params_model(self, strategy: StrategySource) -> type[Params] | None:
        name, at = strategy.name, strategy.base
        given = strategy.value.get("strategy") if isinstance(strategy.value, dict) else None
        try:
            if given is None and name in self.known:
                return self.known[name]
            if given is None:
                message = f"unknown strategy {name}{did_you_mean(name, self.known)}"
                if not strategy.document.file.startswith(FLAG):
                    message += "" if message.endswith("?") else "."
                    message += " A name of your own needs the key strategy below it"
            elif not isinstance(given, str):
                return None  # The envelope says so.
            elif given not in self.known:
                at = (*at, "strategy")
                message = f"unknown strategy {given}{did_you_mean(given, self.known)}"
            elif name in self.known and name != given:
                message = f"{name} is a strategy itself; give this {given} another name"
            elif not _NAME.match(name):
                message = (
                    f"{quote_value(name)} is no name; write lower-case letters, digits and hyphens"
                )
            else:
                return self.known[given]
        except PluginError as error:
            message = str(error)
        self._problem(strategy.document, at, message)
        return None


_Finding = tuple[str, tuple[str, ...], str]
"""Name of a strategy, path of a key below its options, and a message."""


def _find_opposed(policy: Policy) -> Iterator[_Finding]:
    """Yield each strategy that would undo the moves of another one.

    A strategy that packs nodes opposes every other strategy that packs or spreads.
    """
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
            yield other, (), message


def _find_refilling(policy: Policy) -> Iterator[_Finding]:
    """Yield each strategy that spreads pods to nodes that a scale-in strategy empties."""
    active = [name for name in policy.strategies if policy.mode_of(name) is not Mode.OFF]
    for removes, spreads in itertools.product(active, active):
        one, other = policy.strategies[removes], policy.strategies[spreads]
        if one.params.scales != "in" or other.params.direction is not Direction.SPREAD:
            continue
        if one.select.may_meet(other.select):
            message = (
                f"{spreads} moves pods onto nodes of little use, which {removes} removes: nodes may fill up again and stay."
                " Leave one of them out, or select different nodes, such as select: {nodes: {pool: a}}"
            )
            yield spreads, (), message


def _list_scaling(policy: Policy) -> Iterator[tuple[str, str, str]]:
    """Yield the strategies that are on and act on machines: name, direction, and what they do."""
    for name, strategy in policy.strategies.items():
        if (scales := strategy.params.scales) and policy.mode_of(name) is not Mode.OFF:
            yield name, scales, "adds" if scales == "out" else "removes"


def _find_twice(policy: Policy) -> Iterator[_Finding]:
    """Yield each second strategy that adds machines, or that removes machines."""
    first: dict[str, str] = {}
    for name, scales, does in _list_scaling(policy):
        if (other := first.setdefault(scales, name)) != name:
            message = f"{name} {does} machines, and {other} does, too: a policy may have one; leave one out, or write mode: off"
            yield name, (), message


def _find_selecting(policy: Policy) -> Iterator[_Finding]:
    """Yield each ``select`` key that a strategy acting on machines cannot apply."""
    for name, strategy in policy.strategies.items():
        scales = strategy.params.scales
        given = [key for key in Select.model_fields if _says(getattr(strategy.select, key))]
        for key in given if scales is not None else ():
            if scales == "in" and key == "nodes":
                continue
            message = (
                f"{name} adds machines to groups, and selects no pods: leave it out; the provider's options say which groups"
                if scales == "out"
                else f"{name} takes whole nodes: of select only nodes counts, such as select: {{nodes: {{pool: a}}}}"
            )
            yield name, ("select", Select.model_fields[key].alias or key), message


def _says(value: object) -> bool:
    return value is False or bool(value)


def _find_lacking(policy: Policy) -> Iterator[_Finding]:
    """Yield each strategy that scales machines, for a policy whose provider cannot act."""
    given = next(iter(policy.provider), None)
    why = "the policy names no provider" if given is None else f"provider {given} does not"
    for name, _, does in _list_scaling(policy):
        message = f"{name} {does} machines, and {why}: write for example provider: {{aws: {{tags: [k8s.io/cluster-autoscaler/enabled]}}}}"
        yield name, (), message


def _find_acting(policy: Policy) -> Iterator[_Finding]:
    """Yield each strategy that adds or ends machines, for runs that do not remember earlier ones."""
    for name, scales, _ in _list_scaling(policy):
        if policy.mode_of(name) is not Mode.ENFORCE:
            continue
        message = (
            f"{name} {'adds' if scales == 'out' else 'ends'} machines, which only `rebalancer serve` does (of the chart: kind: Deployment);"
            " let that process act by this policy, or write mode: observe"
        )
        yield name, ("mode",), message


def _find_idle(policy: Policy) -> Iterator[_Finding]:
    for name, strategy in policy.strategies.items():
        if strategy.mode is not None and policy.mode_of(name) is not strategy.mode:
            off = policy.mode is Mode.OFF
            effect = "it is off" if off else f"the policy's {policy.mode} holds"
            yield name, ("mode",), f"{strategy.mode} is laxer than the policy's mode; {effect}"


@dataclass(slots=True)
class Pipeline:
    """The sections ``signals`` and ``interruption`` of one document, whose options belong to plug-ins, and their problems."""

    document: YamlDocument
    sources: Mapping[str, type[Params]]
    """Signal source -> model of its options; looked up only where the policy names it."""
    steps: Mapping[str, type[Params]]
    """Step -> model of its options, a StepParams."""
    problems: list[FileProblem] = field(default_factory=list)

    def add_to(self, policy: Policy) -> Policy:
        """Return the policy with both sections added."""
        signals = self._signals()
        interruption = self._interruption(steps=bool(signals))
        self.problems += self._without_strategy(policy, interruption)
        return policy.model_copy(update={SIGNALS: signals, INTERRUPTION: interruption})

    # -- signals -----------------------------------------------------------------------------------

    def _signals(self) -> dict[str, Params]:
        data = self.document.data.get(SIGNALS)
        if data is None:
            return {}
        if not isinstance(data, dict):
            self._wrong(
                (SIGNALS,), f"{quote_value(data)} should be a mapping of sources to their options"
            )
            return {}
        read = {name: self._source(name, value) for name, value in data.items()}
        return {name: params for name, params in read.items() if params is not None}

    def _source(self, name: str, value: Any) -> Params | None:
        at: KeyPath = (SIGNALS, name)
        model = self._model(self.sources, "signal source", name, at)
        if value is not None and not isinstance(value, dict):
            self._wrong(at, no_options(value))
        elif model is not None:
            params, problems = validate(model, value or {}, self.document, at)
            self.problems += problems
            return params
        return None

    # -- what is done then -------------------------------------------------------------------------

    def _interruption(self, *, steps: bool) -> InterruptionPolicy:
        data = self.document.data.get(INTERRUPTION) or {}
        if not isinstance(data, dict):
            self._wrong(
                (INTERRUPTION,), f"{quote_value(data)} should be a mapping of keys to values"
            )
            return InterruptionPolicy()
        own = {key: value for key, value in data.items() if key != "steps"}
        known = {"steps"}
        policy, problems = validate(
            InterruptionPolicy, own, self.document, (INTERRUPTION,), also=known
        )
        self.problems += problems
        given = data.get("steps")
        if given is None:
            given = [{"step": name} for name in DEFAULT_STEPS] if steps else []
        if not isinstance(given, list):
            self._wrong((INTERRUPTION, "steps"), f"{quote_value(given)} should be a list of steps")
            given = []
        read = [self._step(number, value) for number, value in enumerate(given)]
        return (policy or InterruptionPolicy()).model_copy(
            update={"steps": tuple(step for step in read if step is not None)}
        )

    def _step(self, number: int, value: Any) -> StepPolicy | None:
        at: KeyPath = (INTERRUPTION, "steps", number)
        if isinstance(value, str):
            value = {"step": value}
        if not isinstance(value, dict):
            self._wrong(
                at, f"{quote_value(value)} should be a step: write for example {{step: cordon}}"
            )
            return None
        envelope = {key: item for key, item in value.items() if key in STEP_ENVELOPE}
        own = {key: item for key, item in value.items() if key not in STEP_ENVELOPE}
        policy, problems = validate(StepPolicy, envelope, self.document, at)
        self.problems += problems
        name = value.get("step")
        if not isinstance(name, str):
            return None
        model = self._model(self.steps, "step", name, (*at, "step"))
        if model is None:
            return None
        params, problems = validate(model, own, self.document, at, also=STEP_ENVELOPE)
        self.problems += problems
        if policy is None or params is None:
            return None
        return policy.model_copy(update={"params": params})

    def _without_strategy(
        self, policy: Policy, interruption: InterruptionPolicy
    ) -> Iterator[FileProblem]:
        """Yield a problem for each step that relies on a strategy which the policy does not enforce."""
        for number, step in enumerate(interruption.steps):
            wanted = step.params.strategy
            named = [n for n in policy.strategies if policy.strategy_of(n) == wanted]
            if wanted is None or policy.mode is not Mode.ENFORCE:
                continue
            if not any(policy.mode_of(name) is Mode.ENFORCE for name in named):
                at: KeyPath = (INTERRUPTION, "steps", number)
                if at not in self.document.lines:
                    at = (SIGNALS,)
                message = (
                    f"the step {step.step} has the strategy {wanted} move the pods, which the policy does not"
                    f" enforce; write {wanted}: {{}} under strategies, or leave the step out"
                )
                yield self.document.problem(at, message)

    # -- both --------------------------------------------------------------------------------------

    def _model(
        self, known: Mapping[str, type[Params]], noun: str, name: str, at: KeyPath
    ) -> type[Any] | None:
        model = plugin_model(known, noun, name)
        if isinstance(model, str):
            self._wrong(at, model)
            return None
        return model

    def _wrong(self, path: KeyPath, message: str) -> None:
        self.problems.append(self.document.problem(path, message))
