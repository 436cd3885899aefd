"""Compare two sets of results: what differs in protocol first, then in scores. Ends with 0 if they are equal, with 1 if
they differ, with 2 if there is nothing to compare."""

import argparse

from longflow.cli import end


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("a", metavar="A", help="a folder of results, or FOLDER:MODEL for one of its models")
    parser.add_argument("b", metavar="B", help="another one")
    arguments = parser.parse_args()

    from longflow import compare

    found = compare.compare(compare.Side.parse(arguments.a), compare.Side.parse(arguments.b))
    print(compare.text(found, arguments.a, arguments.b))
    return 0 if found.equal else 1


if __name__ == "__main__":
    end(main)
