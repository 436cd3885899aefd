"""Look after journals: what is in them (stats), add what others hold (merge), drop what is not needed (prune), and
the answers as JSONL (export)."""

import argparse
import sys

from longflow.cli import add_configuration, configuration, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    text = "count what is in a journal, by cell"
    stats = commands.add_parser("stats", help=text, description=text)
    stats.add_argument("folder", nargs="?", help="a journal, or results with one in them; default: the configuration's")
    add_configuration(stats)

    text = "add to a journal what others hold and it lacks"
    merge = commands.add_parser("merge", help=text, description=text)
    merge.add_argument("sources", nargs="+", metavar="FOLDER", help="journals, or results with one in them")
    merge.add_argument("into", metavar="INTO", help="the journal to add to")
    merge.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="THEIRS=OURS",
        help="a model that has another name in the sources",
    )

    text = "drop what the configuration's cells do not need, and put the files of each cell into one"
    prune = commands.add_parser("prune", help=text, description=text)
    prune.add_argument("--dry-run", "-n", action="store_true", help="only say what would go (also without --yes)")
    prune.add_argument("--yes", action="store_true", help="do it")
    prune.add_argument("--other-cells", action="store_true", help="drop the cells this configuration does not have")
    add_configuration(prune)

    text = "write the answers of a journal as JSONL"
    export = commands.add_parser("export", help=text, description=text)
    export.add_argument(
        "folder", nargs="?", help="a journal, or results with one in them; default: the configuration's"
    )
    export.add_argument("--cell", help="a cell, or the beginning of cells: benchmark/model …")
    export.add_argument("--output", help="a file; default: standard output")
    add_configuration(export)

    arguments = parser.parse_args()

    from longflow import journal_prune, journal_tool
    from longflow.jsonio import dump_line, write_jsonl

    if arguments.command == "merge":
        renamed = journal_tool.renamings(arguments.model)
        print(journal_tool.merge_text(journal_tool.merge(arguments.sources, arguments.into, renamed)))
        return
    if arguments.command == "prune":
        config = configuration(arguments)
        wanted = journal_prune.needs(config)
        plans = journal_prune.plan(config.run.journal_folder, wanted, arguments.other_cells)
        doing = arguments.yes and not arguments.dry_run
        if doing:
            journal_prune.prune(config.run.journal_folder, plans)
        print(journal_prune.plan_text(plans, doing))
        return
    wanted = None
    if arguments.folder is not None:
        root = journal_tool.journal_root(arguments.folder)
    else:
        config = configuration(arguments)
        root = config.run.journal_folder
        if arguments.command == "stats":
            wanted = journal_prune.needs(config)
    if arguments.command == "stats":
        print(journal_tool.stats_text(journal_tool.stats(root, wanted)))
        return
    rows = journal_tool.export(root, arguments.cell)
    if arguments.output is not None:
        write_jsonl(arguments.output, rows)
    else:
        sys.stdout.writelines(map(dump_line, rows))


if __name__ == "__main__":
    end(main)
