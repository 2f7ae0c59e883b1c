"""Functions over the custom ops, and their gradients."""
