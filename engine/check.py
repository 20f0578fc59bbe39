"""`python -m engine.check --target X --drafter Y`: whether a pair of models fits this machine (see
`preflight.check`)."""

import sys

from engine.preflight.check import main

if __name__ == "__main__":
    sys.exit(main())
