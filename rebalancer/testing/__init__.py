"""Public helpers for tests of strategies: snapshots from API objects, and the contract of a strategy."""
