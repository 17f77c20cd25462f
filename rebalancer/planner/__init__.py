"""One planner chooses the moves of all strategies; it never acts."""
