"""Runs that are known to be healthy or not, and how often the doctor's rules are right about them."""
