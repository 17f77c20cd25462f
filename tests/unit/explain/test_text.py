"""The words and columns that the tables of explanations share."""

import pytest

from rebalancer.base.plain_text import columns, more
from rebalancer.cost.term import Entry
from rebalancer.explain.pods import Breach
from rebalancer.explain.text import breach_words
from rebalancer.wire.quantity import format_resource


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [
        ("cpu", 1500, "1.5"),
        ("cpu", 2000, "2"),
        ("cpu", 0, "0"),
        ("memory", 1023, "1023"),
        ("ephemeral-storage", 3 * 2**29, "1.5Gi"),
        ("hugepages-2Mi", 2**20, "1Mi"),
        ("example.com/gpu", 12, "12"),
    ],
)
def test_amounts_are_written_as_kubernetes_does(resource, value, text):
    assert format_resource(resource, value) == text


def test_columns_are_aligned():
    rows = [["node", "now"], ["n-a", "12"], ["long-name", "3"]]
    assert columns(rows) == ["  node       now", "  n-a         12", "  long-name    3"]
    assert columns(rows, indent="", left=(0, 1))[1] == "n-a        12"


@pytest.mark.parametrize(("number", "lines"), [(-1, []), (0, []), (1200, ["  ... and 1,200 more"])])
def test_only_further_entries_are_counted(number, lines):
    assert [line.partition(" (")[0] for line in more(number)] == lines


def breach(*, lasts=True):
    return Breach("s", Entry.SOFT, 1.0, "a 2, b 0", observed=False, waits=False, lasts=lasts)


def test_a_broken_rule_is_described_with_its_strategy_and_gain():
    assert breach_words(breach()) == "breaks a rule (s, up to 1 soft): a 2, b 0"
    assert breach_words(breach(), known=True) == "breaks a rule (s, up to 1 soft)"
    text = breach_words(breach(lasts=False), fixed=True, known=True)
    assert text == "breaks a rule (s, up to 1 soft, the moves of others fix it)"


def test_imbalance_is_no_broken_rule():
    uneven = Breach("s", Entry.IMBALANCE, 0.5, "cpu 90%", observed=True, waits=True)
    assert breach_words(uneven, known=True) == (
        "adds to imbalance (s, up to 0.5, which only observes, not for long enough yet)"
    )
