"""Alerts: rules on what is measured, what fires, and what is done about it."""
