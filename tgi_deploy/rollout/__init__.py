"""Updates: what each step makes of a record, and what of a deployment belongs to which revision. Pure."""
