"""A plan as a page to look at."""
