"""Print the JSON schema of the configuration."""

import argparse
import json

from longflow.cli import end


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()

    from longflow.config import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))


if __name__ == "__main__":
    end(main)
