"""What the targets on AWS share: sessions, requests, errors, roles, parameters, schedules."""
