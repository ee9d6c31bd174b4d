"""Deployments in a Kubernetes cluster: manifests, handlers, commands."""
