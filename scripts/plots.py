"""Draw the plots of one benchmark, as SVG and PNG."""

import argparse

from longflow.cli import add_configuration, configuration, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="the specification of the plots, kept beside the first of them")
    parser.add_argument("--output", required=True, help="the first of them; the others go beside it")
    add_configuration(parser)
    arguments = parser.parse_args()

    from pathlib import Path

    from longflow import cells
    from longflow.plots import plot_benchmark
    from longflow.progress import set_up_logging
    from longflow.specs import read_spec, write_spec
    from longflow.tables import read_summaries

    set_up_logging()
    config = configuration(arguments)
    files = cells.Files(config)
    benchmark = read_spec(arguments.spec, "benchmark")["benchmark"]
    mine = [cell for cell in cells.cells(config) if cell.benchmark == benchmark]
    summaries = read_summaries([files.score(cell) for cell in mine])
    plot_benchmark(summaries, benchmark, Path(arguments.output).parent, cells.settings_of(config, benchmark))
    write_spec(arguments.output, arguments.spec)


if __name__ == "__main__":
    end(main)
