"""python -m smelt: the command line."""
import sys

from .instruments.command import main

sys.exit(main())
