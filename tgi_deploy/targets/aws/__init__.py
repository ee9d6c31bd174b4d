"""Shared by targets on AWS: sessions, requests, errors, roles, parameters, schedules."""
