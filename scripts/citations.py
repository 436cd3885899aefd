"""Write what to cite for a run, as BibTeX: its benchmarks, and the sources and licences of their data sets."""

import argparse

from longflow.cli import end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="the specification, which names the data sets")
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()

    from longflow import citations
    from longflow.jsonio import write_text
    from longflow.specs import read_spec, write_spec

    write_text(arguments.output, citations.for_run(read_spec(arguments.spec, "datasets")["datasets"]))
    write_spec(arguments.output, arguments.spec)


if __name__ == "__main__":
    end(main)
