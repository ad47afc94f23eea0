"""`python -m onward`: the command line."""

from onward.cli.main import main

if __name__ == "__main__":
    main()
