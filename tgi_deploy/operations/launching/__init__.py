"""From a plan to a running machine: one way a target."""
