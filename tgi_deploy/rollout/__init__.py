"""Updates: how each stage changes a record, and which resources belong to which revision. Pure."""
