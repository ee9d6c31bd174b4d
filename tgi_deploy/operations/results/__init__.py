"""What the use cases return, made into the results that are published."""
