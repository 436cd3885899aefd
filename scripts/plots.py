"""Draw the plots of one benchmark, as SVG and PNG."""

import argparse

from longflow.cli import add_configuration, configuration, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--benchmark", required=True)
    parser.add_argument("--spec", required=True, help="the specification of the plots, kept beside the first of them")
    parser.add_argument("--output", required=True, help="the first of them; the others go beside it")
    add_configuration(parser)
    arguments = parser.parse_args()

    from pathlib import Path

    from longflow import cells
    from longflow.plots import plot_benchmark
    from longflow.progress import set_up_logging
    from longflow.specs import write_spec
    from longflow.tables import read_summaries

    set_up_logging()
    config = configuration(arguments)
    files = cells.Files(config)
    mine = [cell for cell in cells.cells(config) if cell.benchmark == arguments.benchmark]
    summaries = read_summaries([files.score(cell) for cell in mine])
    plot_benchmark(summaries, arguments.benchmark, Path(arguments.output).parent)
    write_spec(arguments.output, arguments.spec)


if __name__ == "__main__":
    end(main)
