"""From a plan to a running machine, for every target."""
