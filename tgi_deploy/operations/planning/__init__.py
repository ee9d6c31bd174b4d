"""Makes, compares and explains plans. Uses no account, network or clock."""
