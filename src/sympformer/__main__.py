"""`python -m sympformer` is `sympformer`."""

import sys

from sympformer.cli import main

sys.exit(main())
