"""From a request to a plan, and everything else about plans. Uses no account, network or clock."""
