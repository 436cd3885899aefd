"""Write the leaderboard: one long table of all scores, and one wide table for each benchmark."""

import argparse

from longflow.cli import add_configuration, configuration, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="the specification of the leaderboard, kept beside it")
    parser.add_argument("--output", required=True, help="the long table; the wide ones go to leaderboard/ beside it")
    add_configuration(parser)
    arguments = parser.parse_args()

    from pathlib import Path

    from longflow import cells
    from longflow.leaderboard import write_leaderboard
    from longflow.specs import write_spec
    from longflow.tables import read_summaries

    config = configuration(arguments)
    files = cells.Files(config)
    summaries = read_summaries([files.score(cell) for cell in cells.cells(config)])
    output = Path(arguments.output)
    write_leaderboard(summaries, output, output.parent / "leaderboard")
    write_spec(output, arguments.spec)


if __name__ == "__main__":
    end(main)
