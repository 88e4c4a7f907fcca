"""`python -m streaming` is the `seamscribe` command."""

import sys

from .cli import main

sys.exit(main())
