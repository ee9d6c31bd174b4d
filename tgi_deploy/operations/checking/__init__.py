"""What can be known before money is spent."""
