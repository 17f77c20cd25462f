"""Convert a policy of the descheduler into one of ours: find it in a file, and merge its profiles.

The policy may be a file of its own, or part of a ConfigMap or of the values of the descheduler's chart. Manifests are often
in one file with others (a CronJob, its rights), and values in a HelmRelease of Flux or an Application of Argo CD. The chart writes
``apiVersion`` and ``kind`` above ``deschedulerPolicy`` of its values (charts/descheduler/templates/configmap.yaml), which
Helm has merged into the chart's own.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from rebalancer import API_VERSION
from rebalancer.base.data_text import without_nulls
from rebalancer.base.durations import format_duration
from rebalancer.base.errors import PolicyError, RebalancerError
from rebalancer.base.plain_text import quote_value
from rebalancer.migrate.options import (
    budgets,
    defaults,
    list_equivalents,
    list_left_out,
    read_usage,
)
from rebalancer.migrate.plugins import PeerPolicy
from rebalancer.migrate.pods import Evictor, limits, protections, select_of
from rebalancer.migrate.uses import (
    KIND,
    V1ALPHA2,
    FilePart,
    KeyFate,
    Notes,
    Options,
    Peer,
    Use,
    as_comments,
    read_policy,
)
from rebalancer.policy.document import FileProblem, KeyPath, YamlDocument, parse, parse_stream
from rebalancer.policy.forms import MODELINE, as_yaml
from rebalancer.policy.load import load_text
from rebalancer.policy.model import Budgets
from rebalancer.policy.protect import Protect
from rebalancer.policy.values import Direction, Params

_V1ALPHA1 = "descheduler/v1alpha1"
_DATA_KEY = "policy.yaml"
_POLICY, _VERSION = "deschedulerPolicy", "deschedulerPolicyAPIVersion"
_DRY_RUN = "dry-run"
_OPTIONS = "cmdOptions"
_OBSERVES = "becomes mode: observe: it plans and moves nothing"
_TRUE = ("", "1", "t", "true", "none")
"""What Go reads as true, and a flag without a value."""
_VALUES: tuple[KeyPath, ...] = ((), ("spec", "values"), ("spec", "source", "helm", "valuesObject"))
"""Places of values: in a file of their own, in a HelmRelease, in an Application."""
_GIVE = f"give a {KIND}, the ConfigMap that holds it, or the values of the descheduler's chart"
# A literal block scalar, as in "policy.yaml: |": its text begins in the next line, and keeps its lines.
_LITERAL = re.compile(rb":\s*\|[-+1-9]*\s*(?:#.*)?\Z")


@dataclass(frozen=True, slots=True)
class PolicySource:
    """The parts of a file that concern the descheduler."""

    document: YamlDocument
    """The policy document, with the line numbers of the file."""
    notes: Notes
    """Notes on the place of the policy; notes on its parts are added later."""
    dry_run: bool
    """Whether the descheduler is started with ``--dry-run``, by the values of its chart or by a manifest beside."""


def read_source(raw: bytes, file: str) -> PolicySource:
    """Find the descheduler's policy in ``raw``, the content of ``file``.

    Keys without a value are dropped: the descheduler treats them as absent.

    Raises:
        PolicyError: the file is not YAML, or contains no such policy, or several.
    """
    stream = parse_stream(raw, file)
    document = _whole(*(stream[0] if len(stream) == 1 else _choose(stream, file)))
    outer = document
    values = next((path for path in _VALUES if _holds_values(_at(document, path))), None)
    if values is not None:
        document = _below(document, values)
        outer, document = document, _in_values(document)
    elif isinstance(document.data, dict) and document.data.get("kind") == "ConfigMap":
        document = _in_config_map(document, raw)
    _check_kind(document)
    document = replace(document, data=without_nulls(document.data))
    notes = Notes(document)
    started = [each.data for each, _ in stream if each is not None]
    dry_run = any(map(_starts_dry_run, started))
    if dry_run:
        notes.add((), KeyFate.DIFFERS, f"--{_DRY_RUN}: {_OBSERVES}")
    if values is not None:
        _note_chart(document, notes)
        _note_values(outer, notes)
        dry_run = dry_run or _has_dry_run(outer.data.get(_OPTIONS))
    return PolicySource(document, notes, dry_run)


def _has_dry_run(options: Any) -> bool:
    """Return whether ``cmdOptions`` of the chart's values have the flag; one without a value is written bare."""
    if not isinstance(options, dict) or _DRY_RUN not in options:
        return False
    return str(options[_DRY_RUN]).lower() in _TRUE


def _starts_dry_run(manifest: Any) -> bool:
    """Return whether a container of a manifest starts the descheduler with the flag."""
    for container in _containers(manifest):
        words = [str(word) for key in ("command", "args") for word in container.get(key) or ()]
        if "descheduler" in f"{container.get('image', '')} {' '.join(words)}":
            flags = [word.partition("=") for word in words]
            if any(name == f"--{_DRY_RUN}" and value.lower() in _TRUE for name, _, value in flags):
                return True
    return False


def _containers(data: Any) -> Iterator[dict[str, Any]]:
    """Yield the containers of a manifest, wherever its pod template is."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key == "containers" and isinstance(value, list):
                yield from (one for one in value if isinstance(one, dict))
            else:
                yield from _containers(value)
    elif isinstance(data, list):
        for value in data:
            yield from _containers(value)


def _whole(document: YamlDocument | None, problems: list[FileProblem]) -> YamlDocument:
    if document is None or problems:
        raise PolicyError([str(problem) for problem in problems])
    return document


_Parsed = tuple[YamlDocument | None, list[FileProblem]]


def _choose(stream: list[_Parsed], file: str) -> _Parsed:
    """Return the one document of several that contains a policy."""
    holding = [one for one in stream if one[0] is not None and _is_source(one[0])]
    if len(holding) == 1:
        return holding[0]
    if not holding:
        message = f"none of its {len(stream)} documents is a policy of the descheduler; {_GIVE}"
        raise PolicyError([str(FileProblem(file, 0, (), message))])
    message = f"is one of {len(holding)} policies of the descheduler in this file; put each into a file of its own"
    raise PolicyError([str(one.problem((), message)) for one, _ in holding if one is not None])


def _is_source(document: YamlDocument) -> bool:
    data = document.data
    if any(_holds_values(_at(document, path)) for path in _VALUES):
        return True
    if not isinstance(data, dict) or data.get("kind") != "ConfigMap":
        return isinstance(data, dict) and data.get("kind") == KIND
    texts = data.get("data")
    return isinstance(texts, dict) and any(KIND in str(text) for text in texts.values())


def _at(document: YamlDocument, path: KeyPath) -> Any:
    data = document.data
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _holds_values(data: Any) -> bool:
    return isinstance(data, dict) and isinstance(data.get(_POLICY), dict)


def _below(document: YamlDocument, path: KeyPath) -> YamlDocument:
    size = len(path)
    lines = {at[size:]: line for at, line in document.lines.items() if at[:size] == path}
    return replace(document, data=_at(document, path), lines=lines)


def _in_values(values: YamlDocument) -> YamlDocument:
    """Return the policy that the chart makes of its values."""
    policy = _below(values, (_POLICY,))
    # Charts for v1alpha2 write it where the values do not say; older ones had v1alpha1 fixed.
    default = _V1ALPHA1 if "strategies" in policy.data else V1ALPHA2
    version = values.data.get(_VERSION) or default
    lines = dict(policy.lines)
    lines["apiVersion",] = values.lines.get((_VERSION,), lines[()])
    return replace(policy, data={**policy.data, "apiVersion": version, "kind": KIND}, lines=lines)


def _note_chart(document: YamlDocument, notes: Notes) -> None:
    """Note what the chart adds to the policy, which is not in the file."""
    whole = "the ConfigMap in the cluster has all of it"
    if "profiles" not in document.data:
        notes.add(
            (),
            KeyFate.LOST,
            f"the chart's own profiles, which hold where the values have none; {whole}",
        )


def _note_values(values: YamlDocument, notes: Notes) -> None:
    """Note each value beside the policy: most are about the descheduler's own workload."""
    for key, value in values.data.items():
        if key in (_POLICY, _VERSION) or value in (None, "", {}, []):
            continue
        if key == _OPTIONS and isinstance(value, dict):
            for option in value:
                if option != _DRY_RUN:
                    text = "a flag of the descheduler"
                    notes.add((_OPTIONS, option), KeyFate.LOST, text, of=values)
                elif _has_dry_run(value):
                    notes.add((_OPTIONS, option), KeyFate.DIFFERS, _OBSERVES, of=values)
        else:
            notes.add(
                (key,), KeyFate.LOST, "a value of its chart; ours has values of its own", of=values
            )


def _in_config_map(outer: YamlDocument, raw: bytes) -> YamlDocument:
    data = outer.data.get("data")
    texts = {k: v for k, v in data.items() if isinstance(v, str)} if isinstance(data, dict) else {}
    key = _DATA_KEY if _DATA_KEY in texts or len(texts) != 1 else next(iter(texts))
    if key not in texts:
        message = f"this ConfigMap has no {_DATA_KEY}; give the one with the descheduler's policy"
        raise PolicyError([str(outer.problem(("data",), message))])
    line = outer.lines["data", key]
    literal = _LITERAL.search(raw.split(b"\n")[line - 1].rstrip()) is not None
    inner, problems = parse(texts[key].encode(), outer.file)

    def line_of(within: int) -> int:
        return line + within if literal else line

    document = _whole(inner, [replace(problem, line=line_of(problem.line)) for problem in problems])
    return replace(
        document, lines={path: line_of(within) for path, within in document.lines.items()}
    )


def _check_kind(document: YamlDocument) -> None:
    data = document.data
    if not isinstance(data, dict):
        message = f"{quote_value(data)} should be a mapping of keys to values"
        raise PolicyError([str(document.problem((), message))])
    kind, version = data.get("kind"), data.get("apiVersion")
    if version == API_VERSION:
        key, message = "apiVersion", "this is a policy of the rebalancer already"
    elif kind != KIND:
        what = (
            "is missing" if kind is None else f"{quote_value(kind)} is no policy of the descheduler"
        )
        key, message = "kind", f"{what}; {_GIVE}"
    elif version == _V1ALPHA1:
        key = "apiVersion"
        message = (
            f"{version} is not read, as by the descheduler since its release 0.30:"
            f" write the policy as {V1ALPHA2}, with profiles, and migrate that"
        )
    elif version != V1ALPHA2:
        what = "is missing" if version is None else f"{quote_value(version)} is not known"
        key, message = "apiVersion", f"{what}; write {V1ALPHA2}"
    else:
        return
    raise PolicyError([str(document.problem((key,), message))])


_OBSERVED = "what it limited gets mode: observe, and moves nothing until you change that"
_MAX_SECONDS = 366 * 86_400
"""Seconds of the longest grace period that a policy can write."""


@dataclass(frozen=True, slots=True)
class Migrated:
    """Our policy, converted from a policy of the descheduler."""

    data: dict[str, Any]
    """The policy as plain data."""
    head: str
    """Comments: the source, and the notes."""
    notes: tuple[FileProblem, ...]


def convert_policy(raw: bytes, file: str, known: Mapping[str, type[Params]]) -> Migrated:
    """Convert the descheduler's policy in ``raw``; messages name it ``file``.

    Raises:
        PolicyError: it is not a policy of the descheduler, or has keys unknown to the descheduler.
    """
    source = read_source(raw, file)
    document, notes = source.document, source.notes
    data = merge_profiles(read_policy(document, notes), known, notes, dry_run=source.dry_run)
    if not data["strategies"]:
        notes.add((), KeyFate.LOST, "nothing is left to do: the policy has no strategy")
    comments = f"{as_comments(notes)}{notes.list_defaults()}"
    head = f"{MODELINE}# Migrated from a policy of the descheduler ({V1ALPHA2}).\n{comments}"
    return Migrated(data, head, tuple(notes))


@dataclass
class _Strategy:
    """One of our strategies, and the descheduler's plug-ins that it replaces: at most one from each profile."""

    strategy: str
    options: Options
    select: dict[str, Any]
    uses: list[Use] = field(default_factory=list)
    observes: bool = False


def merge_profiles(
    peer: Peer, known: Mapping[str, type[Params]], notes: Notes, *, dry_run: bool
) -> dict[str, Any]:
    """Return the policy as plain data: the strategies, and keys that differ from our defaults.

    ``dry_run``: the descheduler evicts nothing, so that our policy only observes.
    """
    measured = read_usage(peer, notes)
    strategies = _strategies(replace(peer, uses=measured.uses), known, notes)
    evictors = _evictors(strategies.values())
    protect = protections(evictors, notes) if evictors else {}
    for strategy in strategies.values():
        strategy.observes |= _is_limited(strategy.uses, notes)
    _one_direction(strategies.values(), known, notes)
    _top_level(peer.top, notes)
    limited = budgets(peer.top)
    if strategies:
        _note_budgets(limited, notes)
    observes = dry_run or (bool(strategies) and all(one.observes for one in strategies.values()))
    directions = {known[one.strategy].direction for one in strategies.values()}
    default = Protect().model_dump(mode="json", by_alias=True)
    data: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "Policy",
        "mode": "observe" if observes else None,
        "steer": "marks" if Direction.PACK in directions else None,
        "budgets": limited,
        "method": _method(peer.top, notes),
        "usage": measured.usage,
        "protect": {
            key: protect[key] for key in default if protect.get(key, default[key]) != default[key]
        },
    }
    data = {key: value for key, value in data.items() if value}
    data["strategies"] = {
        name: _write(name, one, observes=one.observes and not observes)
        for name, one in sorted(strategies.items())
    }
    return data


def _note_budgets(limited: Mapping[str, Any], notes: Notes) -> None:
    """Add a note on the default budgets that ``limited`` does not replace."""
    default = Budgets().model_dump(mode="json", by_alias=True, exclude={"marks"})
    held = {name: most for name, most in default.items() if most and name not in limited}
    text = ", ".join(f"{name} {most}" for name, most in held.items())
    notes.add(
        (),
        KeyFate.DIFFERS,
        f"limited by default here, though not there: {text}; budgets of the policy changes that",
    )


def _method(top: FilePart[PeerPolicy], notes: Notes) -> dict[str, Any]:
    seconds = top.value.grace_period_seconds
    if seconds is None:
        return {}
    if seconds < 1:
        text = (
            "with 0 a pod is gone before its processes end, and below 0 it is 1 there as well: 1s"
        )
        notes.add(top.at("gracePeriodSeconds"), KeyFate.DIFFERS, text)
    return {"gracePeriod": format_duration(timedelta(seconds=min(max(1, seconds), _MAX_SECONDS)))}


def _write(name: str, one: _Strategy, *, observes: bool) -> dict[str, Any]:
    return {
        **({"strategy": one.strategy} if name != one.strategy else {}),
        **({"mode": "observe"} if observes else {}),
        # Not once for the whole policy: there, what is wrong with other pods would count as unmet, too.
        **({"select": one.select} if one.select else {}),
        **one.options,
    }


# -- strategies ----------------------------------------------------------------------------------------


def _strategies(
    peer: Peer, known: Mapping[str, type[Params]], notes: Notes
) -> dict[str, _Strategy]:
    """Return name -> strategy; plug-ins with different options or pods get strategies with different names."""
    strategies: dict[str, _Strategy] = {}
    pairs = ((use, ours) for use in peer.uses for ours in list_equivalents(use))
    for use, ours in pairs:
        default = defaults(known[ours.strategy])
        all_options = ours.options(use, default, notes)
        if all_options is None:
            continue
        options = {key: v for key, v in all_options.items() if v != default.get(key, {})}
        for path in list_left_out(use, all_options, options):
            notes.add_default(path)
        made = _Strategy(ours.strategy, options, select_of(use, peer.top, notes))
        same = (
            one
            for one in strategies.values()
            if (one.strategy, one.options, one.select) == (made.strategy, options, made.select)
        )
        one = next(same, None)
        if one is None:
            one = strategies[_free_name(ours.strategy, strategies)] = made
        one.uses.append(use)
    return strategies


def _free_name(strategy: str, taken: Container[str]) -> str:
    names = (f"{strategy}-{number}" for number in itertools.count(2))
    return strategy if strategy not in taken else next(n for n in names if n not in taken)


def _evictors(strategies: Iterable[_Strategy]) -> list[Evictor]:
    """Return the evictors of all converted plug-ins, each once, in the order of the file."""
    uses = (use for strategy in strategies for use in strategy.uses)
    evictors = {use.evictor.base: use.evictor for use in uses}
    return [evictors[key] for key in sorted(evictors, key=str)]


def _is_limited(uses: Iterable[Use], notes: Notes) -> bool:
    """Return whether at least one limit cannot be expressed, and add a note for each such limit."""
    inexpressible = [limit for use in uses for limit in (*limits(use.evictor), *use.filters)]
    for path, text in inexpressible:
        notes.add(path, KeyFate.LOST, f"{text}; {_OBSERVED}")
    return bool(inexpressible)


def _one_direction(
    strategies: Iterable[_Strategy], known: Mapping[str, type[Params]], notes: Notes
) -> None:
    """Set a packing strategy to ``observe`` if another strategy spreads or packs: each would undo the other."""
    directed = [one for one in strategies if known[one.strategy].direction and not one.observes]
    for one in directed if len(directed) > 1 else ():
        if known[one.strategy].direction is Direction.PACK:
            one.observes = True
            text = "another plug-in fills the nodes that this one empties: it only observes"
            for use in one.uses:
                notes.add(use.args.base, KeyFate.DIFFERS, f"{use.plugin}: {text}")


def _top_level(top: FilePart[PeerPolicy], notes: Notes) -> None:
    """Add notes on the top-level keys other than budgets and the node selector."""
    policy = top.value
    if policy.eviction_failure_event_notification:
        text = "the report names what was refused, and why"
        notes.add(top.at("evictionFailureEventNotification"), KeyFate.LOST, text)
    if policy.tracing is not None:
        notes.add(top.at("tracing"), KeyFate.IDLE, "nothing reads it")
    if policy.metrics_collector.enabled:
        notes.add(top.at("metricsCollector"), KeyFate.ALWAYS, _MEASURED)
    for index, provider in enumerate(policy.metrics_providers):
        path = (*top.at("metricsProviders"), index)
        if provider.source == "KubernetesMetrics":
            notes.add(path, KeyFate.ALWAYS, _MEASURED)


_MEASURED = "metrics.k8s.io is read where the signal of low-utilisation asks for it"


def as_file(data: Mapping[str, Any], head: str, known: Mapping[str, type[Params]]) -> str:
    """Return the policy as the text of one file that starts with the comment ``head``.

    Raises:
        RebalancerError: our own loader refuses it, which is a bug.
    """
    text = head + as_yaml(data, compact=True)
    try:
        load_text(text.encode(), "the migrated policy", known)
    except PolicyError as error:
        raise RebalancerError(
            *error.lines, "This is a bug: please report it with the file"
        ) from error
    return text
