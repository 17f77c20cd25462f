"""The table of codes and sentences of machines."""

import pytest

from rebalancer.explain.text import member_texts
from rebalancer.machines.reasons import (
    CODES,
    NodeStays,
    NotIncreased,
    Obstacle,
    PodStays,
    RemovalCode,
    ScaleInWaits,
)

TABLES = (PodStays, Obstacle, NodeStays, NotIncreased, ScaleInWaits)


def test_a_sentence_names_its_facts():
    why = NodeStays.MIN_SIZE.of(group="workers", have=2, least=2)
    assert why == (RemovalCode.MIN_SIZE, "workers has 2 nodes and needs 2")


def test_a_fact_is_not_read_as_a_sentence():
    assert PodStays.ROLLOUT.of(why="{node}").message.endswith("{node}")


def test_no_code_has_a_sentence_twice():
    assert [table for table in TABLES if len(table.__members__) != len(table)] == []


@pytest.mark.parametrize("about", CODES)
def test_each_code_has_a_meaning(about):
    texts = member_texts(CODES[about])
    assert [one.name for one in CODES[about] if not texts.get(one.name, "").endswith(".")] == []
