"""Norm and Raw, HugeCTR's binary formats."""
