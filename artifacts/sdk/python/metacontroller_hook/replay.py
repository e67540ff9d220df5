"""Replays recorded requests: regression tests of hooks."""

import difflib
import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Tuple, Union

REQUEST = ".request.json"
RESPONSE = ".response.json"

# What the server records in place of a value of a Secret: as it is, and in base64 in data.
HIDDEN = ("(hidden)", "KGhpZGRlbik=")


def differences(folder: Union[str, Path], hooks: Mapping[str, Callable[[Any], Any]]) -> List[str]:
    """Calls hooks with the requests recorded in a folder, and returns a text for each response that is not the recorded one.

    The request HOOK.request.json or HOOK-TEXT.request.json goes to the hook at /HOOK, and HOOK.response.json or
    HOOK-TEXT.response.json is what it has to return. A value of a Secret that was recorded as hidden is equal to any other one. A folder
    without requests is an error.
    """
    requests = sorted(Path(folder).glob("*" + REQUEST))
    if not requests:
        raise FileNotFoundError("%s holds no recorded request *%s" % (folder, REQUEST))
    texts = []
    for path in requests:
        name = path.name[: -len(REQUEST)]
        hook = "/" + name.split("-")[0]
        if hook not in hooks:
            texts.append("%s: there is no hook %s, only %s" % (path.name, hook, ", ".join(sorted(hooks))))
            continue
        wanted = _decoded((path.parent / (name + RESPONSE)).read_text(encoding="utf-8"))
        got = _decoded(json.dumps(hooks[hook](json.loads(path.read_text(encoding="utf-8")))))
        _hide_secrets(wanted, got)
        lines = _lines(wanted), _lines(got)
        if lines[0] != lines[1]:
            texts.append("\n".join(difflib.unified_diff(*lines, name + RESPONSE, "the hook returned", lineterm="")))
    return texts


def _decoded(text: str) -> Any:
    return json.loads(text, parse_float=_number)


def _number(text: str) -> Union[int, float]:
    """Decodes numbers that are the same to the same: record writes 1.0 as 1."""
    number = float(text)
    return int(number) if number.is_integer() else number


def _hide_secrets(wanted: Any, got: Any) -> None:
    """Hides the values of Secrets in both responses that are hidden in one of them."""
    returned = _secrets(got)
    for name, secret in _secrets(wanted).items():
        for values, others in zip(_values(secret), _values(returned.get(name))):
            for key in values.keys() & others.keys():
                if values[key] in HIDDEN or others[key] in HIDDEN:
                    values[key] = others[key] = HIDDEN[0]


def _secrets(response: Any) -> Dict[Tuple[str, str], Any]:
    """Returns the Secrets among the children or attachments of a response by namespace and name."""
    secrets = {}
    for field in ("children", "attachments"):
        children = _map(response).get(field)
        for child in children if isinstance(children, list) else []:
            if _map(child).get("apiVersion") == "v1" and child.get("kind") == "Secret":
                metadata = _map(child.get("metadata"))
                secrets[str(metadata.get("namespace")), str(metadata.get("name"))] = child
    return secrets


def _values(secret: Any) -> List[Dict[str, Any]]:
    """Returns the maps of a Secret in which the server hides values. Annotations may have a copy of it."""
    fields = _map(secret)
    return [_map(fields.get("data")), _map(fields.get("stringData")), _map(_map(fields.get("metadata")).get("annotations"))]


def _map(value: Any) -> Dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _lines(value: Any) -> List[str]:
    return json.dumps(value, indent=2, sort_keys=True).splitlines()
