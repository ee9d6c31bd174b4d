"""From a plan to a proved engine, or to a clean removal."""
