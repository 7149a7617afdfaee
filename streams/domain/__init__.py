"""Decisions, pure: no await, no clock, no logging, no environment."""
