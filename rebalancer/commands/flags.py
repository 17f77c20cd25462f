"""Flags shared by several commands."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote, unquote

import click
from click.shell_completion import CompletionItem

from rebalancer.base.durations import (
    at_least_a_second,
    format_duration,
    parse_duration,
    parse_seconds,
)
from rebalancer.base.environment import SystemClock
from rebalancer.base.errors import PolicyError, RebalancerError
from rebalancer.base.stop import Stop
from rebalancer.commands.panels import PanelCommand
from rebalancer.run.options import FAIL_ON, ClusterFlags, Ending, Flag

if TYPE_CHECKING:
    from rebalancer.policy.select import Select
    from rebalancer.wire.objects import LabelSelector


Value = TypeVar("Value")
Callback = Callable[[click.Context, click.Parameter, str | None], Value]
"""The function that click calls with the text of a flag."""


def parse_with(parse: Callable[[str], Value]) -> Callback[Value | None]:
    """Return a click callback that parses a flag with ``parse``; without a value it returns None.

    A ValueError of ``parse`` becomes the error message.
    """

    def read(_context: click.Context, _flag: click.Parameter, text: str | None) -> Value | None:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return read


def parse_named(parse: Callable[[str, str], Value]) -> Callback[Value | None]:
    """Return a click callback that calls ``parse`` with the flag's name and text; without a value it returns None.

    A PolicyError of ``parse``, which names the flag, ends the command.
    """

    def read(_context: click.Context, flag: click.Parameter, text: str | None) -> Value | None:
        return None if text is None else parse(flag.opts[0], text)

    return read


def reference(flag: str, text: str) -> tuple[str, str]:
    """Parse ``NAMESPACE/NAME`` as a pair.

    Raises:
        PolicyError: the text has another form.
    """
    namespace, _, name = text.partition("/")
    if not namespace or not name:
        raise PolicyError([f"{flag} {text}: write NAMESPACE/NAME"])
    return namespace, name


def duration(flag: str, text: str) -> float:
    """Parse ``90s``, ``5m`` or ``1h30m``; return seconds.

    Raises:
        PolicyError: the text has another form.
    """
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise PolicyError([f"{flag}: {error}"]) from None


def nodes_named(_context: click.Context, _argument: click.Parameter, given: tuple[str, ...]) -> Any:
    """Return the names of nodes that are written as ``NAME`` or ``node/NAME``; for click."""
    from rebalancer.explain.find import node_name  # noqa: PLC0415  # commands without nodes need none of it

    return tuple(map(node_name, given))


def label_selector(flag: str, text: str) -> LabelSelector | None:
    """Parse the label selector of a flag; None for an empty one, which selects everything.

    Raises:
        PolicyError: the text is not a selector.
    """
    # The policy's models are imported where a selector is given: commands without one load no policy.
    from rebalancer.policy.select import parse_selector  # noqa: PLC0415

    try:
        return parse_selector(text).wire() if text else None
    except PolicyError as error:
        raise PolicyError([f"{flag} {text}: {error}"]) from None


def select(flag: str, text: str) -> Select:
    """Parse a ``select`` in the syntax of a policy.

    Raises:
        PolicyError: the text is not a ``select``.
    """
    from rebalancer.policy.load import parse_select  # noqa: PLC0415

    return parse_select(text, flag)


_SECONDS = 2.0
"""A person waits for it at a prompt."""
_MAX_NAMES = 500
_NAMES_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_nodes(
    context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Return the names of nodes that start with ``begun``."""
    return _items(_names(context, "/api/v1/nodes"), begun)


def complete_namespaces(
    context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Return the namespaces that start with ``begun``."""
    return _items(_names(context, "/api/v1/namespaces"), begun)


def complete_pods(
    context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Return namespaces as ``NAMESPACE/``; after the slash, the pods of that namespace."""
    return _complete_references(context, begun, "/api/v1", ("pods",))


def complete_workloads(
    context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Complete ``NAMESPACE/NAME``: return namespaces first, and after the slash the namespace's Deployments and StatefulSets."""
    return _complete_references(context, begun, "/apis/apps/v1", ("deployments", "statefulsets"))


def _complete_references(
    context: click.Context, begun: str, api: str, plurals: Sequence[str]
) -> list[CompletionItem]:
    """Return namespaces as ``NAMESPACE/``; after the slash, the objects of that namespace, by name."""
    namespace, slash, _ = begun.partition("/")
    if not slash:
        # As directories are: no space follows, so that the name can.
        return _items([f"{name}/" for name in _names(context, "/api/v1/namespaces")], begun)
    within = f"{api}/namespaces/{quote(namespace, safe='')}"
    names = {name for plural in plurals for name in _names(context, f"{within}/{plural}")}
    return _items([f"{namespace}/{name}" for name in sorted(names)], begun)


def _complete_contexts(
    context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    from rebalancer.kube.credentials import find_files, list_contexts  # noqa: PLC0415

    try:
        names = list_contexts(find_files(context.params.get("kubeconfig"), os.environ))
    except RebalancerError:
        return []
    return _items(names, begun)


def _complete_strategies(
    _context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    from rebalancer.registry import Registry  # noqa: PLC0415

    return _items(sorted(Registry.installed()), begun)


def _complete_settings(
    context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Return the keys of the policy in force that begin with ``begun``, each with ``=``."""
    from rebalancer.policy.forms import plain  # noqa: PLC0415
    from rebalancer.registry import Registry  # noqa: PLC0415
    from rebalancer.run.options import PolicyFlags  # noqa: PLC0415

    path = context.params.get("policy_path")
    try:
        # Standard input is the terminal here.
        flags = PolicyFlags(policy_path=None if path == "-" else path)
        keys = _list_keys(plain(flags.load(Registry.installed()).policy))
    except RebalancerError:
        return []
    return _items([f"{key}=" for key in keys if key not in {"apiVersion", "kind"}], begun)


def _list_keys(data: Mapping[str, Any]) -> list[str]:
    """Return the keys of the values in ``data``, those within others as ``protect.minPodAge``."""
    keys: list[str] = []
    for key, value in data.items():
        inner = _list_keys(value) if isinstance(value, Mapping) else []
        keys += [f"{key}.{one}" for one in inner] or [key]
    return keys


def _complete_fail_on(
    _context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Return the states of a list that begins with ``begun``, each with the text before its last comma."""
    before, comma, _ = begun.rpartition(",")
    named = before.split(",")
    return _items([f"{before}{comma}{name}" for name in FAIL_ON if name not in named], begun)


def _items(names: list[str], begun: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(begun)]


_KINDS = {
    "nodes": "Node",
    "namespaces": "Namespace",
    "pods": "Pod",
    "deployments": "Deployment",
    "statefulsets": "StatefulSet",
}


def _names_in_file(file: str, path: str) -> list[str]:
    """Return the names of a snapshot file's objects that the cluster has under ``path``.

    Raises:
        RebalancerError: the file cannot be read.
    """
    from rebalancer.whatif.edits import read_data, read_objects  # noqa: PLC0415

    *before, plural = path.split("/")
    namespace = unquote(before[-1]) if before[-2] == "namespaces" else None
    objects = read_objects(read_data(file, BytesIO())).of_kind(_KINDS[plural])
    metadata = [one["metadata"] for one in objects]
    return sorted(one["name"] for one in metadata if namespace in (None, one.get("namespace")))


def _names(context: click.Context, path: str) -> list[str]:
    from rebalancer.kube.client import connect  # noqa: PLC0415
    from rebalancer.kube.impersonation import Impersonation  # noqa: PLC0415

    clock = SystemClock()
    flags = context.params
    user, uid = (flags.get(name) or "" for name in ("as_user", "as_uid"))
    try:
        if file := flags.get("snapshot_path"):
            return _names_in_file(file, path)
        client = connect(
            kubeconfig=flags.get("kubeconfig"),
            context=flags.get("context_name"),
            environ=os.environ,
            impersonate=Impersonation(user, uid, tuple(flags.get("as_groups") or ())),
            stop=Stop(clock, clock.now() + _SECONDS),
        )
        answer = client.get(
            path, query={"limit": str(_MAX_NAMES)}, accept=_NAMES_ONLY, seconds=_SECONDS
        )
        items = json.loads(answer.body)["items"] or ()
        return sorted(item["metadata"]["name"] for item in items)
    except (RebalancerError, ValueError, KeyError, TypeError):
        # A prompt is no place for messages.
        return []


class KubectlFlags(PanelCommand):
    """A command that takes flags as kubectl does: ``--dry-run=client``, ``--force=true``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Rewrite such flags, then parse the arguments."""
        takes_value = any(flag.name == "dry_run" and not flag.is_flag for flag in self._options)
        same = _SAME | ({"--dry-run": "--dry-run=client"} if takes_value else _DRY)
        ends = args.index("--") if "--" in args else len(args)
        given = [same.get(arg, arg) for arg in args[:ends]]
        return super().parse_args(ctx, [arg for arg in given if arg] + args[ends:])

    @property
    def _options(self) -> list[click.Option]:
        return [flag for flag in self.params if isinstance(flag, click.Option)]


_DRY = dict.fromkeys(("--dry-run=client", "--dry-run=server"), "--dry-run") | {"--dry-run=none": ""}
_SAME: dict[str, str] = {}
for _flag in ("--force", "--ignore-daemonsets", "--delete-emptydir-data"):
    _SAME |= {f"{_flag}=true": _flag, f"{_flag}=false": ""}


class _OrArgument(click.Option):
    """A flag such as ``--snapshot FILE``, for which the argument FILE may be written."""

    def consume_value(self, ctx: click.Context, opts: Any) -> Any:
        """Take the value of the argument, where there is one: without it there is None, or a mark of click's."""
        file = opts.get("file")
        if isinstance(file, str) and (given := opts.setdefault(self.name, file)) != file:
            raise click.UsageError(f"{file} and {self.opts[0]} {given}: name one file", ctx)
        return super().consume_value(ctx, opts)


_FILE = click.argument(
    "file", metavar="[FILE]", type=click.Path(), required=False, expose_value=False
)
Decorated = TypeVar("Decorated", bound=Callable[..., object])


def with_flags(
    flags: Sequence[Callable[[Decorated], Decorated]],
) -> Callable[[Decorated], Decorated]:
    """Return a decorator that adds these flags to a command, in this order."""

    def decorate(function: Decorated) -> Decorated:
        for flag in reversed(flags):
            function = flag(function)
        return function

    return decorate


class Whole(click.IntRange):
    """An integer written in the digits 0 to 9; Python's ``int`` also accepts digits of other scripts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert the text of a flag to an integer, or fail."""
        if isinstance(value, str) and not value.isascii():
            self.fail(f"{value!r} is no whole number", param, ctx)
        return super().convert(value, param, ctx)


class WrittenFile(click.Path):
    """The path of a file that is written: a directory, or a text that ends as one, names no file."""

    def __init__(self, path_type: type[Path] | None = None) -> None:
        super().__init__(readable=False, path_type=path_type)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert the text of a flag to a path, or fail."""
        if str(value).endswith(os.sep) or Path(value).is_dir():
            self.fail(f"{value} is a directory: name a file", param, ctx)
        return super().convert(value, param, ctx)


def examples(*lines: str) -> str:
    """Return the end of a command's help: example calls, one per line."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def _request_timeout(text: str) -> float | None:
    """Return the seconds of ``--request-timeout``; None for 0, kubectl's default."""
    return None if parse_seconds(text) == 0 else at_least_a_second(text)


def _fail_on(_context: click.Context, _flag: click.Parameter, text: str) -> tuple[str, ...]:
    """Parse the comma-separated states of ``--fail-on``, each one of ``FAIL_ON``."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in FAIL_ON:
            raise click.BadParameter(f"{name!r} is none of {', '.join(FAIL_ON)}")
    return names


PARSERS: Mapping[str, Callable[..., Any]] = {
    "request timeout": parse_with(_request_timeout),
    "time": parse_with(at_least_a_second),
    "duration": parse_named(duration),
    "reference": parse_named(reference),
    "labels": parse_named(label_selector),
    "select": parse_named(select),
    "states": _fail_on,
    "nodes": nodes_named,
}
COMPLETERS: Mapping[str, Complete] = {
    "settings": _complete_settings,
    "strategies": _complete_strategies,
    "contexts": _complete_contexts,
    "namespaces": complete_namespaces,
    "nodes": complete_nodes,
    "states": _complete_fail_on,
}


def takes(
    options: type, names: str = "", /, **changes: Mapping[str, Any]
) -> Callable[[Decorated], Decorated]:
    """Return a decorator that adds flags of ``options`` to a command.

    ``names``: the fields whose flags are added, in this order; empty: all fields. ``changes``: name of a field -> the
    attributes of its :class:`Flag` that differ for this command.
    """
    known = dict(_list_flags(options))
    made = [_option(name, known[name], changes.get(name, {})) for name in (names.split() or known)]
    return with_flags(made)


def _list_flags(options: type) -> Iterator[tuple[str, Any]]:
    """Yield the name and the field of each flag of a class of options, in order, with the flags of nested groups."""
    for one in fields(options):
        if is_dataclass(group := one.default_factory):
            yield from _list_flags(cast("type", group))
        elif "flag" in one.metadata:
            yield one.name, one


def _option(name: str, of: Any, change: Mapping[str, Any]) -> Callable[[Decorated], Decorated]:
    one: Flag = replace(of.metadata["flag"], **change)
    default = of.default
    required = one.required or default is MISSING
    more: dict[str, Any] = {"help": one.help, "hidden": one.hidden, "required": required}
    if default is False:
        more["is_flag"] = True
    elif default == ():
        more |= {"default": ""} if one.parse == "states" else {"multiple": True}
    elif default not in (None, MISSING):
        shown = one.default or (
            format_duration(timedelta(seconds=default)) if isinstance(default, float) else default
        )
        more |= {"default": shown, "show_default": one.shows_default and shown != ""}
    for key, value in {
        "metavar": one.metavar,
        "envvar": one.env,
        "callback": PARSERS.get(one.parse),
        "shell_complete": COMPLETERS.get(one.complete),
        "type": _type_of(one),
    }.items():
        if value is not None:
            more[key] = value
    if one.bare is not None:
        more |= {"is_flag": False, "flag_value": one.bare}
    if one.argument:
        more |= {"cls": _OrArgument, "help": f"{one.help} The argument FILE means the same."}
    made = click.option(*(one.names or (f"--{name.replace('_', '-')}",)), name, **more)
    return with_flags([_FILE, made]) if one.argument else made


def _type_of(one: Flag) -> click.ParamType[Any] | None:
    if one.choices:
        return click.Choice(one.choices)
    if one.path == "written":
        return WrittenFile()
    if one.path:
        return click.Path(dir_okay=one.path != "file", file_okay=one.path != "directory")
    return None if one.least is None else Whole(min=one.least)


REDACT = click.option(
    "--redact-key-file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write no names, but what the key in this file (16 bytes or more) makes of them.",
)

ACCESS = "kubeconfig context_name as_user as_groups as_uid request_timeout"
POLICY = "policy_path settings only mode"
SCOPE = "namespace selector select"
REQUESTS = "max_requests compress"
NOTIFY = "notify notify_template"
PUBLISHING = f"metrics_push metrics_file {NOTIFY}"
STATE = "lease memory"
RUN = (
    f"snapshot_path {SCOPE} output lift_budgets detailed_exitcode deadline {STATE} {REQUESTS} quiet log_format color"
    f" fail_on {PUBLISHING}"
)
"""Fields of options whose flags are listed together."""

CLUSTER = takes(ClusterFlags, ACCESS)
ALL_NAMESPACES = click.option(
    "-A",
    "--all-namespaces",
    is_flag=True,
    expose_value=False,
    hidden=True,
    help="Pods of all namespaces may move, as they do without -n.",
)


def output_flag(*forms: str, of: str) -> Callable[[Decorated], Decorated]:
    """Return the flag ``-o`` with these forms; the first is the default."""
    return takes(Ending, "output", output={"choices": forms, "help": f"Form of the {of}."})
