import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.migrate.merge import as_file, convert_policy
from rebalancer.registry import Registry

KNOWN = Registry.installed()
V1ALPHA2 = 'apiVersion: "descheduler/v1alpha2"\nkind: "DeschedulerPolicy"\n'
OURS = "apiVersion: rebalancer/v1\nkind: Policy\n"


@pytest.fixture
def migrate():
    """Text of a policy of the descheduler in, text of ours (without its head) and notes out.

    Without the note on budgets, which each policy has.
    """

    def outcome(text, *, head=V1ALPHA2):
        migration = convert_policy((head + text).encode(), "p.yaml", KNOWN)
        text = as_file(migration.data, "", KNOWN)
        assert text.startswith(OURS)
        return text.removeprefix(OURS), [
            str(note).removeprefix("p.yaml:")
            for note in migration.notes
            if "limited by default here" not in note.message
        ]

    return outcome


@pytest.fixture
def profile(migrate):
    """As ``migrate``, of a profile that runs RemoveDuplicates; ``evictor``: DefaultEvictor's arguments, from line 6."""

    def outcome(evictor, top=""):
        return migrate(
            f"profiles:\n- pluginConfig:\n  - name: DefaultEvictor\n    args: {evictor}\n"
            "  - name: RemoveDuplicates\n  plugins: {balance: {enabled: [RemoveDuplicates]}}\n"
            + top
        )

    return outcome


@pytest.fixture
def refused():
    """Text of a file in, all that is wrong with it out."""

    def problems(text, *, head=V1ALPHA2):
        raw = text if isinstance(text, bytes) else (head + text).encode()
        with pytest.raises(PolicyError) as caught:
            convert_policy(raw, "p.yaml", KNOWN)
        return [problem.removeprefix("p.yaml:") for problem in caught.value.problems]

    return problems
