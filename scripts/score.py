"""Score the predictions of one cell."""

import argparse

from longflow.cli import end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="the specification of the scores, kept beside them")
    parser.add_argument("--output", required=True, help="the cell's score (.json)")
    parser.add_argument("--records", required=True, help="the scores of its records (.jsonl)")
    parser.add_argument("predictions")
    arguments = parser.parse_args()

    from longflow import score
    from longflow.specs import read_spec, write_spec

    score.run(
        arguments.predictions,
        read_spec(arguments.spec, "dataset", "metric", "n_expected"),
        arguments.output,
        arguments.records,
    )
    write_spec(arguments.output, arguments.spec)


if __name__ == "__main__":
    end(main)
