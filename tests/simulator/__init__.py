"""Tests of the simulated model server."""
