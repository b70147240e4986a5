"""`python -m allranks` is the command `allranks`."""

import sys

from allranks._cli import main

sys.exit(main())
