"""Write the leaderboard: one long table of all scores, and one wide table for each benchmark."""

import argparse

from longflow.cli import end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="the specification of the leaderboard, kept beside it")
    parser.add_argument("--output", required=True, help="the long table")
    parser.add_argument("--wide", nargs="+", required=True, help="the wide tables, all in one folder")
    parser.add_argument("--scores", nargs="+", required=True, help="the scores of all cells")
    arguments = parser.parse_args()

    from pathlib import Path

    from longflow.leaderboard import write_leaderboard
    from longflow.specs import write_spec
    from longflow.tables import read_summaries

    write_leaderboard(read_summaries(arguments.scores), arguments.output, Path(arguments.wide[0]).parent)
    write_spec(arguments.output, arguments.spec)


if __name__ == "__main__":
    end(main)
