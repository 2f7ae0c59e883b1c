"""What stands in for our ops where TensorFlow's own must do."""
