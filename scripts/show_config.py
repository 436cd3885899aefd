"""Show the configuration with every default, the prompt limits chosen and why, and the size of the run."""

import argparse

from longflow.cli import add_configuration, configuration, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_configuration(parser)
    arguments = parser.parse_args()

    from longflow.show import show

    print(show(configuration(arguments)), end="")


if __name__ == "__main__":
    end(main)
