"""Look over everything that a run needs, before it waits in a queue; leaves with 1 if there is a problem."""

import argparse

from longflow.cli import add_configuration, configuration, end


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    add_configuration(parser)
    arguments = parser.parse_args()

    from longflow import doctor

    problems = doctor.report(doctor.examine(configuration(arguments)), lambda line: print(line, flush=True))
    print(f"{problems} problems" if problems != 1 else "1 problem")
    return 1 if problems else 0


if __name__ == "__main__":
    end(main)
