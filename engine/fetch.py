"""`python -m engine.fetch [gemma]`: fetches the default model, or the second one for tests (see
`loading.default_model`)."""

import sys

from engine.loading.default_model import main

if __name__ == "__main__":
    sys.exit(main())
