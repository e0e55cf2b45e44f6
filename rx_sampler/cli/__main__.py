"""`python -m rx_sampler.cli`: the command `rx-sampler`, without its script."""

from . import main

if __name__ == "__main__":
    main()
