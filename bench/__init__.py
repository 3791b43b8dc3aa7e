"""Measurements: each figure beside its physical limit and its peers, interleaved in one run."""
