"""What others install us by: the registry's entry, the bundle, the page for agents, the image."""

from __future__ import annotations

import json
import re
import sys
import tomllib
import zipfile
from pathlib import Path

import jsonschema

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import make_mcpb  # noqa: E402 - a script of ours

from memory_anchor.front.clients import places  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TEXT = {"type": "string", "minLength": 1}
SERVER = {  # the fields that we use, as the registry's schema of 2025-12-11 bounds them
    "type": "object",
    "required": ["name", "description", "version"],
    "properties": {
        "$schema": {"const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"},
        "name": {"type": "string", "pattern": r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$", "minLength": 3, "maxLength": 200},
        "title": {**TEXT, "maxLength": 100},
        "description": {**TEXT, "maxLength": 100},
        "version": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
        "packages": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["registryType", "identifier", "transport", "version"],
                "properties": {
                    "registryType": {"enum": ["npm", "pypi", "oci", "nuget", "mcpb"]},
                    "transport": {"type": "object", "required": ["type"], "properties": {"type": {"const": "stdio"}}},
                    "packageArguments": {
                        "items": {"required": ["type"], "properties": {"type": {"enum": ["positional", "named"]}}}
                    },
                    "environmentVariables": {
                        "items": {
                            "required": ["name"],
                            "properties": {"format": {"enum": ["string", "number", "boolean", "filepath"]}},
                        }
                    },
                },
            },
        },
    },
    "additionalProperties": False,
}


def test_the_registrys_entry_is_valid_and_says_what_the_package_says() -> None:
    entry = json.loads((ROOT / "server.json").read_text("utf-8"))
    jsonschema.validate(entry, SERVER)

    assert {entry["version"], *(one["version"] for one in entry["packages"])} == {PROJECT["version"]}
    assert [one["identifier"] for one in entry["packages"]] == [PROJECT["name"]]
    assert f"mcp-name: {entry['name']}" in (ROOT / "README.md").read_text("utf-8")


def test_the_bundle_opens_and_starts_the_server(tmp_path: Path) -> None:
    with zipfile.ZipFile(make_mcpb.build(tmp_path)) as bundle:
        manifest = json.loads(bundle.read("manifest.json"))
        names = set(bundle.namelist())

    server = manifest["server"]
    assert server["entry_point"] in names and server["mcp_config"]["args"][-1] == "mcp"
    assert manifest["version"] == PROJECT["version"] and len(manifest["tools"]) == 14
    assert all(f"user_config.{name}" in json.dumps(server) for name in manifest["user_config"])


def test_the_page_for_agents_fits_a_screen_and_names_every_client() -> None:
    page = (ROOT / "INSTALL_FOR_AGENTS.md").read_text("utf-8")

    assert len(page.splitlines()) <= 45
    assert all(f"`{client}`" in page for client in places.CLIENTS)
    for word in ("goal", "capture", "passphrase", "must not"):
        assert word in page


def test_the_image_is_built_from_the_checkout() -> None:
    """Issue container: no published package is needed; what is copied is there, what is large or private is not."""
    image = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    copied = [name for line in re.findall(r"^COPY (?!--from)(.*)$", image, re.M) for name in line.split()[:-1]]
    left_out = (ROOT / ".dockerignore").read_text("utf-8").split()

    assert copied and all((ROOT / name).exists() for name in copied)
    assert {PROJECT["readme"], *PROJECT["license-files"], "pyproject.toml", "memory_anchor"} <= set(copied)
    assert {".git", ".venv", "tests"} <= set(left_out) and not set(left_out) & set(copied)


def test_the_package_names_what_an_index_shows() -> None:
    assert {"Programming Language :: Python :: 3.11", "Programming Language :: Python :: 3.14"} <= set(
        PROJECT["classifiers"]
    )
    assert "Topic :: Scientific/Engineering :: Artificial Intelligence" in PROJECT["classifiers"]
