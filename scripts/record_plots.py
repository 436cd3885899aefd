"""Draw what became of a benchmark's records: their fates by length, and the score by the place of the evidence."""

import argparse
from pathlib import Path

from longflow.cli import add_configuration, configuration, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="the specification of the plots, kept beside the first")
    parser.add_argument("--output", required=True, help="the first of the plots, whose folder is that of all")
    add_configuration(parser)
    arguments = parser.parse_args()

    from longflow import benchmarks
    from longflow.anatomy.files import panels
    from longflow.plots.anatomy import plot_anatomy
    from longflow.progress import set_up_logging
    from longflow.specs import read_spec, write_spec

    set_up_logging()
    benchmark = read_spec(arguments.spec, "benchmark")["benchmark"]
    found = panels(configuration(arguments), benchmark)
    plot_anatomy(benchmarks.load(benchmark).title, found, Path(arguments.output).parent)
    write_spec(arguments.output, arguments.spec)


if __name__ == "__main__":
    end(main)
