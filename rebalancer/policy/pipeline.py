"""Read the policy sections ``signals`` and ``interruption``, whose options belong to plug-ins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rebalancer.base.plain_text import quote_value
from rebalancer.policy.document import (
    FileProblem,
    KeyPath,
    YamlDocument,
    no_options,
    plugin_model,
    validate,
)
from rebalancer.policy.interruption import (
    DEFAULT_STEPS,
    STEP_ENVELOPE,
    InterruptionPolicy,
    StepParams,
    StepPolicy,
)
from rebalancer.policy.model import Mode, Policy
from rebalancer.policy.values import Params

SIGNALS, INTERRUPTION = "signals", "interruption"


@dataclass(slots=True)
class Pipeline:
    """The two sections of one document, and their problems."""

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


def flat_step(step: StepPolicy) -> dict[str, Any]:
    """Return a step as plain data, as it is written in the file."""
    envelope = step.model_dump(mode="json", by_alias=True, exclude={"params"})
    own = step.params.model_dump(mode="json", by_alias=True)
    return {**envelope, **own}


__all__ = ["INTERRUPTION", "SIGNALS", "Pipeline", "StepParams", "flat_step"]
