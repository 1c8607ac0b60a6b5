"""Tests of the token loop."""
