"""Public helpers for tests of strategies: snapshots from API objects, and the contract every strategy keeps."""
