"""The list in docs/descheduler.md of what has no equivalent, against the notes on files that have it all."""

import re
from pathlib import Path

from rebalancer.migrate.merge import convert_policy
from rebalancer.migrate.uses import KeyFate
from rebalancer.registry import Registry

PAGE = Path(__file__).parents[3] / "docs" / "descheduler.md"
HEAD = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n"
POLICIES = (
    f"""{HEAD}evictionFailureEventNotification: true
metricsProviders: [{{source: Prometheus, prometheus: {{url: "http://p:9090", authToken: {{secretReference: {{name: t}}}}}}}}]
profiles:
- pluginConfig:
  - name: DefaultEvictor
    args: {{nodeFit: true, nodeSelector: a=b, evictDaemonSetPods: true, evictFailedBarePods: true, evictLocalStoragePods: true, evictSystemCriticalPods: true}}
  - {{name: HighNodeUtilization, args: {{thresholds: {{cpu: 9}}, numberOfNodes: 2, evictionModes: [OnlyThresholdingResources]}}}}
  - name: LowNodeUtilization
    args:
      thresholds: {{MetricResource: 10}}
      targetThresholds: {{MetricResource: 30}}
      metricsUtilization: {{source: Prometheus, prometheus: {{query: ""}}}}
  plugins:
    balance: {{enabled: [LowNodeUtilization, HighNodeUtilization, Foreign]}}
    deschedule: {{enabled: [Another]}}
    filter: {{enabled: [Third]}}
- pluginConfig:
  - name: PodLifeTime
    args: {{states: [Running, Succeeded, Evicted], conditions: [{{type: Initialized, status: "True"}}, {{type: Ready}}]}}
  plugins: {{deschedule: {{enabled: [PodLifeTime]}}}}
""",
    f"""{HEAD}metricsProviders: [{{source: Prometheus, prometheus: {{url: "http://p:9090"}}}}]
profiles:
- pluginConfig:
  - name: DefaultEvictor
    args: {{podProtections: {{defaultDisabled: [PodsWithLocalStorage]}}}}
  - {{name: RemoveDuplicates}}
  plugins: {{balance: {{enabled: [RemoveDuplicates]}}}}
- pluginConfig: [{{name: RemoveDuplicates}}]
  plugins: {{balance: {{enabled: [RemoveDuplicates]}}}}
""",
    "cmdOptions: {v: 3}\ndeschedulerPolicy: {profiles: []}\n",
)


def lost_keys(text):
    """The keys of a file that are not carried over: each the last one by its own name, without numbers."""
    notes = convert_policy(text.encode(), "p.yaml", Registry.installed()).notes
    for note in notes:
        if note.message.startswith(KeyFate.LOST) and note.path:
            yield {part for part in note.path if isinstance(part, str)}


def test_the_page_lists_what_is_not_carried_over_and_nothing_else():
    rows = PAGE.read_text().partition("Not carried over are:\n")[2].partition("\n## ")[0]
    named = [
        set(re.findall(r"`(\w+)`", row.split("|")[1])) for row in rows.splitlines() if "`" in row
    ]
    listed = [keys for keys in named if keys]  # An annotation is no key of the file.
    lost = [keys for text in POLICIES for keys in lost_keys(text)]
    assert [keys for keys in lost if not any(keys & row for row in listed)] == []
    assert [row for row in listed if not any(keys & row for keys in lost)] == []
