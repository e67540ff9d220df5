"""Replays recorded requests: regression tests of hooks."""

import difflib
import json
from pathlib import Path
from typing import Any, Callable, List, Mapping, Union

REQUEST = ".request.json"
RESPONSE = ".response.json"


def differences(folder: Union[str, Path], hooks: Mapping[str, Callable[[Any], Any]]) -> List[str]:
    """Calls hooks with the requests recorded in a folder, and returns a text for each response that is not the recorded one.

    The request HOOK.request.json or HOOK-TEXT.request.json goes to the hook at /HOOK, and HOOK.response.json or
    HOOK-TEXT.response.json is what it has to return. A folder without requests is an error.
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
        wanted = _lines(_decoded((path.parent / (name + RESPONSE)).read_text()))
        got = _lines(_decoded(json.dumps(hooks[hook](json.loads(path.read_text())))))
        if wanted != got:
            texts.append("\n".join(difflib.unified_diff(wanted, got, name + RESPONSE, "the hook returned", lineterm="")))
    return texts


def _decoded(text: str) -> Any:
    return json.loads(text, parse_float=_number)


def _number(text: str) -> Union[int, float]:
    """Decodes numbers that are the same to the same: record writes 1.0 as 1."""
    number = float(text)
    return int(number) if number.is_integer() else number


def _lines(value: Any) -> List[str]:
    return json.dumps(value, indent=2, sort_keys=True).splitlines()
