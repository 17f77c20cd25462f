"""Scopes against plain sets, over all namespaces of a small cluster."""

from hypothesis import given
from hypothesis import strategies as st

from rebalancer.migrate.scope import Scope, common

ALL = frozenset("abcd")
scopes = st.builds(Scope, st.frozensets(st.sampled_from(sorted(ALL))), inside=st.booleans())


def members(scope: Scope) -> frozenset[str]:
    return scope.names if scope.inside else ALL - scope.names


@given(scopes, scopes)
def test_union_and_intersection_are_those_of_sets(one: Scope, other: Scope) -> None:
    assert members(one | other) == members(one) | members(other)
    assert members(one & other) == members(one) & members(other)


@given(scopes, scopes)
def test_a_scope_covers_its_subsets(one: Scope, other: Scope) -> None:
    # There are always namespaces that no name names: only an exclusion has those as members.
    beyond = not other.inside and one.inside
    assert one.covers(other) is (members(other) <= members(one) and not beyond)


@given(st.lists(scopes, max_size=4))
def test_the_common_scope_has_all_members_or_all_exceptions(given_scopes: list[Scope]) -> None:
    found = common(given_scopes)
    inside = [scope for scope in given_scopes if scope.inside]
    if given_scopes and len(inside) == len(given_scopes):
        assert found == Scope(frozenset().union(*(s.names for s in inside)), inside=True)
    else:
        exceptions = (scope.names for scope in given_scopes if not scope.inside)
        assert found == Scope(frozenset[str]().union(*exceptions), inside=False)
