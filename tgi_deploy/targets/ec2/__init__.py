"""Machines on EC2: resources, handlers, placement, commands."""
