"""Shows what is running, where, at what cost, and what is wrong with it."""
