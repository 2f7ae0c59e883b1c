"""The command `lodestar data`, which reads and writes files of any format."""
