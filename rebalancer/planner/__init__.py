"""The planner chooses the moves of all strategies. It never executes them."""
