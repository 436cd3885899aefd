"""A font for the Chinese, Japanese or Korean characters of a figure, looked for only when there are some to draw."""

from __future__ import annotations

import atexit
import functools
import hashlib
import importlib.util
import logging
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from matplotlib import font_manager

LOG = logging.getLogger(__name__)

BASE_FAMILY = "DejaVu Sans"
"""matplotlib's own font, so that figures look the same on every machine."""

SYSTEM_FAMILIES = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "PingFang SC",
    "Hiragino Sans GB",
    "Microsoft YaHei",
    "SimHei",
    "Noto Sans CJK JP",  # Debian's collections under older versions of matplotlib, which see only their first face
    "Droid Sans Fallback",
    "Arial Unicode MS",
)

PACKAGE = "manimgx_fonts_cjk"
"""The PyPI package (manimgx-fonts-cjk, OFL-1.1) that ships Noto Sans CJK as one variable font file."""

_CJK = re.compile(
    "[\u1100-\u11ff\u2e80-\u30ff\u3100-\u31ff\u3200-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    "\uff00-\uffef\U00020000-\U0003ffff]"
)


def cjk_characters(texts: Iterable[str]) -> str:
    """The Chinese, Japanese and Korean characters (and full-width marks) in these texts, each once, sorted."""
    return "".join(sorted({char for text in texts for char in _CJK.findall(text)}))


def families(texts: Iterable[str]) -> list[str]:
    """Font families for a figure with these texts, for matplotlib to fall through glyph by glyph.

    Where no font has the CJK characters, that is logged in one line and they will show as boxes.
    """
    characters = cjk_characters(texts)
    if not characters:
        return [BASE_FAMILY]
    family = system_family(characters) or package_family(characters)
    if family is None:
        LOG.warning(
            "no font with Chinese characters was found, so plots show boxes for them; "
            "install the system package fonts-noto-cjk or the Python package manimgx-fonts-cjk"
        )
        return [BASE_FAMILY]
    return [BASE_FAMILY, family]


def system_family(characters: str) -> str | None:
    """The first of the known system fonts that matplotlib finds and that has all these characters."""
    installed = {entry.name for entry in font_manager.fontManager.ttflist}
    for family in SYSTEM_FAMILIES:
        if family in installed:
            path = font_manager.findfont(font_manager.FontProperties(family=[family]))
            charmap = font_manager.get_font(path).get_charmap()
            if all(ord(char) in charmap for char in characters):
                return family
    return None


@functools.cache
def package_family(characters: str) -> str | None:
    """Noto Sans CJK from the PyPI package, made known to matplotlib; None if the package is not installed.

    The package's file is a variable font whose default weight is Thin, which is what matplotlib would draw. So the
    glyphs needed are taken out of it at the regular weight, into a small temporary font with a name of its own.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    files = sorted(Path(spec.origin).parent.glob("*.ttc"))
    if not files:
        return None
    from fontTools.subset import Options, Subsetter
    from fontTools.ttLib import TTCollection
    from fontTools.varLib.instancer import instantiateVariableFont

    with open(files[0], "rb") as stream:
        faces = TTCollection(stream, lazy=True).fonts
        font = next(face for face in faces if face["name"].getDebugName(1) == "Noto Sans CJK SC")
        subsetter = Subsetter(Options(layout_features=[], notdef_outline=True))
        subsetter.populate(text=characters)
        subsetter.subset(font)
        instantiateVariableFont(font, {"wght": 400}, inplace=True)
        family = f"longflow CJK {hashlib.sha256(characters.encode()).hexdigest()[:8]}"
        postscript_name = family.replace(" ", "")
        for name_id, name in ((1, family), (4, family), (6, postscript_name)):
            font["name"].setName(name, name_id, 3, 1, 0x409)
        path = _folder() / f"{postscript_name}.otf"
        font.save(path)
    font_manager.fontManager.addfont(str(path))
    return family


@functools.cache
def _folder() -> Path:
    """A folder that lives as long as the process: matplotlib opens fonts whenever it draws."""
    folder = tempfile.mkdtemp(prefix="longflow-fonts-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
