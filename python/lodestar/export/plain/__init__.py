"""Replacements of Lodestar's ops by plain TensorFlow ops."""
