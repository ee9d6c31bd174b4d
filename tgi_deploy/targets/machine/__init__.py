"""User data and its scripts, for machines that boot to run one engine."""
