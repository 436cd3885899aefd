"""What the commands under scripts/ share: how they end, and how they take the configuration."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longflow.errors import UserError

if TYPE_CHECKING:
    from longflow.config import Config


def end(main: Callable[[], int | None]) -> None:
    """Run a command and leave with its status: 0, 2 with one line for a fault of the input, 130 or 143 if ended."""
    try:
        status = main() or 0
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        status = 2
    except OSError as error:
        # A full disk or a folder without permission is nobody's programming fault; the name says which file.
        print(f"error: {error.filename or 'file system'}: {error.strerror or error}", file=sys.stderr)
        status = 2
    except KeyboardInterrupt as error:
        print(str(error) or "interrupted", file=sys.stderr)
        status = getattr(error, "status", 130)  # 143 where it was SIGTERM: see interrupts.py
    sys.exit(status)


class _Once(argparse.Action):
    """An option with several values that is given once: of two, snakemake would take the last and drop the first."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if getattr(namespace, self.dest):
            raise UserError(f"{option_string} is given twice; name all files after one, as for snakemake")
        setattr(namespace, self.dest, values)


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """The options of every command that needs the configuration."""
    parser.add_argument(
        "--configfile",
        nargs="+",
        action=_Once,
        default=[],
        metavar="FILE",
        help="configuration files merged over config.yaml, as for snakemake",
    )
    parser.add_argument("--directory", "-d", metavar="FOLDER", help="working directory, as for snakemake")


def configuration(arguments: argparse.Namespace) -> Config:
    """The configuration those options mean, and the working directory changed to. Raises UserError.

    Configuration files are named relative to where the command was started, as for snakemake.
    """
    from longflow import config

    files = [Path(name).resolve() for name in arguments.configfile]
    if arguments.directory:
        try:
            os.chdir(arguments.directory)
        except OSError as error:
            raise UserError(f"--directory {arguments.directory}: {error.strerror}") from error
    return config.load(files) if files else config.from_environment()
