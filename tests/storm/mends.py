"""The mends that promises under fire rest on, each as the text that undoes it."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Mend:
    """One mend, by what its code is and what it was before."""

    name: str
    defect: str
    """Of the review."""
    changes: Sequence[tuple[str, str]]
    """Text as it is, which stands once in the packages, and text in its place."""
    seeds: Sequence[int]
    """Scenarios of which one at least must be violated then; none where tests alone can show it."""


MENDS: tuple[Mend, ...] = (
    Mend(
        "an owner is judged by its pods, not by its status alone",
        "D1",
        [
            (
                "return too_few_ready(min(reported, counted.ready), replicas)",
                "return too_few_ready(reported, replicas)",
            )
        ],
        [0],
    ),
    Mend(
        "across namespaces only who declares anti-affinity moves",
        "D3",
        [
            (
                "parts = [(owners, _NONE)] if params.cross_namespace else _parts(view, owners, declared)",
                "parts = [(owners, _NONE)]",
            )
        ],
        [3],
    ),
    Mend(
        "nothing is asked for any more once the run must end",
        "D5",
        [
            (
                (
                    "                or self._look(move, last, lost=lost)\n"
                    "                or self._end_if_stopped(move, last, lost=lost)\n"
                ),
                "                or self._look(move, last, lost=lost)\n",
            ),
            (
                "        why, now = self._stop.reason(), self._stop.now()\n",
                "        why, now = None, self._stop.now()\n",
            ),
        ],
        [4],
    ),
    Mend(
        "a lost reply is read before a stop is reported",
        "D6",
        [
            (
                (
                    "            return Outcome(move, Status.LOST if lost else Status.NOT_ATTEMPTED, why)\n"
                    "        return self._end(move, last, lost=lost)"
                ),
                (
                    "            return Outcome(move, Status.NOT_ATTEMPTED, why)\n"
                    "        return Outcome(move, Status.NOT_ATTEMPTED, why)"
                ),
            )
        ],
        [5],
    ),
    Mend(
        "what earlier runs left not Ready is in flight",
        "D7",
        [("            self._used[[IN_FLIGHT, 1 + of]] += count", "            pass")],
        [8],
    ),
    Mend(
        "a plan cut by the deadline within a wave is no success",
        "D8",
        [
            (
                "        if why is not None:\n            self._cut(why)\n        return why is not None",
                (
                    "        if why is not None and self._stop.since != self._stop.deadline:\n"
                    "            self._cut(why)\n        return why is not None"
                ),
            )
        ],
        [6],
    ),
    Mend(
        "a wait for the API server ends with the run",
        "D10",
        [
            (
                "            self._stop.wait(min(asked, left))",
                "            __import__('time').sleep(asked)",
            )
        ],
        [9],
    ),
    Mend(
        "without the hour's count nothing is moved",
        "D14",
        [
            ("    unknown = memory.hour_unknown\n", "    unknown = None\n"),
            (
                "        if flaw is not None and flaw.hour_unknown:\n            raise ClusterReadError(flaw.message)\n",
                "",
            ),
        ],
        [12, 14],
    ),
    Mend(
        "nothing in the memory ends a run",
        "D15",
        [
            (
                "        parts = msgspec.json.decode(text, type=_Parts)\n    except (ValueError, TypeError, RecursionError) as error:",
                "        parts = msgspec.json.decode(text, type=_Parts)\n    except msgspec.DecodeError as error:",
            )
        ],
        [13],
    ),
    Mend(
        "progress that cannot be written never ends a run",
        "D16",
        [
            (
                '            except OutputError:\n                self._form = "quiet"',
                '            except ZeroDivisionError:\n                self._form = "quiet"',
            )
        ],
        [16],
    ),
    Mend(
        "a report that cannot be written has an exit code of its own",
        "D16",
        [
            (
                "        write(environment.out, pieces)\n    except OutputError as error:",
                "        write(environment.out, pieces)\n    except ZeroDivisionError as error:",
            )
        ],
        [17],
    ),
    Mend(
        "opt-outs are read with the pod's uid",
        "D17",
        [("        if pod.opted_out is not None:\n", "        if False:\n")],
        [18],
    ),
    Mend(
        "a silent watch is not believed: the pods are listed once more",
        "D18",
        [("            if late and listed:\n", "            if late:\n")],
        [187],
    ),
    Mend(
        "a lost reply of the memory is not counted twice",
        "-",
        [
            ("        if stands != self.document:\n", "        if True:\n"),
            (
                "    part = document.part_of(journal.run)\n    before",
                "    part = RunPart(journal.run)\n    before",
            ),
        ],
        [15],
    ),
    Mend(
        "sums of requests saturate",
        "D2",
        [
            (
                "    return max(-MAX_AMOUNT, min(MAX_AMOUNT, parse_resource(name, text)))",
                "    return parse_resource(name, text)",
            ),
            (
                "        total[name] = min(MAX_AMOUNT, total.get(name, 0) + amount)",
                "        total[name] = total.get(name, 0) + amount",
            ),
        ],
        [2],
    ),
    Mend(
        "the Lease is lost by the clock, whatever the renewing thread does",
        "D4",
        [("        if self._lost is None and self._seconds_left() <= 0:\n", "        if False:\n")],
        [37],
    ),
    Mend(
        "an answer that does not say what happened is a lost reply",
        "D9",
        [
            (
                "    if (status >= 500 and not by_webhook) or not said.code:\n",
                "    if not said.code:\n",
            )
        ],
        [7],
    ),
    Mend(
        "events hold up no eviction",
        "D11",
        [
            (
                "        self._queue.put((subject, msgspec.json.encode(body)))",
                "        self._client.post(EVENTS.path(subject.namespace), msgspec.json.encode(body))",
            )
        ],
        [11],
    ),
    Mend(
        "calls that drip are ended in time",
        "D12",
        [
            (
                "                if (why := call.over()) is not None:\n                    call.cut(why)",
                "                pass",
            )
        ],
        [10],
    ),
    Mend(
        "a renewal that fails once is made again",
        "D13",
        [
            (
                '                if is_final(error):\n                    self._lost = f"the Lease was lost: {error}"',
                '                self._lost = f"the Lease was lost: {error}"',
            )
        ],
        [137],
    ),
    Mend(
        "what is no Lease is no answer",
        "D4",
        [
            (
                (
                    "        except (ValueError, RecursionError):\n"
                    "            raise ClusterReadError(\n"
                    '                f"the answer to {verb} Lease'
                ),
                (
                    "        except ZeroDivisionError:\n"
                    "            raise ClusterReadError(\n"
                    '                f"the answer to {verb} Lease'
                ),
            )
        ],
        [47],
    ),
    Mend(
        "a Lease is read again where taking it was answered by nothing",
        "-",
        [
            (
                (
                    "                if is_final(error) or self.client.stop.wait(_RETRY) is not None:\n"
                    "                    break\n                continue\n"
                ),
                "                break\n",
            )
        ],
        [11],
    ),
    Mend(
        "what happens to marks leaves time for the memory and the Lease",
        "-",
        [
            (
                "self._last = client.beside(client.stop.later(LAST_WORDS / 2))",
                "self._last = client.last_words",
            )
        ],
        [64],
    ),
    Mend(
        "a mark of which it is not known whether it was set does not count as set",
        "-",
        [("            if node not in self._sure or", "            if")],
        [129],
    ),
)
