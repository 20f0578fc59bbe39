"""python -m ui.bench COMMAND: what the page costs."""

import sys

from ui.bench.page_cost import main

if __name__ == "__main__":
    sys.exit(main())
