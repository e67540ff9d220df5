"""Hooks of metacontroller.k8s.io: typed requests and responses, a server, and a replay of recorded requests.

It needs nothing but Python's standard library, and can be copied beside a hook as it is.

    from metacontroller_hook import CompositeRequest, CompositeResponse, serve

    def sync(request: CompositeRequest) -> CompositeResponse:
        return {"status": {}, "children": []}

    if __name__ == "__main__":
        serve({"/sync": sync})
"""

from .children import child, children
from .replay import differences
from .server import make_server, serve
from .types import (
    CompositeRequest,
    CompositeResponse,
    CustomizeRequest,
    CustomizeResponse,
    DecoratorRequest,
    DecoratorResponse,
    LabelSelector,
    LabelSelectorRequirement,
    Object,
    ObjectMap,
    RelatedResourceRule,
)

__all__ = [
    "CompositeRequest",
    "CompositeResponse",
    "CustomizeRequest",
    "CustomizeResponse",
    "DecoratorRequest",
    "DecoratorResponse",
    "LabelSelector",
    "LabelSelectorRequirement",
    "Object",
    "ObjectMap",
    "RelatedResourceRule",
    "child",
    "children",
    "differences",
    "make_server",
    "serve",
]
