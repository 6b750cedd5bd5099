"""`python -m omrl`: the command line."""

import sys

from omrl.cli import main

sys.exit(main())
