"""Write the records of one data set at one length, checked."""

import argparse

from longflow.cli import add_configuration, configuration, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--benchmark", required=True)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--length", required=True)
    parser.add_argument("--spec", required=True, help="the specification of the records, kept beside them")
    parser.add_argument("--output", required=True)
    parser.add_argument("--sources", nargs="*", required=True, help="the files the records are made of")
    add_configuration(parser)
    arguments = parser.parse_args()

    from longflow import benchmarks
    from longflow.jsonio import write_jsonl
    from longflow.progress import set_up_logging
    from longflow.specs import write_spec

    set_up_logging()
    config = configuration(arguments)
    benchmark = benchmarks.load(arguments.benchmark)
    records = benchmark.module.prepare(
        benchmark.task(arguments.dataset),
        arguments.length,
        config.benchmark_options(arguments.benchmark),
        arguments.sources,
    )
    write_jsonl(arguments.output, (record.to_row() for record in records))
    write_spec(arguments.output, arguments.spec)


if __name__ == "__main__":
    end(main)
