"""Tests of rx_sampler.retry."""
