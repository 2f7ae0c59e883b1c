"""`python -m lodestar.data`, which is the command `lodestar data`."""

import sys

from lodestar._data_tool.command import main as main
from lodestar._data_tool.command import run as run

if __name__ == "__main__":
    sys.exit(main())
