"""Containers on a Docker host: resources, handlers, commands."""
