"""Say how sure a benchmark's scores are: intervals, paired differences, effective lengths, as JSON."""

import argparse

from longflow.cli import add_configuration, configuration, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="the specification of the analysis, kept beside it")
    parser.add_argument("--benchmark", required=True)
    parser.add_argument("--output", required=True, help="the analysis (.json)")
    add_configuration(parser)
    arguments = parser.parse_args()

    from longflow import cells
    from longflow.anatomy.files import evidence_kept
    from longflow.jsonio import write_json
    from longflow.specs import write_spec
    from longflow.statistics.analysis import analyse, read_cells
    from longflow.tables import cell_of

    config = configuration(arguments)
    files = cells.Files(config)
    chosen = [cell for cell in cells.cells(config) if cell.benchmark == arguments.benchmark]
    scored = read_cells([files.score(cell) for cell in chosen])
    kept = evidence_kept(config, chosen)
    no_context = [name for name, entry in config.settings.items() if getattr(entry, "kind", None) == "no_context"]
    found = analyse(
        arguments.benchmark,
        scored,
        no_context=no_context,
        evidence_kept=lambda cell, record: kept[cell_of(cell.summary)].get(record),
        seed=config.run.seed,
    )
    write_json(arguments.output, found)
    write_spec(arguments.output, arguments.spec)


if __name__ == "__main__":
    end(main)
