"""Clients of the service: they know the wire, never the server's inside."""
