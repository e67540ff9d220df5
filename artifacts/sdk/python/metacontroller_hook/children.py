"""Reads observed children."""

from typing import List, Optional, Union

from .types import CompositeRequest, DecoratorRequest, Object

Observation = Union[CompositeRequest, DecoratorRequest]


def child(request: Observation, kind: str, name: str) -> Optional[Object]:
    """Returns one observed child or attachment, and None if there is none.

    The kind is such as "Deployment.apps/v1"; one that the request does not have is an error. The name may be "namespace/name"; without a
    namespace it is that of the parent.
    """
    objects = _of_kind(request, kind)
    parent = request["parent"] if "parent" in request else request["object"]
    namespace = parent["metadata"].get("namespace")
    if namespace:
        if name.startswith(namespace + "/"):
            name = name[len(namespace) + 1 :]
        if namespace + "/" + name in objects:
            return objects[namespace + "/" + name]
    return objects.get(name)


def children(request: Observation, kind: str) -> List[Object]:
    """Returns the observed children or attachments of a kind, in the order of their namespaces and names."""
    return [observed for _, observed in sorted(_of_kind(request, kind).items())]


def _of_kind(request, kind):
    kinds = request["children"] if "children" in request else request["attachments"]
    if kind not in kinds:
        raise LookupError(
            "the request has no %s, only %s: kinds are named Kind.version or Kind.group/version, or the controller does not declare it, "
            "or the cluster does not serve it" % (kind, ", ".join(sorted(kinds)))
        )
    return kinds[kind]
