"""Publish a run when it has ended: metrics and a notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rebalancer.base.environment import Environment
from rebalancer.base.errors import ExitCode, PolicyError, RebalancerError
from rebalancer.base.output import replace_file, say
from rebalancer.base.stop import Stop
from rebalancer.run.options import Publishing

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from rebalancer.plan.plan import Totals
    from rebalancer.report.model import RunReport
    from rebalancer.report.notices import Notice
    from rebalancer.run.memory.document import Document


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that has ended."""

    code: ExitCode
    report: RunReport | None = None
    """None where another run has the Lease: metrics and notices are that run's matter."""
    remembered: Document | None = None
    """What earlier runs left; None without a memory."""
    totals: Totals | None = None
    """What runs have done, this one included; None where that is not known."""


def publish_run(
    flags: Publishing, deadline: float, environment: Environment, run: Callable[[], EndedRun]
) -> EndedRun:
    """Run, then send metrics and a notice as ``flags`` say. ``deadline``: seconds for all of it.

    Raises:
        RebalancerError: raised by the run, or a flag is invalid.
    """
    publish = _publisher(flags, deadline, environment)
    if publish is None:
        return run()
    try:
        ended = run()
    except RebalancerError as error:
        if not environment.stop.is_set():
            publish.failure(str(error), int(error.exit_code))
        raise
    except Exception as error:
        publish.failure(f"{type(error).__name__}: an error of the program", int(ExitCode.BUG))
        raise
    if ended.report is not None:
        written = replace(ended.report, exit_code=int(ended.code))
        publish.report(written, ended.remembered, ended.totals)
    return ended


@dataclass(frozen=True, slots=True)
class Publisher:
    """Sends the metrics and notices that the flags ask for."""

    environment: Environment
    stop: Stop
    """The run's: what is sent takes a second at most once it has come."""
    push_url: str | None
    """Of a Pushgateway."""
    file: str | None
    """For a textfile collector."""
    notify_url: str | None
    template: Any
    """Of the notice; None without one."""
    cluster: str = ""
    """Name of the cluster among others; empty: there is one only."""

    def report(
        self, report: RunReport, memory: Document | None, totals: Totals | None = None
    ) -> None:
        """Publish a finished run. ``memory``: the document before it; ``totals``: counters including this run."""
        if self._measures:
            from rebalancer.report.metrics import of_report, of_totals, registry  # noqa: PLC0415
            from rebalancer.run.memory.remember import summarize_memory  # noqa: PLC0415

            now = self.environment.clock.unix()
            values = of_report(
                report, None if memory is None else summarize_memory(memory, now), now
            )
            self._metrics(registry(values if totals is None else {**values, **of_totals(totals)}))
        if self.notify_url is not None:
            from rebalancer.report.notices import of_report as notice_of  # noqa: PLC0415

            if (notice := notice_of(report)) is not None:
                self._notify(notice)

    def failure(self, message: str, exit_code: int) -> None:
        """Publish a run that failed without a report."""
        if self._measures:
            from rebalancer.report.metrics import of_end, registry  # noqa: PLC0415

            self._metrics(registry(of_end(exit_code, self.environment.clock.unix())))
        if self.notify_url is not None:
            from rebalancer.report.notices import of_error  # noqa: PLC0415

            self._notify(of_error(message, exit_code))

    @property
    def _measures(self) -> bool:
        return self.push_url is not None or self.file is not None

    def _metrics(self, metrics: CollectorRegistry) -> None:
        from rebalancer.report.metrics import as_text, push  # noqa: PLC0415

        if (file := self.file) is not None:
            self._try(f"--metrics-file {file}", lambda: replace_file(Path(file), as_text(metrics)))
        if (url := self.push_url) is not None:
            self._try("--metrics-push", lambda: push(url, metrics, self.stop, self.cluster))

    def _notify(self, notice: Notice) -> None:
        from rebalancer.base.data_text import fill  # noqa: PLC0415
        from rebalancer.base.sending import send  # noqa: PLC0415

        if self.cluster:
            source = f"{self.cluster} ({notice.source})" if notice.source else self.cluster
            notice = replace(notice, source=source)
        url, body = self.notify_url or "", fill(self.template, notice.values())
        headers = {"Content-Type": "application/json"}
        self._try("--notify", lambda: send("POST", url, body, headers, self.stop))

    def _try(self, flag: str, deliver: Callable[[], None]) -> None:
        from rebalancer.base.sending import SendingError  # noqa: PLC0415

        try:
            deliver()
        except SendingError as error:
            say(self.environment.err, f"rebalancer: {flag}: {error}; the run is not affected")
        except OSError as error:
            why = f"could not be written ({error.strerror})"
            say(self.environment.err, f"rebalancer: {flag}: {why}; the run is not affected")


def _publisher(flags: Publishing, deadline: float, environment: Environment) -> Publisher | None:
    """Return a publisher for a run that starts now and has ``deadline`` seconds; None if no flag asks for one.

    Raises:
        PolicyError: an address or the template is invalid.
    """
    urls = {
        "--metrics-push": flags.metrics_push,
        "--notify": flags.notify,
    }
    if flags.metrics_file is None and not any(urls.values()):
        return None
    from rebalancer.base.sending import SendingError, check_url  # noqa: PLC0415

    for flag, url in urls.items():
        if not url:
            continue
        try:
            check_url(url)
        except SendingError as error:
            raise PolicyError([f"{flag}: {error}"]) from None
    template = None
    if flags.notify is not None:
        from rebalancer.report.notices import load_template  # noqa: PLC0415

        template = load_template(flags.notify_template)
    clock = environment.clock
    stop = Stop(clock, clock.now() + deadline, environment.stop)
    return Publisher(
        environment,
        stop,
        push_url=flags.metrics_push,
        file=flags.metrics_file,
        notify_url=flags.notify,
        template=template,
        cluster=flags.cluster,
    )
