"""What boots on a machine of its own: user data and its scripts."""
