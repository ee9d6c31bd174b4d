"""From a plan to an engine that has proved what was promised, or to nothing left."""
