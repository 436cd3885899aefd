"""Write the report of a run: one HTML file that needs nothing else, out of whatever results are there."""

import argparse

from longflow.cli import add_configuration, configuration, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", help="the specification of the report, whose digest is kept beside it")
    parser.add_argument("--output", help="the report (.html); by default where the run has it")
    parser.add_argument("--records", type=int, help="single records that it holds; of more, one question in so many")
    parser.add_argument("--no-stamp", action="store_true", help="leave out when and where it was made")
    add_configuration(parser)
    arguments = parser.parse_args()

    from longflow import cells, report
    from longflow.progress import set_up_logging
    from longflow.specs import write_spec

    set_up_logging()
    config = configuration(arguments)
    output = arguments.output or cells.Files(config).report
    limits = {} if arguments.records is None else {"most": arguments.records}
    report.write(config, output, stamp=not arguments.no_stamp, **limits)
    if arguments.spec is not None:
        write_spec(output, arguments.spec)


if __name__ == "__main__":
    end(main)
