"""What runs, where, at what cost, and what is wrong with it."""
