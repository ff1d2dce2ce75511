"""Notifications: what becomes of jobs, told by web hooks and mail."""
