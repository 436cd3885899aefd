"""The house rules that a machine can check."""

import ast
import re
import subprocess
import sys

import pytest
import yaml
from conftest import ROOT

PIN = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)$", re.MULTILINE)
REQUIREMENTS = dict(PIN.findall((ROOT / "requirements.txt").read_text()))
CONSTRAINTS = dict(PIN.findall((ROOT / "constraints.txt").read_text()))


def environment(name):
    """The pins of a conda environment's pip part."""
    parts = yaml.safe_load((ROOT / "envs" / f"{name}.yaml").read_text())["dependencies"]
    return dict(PIN.findall("\n".join(next(part["pip"] for part in parts if isinstance(part, dict)))))


@pytest.mark.parametrize("name", ["inference", "scoring", "plots"])
def test_conda_environments_are_in_step_with_the_requirements(name):
    pins = environment(name)
    assert pins
    assert {package: REQUIREMENTS.get(package) for package in pins} == pins


def test_every_requirement_but_the_workflow_is_in_an_environment():
    together = {**environment("inference"), **environment("scoring"), **environment("plots")}
    assert set(REQUIREMENTS) - set(together) == {"snakemake"}


def test_constraints_do_not_contradict_the_requirements():
    lowered = {name.lower().replace("_", "-"): version for name, version in CONSTRAINTS.items()}
    for name, version in REQUIREMENTS.items():
        assert lowered.get(name.lower().replace("_", "-"), version) == version
    assert "torch" not in lowered  # pinned once, in requirements.txt


def rules():
    """The text of each rule, by name."""
    found = {}
    for path in sorted((ROOT / "rules").glob("*.smk")):
        text = path.read_text()
        for name, body in re.findall(r"^rule (\w+):\n((?:    .*\n|\n)+)", text, re.MULTILINE):
            found[name] = body
        # Rules made in a loop have a name: line and stand one level deeper.
        for body in re.findall(r"^    rule:\n((?:        .*\n|\n)+)", text, re.MULTILINE):
            found[re.search(r'f"(\w+)_', body)[1]] = re.sub(r"^    ", "", body, flags=re.MULTILINE)
    return found


def test_rules_declare_what_they_need():
    assert {"prepare", "model", "predict", "score", "table", "leaderboard", "plot"} <= set(rules())
    for name, body in rules().items():
        declared = set(re.findall(r"^    (\w+):", body, re.MULTILINE))
        wanted = {"output", "log", "benchmark", "conda", "threads", "resources", "params", "message", "shell"}
        assert wanted <= declared, f"rule {name} lacks {wanted - declared}"
        params = re.search(r"^    params:\n((?:        .*\n)+)", body, re.MULTILINE)[1]
        assert re.findall(r"^        (\w+)=", params, re.MULTILINE) == ["spec"], (
            f"rule {name}: one canonical spec param"
        )


def imports(path):
    """Modules that a file imports anywhere."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{name.name}" for name in node.names)


def imported_by(folder):
    return {module for path in (ROOT / folder).rglob("*.py") for module in imports(path)}


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("longflow", "snakemake"),
        ("longflow/benchmarks", "longflow.engines"),
        ("longflow/engines", "longflow.benchmarks"),
        ("longflow/metrics", "longflow.engines"),
        ("longflow/metrics", "longflow.benchmarks"),
    ],
)
def test_who_may_not_import_whom(folder, forbidden):
    found = imported_by(folder)
    assert not [module for module in found if module == forbidden or module.startswith(forbidden + ".")]


def test_planning_and_scoring_import_nothing_heavy():
    program = (
        "import sys; import longflow.cells, longflow.config, longflow.score, longflow.predict, longflow.leaderboard\n"
        "heavy = ('torch', 'transformers', 'matplotlib', 'pandas', 'jieba', 'snakemake')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", sorted((ROOT / "scripts").glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_every_command_explains_itself(path):
    done = subprocess.run(
        [sys.executable, "-m", f"scripts.{path.stem}", "--help"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0
    assert "usage:" in done.stdout
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_links_in_the_documentation_lead_somewhere():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
