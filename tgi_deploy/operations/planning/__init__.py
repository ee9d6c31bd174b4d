"""From a request to a plan, and everything that is asked of plans: no account, no network, no clock."""
